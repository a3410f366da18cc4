//! Detects the steady state of a run from its transfers so far. Has no clock: the caller passes the time. The criterion
//! is in `steady.rs`; `engine/watches.rs` and `simulated/watched.rs` end a run with it.

use std::collections::VecDeque;
use std::time::Duration;

use iopath_report::result::{SteadyRepeat, SteadyStateResult, SteadyWindow};

use crate::steady::{Limit, SAMPLES_MAX, SAMPLES_MIN, SteadyMetric, SteadyState};
use crate::workload::Workload;

/// Transfers, bytes and latencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Count {
    pub(crate) ios: u64,
    pub(crate) bytes: u64,
    /// Transfers whose latency was measured, and the sum of these latencies.
    pub(crate) timed: u64,
    pub(crate) latency_ns: u64,
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.timed += other.timed;
        self.latency_ns += other.latency_ns;
    }
}

/// The figures of a window, in transfers or bytes a second, or in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Window {
    pub(crate) mean: f64,
    /// The largest difference between a sample and the mean.
    pub(crate) deviation: f64,
    /// The change of the straight line from the first sample to the last one.
    pub(crate) slope: f64,
}

impl Window {
    /// The figures of samples at equal distances; none without two samples.
    fn of(samples: &VecDeque<f64>) -> Option<Self> {
        if samples.len() < 2 {
            return None;
        }
        let count = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / count;
        let middle = (count - 1.0) / 2.0;
        let (mut products, mut squares, mut deviation) = (0.0, 0.0, 0.0_f64);
        for (number, sample) in samples.iter().enumerate() {
            let from_middle = number as f64 - middle;
            products += from_middle * (sample - mean);
            squares += from_middle * from_middle;
            deviation = deviation.max((sample - mean).abs());
        }
        Some(Self { mean, deviation, slope: products / squares * (count - 1.0) })
    }

    fn is_within(&self, settings: &SteadyState) -> bool {
        let permits = |limit: Option<Limit>, value| limit.is_none_or(|limit| limit.permits(value, self.mean));
        permits(settings.deviation, self.deviation) && permits(settings.slope, self.slope)
    }
}

/// The end of the detection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Outcome {
    /// From the start of the measurement to the end of the first window that is steady; none without one.
    pub(crate) reached: Option<Duration>,
    /// The last complete window of reads and of writes.
    pub(crate) windows: [Option<Window>; 2],
}

/// Detects the steady state of jobs that run the same workload.
#[derive(Debug)]
pub(crate) struct Detector {
    settings: SteadyState,
    /// Whether the workload has reads and writes.
    is_used: [bool; 2],
    /// The newest samples of each direction.
    samples: [VecDeque<f64>; 2],
    samples_max: usize,
    started_ns: u64,
    /// The time and the counts of the last sample; none before the first one.
    last: Option<(u64, [Count; 2])>,
    next_ns: u64,
    reached: Option<Duration>,
}

impl Detector {
    /// The detector of a workload whose measurement starts at `started_ns`; none without a criterion.
    pub(crate) fn of(workload: &Workload, started_ns: u64) -> Option<Self> {
        let settings = workload.steady_state?;
        let samples_max = settings.samples().clamp(SAMPLES_MIN, SAMPLES_MAX) as usize;
        Some(Self {
            settings,
            is_used: workload.directions(),
            samples: [VecDeque::with_capacity(samples_max), VecDeque::with_capacity(samples_max)],
            samples_max,
            started_ns,
            last: None,
            next_ns: started_ns.saturating_add(nanoseconds(settings.ramp)),
            reached: None,
        })
    }

