//! The arm and the heads: how long it takes to reach a sector from where they are, and what they read ahead meanwhile.
//! Which sector they go to is `disk.rs`.

use crate::disk::geometry::{Geometry, Place, Turns};
use crate::disk::seek::SeekCurve;
use crate::mechanism::Nanos;

/// A sector that begins this little before the heads arrive is in time: the rounding of times to nanoseconds must not cost
/// a turn.
const SLACK: u32 = 1 << 15;

/// The figures of the mechanics.
#[derive(Debug, Clone)]
pub(crate) struct Mechanics {
    pub(crate) geometry: Geometry,
    pub(crate) seeks: SeekCurve,
    pub(crate) head_switch: Nanos,
    pub(crate) cylinder_switch: Nanos,
    /// A seek before a write takes this much longer.
    pub(crate) write_settle: Nanos,
}

/// Sectors that the heads read one after another since `begun`, when they were at `turns`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    pub(crate) segment: usize,
    first: u64,
    begun: Nanos,
    turns: Turns,
    /// The heads stop before this sector, at `stop`.
    pub(crate) limit: u64,
    pub(crate) stop: Nanos,
}

/// The arm. While a stream runs, its place follows from the stream.
#[derive(Debug)]
pub(crate) struct Arm {
    pub(crate) geometry: Geometry,
    seeks: SeekCurve,
    head_switch: Nanos,
    cylinder_switch: Nanos,
    write_settle: Nanos,
    /// The last sector passed.
    pub(crate) place: Place,
    pub(crate) stream: Option<Stream>,
}

/// Where the heads are at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    place: Place,
    angle: u32,
}

impl Arm {
    pub(crate) fn new(mechanics: &Mechanics) -> Self {
        let Mechanics { geometry, seeks, head_switch, cylinder_switch, write_settle } = mechanics.clone();
        let place = Place { track: 0, cylinder: 0, turns: 0 };
        Self { geometry, seeks, head_switch, cylinder_switch, write_settle, place, stream: None }
    }

    /// Where the heads are.
    pub(crate) fn origin(&mut self, at: Nanos) -> Origin {
        let place = match self.stream {
            Some(stream) if stream.begun < at => {
                let reached = self.reached(&stream, at);
                self.geometry.place(reached.max(stream.first + 1) - 1)
            }
            _ => self.place,
        };
        Origin { place, angle: self.geometry.angle(at) }
    }

    /// The time until the start of `to` passes under its head.
    pub(crate) fn positioning(&self, from: &Origin, to: Place, is_write: bool) -> Nanos {
        let seek = self.seek(from.place, to, is_write);
        let arrival = from.angle.wrapping_add(self.geometry.turns(seek) as u32);
        let wait = (to.turns as u32).wrapping_sub(arrival).wrapping_add(SLACK).saturating_sub(SLACK);
        seek + self.geometry.time(Turns::from(wait))
    }

    fn seek(&self, from: Place, to: Place, is_write: bool) -> Nanos {
        if from.track == to.track {
            return 0;
        }
        let distance = from.cylinder.abs_diff(to.cylinder);
        if distance == 0 {
            return self.head_switch;
        }
        let seek = self.seeks.time(distance) + if is_write { self.write_settle } else { 0 };
        // The switch to the next cylinder is as fast in a transfer as between two.
        if to.cylinder == from.cylinder + 1 { seek.min(self.cylinder_switch) } else { seek }
    }

    /// Passes the sectors from `place` up to `end`; when the last has passed.
    pub(crate) fn pass(&mut self, place: Place, end: u64, is_write: bool, at: Nanos) -> Nanos {
        let from = self.origin(at);
        let begun = at + self.positioning(&from, place, is_write);
        let turns = self.geometry.end(end - 1);
        self.place = self.geometry.place(end - 1);
        begun + self.geometry.time(turns - place.turns)
    }

    /// Begins to read at a sector. No stream runs.
    pub(crate) fn begin_stream(&mut self, segment: usize, first: u64, at: Nanos) {
        let from = self.origin(at);
        let place = self.geometry.place(first);
        let begun = at + self.positioning(&from, place, false);
        self.place = place;
        let stream = Stream { segment, first, begun, turns: place.turns, limit: first, stop: begun };
        self.stream = Some(stream);
    }

    /// The stream reads at least up to `end`, and on to `limit`; when it is at `end`.
    pub(crate) fn stream_to(&mut self, end: u64, limit: u64) -> Nanos {
        self.set_limit(limit);
        self.stream_time(end)
    }

