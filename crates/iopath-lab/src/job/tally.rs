//! The sums and latencies of one job. Independent of slots and clock.

use hdrhistogram::Histogram;
use iopath_report::result::latencies;

use super::control::Controlled;
use crate::path::{Direction, Transfer};
use crate::steady_detector::Count;

/// The measurements of one job.
#[derive(Debug)]
pub(crate) struct JobResult {
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) trimmed_bytes: u64,
    pub(crate) ios: u64,
    /// On the clock that all jobs of a repetition share, in nanoseconds.
    pub(crate) started_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) latency_ns: Histogram<u64>,
    /// Reads, writes and trims, of a job that made at least two of them.
    pub(crate) directions: Option<Box<[OneDirection; 3]>>,
    /// The latencies of flushes between transfers; none without any.
    pub(crate) flush_ns: Option<Box<Histogram<u64>>>,
    /// The latencies from the submission on, of a job with a rate.
    pub(crate) closed_ns: Option<Box<Histogram<u64>>>,
    /// The observations of the controls; none of a job without any.
    pub(crate) controlled: Option<Box<Controlled>>,
}

/// The transfers of one direction.
#[derive(Debug, Clone)]
pub(crate) struct OneDirection {
    pub(crate) bytes: u64,
    pub(crate) ios: u64,
    pub(crate) latency_ns: Histogram<u64>,
}

impl OneDirection {
    pub(crate) fn none() -> Self {
        Self { bytes: 0, ios: 0, latency_ns: latencies() }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.ios += other.ios;
        self.latency_ns.add(&other.latency_ns).expect("all histograms have the same bounds");
    }
}

/// The transfers of one direction so far. A job of one direction has one histogram, of 264 KiB: a file may have
/// thousands of jobs.
#[derive(Debug, Default)]
struct Running {
    bytes: u64,
    ios: u64,
    /// None before the first latency.
    latency_ns: Option<Box<Histogram<u64>>>,
}

impl Running {
    fn ended(self) -> OneDirection {
        let Self { bytes, ios, latency_ns } = self;
        OneDirection { bytes, ios, latency_ns: latency_ns.map_or_else(latencies, |latency_ns| *latency_ns) }
    }
}

/// The sums so far.
#[derive(Debug)]
pub(crate) struct Tally {
    started_ns: u64,
    /// Reads, writes and trims.
    directions: [Running; 3],
    /// The recorded latencies of each: their number and their sum.
    timed: [[u64; 2]; 3],
    /// The last latency, its direction, and how often it occurred in a row: the transfers of one batch have equal
    /// latencies. The histogram records them together.
    last_ns: u64,
    last_direction: Direction,
    last_count: u64,
    flush_ns: Option<Box<Histogram<u64>>>,
    closed_ns: Option<Box<Histogram<u64>>>,
}

impl Tally {
    pub(crate) fn new(started_ns: u64) -> Self {
        Self {
            started_ns,
            directions: Default::default(),
            timed: [[0; 2]; 3],
            last_ns: 0,
            last_direction: Direction::Read,
            last_count: 0,
            flush_ns: None,
            closed_ns: None,
        }
    }

    /// Counts a transfer, without its latency.
    #[inline]
    pub(crate) fn count(&mut self, transfer: Transfer) {
        let direction = &mut self.directions[index(transfer.direction)];
        direction.ios += 1;
        direction.bytes += u64::from(transfer.bytes);
    }

    /// Counts transfers, without their latencies.
    #[inline]
    pub(crate) fn count_all(&mut self, transfers: &[Transfer]) {
        let (mut all, mut read, mut reads, mut trims) = (0, 0, 0, false);
        for transfer in transfers {
            let bytes = u64::from(transfer.bytes);
            all += bytes;
            trims |= transfer.direction == Direction::Trim;
            if transfer.direction == Direction::Read {
                read += bytes;
                reads += 1;
            }
        }
        if trims {
            return transfers.iter().for_each(|transfer| self.count(*transfer));
        }
        let [reading, writing, _] = &mut self.directions;
        reading.ios += reads;
        reading.bytes += read;
        writing.ios += transfers.len() as u64 - reads;
        writing.bytes += all - read;
    }

