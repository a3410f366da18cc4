//! The sums and latencies of one job. Independent of slots and clock.

use hdrhistogram::Histogram;

use crate::path::{Direction, Transfer};

/// The histogram records longer latencies as this value: one hour, in nanoseconds.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;

/// A histogram of latencies: three significant digits, up to [`LATENCY_MAX_NS`].
pub(crate) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("the bounds are constants in order")
}

/// The measurements of one job.
#[derive(Debug)]
pub(crate) struct JobResult {
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) ios: u64,
    /// On the clock that all jobs of a repetition share, in nanoseconds.
    pub(crate) started_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) latency_ns: Histogram<u64>,
}

/// The sums so far.
#[derive(Debug)]
pub(crate) struct Tally {
    started_ns: u64,
    read_bytes: u64,
    written_bytes: u64,
    ios: u64,
    latency_ns: Histogram<u64>,
    /// The last latency and how often it occurred in a row: the transfers of one batch have equal latencies. The histogram
    /// records them together.
    last_ns: u64,
    last_count: u64,
}

impl Tally {
    pub(crate) fn new(started_ns: u64) -> Self {
        let latency_ns = latencies();
        Self { started_ns, read_bytes: 0, written_bytes: 0, ios: 0, latency_ns, last_ns: 0, last_count: 0 }
    }

    /// Counts a transfer, without its latency.
    #[inline]
    pub(crate) fn count(&mut self, transfer: Transfer) {
        self.ios += 1;
        match transfer.direction {
            Direction::Read => self.read_bytes += u64::from(transfer.bytes),
            Direction::Write => self.written_bytes += u64::from(transfer.bytes),
        }
    }

    /// Counts transfers, without their latencies.
    #[inline]
    pub(crate) fn count_all(&mut self, transfers: &[Transfer]) {
        let (mut all, mut read) = (0, 0);
        for transfer in transfers {
            let bytes = u64::from(transfer.bytes);
            all += bytes;
            read += if transfer.direction == Direction::Read { bytes } else { 0 };
        }
        self.ios += transfers.len() as u64;
        self.read_bytes += read;
        self.written_bytes += all - read;
    }

    /// Records a latency.
    #[inline]
    pub(crate) fn measure(&mut self, latency_ns: u64) {
        if latency_ns != self.last_ns {
            self.record_last();
            self.last_ns = latency_ns;
        }
        self.last_count += 1;
    }

    fn record_last(&mut self) {
        if self.last_count > 0 {
            self.latency_ns.saturating_record_n(self.last_ns, self.last_count);
        }
        self.last_count = 0;
    }

    pub(crate) fn moved_bytes(&self) -> u64 {
        self.read_bytes + self.written_bytes
    }

    /// The result of a job that ended at `now_ns`.
    pub(crate) fn finish(mut self, now_ns: u64) -> JobResult {
        self.record_last();
        JobResult {
            read_bytes: self.read_bytes,
            written_bytes: self.written_bytes,
            ios: self.ios,
            // A job can end before its measurement begins.
            started_ns: self.started_ns.min(now_ns),
            ended_ns: now_ns,
            latency_ns: self.latency_ns,
        }
    }
}
