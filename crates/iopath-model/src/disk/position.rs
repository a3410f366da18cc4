//! The arm and the heads: the time to reach a sector from their current position, and readahead. `disk.rs` chooses the
//! sector.

use crate::disk::geometry::{Geometry, Track, Turns};
use crate::disk::seek::SeekCurve;
use crate::mechanism::Nanos;

/// The tolerance of an arrival: the heads can still access a sector if it began less than this before they arrive.
/// Without the tolerance, the rounding of times to nanoseconds could cost a turn.
const SLACK: u32 = 1 << 15;

/// The parameters of the arm and the platters.
#[derive(Debug, Clone)]
pub(crate) struct Mechanics {
    pub(crate) geometry: Geometry,
    pub(crate) seeks: SeekCurve,
    pub(crate) head_switch: Nanos,
    pub(crate) cylinder_switch: Nanos,
    /// A seek before a write takes this much longer.
    pub(crate) write_settle: Nanos,
}

/// Consecutive sectors that the heads read. At the time `begun`, the heads were at `turns`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    pub(crate) segment: usize,
    first: u64,
    begun: Nanos,
    turns: Turns,
    /// The track of the sector that was looked up last.
    track: Track,
    /// The heads stop before this sector, at `stop`.
    pub(crate) limit: u64,
    pub(crate) stop: Nanos,
}

/// The arm. While a stream runs, the position follows from the stream.
#[derive(Debug)]
pub(crate) struct Arm {
    pub(crate) geometry: Geometry,
    read_seeks: SeekCurve,
    write_seeks: SeekCurve,
    /// The track of the last sector passed.
    track: Track,
    pub(crate) stream: Option<Stream>,
}

/// The position of the heads at one time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    track: u32,
    cylinder: u32,
    angle: u32,
}

impl Arm {
    pub(crate) fn new(mechanics: &Mechanics) -> Self {
        let Mechanics { geometry, seeks, head_switch, cylinder_switch, write_settle } = mechanics;
        let curve = |settle| seeks.with_switches(settle, *head_switch, *cylinder_switch);
        let read_seeks = curve(0);
        let write_seeks = curve(*write_settle);
        let track = geometry.track(0);
        Self { geometry: geometry.clone(), read_seeks, write_seeks, track, stream: None }
    }

    /// The position of the heads at the time `at`.
    pub(crate) fn origin(&self, at: Nanos) -> Origin {
        let Track { number: track, cylinder, .. } = match &self.stream {
            Some(stream) => self.track_at(stream, self.reached(stream, at)),
            None => self.track,
        };
        Origin { track, cylinder, angle: self.geometry.angle(at) }
    }

    /// The time until the head reaches the position `turns` on the track `to`.
    #[inline]
    pub(crate) fn positioning(&self, from: &Origin, to: &Track, turns: Turns, is_write: bool) -> Nanos {
        let seeks = if is_write { &self.write_seeks } else { &self.read_seeks };
        let switch = seeks.time(from.cylinder.abs_diff(to.cylinder));
        let seek = if from.track == to.number { 0 } else { switch };
        let arrival = from.angle.wrapping_add(self.geometry.turns_of_seek(seek) as u32);
        let wait = (turns as u32).wrapping_sub(arrival).wrapping_add(SLACK).saturating_sub(SLACK);
        Nanos::from(seek) + self.geometry.time(Turns::from(wait))
    }

    /// Writes the sectors from `start`, on `track`, up to `end`. Returns the time at which the last sector is written.
    pub(crate) fn write(&mut self, track: &Track, start: u64, end: u64, at: Nanos) -> Nanos {
        let from = self.origin(at);
        let turns = track.turns_to(start);
        let begun = at + self.positioning(&from, track, turns, true);
        self.track = if track.contains(end - 1) { *track } else { self.geometry.track(end - 1) };
        begun + self.geometry.time(self.track.turns_to(end) - turns)
    }

    /// Begins to read at the sector `first`, on `track`. No stream may be running.
    pub(crate) fn begin_stream(&mut self, segment: usize, track: &Track, first: u64, at: Nanos) {
        let from = self.origin(at);
        let turns = track.turns_to(first);
        let begun = at + self.positioning(&from, track, turns, false);
        self.track = *track;
        self.stream = Some(Stream { segment, first, begun, turns, track: *track, limit: first, stop: begun });
    }

    /// Makes the stream read up to `end`, then ahead up to `limit`. Returns the time at which it reaches `end`.
    pub(crate) fn stream_to(&mut self, end: u64, limit: u64) -> Nanos {
        let until = self.stream_time(end);
        self.set_limit(limit);
        until
    }