    /// The time of the next sample; none after the steady state was reached.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.reached.is_none().then_some(self.next_ns)
    }

    /// Takes a sample if it is due. `counts` are the reads and writes since the start of the measurement. Returns
    /// whether the steady state is reached with this sample.
    pub(crate) fn handle_counts(&mut self, counts: [Count; 2], now_ns: u64) -> bool {
        if self.reached.is_some() || now_ns < self.next_ns {
            return false;
        }
        if let Some((last_ns, last)) = self.last {
            let seconds = (now_ns - last_ns) as f64 / 1e9;
            for (samples, (count, before)) in self.samples.iter_mut().zip(counts.iter().zip(&last)) {
                let sample = match self.settings.metric {
                    SteadyMetric::Iops => count.ios.saturating_sub(before.ios) as f64 / seconds,
                    SteadyMetric::Throughput => count.bytes.saturating_sub(before.bytes) as f64 / seconds,
                    SteadyMetric::Latency => mean_latency(count, before),
                };
                if samples.len() == self.samples_max {
                    samples.pop_front();
                }
                samples.push_back(sample);
            }
        }
        self.last = Some((now_ns, counts));
        // A sampler that was late does not take several samples at once.
        let interval_ns = nanoseconds(self.settings.interval).max(1);
        self.next_ns = self.next_ns.saturating_add(interval_ns);
        if self.next_ns <= now_ns {
            self.next_ns = now_ns.saturating_add(interval_ns);
        }
        if self.is_steady() {
            self.reached = Some(Duration::from_nanos(now_ns - self.started_ns));
        }
        self.reached.is_some()
    }

    fn is_steady(&self) -> bool {
        let mut is_any = false;
        for (window, _) in self.windows().into_iter().zip(self.is_used).filter(|(_, is_used)| *is_used) {
            is_any = true;
            if !window.is_some_and(|window| window.is_within(&self.settings)) {
                return false;
            }
        }
        is_any
    }

    /// The complete windows of the directions of the workload.
    fn windows(&self) -> [Option<Window>; 2] {
        [0, 1].map(|index| {
            let samples = &self.samples[index];
            if self.is_used[index] && samples.len() == self.samples_max { Window::of(samples) } else { None }
        })
    }

    /// The result of the detection.
    pub(crate) fn outcome(&self) -> Outcome {
        Outcome { reached: self.reached, windows: self.windows() }
    }
}

