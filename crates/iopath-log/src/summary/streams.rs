//! Who got how much, and who ended when; and the bios that took longest.

use super::report::{Slow, StreamShare};
use super::times::Times;
use crate::names::op_name;
use iopath_core::{Record, SECTOR_BYTES};

/// Bios kept as the slowest.
const SLOWEST: usize = 10;

/// Streams that have percentiles.
const TIMED_MAX: usize = 64;

/// What each stream did, by its number: at most 65,536 of them, 80 bytes each, and 57 KiB more for the first 64.
#[derive(Debug, Default)]
pub(super) struct Streams {
    streams: Vec<StreamTally>,
    times: Vec<Times>,
}

#[derive(Debug, Clone, Copy, Default)]
struct StreamTally {
    bios: u64,
    sectors: u64,
    completed: u64,
    first_ns: u64,
    last_ns: u64,
    /// Wider than a time: no log has so many bios that their sum has no room.
    sum_ns: u128,
    max_ns: u64,
    /// One more than the place of its times in `times`; 0 for none.
    timed: u8,
}

impl Streams {
    #[inline]
    pub(super) fn queued(&mut self, record: Record, now: u64) {
        let stream = of(&mut self.streams, record);
        if stream.bios == 0 {
            stream.first_ns = now;
        }
        stream.bios += 1;
        stream.sectors += record.sectors();
    }

    #[inline]
    pub(super) fn completed(&mut self, record: Record, q2c_ns: Option<u64>, now: u64) {
        let stream = of(&mut self.streams, record);
        stream.last_ns = stream.last_ns.max(now);
        if let Some(nanos) = q2c_ns {
            stream.completed += 1;
            stream.sum_ns += u128::from(nanos);
            stream.max_ns = stream.max_ns.max(nanos);
            if stream.completed == 1 && self.times.len() < TIMED_MAX {
                self.times.push(Times::new(Times::COARSE_BITS));
                stream.timed = self.times.len() as u8;
            }
            if let Some(times) = self.times.get_mut(usize::from(stream.timed).wrapping_sub(1)) {
                times.add(nanos);
            }
        }
    }

    fn times_of(&self, tally: &StreamTally) -> Option<&Times> {
        self.times.get(usize::from(tally.timed).wrapping_sub(1))
    }

    /// The streams, largest first, and how long after the first of them the last was done.
    pub(super) fn report(&self, start_ns: u64) -> (Vec<StreamShare>, u64) {
        let sectors: u64 = self.streams.iter().map(|stream| stream.sectors).sum();
        let share = |(number, tally): (usize, &StreamTally)| StreamShare {
            stream: number as u32,
            bios: tally.bios,
            bytes: tally.sectors * SECTOR_BYTES,
            share: if sectors == 0 { 0.0 } else { tally.sectors as f64 / sectors as f64 },
            first_ns: tally.first_ns.saturating_sub(start_ns),
            last_ns: tally.last_ns.saturating_sub(start_ns),
            mean_q2c_ns: if tally.completed == 0 {
                0.0
            } else {
                tally.sum_ns as f64 / tally.completed as f64
            },
            p50_q2c_ns: self.times_of(tally).map(|times| times.quantile(0.5)),
            p99_q2c_ns: self.times_of(tally).map(|times| times.quantile(0.99)),
            max_q2c_ns: tally.max_ns,
        };
        let is_used = |(_, tally): &(usize, &StreamTally)| tally.bios > 0 || tally.last_ns > 0;
        let mut shares: Vec<_> = self.streams.iter().enumerate().filter(is_used).map(share).collect();
        shares.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.stream.cmp(&b.stream)));
        let ends = || shares.iter().map(|share| share.last_ns);
        let skew_ns = ends().max().unwrap_or(0) - ends().min().unwrap_or(0);
        (shares, skew_ns)
    }
}

#[inline]
fn of(streams: &mut Vec<StreamTally>, record: Record) -> &mut StreamTally {
    let place = record.stream().0 as usize;
    if streams.len() <= place {
        streams.resize(place + 1, StreamTally::default());
    }
    &mut streams[place]
}

/// The bios that took longest.
#[derive(Debug, Default)]
pub(super) struct Slowest {
    /// Slowest first.
    bios: Vec<Slow>,
    /// The shortest time that is among them, once there are enough.
    least_ns: u64,
}

impl Slowest {
    #[inline]
    pub(super) const fn is_among(&self, q2c_ns: u64) -> bool {
        q2c_ns > self.least_ns || self.bios.len() < SLOWEST
    }

    #[cold]
    pub(super) fn insert(&mut self, record: Record, queued_ns: u64, q2c_ns: u64, d2c_ns: Option<u64>) {
        let slow = Slow {
            queued_ns,
            q2c_ns,
            d2c_ns,
            stream: record.stream().0,
            op: record.op().map_or("unknown", op_name),
            sector: record.sector(),
            sectors: record.sectors(),
            errno: record.other(),
        };
        let place = self.bios.partition_point(|other| other.q2c_ns >= q2c_ns);
        self.bios.insert(place, slow);
        self.bios.truncate(SLOWEST);
        if self.bios.len() == SLOWEST {
            self.least_ns = self.bios[SLOWEST - 1].q2c_ns;
        }
    }

    pub(super) fn report(&self, start_ns: u64) -> Vec<Slow> {
        let since_start = |slow: &Slow| Slow { queued_ns: slow.queued_ns.saturating_sub(start_ns), ..*slow };
        self.bios.iter().map(since_start).collect()
    }
}
