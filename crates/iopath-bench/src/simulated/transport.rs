//! A transport from a target to an initiator: the responses of commands pass a sender and a receiver in pieces. A piece
//! is at one of both at a time, so a response of one piece takes both times, and a long response half of that for each
//! piece. A stage in front of a modelled target. A response has one or more PDUs; [`Responses`] states how they follow
//! each other. Packets, windows and losses are not modelled.
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

/// The PDUs of a response, as in iSCSI (RFC 3720). A response of one PDU is the same in all cases.
#[derive(Debug, Clone, Copy)]
pub struct Responses {
    /// The most data in a PDU: `MaxRecvDataSegmentLength` of the initiator.
    pub pdu_bytes_max: u64,
    /// Whether the sender waits until a PDU is received before it sends the next PDU of the same response.
    pub waits: bool,
    /// The time of the status at the sender and at the receiver, if it has a PDU of its own. Zero if the last data has
    /// it.
    pub status: Duration,
}

/// The state of a transport.
#[derive(Debug)]
pub struct Transport {
    bytes_per_second: f64,
    responses: Responses,
    sender_free: Instant,
    receiver_free: Instant,
}

impl Transport {
    /// An idle transport, whose sender and receiver each have this rate.
    pub const fn new(bytes_per_second: f64, responses: Responses) -> Self {
        Self { bytes_per_second, responses, sender_free: Instant::ZERO, receiver_free: Instant::ZERO }
    }

    /// Sends a piece that is ready at `ready`. Returns the time at which it is received.
    fn send(&mut self, time: Duration, ready: Instant) -> Instant {
        self.sender_free = self.sender_free.max(ready) + time;
        self.receiver_free = self.receiver_free.max(self.sender_free) + time;
        self.receiver_free
    }

    /// Sends the data of a PDU in pieces.
    fn send_data(&mut self, bytes: u64, ready: Instant) -> Instant {
        let (mut left, mut received) = (bytes, ready);
        while left > 0 {
            let piece = left.min(PIECE_BYTES);
            received = self.send(Duration::from_secs_f64(piece as f64 / self.bytes_per_second), ready);
            left -= piece;
        }
        received
    }
}

impl Stage for Transport {
    fn enter(&mut self, _request: &Passage, now: Instant) -> Instant {
        now
    }

    fn leave(&mut self, request: &Passage, now: Instant) -> Instant {
        let Responses { pdu_bytes_max, waits, status } = self.responses;
        let data = if request.op == Op::Read { request.bytes } else { 0 };
        let (mut left, mut received) = (data, now);
        while left > 0 {
            let pdu = left.min(pdu_bytes_max);
            received = self.send_data(pdu, if waits { received } else { now });
            left -= pdu;
        }
        if data > pdu_bytes_max && !status.is_zero() {
            received = self.send(status, if waits { received } else { now });
        }
        received
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times at which two responses of each size are received that are ready at time zero, in ms. A piece takes 1
    /// ms.
    fn received(responses: Responses, bytes: u64) -> [u64; 2] {
        let mut transport = Transport::new(65_536_000.0, responses);
        let read = Passage { op: Op::Read, bytes, segments: 1 };
        [0, 1].map(|_| transport.leave(&read, Instant::ZERO).as_nanos() / 1_000_000)
    }

    const STREAM: Responses = Responses { pdu_bytes_max: 262_144, waits: false, status: Duration::ZERO };

    #[test]
    fn a_response_of_one_piece_takes_both_times_and_pieces_overlap() {
        assert_eq!(
            [65_536, 131_072, 655_360].map(|bytes| received(STREAM, bytes)),
            [[2, 3], [3, 5], [11, 21]]
        );
    }

    #[test]
    fn the_sender_waits_between_two_pdus_of_a_response_only() {
        let waits = Responses { waits: true, ..STREAM };
        assert_eq!(received(waits, 262_144), received(STREAM, 262_144));
        // 4 + 1 pieces for each PDU. The second response begins while the last piece of the first is received.
        assert_eq!(received(waits, 524_288), [10, 19]);
    }

    #[test]
    fn only_a_response_of_several_pdus_has_a_status_of_its_own() {
        let own = Responses { status: Duration::from_millis(1), ..STREAM };
        assert_eq!(received(own, 262_144), received(STREAM, 262_144));
        assert_eq!((received(STREAM, 524_288), received(own, 524_288)), ([9, 17], [10, 19]));
        // The sender waits for the data, too, before it sends the status.
        assert_eq!(received(Responses { waits: true, ..own }, 524_288), [12, 23]);
    }
}
