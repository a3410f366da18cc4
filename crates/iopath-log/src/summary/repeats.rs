//! The repeats of a measurement, separated by the marks in the log, and their counters.

use super::latency::Latencies;
use super::report::RepeatShare;
use super::sizes::Count;
use super::streams::skew_ns;
use iopath_core::{Record, SECTOR_BYTES};

/// The maximum number of repeats with percentiles.
const TIMED_MAX: usize = 64;

/// The number of streams whose last completion is kept for each repeat: 8 KiB.
const STREAMS_MAX: usize = 1024;

/// Counters of each repeat. A log without marks is one repeat, and the report omits it.
#[derive(Debug)]
pub(super) struct Repeats {
    /// The repeats in order of time; the first row is the time before the first mark.
    rows: Vec<Repeat>,
    current: usize,
}

/// Consecutive steps of one repeat. It is a separate value, so that the loop over the records of a block can keep it in
/// registers.
#[derive(Debug, Clone, Copy)]
#[must_use = "a visit is counted when it ends"]
pub(super) struct Visit {
    /// The times that are in the repeat.
    from_ns: u64,
    until_ns: u64,
    /// The first and the last step. Without a step, the first is later than the last.
    first_ns: u64,
    last_ns: u64,
    /// The bios counted before it.
    before: Count,
}

#[derive(Debug, Default)]
struct Repeat {
    begin_ns: u64,
    number: u32,
    /// The first and the last step, if there is any.
    steps: Option<(u64, u64)>,
    bios: u64,
    sectors: u64,
    latencies: Latencies,
    /// The last completion of each stream, 0 for none.
    ends: Vec<u64>,
}

/// The time from the first to the last step of a log.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_field_names, reason = "the unit stands last in the name")]
pub(super) struct Span {
    /// The first step, since the log began.
    pub(super) first_ns: u64,
    /// The last step, since the log began.
    pub(super) last_ns: u64,
    /// The time from the first to the last step, summed over repeats.
    pub(super) measured_ns: u64,
}

impl Default for Repeats {
    fn default() -> Self {
        Self { rows: vec![Repeat::default()], current: 0 }
    }
}

impl Repeats {
    /// Repeat `number` begins at `begin_ns`. Call it in the order of time.
    pub(super) fn mark(&mut self, number: u32, begin_ns: u64) {
        let is_timed = self.rows.len() <= TIMED_MAX;
        let latencies = if is_timed { Latencies::with_percentiles() } else { Latencies::default() };
        self.rows.push(Repeat { begin_ns, number, latencies, ..Repeat::default() });
    }

    /// Begins a visit to the repeat at `now`: [`Repeats::completed`] counts in that repeat until the next visit. No
    /// mark may be added during a visit. `before` are the bios counted so far.
    #[cold]
    pub(super) fn begin_visit(&mut self, now: u64, before: Count) -> Visit {
        // The first repeat begins at 0, so there is always one.
        self.current = self.rows.partition_point(|repeat| repeat.begin_ns <= now).max(1) - 1;
        let from_ns = self.rows[self.current].begin_ns;
        let until_ns = self.rows.get(self.current + 1).map_or(u64::MAX, |next| next.begin_ns - 1);
        Visit { from_ns, until_ns, first_ns: u64::MAX, last_ns: 0, before }
    }

    /// Ends a visit. `counted` are the bios counted by then.
    #[cold]
    pub(super) fn end_visit(&mut self, visit: Visit, counted: Count) {
        let Visit { first_ns, last_ns, before, .. } = visit;
        let repeat = &mut self.rows[self.current];
        repeat.bios += counted.count - before.count;
        repeat.sectors += counted.sectors - before.sectors;
        if first_ns <= last_ns {
            let (first, last) = repeat.steps.get_or_insert((first_ns, last_ns));
            *first = first_ns.min(*first);
            *last = last_ns.max(*last);
        }
    }

    #[inline]
    pub(super) fn completed(&mut self, record: Record, q2c_ns: Option<u64>, now: u64) {
        if self.rows.len() == 1 {
            return;
        }
        let repeat = &mut self.rows[self.current];
        if let Some(nanos) = q2c_ns {
            repeat.latencies.add(nanos);
        }
        let stream = record.stream().0 as usize;
        if stream < STREAMS_MAX {
            if repeat.ends.len() <= stream {
                repeat.ends.resize(stream + 1, 0);
            }
            repeat.ends[stream] = repeat.ends[stream].max(now);
        }
    }

    /// The repeats that have steps, and the time span of all steps.
    pub(super) fn report(&self, start_ns: u64) -> (Vec<RepeatShare>, Span) {
        let used = || self.rows.iter().filter_map(|repeat| Some((repeat, repeat.steps?)));
        let since_start = |at_ns: u64| at_ns.saturating_sub(start_ns);
        let share = |(repeat, (first, last)): (&Repeat, (u64, u64))| RepeatShare {
            repeat: repeat.number,
            first_ns: since_start(first),
            last_ns: since_start(last),
            bios: repeat.bios,
            bytes: repeat.sectors * SECTOR_BYTES,
            completed: repeat.latencies.completed(),
            mean_q2c_ns: repeat.latencies.mean_ns(),
            p50_q2c_ns: repeat.latencies.quantile_ns(0.5),
            p99_q2c_ns: repeat.latencies.quantile_ns(0.99),
            max_q2c_ns: repeat.latencies.max_ns(),
            skew_ns: skew_ns(repeat.ends.iter().copied()),
        };
        let shares = if self.rows.len() == 1 { Vec::new() } else { used().map(share).collect() };
        let steps = || used().map(|(_, steps)| steps);
        let span = Span {
            first_ns: steps().map(|(first, _)| since_start(first)).min().unwrap_or(0),
            last_ns: steps().map(|(_, last)| since_start(last)).max().unwrap_or(0),
            measured_ns: steps().map(|(first, last)| since_start(last) - since_start(first)).sum(),
        };
        (shares, span)
    }
}

impl Visit {
    /// Records a step at `now`. Returns false, without a change, if `now` is in another repeat.
    #[inline]
    pub(super) const fn note(&mut self, now: u64) -> bool {
        if now < self.from_ns || self.until_ns < now {
            return false;
        }
        if now < self.first_ns {
            self.first_ns = now;
        }
        if self.last_ns < now {
            self.last_ns = now;
        }
        true
    }
}
