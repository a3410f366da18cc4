//! Searches for the largest depth at which transfers keep a latency: fio's `latency_target`.

use std::time::Duration;

use crate::controls::LatencyTarget;

const MILLION: u64 = 1_000_000;

/// The search of one job. It doubles the depth while the latency is kept, and then halves the interval between the
/// largest depth that keeps it and the smallest that does not.
#[derive(Debug)]
pub(super) struct DepthSearch {
    target: LatencyTarget,
    depth: u32,
    depth_max: u32,
    /// The largest depth so far that keeps the latency, with its transfers a second.
    good: Option<(u32, f64)>,
    /// The smallest depth so far that does not.
    bad: Option<u32>,
    is_complete: bool,
    window_ns: u64,
    /// The start of the present window: only transfers that were submitted after it count.
    started_ns: u64,
    ios: u64,
    late: u64,
}

/// The result of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DepthFound {
    pub(crate) target: LatencyTarget,
    /// The largest depth that keeps the latency, with its transfers a second; none if no depth does.
    pub(crate) best: Option<(u32, f64)>,
    /// Whether the search is complete: no larger depth keeps the latency.
    pub(crate) is_complete: bool,
}

impl DepthSearch {
    /// A search from depth 1 to `depth_max`, from `started_ns` on.
    pub(super) fn new(target: LatencyTarget, depth_max: u32, started_ns: u64) -> Self {
        let window_ns = u64::try_from(target.window.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self {
            target,
            depth: 1,
            depth_max,
            good: None,
            bad: None,
            is_complete: false,
            window_ns,
            started_ns,
            ios: 0,
            late: 0,
        }
    }

    /// The transfers that may be in flight now.
    pub(super) const fn depth(&self) -> u32 {
        self.depth
    }

    /// A transfer has completed. Returns whether the job ends with it.
    pub(super) fn handle_done(&mut self, submitted_ns: u64, now_ns: u64) -> bool {
        if submitted_ns >= self.started_ns {
            self.ios += 1;
            self.late += u64::from(Duration::from_nanos(now_ns - submitted_ns) > self.target.limit);
        }
        let elapsed_ns = now_ns.saturating_sub(self.started_ns);
        if elapsed_ns < self.window_ns || self.ios == 0 {
            return false;
        }
        let late_max = u128::from(self.ios) * u128::from(MILLION - u64::from(self.target.per_million));
        let is_kept = u128::from(self.late) * u128::from(MILLION) <= late_max;
        let iops = self.ios as f64 / (elapsed_ns as f64 / 1e9);
        (self.started_ns, self.ios, self.late) = (now_ns, 0, 0);
        self.end_window(is_kept, iops)
    }

    fn end_window(&mut self, is_kept: bool, iops: f64) -> bool {
        let depth = self.depth;
        if is_kept {
            self.good = Some((depth, iops));
        } else {
            self.bad = Some(depth);
            // After the search, the device may have become slower.
            self.good = self.good.filter(|(good, _)| *good < depth);
        }
        let good = self.good.map_or(0, |(good, _)| good);
        let next = match self.bad {
            None => depth.saturating_mul(2).min(self.depth_max),
            Some(bad) => good.midpoint(bad),
        };
        self.is_complete = next == good;
        self.depth = next.max(1);
        self.is_complete && !self.target.continues
    }

    /// The depth found so far.
    pub(super) const fn found(&self) -> DepthFound {
        DepthFound { target: self.target, best: self.good, is_complete: self.is_complete }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT_NS: u64 = 1000;

    /// The search on a device that serves one transfer after another, each in `service_ns`, of at most `depth_max`.
    fn search(service_ns: u64, depth_max: u32, per_million: u32) -> (DepthFound, u32) {
        let target = LatencyTarget {
            limit: Duration::from_nanos(LIMIT_NS),
            window: Duration::from_micros(100),
            per_million,
            continues: false,
        };
        let mut search = DepthSearch::new(target, depth_max, 0);
        let (mut now_ns, mut windows) = (0, 0);
        loop {
            let before = search.depth();
            now_ns += service_ns;
            let latency_ns = service_ns * u64::from(search.depth());
            let ended = search.handle_done(now_ns.saturating_sub(latency_ns), now_ns);
            windows += u32::from(search.depth() != before || ended);
            if ended {
                return (search.found(), windows);
            }
        }
    }

    #[test]
    fn the_largest_depth_within_the_latency_is_found_in_a_few_windows() {
        let (found, windows) = search(70, 128, 1_000_000);
        assert_eq!(found.best.unwrap().0, 14, "14 x 70 ns is within 1,000 ns");
        assert!(found.is_complete && windows <= 8, "{windows}");
        let iops = found.best.unwrap().1;
        assert!((iops * 70.0 / 1e9 - 1.0).abs() < 0.05, "{iops}");
    }

    #[test]
    fn the_depth_of_the_job_is_the_limit() {
        let (found, _) = search(10, 32, 1_000_000);
        assert_eq!(found.best.unwrap().0, 32);
    }

    #[test]
    fn no_depth_may_keep_the_latency() {
        let (found, _) = search(5000, 32, 999_000);
        assert_eq!((found.best, found.is_complete), (None, true));
    }
}
