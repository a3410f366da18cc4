//! Records the answers of a real NBD server as a seed of `nbd-client`:
//! `cargo run --example record_nbd_client -- SOCKET CONFIG FILE`. CONFIG is the first byte of the input of the target.

use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use iopath_fuzz::{Peer, drive_client};

struct Recorder {
    stream: UnixStream,
    received: Vec<u8>,
}

impl Peer for Recorder {
    fn exchange(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.stream.write_all(bytes).ok()?;
        let mut buffer = vec![0; 1 << 16];
        let count = self.stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        buffer.truncate(count);
        self.received.extend(&buffer);
        Some(buffer)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, socket, config, file] = arguments.as_slice() else {
        return Err("usage: record_nbd_client SOCKET CONFIG FILE".into());
    };
    let config = config.parse()?;
    let mut peer = Recorder { stream: UnixStream::connect(socket)?, received: vec![config] };
    drive_client(config, &mut peer);
    std::fs::write(file, peer.received)?;
    Ok(())
}