/// The mean latency between two counts; 0 without a transfer, which is no latency of a storage.
fn mean_latency(count: &Count, before: &Count) -> f64 {
    let timed = count.timed.saturating_sub(before.timed);
    count.latency_ns.saturating_sub(before.latency_ns) as f64 / timed.max(1) as f64
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The result of all repetitions; none for a workload without a criterion.
pub(crate) fn result(workload: &Workload, outcomes: &[Outcome]) -> Option<SteadyStateResult> {
    let settings = workload.steady_state?;
    let window = |window: Window| {
        let percent = |value: f64| if window.mean > 0.0 { value / window.mean * 100.0 } else { 0.0 };
        SteadyWindow {
            mean: window.mean,
            deviation_percent: percent(window.deviation),
            slope_percent: percent(window.slope),
        }
    };
    let repeat = |outcome: &Outcome| SteadyRepeat {
        reached_seconds: outcome.reached.map(|time| time.as_secs_f64()),
        read: outcome.windows[0].map(window),
        write: outcome.windows[1].map(window),
    };
    Some(SteadyStateResult {
        metric: settings.metric.name().to_owned(),
        window_seconds: settings.window.as_secs_f64(),
        interval_seconds: settings.interval.as_secs_f64(),
        deviation_limit: settings.deviation.map(|limit| limit.to_string()),
        slope_limit: settings.slope.map(|limit| limit.to_string()),
        reached: !outcomes.is_empty() && outcomes.iter().all(|outcome| outcome.reached.is_some()),
        repeats: outcomes.iter().map(repeat).collect(),
    })
}

/// A warning if a repetition has ended without a steady state.
pub(crate) fn warning(result: &SteadyStateResult) -> Option<String> {
    let mut missed = result.repeats.iter().filter(|repeat| repeat.reached_seconds.is_none());
    let (count, last) = (missed.clone().count(), missed.next_back()?);
    let of_direction = |name: &str, window: &Option<SteadyWindow>| {
        let SteadyWindow { deviation_percent, slope_percent, .. } = window.as_ref()?;
        Some(format!("{name}: deviation {deviation_percent:.1}%, slope {slope_percent:+.1}%"))
    };
    let figures: Vec<String> = [of_direction("reads", &last.read), of_direction("writes", &last.write)]
        .into_iter()
        .flatten()
        .collect();
    let figures = if figures.is_empty() {
        format!("no window of {} s was complete", result.window_seconds)
    } else {
        format!("in the last window, {}", figures.join("; "))
    };
    let of = result.repeats.len();
    Some(format!(
        "the steady state was not reached in {count} of {of} repetitions ({figures}); use a longer runtime or larger limits"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::ReadShare;
    use iopath_report::Rw;

    const SECOND_NS: u64 = 1_000_000_000;

    fn workload(rw: Rw, criterion: &str) -> Workload {
        Workload { rw, steady_state: Some(criterion.parse().unwrap()), ..Workload::default() }
    }

    /// The second in which rates of reads and writes, per second, are steady. The window has ten samples.
    fn reached(workload: &Workload, rates: impl Fn(u64) -> [u64; 2], seconds: u64) -> Option<u64> {
        let mut detector = Detector::of(workload, 5 * SECOND_NS).unwrap();
        let mut counts = [Count::default(); 2];
        assert!(!detector.handle_counts(counts, 5 * SECOND_NS));
        for second in 1..=seconds {
            for (count, rate) in counts.iter_mut().zip(rates(second)) {
                *count += Count { ios: rate, bytes: rate * 4096, ..Count::default() };
            }
            let now_ns = detector.poll_timeout().unwrap();
            assert_eq!(now_ns, (5 + second) * SECOND_NS);
            assert!(!detector.handle_counts(counts, now_ns - 1), "not due");
            if detector.handle_counts(counts, now_ns) {
                assert_eq!(detector.outcome().reached, Some(Duration::from_secs(second)));
                assert_eq!(detector.poll_timeout(), None);
                return Some(second);
            }
        }
        assert_eq!(detector.outcome().reached, None);
        None
    }

    #[test]
    fn constant_rates_are_steady_after_one_window() {
        for criterion in ["iops", "bw", "iops:0%:0%", "bw:0:0"] {
            assert_eq!(reached(&workload(Rw::Read, criterion), |_| [1000, 0], 100), Some(10), "{criterion}");
        }
    }

    #[test]
    fn a_fall_to_a_lower_rate_is_steady_one_window_later() {
        // As a write cache that is full after 30 s.
        let cliff = |second| [0, if second <= 30 { 5000 } else { 700 }];
        let from = |criterion| reached(&workload(Rw::Write, criterion), cliff, 100);
        assert_eq!(from("iops"), Some(10), "the cache is steady, too");
        let mut later = workload(Rw::Write, "iops");
        later.steady_state.as_mut().unwrap().ramp = Duration::from_secs(25);
        let mut detector = Detector::of(&later, 0).unwrap();
        let mut count = Count::default();
        let mut second = 0;
        while detector.outcome().reached.is_none() {
            if second > 0 {
                count += Count { ios: cliff(second)[1], ..Count::default() };
            }
            detector.handle_counts([Count::default(), count], second * SECOND_NS);
            second += 1;
        }
        assert_eq!(detector.outcome().reached, Some(Duration::from_secs(40)), "ten samples after the fall");
    }

    #[test]
    fn a_rate_that_rises_by_more_than_the_slope_is_not_steady() {
        // 2% a second, 18% over the nine distances of a window: each sample is within 10% of the mean.
        let rising = |second| [1000 + 20 * second, 0];
        let steep = workload(Rw::Read, "iops:10%:10%");
        let window = reached(&steep, rising, 1000).expect("the slope falls below 10% as the mean rises");
        // The change of 180 is 10% of a mean of 1800, in the middle of the window.
        assert_eq!(window, 45);
        assert_eq!(reached(&workload(Rw::Read, "iops:50%:20%"), rising, 100), Some(10));
        assert_eq!(reached(&workload(Rw::Read, "iops:50%:1%"), rising, 500), None);
        let falling = |second| [10_000 - 100 * second, 0];
        assert_eq!(
            reached(&workload(Rw::Read, "iops:50%:5%"), falling, 50),
            None,
            "the sign does not matter"
        );
    }

    #[test]
    fn a_rate_that_alternates_around_its_mean_has_no_slope_and_a_deviation() {
        let alternating = |second| [if second % 2 == 0 { 1150 } else { 850 }, 0];
        assert_eq!(reached(&workload(Rw::Read, "iops:16%:10%"), alternating, 100), Some(10));
        assert_eq!(reached(&workload(Rw::Read, "iops:14%:10%"), alternating, 1000), None);
    }

    #[test]
    fn one_outlier_delays_the_steady_state_until_it_has_left_the_window() {
        let outlier = |second| [if second == 8 { 500 } else { 1000 }, 0];
        assert_eq!(reached(&workload(Rw::Read, "iops"), outlier, 100), Some(18));
    }

    #[test]
    fn reads_and_writes_must_both_be_steady() {
        // The sum of both is constant.
        let opposite = |second| [1000 + 10 * second, 3000 - 10 * second];
        assert_eq!(reached(&workload(Rw::RandRw, "iops:50%:1%"), opposite, 80), None);
        let mut reads = workload(Rw::RandRw, "iops");
        reads.read_share = ReadShare::constant(100);
        assert_eq!(
            reached(&reads, |_| [1000, 0], 100),
            Some(10),
            "a mix without writes has none to be steady"
        );
        assert_eq!(reached(&workload(Rw::RandRw, "iops"), |_| [1000, 0], 100), None);
        assert_eq!(reached(&workload(Rw::Read, "iops"), |_| [0, 0], 100), None, "no transfers");
    }

    #[test]
    fn a_late_sample_has_the_rate_of_its_own_time() {
        let mut detector = Detector::of(&workload(Rw::Read, "iops:1%:1%"), 0).unwrap();
        let mut now_ns = 0;
        let at = |now_ns: u64| [Count { ios: now_ns / 1_000_000, ..Count::default() }, Count::default()];
        for late_ms in [0, 0, 130, 900, 20, 2_500, 0, 0, 0, 0, 0] {
            now_ns = detector.poll_timeout().unwrap().max(now_ns) + late_ms * 1_000_000;
            detector.handle_counts(at(now_ns), now_ns);
        }
        assert!(detector.outcome().reached.is_some());
    }

    #[test]
    fn a_latency_is_steady_apart_from_the_rate() {
        // Mean latencies of a second, in microseconds: falling for 20 s, then steady. The rate is random.
        let latency = |second: u64| if second < 20 { 500 - 20 * second } else { 100 + second % 2 };
        let mut detector = Detector::of(&workload(Rw::Read, "lat:5%:5%"), 0).unwrap();
        let mut count = Count::default();
        for second in 0..60 {
            let timed = 1000 + second * 7919 % 500;
            if detector.handle_counts([count, Count::default()], second * SECOND_NS) {
                break;
            }
            let latency_ns = timed * latency(second + 1) * 1000;
            count += Count { timed, latency_ns, ios: timed, bytes: 0 };
        }
        assert_eq!(detector.outcome().reached, Some(Duration::from_secs(29)), "ten samples after the change");
        let [read, _] = detector.outcome().windows;
        assert!((100_000.0..101_001.0).contains(&read.unwrap().mean), "{read:?}");
    }

    #[test]
    fn a_warning_states_the_last_window_of_a_repetition_that_was_not_steady() {
        let workload = workload(Rw::Read, "iops");
        let window = Window { mean: 100.0, deviation: 34.0, slope: -12.0 };
        let steady = Outcome { reached: Some(Duration::from_secs(10)), windows: [Some(window), None] };
        let never = Outcome { reached: None, ..steady };
        let both = result(&workload, &[steady, never]).unwrap();
        assert!(!both.reached);
        let text = warning(&both).unwrap();
        assert!(
            text.contains("1 of 2 repetitions (in the last window, reads: deviation 34.0%, slope -12.0%)"),
            "{text}"
        );
        let all = result(&workload, &[steady]).unwrap();
        assert!(all.reached && warning(&all).is_none());
        assert_eq!(result(&Workload::default(), &[]), None);
    }
}
