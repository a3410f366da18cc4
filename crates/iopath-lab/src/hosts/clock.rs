//! The offsets of the clocks of ranks from that of rank 0, by ping-pong. Does not correct a clock.

use super::communicator::{Communicator, Tag};

/// The clock of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Offset {
    /// Its time less that of rank 0, in seconds.
    pub(super) seconds: f64,
    /// The largest error, in seconds: the answer was given at any moment of the round trip.
    pub(super) error: f64,
}

/// The offset of each rank, on rank 0; nothing on the others. All ranks call it at the same time. None after a signal.
pub(super) fn offsets(ranks: &dyn Communicator, rounds: u32) -> Option<Vec<Offset>> {
    if ranks.rank() > 0 {
        for _ in 0..rounds {
            ranks.receive(0, Tag::Clock)?;
            ranks.send(0, Tag::Clock, &ranks.seconds().to_le_bytes());
        }
        return Some(Vec::new());
    }
    let of_rank = |rank| {
        let round = |_| {
            let sent = ranks.seconds();
            ranks.send(rank, Tag::Clock, &[]);
            let answer = ranks.receive(rank, Tag::Clock)?;
            let received = ranks.seconds();
            let there = <[u8; 8]>::try_from(answer).map_or(f64::NAN, f64::from_le_bytes);
            Some(Offset { seconds: there - sent.midpoint(received), error: (received - sent) / 2.0 })
        };
        let trips: Vec<Offset> = (0..rounds).map(round).collect::<Option<_>>()?;
        // The shortest round trip has the smallest error.
        trips.into_iter().min_by(|a, b| a.error.total_cmp(&b.error))
    };
    (0..ranks.size()).map(|rank| if rank == 0 { Some(Offset::default()) } else { of_rank(rank) }).collect()
}