    /// Extends the readahead of the stream to `limit`. A stream that has stopped restarts at its end, but only to read
    /// at least `least` sectors.
    pub(crate) fn read_on(&mut self, limit: u64, least: u64, now: Nanos) {
        let Some(stream) = self.stream else { return };
        if now < stream.stop {
            self.set_limit(limit);
        } else if limit > stream.limit && limit - stream.limit >= least.max(1) {
            self.end_stream(now);
            let track = self.track_at(&stream, stream.limit);
            self.begin_stream(stream.segment, &track, stream.limit, now);
            self.set_limit(limit);
        }
    }

    fn set_limit(&mut self, limit: u64) {
        let Some(stream) = &self.stream else { return };
        if limit <= stream.limit {
            return;
        }
        let turns = self.track_at(stream, limit - 1).turns_to(limit) - stream.turns;
        let stop = stream.begun + self.geometry.time(turns);
        if let Some(stream) = &mut self.stream {
            (stream.limit, stream.stop) = (limit, stop);
        }
    }

    /// The time at which the stream has read all sectors before `end`.
    pub(crate) fn stream_time(&mut self, end: u64) -> Nanos {
        let Self { geometry, stream: Some(stream), .. } = self else { return 0 };
        if end <= stream.first {
            return stream.begun;
        }
        if !stream.track.contains(end - 1) {
            stream.track = geometry.track((end - 1).min(geometry.sectors() - 1));
        }
        stream.begun + geometry.time(stream.track.turns_to(end) - stream.turns)
    }

    pub(crate) fn stream_segment(&self) -> usize {
        self.stream.as_ref().map_or(0, |stream| stream.segment)
    }

    /// Ends the stream. Returns its segment and the sector up to which it has read.
    pub(crate) fn end_stream(&mut self, at: Nanos) -> Option<(usize, u64)> {
        let stream = self.stream.take()?;
        let reached = self.reached(&stream, at);
        self.track = self.track_at(&stream, reached.max(stream.first + 1) - 1);
        Some((stream.segment, reached))
    }

    fn reached(&self, stream: &Stream, at: Nanos) -> u64 {
        if at >= stream.stop {
            return stream.limit;
        }
        if at <= stream.begun {
            return stream.first;
        }
        let turns = stream.turns + self.geometry.turns(at - stream.begun) + Turns::from(SLACK);
        let near = if turns >= stream.track.turns_to(stream.track.first) {
            stream.track.sector_at(turns)
        } else {
            None
        };
        near.unwrap_or_else(|| self.geometry.sector_at(turns)).min(stream.limit)
    }

    fn track_at(&self, stream: &Stream, sector: u64) -> Track {
        if stream.track.contains(sector) {
            return stream.track;
        }
        self.geometry.track(sector.min(self.geometry.sectors() - 1))
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
        let mut arm = arm();
        let mut at = 12_345_678;
        let mut write = |sector: u64| {
            let track = arm.geometry.track(sector);
            at = arm.write(&track, sector, sector + 100, at);
            at
        };
        let first = write(0);
        let last = (100..100_000).step_by(100).map(&mut write).last().unwrap();
        let turns = arm.geometry.track(99_999).turns_to(100_000) - arm.geometry.track(0).turns_to(100);
        let whole = arm.geometry.time(turns);
        assert!((last - first).abs_diff(whole) < 200_000, "{} instead of {whole}", last - first);
    }

    #[test]
    fn the_wait_is_up_to_a_turn_and_comes_after_the_seek() {
        let arm = arm();
        let track = arm.geometry.track(2000 * 500);
        let turns = track.turns_to(2000 * 500);
        let seek = Nanos::from(arm.read_seeks.time(500));
        for at in (0..PERIOD).step_by(999_983) {
            let time = arm.positioning(&arm.origin(at), &track, turns, false);
            assert!((seek..=seek + PERIOD).contains(&time));
            let off = arm.geometry.angle(at + time).wrapping_sub(turns as u32);
            assert!(off.min(off.wrapping_neg()) < 2 * SLACK, "the sector is under the head");
        }
    }

    #[test]
    fn a_stream_reads_ahead_to_its_limit_and_no_further() {
        let mut arm = arm();
        let track = arm.geometry.track(1000);
        arm.begin_stream(0, &track, 1000, 0);
        let at_end = arm.stream_to(1100, 3000);
        assert_eq!(arm.end_stream(at_end), Some((0, 1100)));
        arm.begin_stream(0, &track, 1000, 0);
        let half_a_turn = arm.stream_to(1100, 3000) + PERIOD / 2;
        assert_eq!(arm.end_stream(half_a_turn), Some((0, 1350)));
        arm.begin_stream(0, &track, 1000, 0);
        arm.stream_to(1100, 3000);
        assert_eq!(arm.end_stream(1 << 40), Some((0, 3000)));
    }
}
