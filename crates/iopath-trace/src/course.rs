//! Reads a request log into values over time, in constant memory: the spans become longer while the log is read. The
//! totals are those of the summary (`iopath log`).

use std::collections::HashMap;
use std::path::Path;

use iopath_core::log::{Event, Step, Subject};
use iopath_core::{Op, SECTOR_BYTES};
use iopath_log::{Block, Filter, LogError, Report};

/// The number of spans of time; the log uses more than half of them.
const SPANS: usize = 240;

/// The length of a span at the begin, in nanoseconds.
const SPAN_NS: u64 = 1000;

/// Latencies are counted in half octaves of nanoseconds.
const CLASSES: usize = 80;

/// Samples of offsets for each span.
const SAMPLES: usize = 8;

/// Requests in flight that are followed; further ones have no latency.
const FOLLOWED_MAX: usize = 1 << 20;

/// A log: its totals, and its course.
#[derive(Debug)]
pub struct LogFacts {
    /// The totals.
    pub summary: Report,
    /// The values over time.
    pub course: Course,
}

/// Values over time.
#[derive(Debug)]
pub struct Course {
    /// The length of each span, in nanoseconds.
    pub span_ns: u64,
    /// The spans, from the begin of the log to its last request.
    pub spans: Vec<Span>,
    /// The begin of each repetition, in nanoseconds from the begin of the log.
    pub repeats: Vec<(u32, u64)>,
}

/// The requests of one span.
#[derive(Debug, Clone, Default)]
pub struct Span {
    /// Dispatched requests and their bytes: reads, and all others.
    pub requests: [u64; 2],
    /// See `requests`.
    pub bytes: [u64; 2],
    /// Requests with a predecessor on the same queue, those that do not begin where it ends, and the sum of distances.
    pub followers: u64,
    /// See `followers`.
    pub seeks: u64,
    /// See `followers`.
    pub distance_bytes: u64,
    /// Completed requests by the class of their latency.
    pub latencies: Vec<u32>,
    /// Offsets of some requests, by time: time, byte offset, whether it is a write.
    pub samples: Vec<(u64, u64, bool)>,
}

impl Span {
    fn merge(&mut self, other: Self) {
        for side in 0..2 {
            self.requests[side] += other.requests[side];
            self.bytes[side] += other.bytes[side];
        }
        self.followers += other.followers;
        self.seeks += other.seeks;
        self.distance_bytes = self.distance_bytes.saturating_add(other.distance_bytes);
        if self.latencies.is_empty() {
            self.latencies = other.latencies;
        } else {
            for (mine, theirs) in self.latencies.iter_mut().zip(other.latencies) {
                *mine = mine.saturating_add(theirs);
            }
        }
        self.samples.extend(other.samples);
        if self.samples.len() > SAMPLES {
            let every = self.samples.len().div_ceil(SAMPLES);
            self.samples = self.samples.iter().copied().step_by(every).collect();
        }
    }

    /// A sample of all requests: the n-th replaces an earlier one with the probability SAMPLES / n.
    fn sample(&mut self, sample: (u64, u64, bool)) {
        if self.samples.len() < SAMPLES {
            return self.samples.push(sample);
        }
        let seen = self.requests[0] + self.requests[1];
        // A hash of the number: the same log yields the same page.
        let random = seen.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
        if let Some(slot) = usize::try_from(random % seen.max(1)).ok().and_then(|at| self.samples.get_mut(at))
        {
            *slot = sample;
        }
    }

    fn count_latency(&mut self, ns: u64) {
        self.latencies.resize(CLASSES, 0);
        let class = &mut self.latencies[class_of(ns)];
        *class = class.saturating_add(1);
    }
}

/// The class of a latency: two for each power of two.
fn class_of(ns: u64) -> usize {
    let ns = ns.max(1);
    let octave = ns.ilog2();
    let is_upper = octave > 0 && ns >> (octave - 1) & 1 == 1;
    (octave as usize * 2 + usize::from(is_upper)).min(CLASSES - 1)
}

/// The lower end of a class, in nanoseconds.
pub fn class_start(class: usize) -> f64 {
    let octave = 2_f64.powf((class / 2) as f64);
    if class % 2 == 1 { octave * 1.5 } else { octave }
}

impl LogFacts {
    /// Reads the log twice: for the totals, and for the course.
    ///
    /// # Errors
    /// As [`open`](crate::open).
    pub fn read(file: &Path) -> Result<Self, LogError> {
        let summary = crate::open(file)?.summarise(&Filter::default())?;
        let log = crate::open(file)?;
        let mut reading = Reading::new(log.info().start_ns);
        log.for_each_block(|block| reading.add(block))?;
        let repeats = summary.repeats.iter().map(|repeat| (repeat.repeat, repeat.first_ns)).collect();
        let mut spans = reading.spans;
        while spans.last().is_some_and(|span| span.requests == [0, 0] && span.latencies.is_empty()) {
            spans.pop();
        }
        for span in &mut spans {
            span.samples.sort_unstable();
        }
        Ok(Self { summary, course: Course { span_ns: reading.span_ns, spans, repeats } })
    }
}

/// A log that is being read.
#[derive(Debug)]
struct Reading {
    start_ns: u64,
    span_ns: u64,
    spans: Vec<Span>,
    /// The time of dispatch of each request in flight, by queue and slot.
    dispatched: HashMap<(u16, u32), u64>,
    /// The end of the last dispatched request of each queue, in sectors.
    ends: HashMap<u16, u64>,
}

