//! Requests in flight over time, in a fixed number of spans. When the log exceeds all spans, the length of a span
//! doubles. `timeline.rs` orders the events.

use super::report::Depth;

const SPANS: usize = 64;

/// The initial length of a span: a microsecond (1,024 ns).
const FIRST_SHIFT: u32 = 10;

/// The mean depth of each span.
#[derive(Debug)]
pub(super) struct DepthOverTime {
    start_ns: u64,
    shift: u32,
    /// Depth times nanoseconds, by span.
    areas: [u128; SPANS],
    /// The current span, and its time since the start.
    span: usize,
    span_from: u64,
    span_end: u64,
    end_ns: u64,
    max: u32,
}

impl DepthOverTime {
    pub(super) const fn new(start_ns: u64) -> Self {
        Self {
            start_ns,
            shift: FIRST_SHIFT,
            areas: [0; SPANS],
            span: 0,
            span_from: 0,
            span_end: 1 << FIRST_SHIFT,
            end_ns: 0,
            max: 0,
        }
    }

    /// Records that `depth` requests were in flight from `from_ns` to `to_ns`.
    #[inline]
    pub(super) fn add(&mut self, from_ns: u64, to_ns: u64, depth: u32) {
        let from = from_ns.saturating_sub(self.start_ns);
        let to = to_ns.saturating_sub(self.start_ns);
        self.end_ns = to.max(self.end_ns);
        if from >= to {
            if to >= self.span_end {
                // After a jump to the start of a repeat.
                self.spread(to, to, 0);
            }
            return;
        }
        self.max = depth.max(self.max);
        if self.span_from <= from && to < self.span_end {
            self.areas[self.span] += u128::from(depth) * u128::from(to - from);
        } else {
            self.spread(from, to, depth);
        }
    }

    #[cold]
    fn spread(&mut self, from: u64, to: u64, depth: u32) {
        while to >> self.shift >= SPANS as u64 {
            self.fold();
        }
        let mut at = from;
        while at < to {
            let span = at >> self.shift;
            let last = (span << self.shift) + ((1 << self.shift) - 1);
            let end = last.saturating_add(1).min(to);
            self.areas[span as usize] += u128::from(depth) * u128::from(end - at);
            at = end;
        }
        let span = to >> self.shift;
        self.span = span as usize;
        self.span_from = span << self.shift;
        self.span_end = self.span_from.saturating_add(1 << self.shift);
    }

    /// Doubles the length of the spans: joins them in pairs.
    #[cold]
    fn fold(&mut self) {
        for span in 0..SPANS / 2 {
            self.areas[span] = self.areas[2 * span] + self.areas[2 * span + 1];
        }
        self.areas[SPANS / 2..].fill(0);
        self.shift += 1;
    }

    /// The depth over time. The mean is over `measured_ns`, the time in which requests could be in flight.
    pub(super) fn report(&self, measured_ns: u64) -> Depth {
        let spans = if self.end_ns == 0 { 0 } else { ((self.end_ns - 1) >> self.shift) as usize + 1 };
        let span_ns = 1_u64 << self.shift;
        let mean = |(span, area): (usize, &u128)| {
            // The last span ends with the last event.
            let length = span_ns.min(self.end_ns - span as u64 * span_ns);
            *area as f64 / length as f64
        };
        let total: u128 = self.areas.iter().sum();
        Depth {
            mean: if measured_ns == 0 { 0.0 } else { total as f64 / measured_ns as f64 },
            max: self.max,
            span_ns,
            means: self.areas[..spans].iter().enumerate().map(mean).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_is_folded_and_keeps_its_area() {
        let mut depth = DepthOverTime::new(1_000_000);
        for step in 0..1_000_u64 {
            depth.add(1_000_000 + step * 1000, 1_000_000 + (step + 1) * 1000, 2);
        }
        let report = depth.report(1_000_000);
        assert!((report.mean - 2.0).abs() < 1e-9 && report.max == 2, "{report:?}");
        assert!(report.means.len() > SPANS / 2 - 2 && report.means.len() <= SPANS, "{report:?}");
        assert!(report.means.iter().all(|mean| (mean - 2.0).abs() < 1e-9), "{report:?}");
    }

    #[test]
    fn a_period_over_several_spans_counts_in_each() {
        let mut depth = DepthOverTime::new(0);
        depth.add(512, 2048 + 512, 4);
        assert_eq!(depth.report(2560).means, [2.0, 4.0, 4.0]);
    }

    #[test]
    fn a_log_that_ends_at_the_start_of_a_repeat_has_an_end_within_the_spans() {
        let mut depth = DepthOverTime::new(0);
        depth.add(0, 1024, 1);
        depth.add(1_000_000, 1_000_000, 0);
        let report = depth.report(1024);
        assert!(report.means.len() <= SPANS && report.span_ns * SPANS as u64 >= 1_000_000, "{report:?}");
        assert!((report.mean - 1.0).abs() < 1e-9 && report.max == 1, "{report:?}");
    }

    #[test]
    fn an_empty_log_has_no_depth() {
        let report = DepthOverTime::new(0).report(0);
        assert_eq!((report.max, report.means.len()), (0, 0));
    }
}