    /// A stream that may read up to `limit` does so, from where it stopped if at least `least` sectors have room.
    pub(crate) fn read_on(&mut self, limit: u64, least: u64, now: Nanos) {
        let Some(stream) = self.stream else { return };
        if now < stream.stop {
            self.set_limit(limit);
        } else if limit > stream.limit && limit - stream.limit >= least.max(1) {
            self.end_stream(now);
            self.begin_stream(stream.segment, stream.limit, now);
            self.set_limit(limit);
        }
    }

    fn set_limit(&mut self, limit: u64) {
        let Some(mut stream) = self.stream else { return };
        if limit > stream.limit {
            stream.limit = limit;
            self.stream = Some(stream);
            stream.stop = self.stream_time(limit);
            self.stream = Some(stream);
        }
    }

    /// When the stream has read all before `end`.
    pub(crate) fn stream_time(&mut self, end: u64) -> Nanos {
        let Some(stream) = self.stream else { return 0 };
        if end <= stream.first {
            return stream.begun;
        }
        let turns = self.geometry.end(end - 1);
        stream.begun + self.geometry.time(turns - stream.turns)
    }

    pub(crate) fn stream_segment(&self) -> usize {
        self.stream.map_or(0, |stream| stream.segment)
    }

    /// The stream ends; its segment and the sector up to which it has read.
    pub(crate) fn end_stream(&mut self, at: Nanos) -> Option<(usize, u64)> {
        let stream = self.stream?;
        self.place = self.origin(at).place;
        self.stream = None;
        Some((stream.segment, self.reached(&stream, at)))
    }

    fn reached(&self, stream: &Stream, at: Nanos) -> u64 {
        if at >= stream.stop {
            stream.limit
        } else if at <= stream.begun {
            stream.first
        } else {
            let turns = self.geometry.turns(at - stream.begun) + Turns::from(SLACK);
            self.geometry.sector_at(stream.turns + turns).min(stream.limit)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::geometry::Zone;
    use crate::disk::seek::SeekPoints;

    const PERIOD: Nanos = 10_000_000;

    fn arm() -> Arm {
        let zones = [Zone { cylinders: 1000, sectors_per_track: 500 }];
        let points = SeekPoints { track: 1_000_000, average: 8_000_000, full: 15_000_000 };
        Arm::new(&Mechanics {
            geometry: Geometry::new(&zones, 4, PERIOD, 1_000_000, 1_500_000),
            seeks: SeekCurve::new(1000, points).unwrap(),
            head_switch: 1_000_000,
            cylinder_switch: 1_500_000,
            write_settle: 1_000_000,
        })
    }

    #[test]
    fn transfers_one_after_another_lose_no_turn() {
        for is_write in [false, true] {
            let mut arm = arm();
            let mut at = 12_345_678;
            let start = arm.geometry.place(0);
            let first = arm.pass(start, 100, is_write, at);
            at = first;
            for sector in (100..100_000).step_by(100) {
                let place = arm.geometry.place(sector);
                at = arm.pass(place, sector + 100, is_write, at);
            }
            let turns = arm.geometry.end(99_999) - arm.geometry.end(99);
            let whole = arm.geometry.time(turns);
            assert!((at - first).abs_diff(whole) < 200_000, "{} instead of {whole}", at - first);
        }
    }

    #[test]
    fn the_wait_is_up_to_a_turn_and_comes_after_the_seek() {
        let mut arm = arm();
        let place = arm.geometry.place(2000 * 500);
        let from = arm.origin(0);
        let seek = arm.seeks.time(500);
        for at in (0..PERIOD).step_by(999_983) {
            let from = Origin { angle: arm.geometry.angle(at), ..from };
            let time = arm.positioning(&from, place, false);
            assert!((seek..=seek + PERIOD).contains(&time));
            let angle = arm.geometry.angle(at + time);
            let off = angle.wrapping_sub(place.turns as u32);
            assert!(off.min(off.wrapping_neg()) < 2 * SLACK, "the sector is under the head");
        }
    }

    #[test]
    fn a_stream_reads_ahead_to_its_limit_and_no_further() {
        let mut arm = arm();
        arm.begin_stream(0, 1000, 0);
        let at_end = arm.stream_to(1100, 3000);
        assert_eq!(arm.end_stream(at_end), Some((0, 1100)));
        arm.begin_stream(0, 1000, 0);
        let half_a_turn = arm.stream_to(1100, 3000) + PERIOD / 2;
        assert_eq!(arm.end_stream(half_a_turn), Some((0, 1350)));
        arm.begin_stream(0, 1000, 0);
        arm.stream_to(1100, 3000);
        assert_eq!(arm.end_stream(1 << 40), Some((0, 3000)));
    }
}