impl Reading {
    fn new(start_ns: u64) -> Self {
        Self {
            start_ns,
            span_ns: SPAN_NS,
            spans: vec![Span::default(); SPANS],
            dispatched: HashMap::new(),
            ends: HashMap::new(),
        }
    }

    fn add(&mut self, block: &Block) {
        for entry in block.entries() {
            let Ok(step) = entry.record.step() else { continue };
            let Subject::Request(slot) = step.subject else { continue };
            let now = entry.time.as_nanos().saturating_sub(self.start_ns);
            match step.event {
                Event::Dispatch => self.dispatch(entry.queue, slot, &step, now),
                Event::Complete => self.complete(entry.queue, slot, now),
                Event::Requeue => {
                    self.dispatched.remove(&(entry.queue, slot));
                }
                _ => {}
            }
        }
    }

    fn dispatch(&mut self, queue: u16, slot: u32, step: &Step, now: u64) {
        if self.dispatched.len() < FOLLOWED_MAX {
            self.dispatched.insert((queue, slot), now);
        }
        if !matches!(step.op, Op::Read | Op::Write) {
            return;
        }
        let (first, sectors) = (step.extent.start().0, step.extent.sectors());
        let before = self.ends.insert(queue, first.saturating_add(sectors));
        let is_write = step.op == Op::Write;
        let span = self.span(now);
        span.requests[usize::from(is_write)] += 1;
        span.bytes[usize::from(is_write)] += sectors * SECTOR_BYTES;
        span.sample((now, first.saturating_mul(SECTOR_BYTES), is_write));
        if let Some(end) = before {
            span.followers += 1;
            span.seeks += u64::from(first != end);
            let distance = first.abs_diff(end).saturating_mul(SECTOR_BYTES);
            span.distance_bytes = span.distance_bytes.saturating_add(distance);
        }
    }

    fn complete(&mut self, queue: u16, slot: u32, now: u64) {
        if let Some(begin) = self.dispatched.remove(&(queue, slot)) {
            self.span(now).count_latency(now.saturating_sub(begin));
        }
    }

    /// The span of a time. Doubles the length of all spans until there is one.
    fn span(&mut self, now: u64) -> &mut Span {
        while now / self.span_ns >= SPANS as u64 {
            self.span_ns = self.span_ns.saturating_mul(2);
            let mut old = std::mem::replace(&mut self.spans, vec![Span::default(); SPANS]).into_iter();
            for span in &mut self.spans[..SPANS / 2] {
                *span = old.next().unwrap_or_default();
                span.merge(old.next().unwrap_or_default());
            }
        }
        &mut self.spans[(now / self.span_ns) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_core::{Extent, Sector};

    fn request(event: Event, first: u64, slot: u32) -> Step {
        Step { extent: Extent::new(Sector(first), 8).unwrap(), ..Step::new(event, Subject::Request(slot)) }
    }

    #[test]
    fn spans_grow_with_the_log_and_lose_no_request() {
        let mut reading = Reading::new(0);
        let mut requests = 0;
        for time in (0..50_u64).map(|power| 3_u64.pow((power / 2) as u32) + power) {
            reading.dispatch(0, 1, &request(Event::Dispatch, time % 1000 * 8, 1), time);
            reading.complete(0, 1, time + 5);
            requests += 1;
        }
        let sum = |count: fn(&Span) -> u64| reading.spans.iter().map(count).sum::<u64>();
        assert_eq!(sum(|span| span.requests[0]), requests);
        assert_eq!(sum(|span| span.bytes[0]), requests * 4096);
        assert_eq!(sum(|span| span.latencies.iter().map(|count| u64::from(*count)).sum()), requests);
        assert_eq!(sum(|span| span.followers), requests - 1);
        assert!(reading.spans.iter().all(|span| span.samples.len() <= SAMPLES));
        assert!(
            3_u64.pow(24) / reading.span_ns >= SPANS as u64 / 2,
            "more than half of the spans are in use"
        );
    }

    #[test]
    fn a_request_that_begins_at_the_end_of_its_predecessor_is_no_seek() {
        let mut reading = Reading::new(0);
        for first in [0, 8, 16, 1000, 0] {
            reading.dispatch(0, 1, &request(Event::Dispatch, first, 1), 10);
        }
        reading.dispatch(1, 1, &request(Event::Dispatch, 5000, 1), 10);
        let span = &reading.spans[0];
        assert_eq!((span.followers, span.seeks), (4, 2));
        assert_eq!(span.distance_bytes, (1000 - 24 + 1008) * 512);
    }

    #[test]
    fn classes_are_half_octaves() {
        for (ns, class) in
            [(0, 0), (1, 0), (2, 2), (3, 3), (4, 4), (5, 4), (6, 5), (7, 5), (8, 6), (u64::MAX, CLASSES - 1)]
        {
            assert_eq!(class_of(ns), class, "{ns}");
        }
        for class in 2..CLASSES {
            assert_eq!(class_of(class_start(class) as u64), class);
        }
    }

    #[test]
    fn a_time_at_the_end_of_the_clock_has_a_span() {
        let mut reading = Reading::new(0);
        reading.dispatch(0, 1, &request(Event::Dispatch, 8, 1), u64::MAX);
        assert_eq!(reading.spans.iter().map(|span| span.requests[0]).sum::<u64>(), 1);
    }
}
