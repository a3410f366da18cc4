//! Fuzzes the state machines of the NBD client.

#![no_main]

use iopath_fuzz::{Peer, drive_client};

/// Answers in parts of a fixed length.
struct Bytes<'a>(std::slice::Chunks<'a, u8>);

impl Peer for Bytes<'_> {
    fn exchange(&mut self, _: &[u8]) -> Option<Vec<u8>> {
        self.0.next().map(<[u8]>::to_vec)
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&config, bytes)) = data.split_first() else { return };
    let part = [bytes.len().max(1), 1, 13, 100][usize::from(config >> 5 & 3)];
    drive_client(config, &mut Bytes(bytes.chunks(part)));
});
