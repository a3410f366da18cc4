//! A transport from a target to an initiator: the responses of commands pass a sender and a receiver in pieces. A piece is at
//! one of both at a time, so a response of one piece takes both times, and a long response half of that for each piece. A
//! stage in front of a modelled target. Packets, windows and losses are not modelled.
//!
//! ```text
//!   sender    ▐ 1 ▐ 2 ▐ 3 ▐
//!   receiver      ▐ 1 ▐ 2 ▐ 3 ▐
//! ```

use std::time::Duration;

use iopath_core::{Instant, Op};
use iopath_model::{Passage, Stage};

/// The largest piece: `GSO_MAX_SIZE` of Linux 2.6, the limit of a segment that TCP gives to a network adapter.
const PIECE_BYTES: u64 = 65_536;

/// The state of a transport.
#[derive(Debug)]
pub(crate) struct Transport {
    bytes_per_second: f64,
    sender_free: Instant,
    receiver_free: Instant,
}

impl Transport {
    /// An idle transport, whose sender and receiver each have this rate.
    pub(crate) const fn new(bytes_per_second: f64) -> Self {
        Self { bytes_per_second, sender_free: Instant::ZERO, receiver_free: Instant::ZERO }
    }
}

impl Stage for Transport {
    fn enter(&mut self, _request: &Passage, now: Instant) -> Instant {
        now
    }

    fn leave(&mut self, request: &Passage, now: Instant) -> Instant {
        let mut left = if request.op == Op::Read { request.bytes } else { 0 };
        let mut received = now;
        while left > 0 {
            let piece = left.min(PIECE_BYTES);
            let time = Duration::from_secs_f64(piece as f64 / self.bytes_per_second);
            self.sender_free = self.sender_free.max(now) + time;
            self.receiver_free = self.receiver_free.max(self.sender_free) + time;
            received = self.receiver_free;
            left -= piece;
        }
        received
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_of_one_piece_takes_both_times_and_pieces_overlap() {
        let received = |bytes| {
            let mut transport = Transport::new(65_536_000.0);
            let read = Passage { op: Op::Read, bytes, segments: 1 };
            transport.leave(&read, Instant::ZERO).as_nanos()
        };
        assert_eq!([65_536, 131_072, 655_360].map(received), [2_000_000, 3_000_000, 11_000_000]);
    }
}
