//! Bios, bytes and latencies of each stream. The streams of each repeat are in `repeats.rs`.

use super::latency::Latencies;
use super::report::StreamShare;
use crate::labels::Labels;
use iopath_core::{Record, SECTOR_BYTES};

/// The maximum number of streams with percentiles.
const TIMED_MAX: usize = 64;

/// Counters by stream number: at most 65,536 streams of 96 bytes. Each of the first 64 has 29 KiB more.
#[derive(Debug, Default)]
pub(super) struct Streams {
    streams: Vec<Stream>,
    timed: usize,
}

#[derive(Debug, Clone, Default)]
struct Stream {
    /// Whether any of its steps was counted.
    is_used: bool,
    bios: u64,
    sectors: u64,
    first_ns: u64,
    last_ns: u64,
    latencies: Latencies,
}

impl Streams {
    #[inline]
    pub(super) fn queued(&mut self, record: Record, now: u64) {
        let stream = self.of(record, now);
        stream.bios += 1;
        stream.sectors += record.sectors();
    }

    #[inline]
    pub(super) fn completed(&mut self, record: Record, q2c_ns: Option<u64>, now: u64) {
        let stream = self.of(record, now);
        stream.last_ns = stream.last_ns.max(now);
        if let Some(nanos) = q2c_ns {
            stream.latencies.add(nanos);
        }
    }

    #[inline]
    fn of(&mut self, record: Record, now: u64) -> &mut Stream {
        let index = record.stream().0 as usize;
        if self.streams.get(index).is_none_or(|stream| !stream.is_used) {
            self.begin(index, now);
        }
        let stream = &mut self.streams[index];
        stream.first_ns = stream.first_ns.min(now);
        stream
    }

    #[cold]
    fn begin(&mut self, index: usize, now: u64) {
        if self.streams.len() <= index {
            self.streams.resize(index + 1, Stream::default());
        }
        let is_timed = self.timed < TIMED_MAX;
        self.timed += usize::from(is_timed);
        let latencies = if is_timed { Latencies::with_percentiles() } else { Latencies::default() };
        self.streams[index] = Stream { is_used: true, first_ns: now, latencies, ..Stream::default() };
    }

    /// The streams, largest first, and the time between the first and the last of them to finish.
    pub(super) fn report(&self, start_ns: u64, labels: &Labels) -> (Vec<StreamShare>, u64) {
        let sectors: u64 = self.streams.iter().map(|stream| stream.sectors).sum();
        let label = |number: usize| labels.stream(number as u32).cloned();
        let share = |(number, stream): (usize, &Stream)| StreamShare {
            stream: number as u32,
            pid: label(number).and_then(|label| label.pid),
            command: label(number).map(|label| label.command),
            is_own: label(number).is_some_and(|label| label.is_own),
            bios: stream.bios,
            bytes: stream.sectors * SECTOR_BYTES,
            share: if sectors == 0 { 0.0 } else { stream.sectors as f64 / sectors as f64 },
            completed: stream.latencies.completed(),
            first_ns: stream.first_ns.saturating_sub(start_ns),
            last_ns: stream.last_ns.saturating_sub(start_ns),
            mean_q2c_ns: stream.latencies.mean_ns(),
            p50_q2c_ns: stream.latencies.quantile_ns(0.5),
            p99_q2c_ns: stream.latencies.quantile_ns(0.99),
            max_q2c_ns: stream.latencies.max_ns(),
        };
        let used = self.streams.iter().enumerate().filter(|(_, stream)| stream.is_used);
        let mut shares: Vec<_> = used.map(share).collect();
        shares.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.stream.cmp(&b.stream)));
        let skew_ns = skew_ns(self.streams.iter().map(|stream| stream.last_ns));
        (shares, skew_ns)
    }
}

/// The time between the first and the last of these ends. Ignores ends of 0.
pub(super) fn skew_ns(ends: impl Iterator<Item = u64> + Clone) -> u64 {
    let ends = ends.filter(|end| *end > 0);
    ends.clone().max().unwrap_or(0) - ends.min().unwrap_or(0)
}