    /// Records a latency of a transfer in this direction.
    #[inline]
    pub(crate) fn measure(&mut self, direction: Direction, latency_ns: u64) {
        if latency_ns != self.last_ns || direction != self.last_direction {
            self.record_last();
            self.last_ns = latency_ns;
            self.last_direction = direction;
        }
        self.last_count += 1;
    }

    /// Records the latency of a transfer with a rate from its submission on.
    pub(crate) fn measure_closed(&mut self, latency_ns: u64) {
        let closed_ns = self.closed_ns.get_or_insert_with(|| Box::new(latencies()));
        closed_ns.saturating_record(latency_ns);
    }

    /// Records the latency of a flush.
    pub(crate) fn measure_flush(&mut self, latency_ns: u64) {
        let flush_ns = self.flush_ns.get_or_insert_with(|| Box::new(latencies()));
        flush_ns.saturating_record(latency_ns);
    }

    fn record_last(&mut self) {
        if self.last_count > 0 {
            let index = index(self.last_direction);
            let latency_ns = self.directions[index].latency_ns.get_or_insert_with(|| Box::new(latencies()));
            latency_ns.saturating_record_n(self.last_ns, self.last_count);
            let [count, sum_ns] = &mut self.timed[index];
            *count += self.last_count;
            *sum_ns = sum_ns.wrapping_add(self.last_ns.wrapping_mul(self.last_count));
        }
        self.last_count = 0;
    }

    /// The last recorded latency; 0 before the first.
    #[inline]
    pub(crate) fn last_latency_ns(&self) -> u64 {
        self.last_ns
    }

    #[inline]
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.directions.iter().map(|direction| direction.bytes).sum()
    }

    /// The reads, and the writes with the trims, so far.
    pub(crate) fn counts(&self) -> [Count; 2] {
        let [reads, mut writes, trims] = [0, 1, 2].map(|index| {
            let Running { ios, bytes, .. } = self.directions[index];
            let [mut timed, mut latency_ns] = self.timed[index];
            if self::index(self.last_direction) == index {
                timed += self.last_count;
                latency_ns += self.last_ns * self.last_count;
            }
            Count { ios, bytes, timed, latency_ns }
        });
        writes += trims;
        [reads, writes]
    }

    /// The result of a job that ended at `now_ns`.
    pub(crate) fn finish(mut self, now_ns: u64) -> JobResult {
        self.record_last();
        let [read_bytes, written_bytes, trimmed_bytes] = self.directions.each_ref().map(|one| one.bytes);
        let ios = self.directions.iter().map(|one| one.ios).sum();
        let used = self.directions.iter().filter(|one| one.ios > 0).count();
        let (latency_ns, directions) = if used > 1 {
            let directions = self.directions.map(Running::ended);
            let mut all = OneDirection::none();
            for one in &directions {
                all.add(one);
            }
            (all.latency_ns, Some(Box::new(directions)))
        } else {
            let only = self.directions.into_iter().reduce(|one, other| if one.ios > 0 { one } else { other });
            (only.unwrap_or_default().ended().latency_ns, None)
        };
        JobResult {
            read_bytes,
            written_bytes,
            trimmed_bytes,
            ios,
            // A job can end before its measurement begins.
            started_ns: self.started_ns.min(now_ns),
            ended_ns: now_ns,
            latency_ns,
            directions,
            flush_ns: self.flush_ns,
            closed_ns: self.closed_ns,
            controlled: None,
        }
    }
}

#[inline]
fn index(direction: Direction) -> usize {
    match direction {
        Direction::Read => 0,
        Direction::Write => 1,
        Direction::Trim => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_used_directions_have_a_histogram() {
        let mut tally = Tally::new(0);
        for latency_ns in [1000, 2000, 3000] {
            tally.count(Transfer { offset: 0, bytes: 4096, direction: Direction::Write });
            tally.measure(Direction::Write, latency_ns);
        }
        tally.record_last();
        assert_eq!(tally.directions.each_ref().map(|one| one.latency_ns.is_some()), [false, true, false]);
        let result = tally.finish(10);
        assert_eq!((result.ios, result.latency_ns.len(), result.directions.is_none()), (3, 3, true));
    }
}
