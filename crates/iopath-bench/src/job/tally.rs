//! The sums and latencies of one job. Independent of slots and clock.

use std::iter::Sum;

use iopath_report::result::{Latencies, ThreadUse};

use super::control::Controlled;
use crate::path::{Direction, Transfer, number_of};
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
    pub(crate) latency_ns: Latencies,
    /// Reads, writes and trims, of a job that made at least two of them.
    pub(crate) directions: Option<Box<[OneDirection; 3]>>,
    /// The latencies of flushes between transfers.
    pub(crate) flush_ns: Latencies,
    /// The latencies of a job with a rate from the other start: [`crate::workload::LatencyFrom`].
    pub(crate) other_ns: Latencies,
    /// The parts of the latencies.
    pub(crate) parts: Box<Parts>,
    /// The time of the flush that followed the measurement; 0 without one.
    pub(crate) final_flush_ns: u64,
    /// The observations of the controls; none of a job without any.
    pub(crate) controlled: Option<Box<Controlled>>,
    /// CPU time and context switches of its thread; none in virtual time.
    pub(crate) thread: Option<ThreadUse>,
}

/// The transfers of one direction.
#[derive(Debug, Clone, Default)]
pub(crate) struct OneDirection {
    pub(crate) bytes: u64,
    pub(crate) ios: u64,
    pub(crate) latency_ns: Latencies,
    pub(crate) parts: Parts,
}

impl OneDirection {
    pub(crate) fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.ios += other.ios;
        self.latency_ns.add(&other.latency_ns);
        self.parts.add(&other.parts);
    }
}

/// Latencies in two parts, of a job that measures how long submissions take; empty for other jobs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parts {
    pub(crate) submission_ns: Latencies,
    /// From the end of the submission on.
    pub(crate) completion_ns: Latencies,
}

impl Parts {
    fn add(&mut self, other: &Self) {
        self.submission_ns.add(&other.submission_ns);
        self.completion_ns.add(&other.completion_ns);
    }
}

impl<'a> Sum<&'a Self> for Parts {
    fn sum<I: Iterator<Item = &'a Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum.add(one);
            sum
        })
    }
}

/// The sums so far.
#[derive(Debug)]
pub(crate) struct Tally {
    started_ns: u64,
    /// Reads, writes and trims.
    directions: [OneDirection; 3],
    /// The recorded latencies of each: their number and their sum.
    timed: [[u64; 2]; 3],
    /// The last latency, its direction, and how often it occurred in a row: the transfers of one batch have equal
    /// latencies. They are counted together.
    last_ns: u64,
    last_direction: Direction,
    last_count: u64,
    flush_ns: Latencies,
    other_ns: Latencies,
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
            flush_ns: Latencies::default(),
            other_ns: Latencies::default(),
        }
    }

    /// Counts a transfer, without its latency.
    #[inline]
    pub(crate) fn count(&mut self, transfer: Transfer) {
        let direction = &mut self.directions[number_of(transfer.direction)];
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

    /// Records the latency of a transfer with a rate from its other start.
    pub(crate) fn measure_other(&mut self, latency_ns: u64) {
        self.other_ns.record(latency_ns, 1);
    }

    /// Records the parts of a latency.
    #[inline]
    pub(crate) fn measure_parts(&mut self, direction: Direction, submission_ns: u64, completion_ns: u64) {
        let parts = &mut self.directions[number_of(direction)].parts;
        parts.submission_ns.record(submission_ns, 1);
        parts.completion_ns.record(completion_ns, 1);
    }

    /// Records the latency of a flush.
    pub(crate) fn measure_flush(&mut self, latency_ns: u64) {
        self.flush_ns.record(latency_ns, 1);
    }

    fn record_last(&mut self) {
        if self.last_count > 0 {
            let index = number_of(self.last_direction);
            self.directions[index].latency_ns.record(self.last_ns, self.last_count);
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
            let OneDirection { ios, bytes, .. } = self.directions[index];
            let [mut timed, mut latency_ns] = self.timed[index];
            if number_of(self.last_direction) == index {
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
        let (latency_ns, parts, directions) = if used > 1 {
            let all = self.directions.iter().map(|one| &one.latency_ns).sum();
            let parts = self.directions.iter().map(|one| &one.parts).sum();
            (all, parts, Some(Box::new(self.directions)))
        } else {
            let only = self.directions.into_iter().reduce(|one, other| if one.ios > 0 { one } else { other });
            let OneDirection { latency_ns, parts, .. } = only.unwrap_or_default();
            (latency_ns, parts, None)
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
            other_ns: self.other_ns,
            parts: Box::new(parts),
            final_flush_ns: 0,
            controlled: None,
            thread: None,
        }
    }
}
