//! Finds by trials how many bytes a device needs in flight. It doubles the distance while the measured throughput
//! rises, and halves it if the throughput stays the same. When the throughput falls at a constant distance, it returns
//! to the fastest distance so far, and tries both neighbours of the current one. Independent of streams and pages.
//!
//! The product of bandwidth and delay would be the same number, but the delay is unknown. The least measured delay is
//! that of a block in the device's cache, and the mean delay grows with the queue length, which is the unknown here. So
//! the trials compare throughput directly.
//!
//! ```text
//!  rate ▲            ┌───────●────●   doubling again had no gain: undone
//!       │        ●───┘
//!       │    ●
//!       │  ●
//!       └──┬─┬───┬───────────┬────▶ bytes in flight
//! ```
//!
//! The throughput of a device may have several stable values at one distance. An example is a target whose threads
//! alternate or wait for each other. Trials at fixed intervals leave the device in the slow state for a long time: the
//! interval doubles, and each round takes longer. So a fall starts a trial at once.

use crate::file::rate::Meter;
use crate::time::{Duration, Instant};

/// The bytes to keep in flight, and the current trial.
#[derive(Debug)]
pub(super) struct WindowTuner {
    target: u64,
    min: u64,
    max: u64,
    meter: Meter,
    phase: Phase,
    /// The current round began before the last change of the target, so its result is not used.
    skips_round: bool,
    /// Bytes per second at `target`, or at the previous target during a trial.
    rate: u64,
    /// The number of rounds between two trials. Doubles while trials have no gain.
    trial_interval: u32,
    /// Whether the next trial doubles the target. Otherwise it halves the target.
    is_up_next: bool,
    /// The highest throughput so far, and the smallest target that had it.
    best: Best,
    /// The mean rate of the last rounds: the last one has half of the weight.
    recent: u64,
    /// Trials that follow at once if the current one has no gain.
    retries: u32,
}

#[derive(Debug, Clone, Copy)]
struct Best {
    rate: u64,
    target: u64,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Doubling, last from `from`. The last `misses` rounds had no gain.
    Grow { from: u64, misses: u32 },
    /// Growth has ended: a round at the fastest target. If it is slow, the earlier rate was noise, and growth resumes
    /// at `larger`.
    Check { larger: u64 },
    /// No trial for the next `rounds_left` rounds.
    Steady { rounds_left: u32 },
    /// A trial of another target than `from`; `first` is the rate of the first of two rounds.
    Trial { from: u64, first: Option<u64> },
}

impl WindowTuner {
    /// The minimum duration of a round.
    const ROUND_MIN: Duration = Duration::from_millis(1);
    /// Growth ends after this many consecutive rounds without gain: a single one may be noise.
    const MISSES_MAX: u32 = 2;
    const PATIENCE_MIN: u32 = 8;
    const PATIENCE_MAX: u32 = 128;
    /// The throughput has fallen if the best exceeds it by this much: it is less than three quarters.
    const FALL_PERCENT: u64 = 33;

    /// Tunes between `min` and `max` bytes, starting at `min`.
    pub(super) fn new(min: u64, max: u64) -> Self {
        Self {
            target: min,
            min,
            max: max.max(min),
            meter: Meter::default(),
            phase: Phase::Grow { from: min, misses: 0 },
            skips_round: false,
            rate: 0,
            trial_interval: Self::PATIENCE_MIN,
            is_up_next: true,
            best: Best { rate: 0, target: min },
            recent: 0,
            retries: 0,
        }
    }

    /// Sets the maximum.
    pub(super) fn set_max(&mut self, max: u64) {
        self.max = max.max(self.min);
        if self.target > self.max {
            self.set_target(self.max);
        }
    }

    /// The bytes to keep in flight.
    pub(super) const fn target(&self) -> u64 {
        self.target
    }

    /// Bytes per second at the current target; 0 before the first round has completed.
    pub(super) const fn rate(&self) -> u64 {
        self.rate
    }

    pub(super) fn issued(&mut self, bytes: u64, now: Instant) {
        self.meter.issued(bytes, now);
    }

    pub(super) fn completed(&mut self, bytes: u64, moved: u64, now: Instant) {
        self.meter.completed(bytes, moved, now);
        // Growth must be fast; later trials may take longer and be more certain.
        let targets = match self.phase {
            _ if self.skips_round => 1,
            Phase::Grow { .. } | Phase::Check { .. } => 1,
            Phase::Steady { .. } | Phase::Trial { .. } => 4,
        };
        let is_round_over =
            self.meter.moved() >= self.target.saturating_mul(targets) && self.meter.busy() >= Self::ROUND_MIN;
        if is_round_over {
            let rate = self.meter.take_rate();
            if self.skips_round {
                self.skips_round = false;
            } else {
                self.phase = self.after_round(rate);
            }
        }
    }

    fn after_round(&mut self, rate: u64) -> Phase {
        match self.phase {
            Phase::Grow { from, misses } => self.grow(from, rate, misses + 1),
            Phase::Check { larger } => self.check(larger, rate),
            Phase::Steady { rounds_left } => self.continue_steady(rate, rounds_left),
            // A clear loss or gain needs no second round.
            Phase::Trial { from, first: None }
                if is_gain(rate, self.rate, 10) || is_gain(self.rate, rate, 25) =>
            {
                self.end_trial(from, rate)
            }
            Phase::Trial { from, first: None } => Phase::Trial { from, first: Some(rate) },
            Phase::Trial { from, first: Some(first) } => self.end_trial(from, u64::midpoint(first, rate)),
        }
    }

    fn begin_steady(&mut self) -> Phase {
        self.recent = self.rate;
        Phase::Steady { rounds_left: self.trial_interval }
    }

    fn continue_steady(&mut self, rate: u64, rounds_left: u32) -> Phase {
        self.recent = u64::midpoint(self.recent, rate);
        if is_gain(self.recent, self.best.rate, Self::FALL_PERCENT) {
            return self.handle_fall(self.recent);
        }
        if rounds_left == 0 {
            return self.start_trial();
        }
        self.set_rate(self.rate - self.rate / 8 + rate / 8);
        Phase::Steady { rounds_left: rounds_left - 1 }
    }

    /// Starts a trial of the best target so far, and of the neighbours if that has no gain.
    fn handle_fall(&mut self, rate: u64) -> Phase {
        let best = self.best;
        // The device may have changed: the old rate counts no more.
        self.best = Best { rate, target: self.target };
        self.rate = rate;
        self.trial_interval = Self::PATIENCE_MIN;
        if best.target == self.target {
            self.retries = 1;
            return self.start_trial();
        }
        self.retries = 2;
        let from = self.target;
        self.set_target(best.target);
        Phase::Trial { from, first: None }
    }

    fn grow(&mut self, from: u64, rate: u64, misses: u32) -> Phase {
        if is_gain(self.rate, rate, 10) {
            self.set_rate(rate);
            if self.target < self.max {
                return self.double();
            }
        } else if misses < Self::MISSES_MAX {
            return Phase::Grow { from, misses };
        } else {
            let larger = self.target;
            self.set_target(from);
            if larger > from {
                return Phase::Check { larger };
            }
        }
        self.begin_steady()
    }

    fn check(&mut self, larger: u64, rate: u64) -> Phase {
        if !is_gain(rate, self.rate, Self::FALL_PERCENT) {
            self.set_rate(u64::midpoint(self.rate, rate));
            return self.begin_steady();
        }
        let from = self.target;
        (self.best, self.rate) = (Best { rate, target: from }, rate);
        self.set_target(larger);
        Phase::Grow { from, misses: 0 }
    }

    fn double(&mut self) -> Phase {
        let from = self.target;
        self.set_target(from.saturating_mul(2));
        Phase::Grow { from, misses: 0 }
    }

    fn start_trial(&mut self) -> Phase {
        let from = self.target;
        let is_up = (self.is_up_next || from == self.min) && from < self.max;
        self.set_target(if is_up { from.saturating_mul(2) } else { from / 2 });
        self.is_up_next = !is_up;
        Phase::Trial { from, first: None }
    }

    fn end_trial(&mut self, from: u64, rate: u64) -> Phase {
        let pays =
            if self.target > from { is_gain(self.rate, rate, 5) } else { !is_gain(rate, self.rate, 2) };
        if !pays {
            self.set_target(from);
            if self.retries > 0 {
                self.retries -= 1;
                return self.start_trial();
            }
            self.trial_interval = (self.trial_interval * 2).min(Self::PATIENCE_MAX);
            return self.begin_steady();
        }
        self.set_rate(rate);
        (self.trial_interval, self.retries) = (Self::PATIENCE_MIN, 0);
        if self.target > from && self.target < self.max {
            return self.double();
        }
        self.begin_steady()
    }

    fn set_rate(&mut self, rate: u64) {
        self.rate = rate;
        if is_gain(self.best.rate, rate, 2)
            || (self.target < self.best.target && !is_gain(rate, self.best.rate, 2))
        {
            self.best = Best { rate, target: self.target };
        }
    }

    fn set_target(&mut self, target: u64) {
        self.target = target.clamp(self.min, self.max);
        self.skips_round = true;
    }
}

/// Whether `after` exceeds `before` by at least `percent`.
fn is_gain(before: u64, after: u64, percent: u64) -> bool {
    u128::from(after) * 100 >= u128::from(before) * u128::from(100 + percent) && after > before
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Keeps the target in flight on a device of that bandwidth (bytes/s) and delay, for `rounds` rounds and until a
    /// trial ends.
    fn run(tuner: &mut WindowTuner, bandwidth: u64, delay: Duration, now: &mut Instant, rounds: u32) {
        let mut rounds_left = rounds;
        while rounds_left > 0 || matches!(tuner.phase, Phase::Trial { .. }) {
            rounds_left = rounds_left.saturating_sub(1);
            let bytes = tuner.target();
            tuner.issued(bytes, *now);
            let pipe = Duration::from_nanos(bytes * 1_000_000_000 / bandwidth);
            *now = *now + pipe.max(delay);
            tuner.completed(bytes, bytes, *now);
        }
    }

    #[test]
    fn converges_to_bandwidth_times_delay() {
        // 2 GiB/s for 4 ms: 8 MiB.
        let mut tuner = WindowTuner::new(MIB, 256 * MIB);
        let mut now = Instant::ZERO;
        run(&mut tuner, 2048 * MIB, Duration::from_millis(4), &mut now, 30);
        assert_eq!(tuner.target(), 8 * MIB);
        assert!(tuner.rate() > 1950 * MIB, "{}", tuner.rate());
    }

    #[test]
    fn follows_a_device_that_changes() {
        let mut tuner = WindowTuner::new(MIB, 256 * MIB);
        let mut now = Instant::ZERO;
        run(&mut tuner, 2048 * MIB, Duration::from_millis(1), &mut now, 30);
        assert_eq!(tuner.target(), 2 * MIB);
        run(&mut tuner, 2048 * MIB, Duration::from_millis(16), &mut now, 1000);
        assert!(tuner.target() >= 32 * MIB, "{}", tuner.target());
        run(&mut tuner, 2048 * MIB, Duration::from_millis(1), &mut now, 3000);
        assert!(tuner.target() <= 8 * MIB, "{}", tuner.target());
    }

    /// The mean rate of 512 MiB in rounds of one target, on a device with this rate (MiB/s) at a target and a time.
    fn mean_rate(rate: impl Fn(u64, Instant) -> u64) -> (u64, WindowTuner) {
        let mut tuner = WindowTuner::new(MIB, 64 * MIB);
        let mut now = Instant::ZERO;
        let mut moved = 0;
        while moved < 512 * MIB {
            let bytes = tuner.target();
            tuner.issued(bytes, now);
            now = now + Duration::from_nanos(bytes * 1_000_000_000 / (rate(bytes, now) * MIB));
            tuner.completed(bytes, bytes, now);
            moved += bytes;
        }
        (moved * 1000 / (now - Instant::ZERO).as_millis() as u64 / MIB, tuner)
    }

    #[test]
    fn returns_to_the_fastest_distance_when_the_throughput_falls() {
        // 2 MiB is the best distance until 200 ms, and slow after that.
        let rate = |bytes, now: Instant| match bytes / MIB {
            1 => 200,
            2 if now < Instant::from_nanos(200_000_000) => 280,
            _ => 70,
        };
        let (mean, tuner) = mean_rate(rate);
        assert!(mean >= 150 && tuner.target() == MIB, "{mean} MiB/s at {}", tuner.target());
    }

    #[test]
    fn a_rate_that_was_noise_does_not_end_growth() {
        // The first rounds of 2 MiB are fast, as from a cache of the device.
        let rate = |bytes, now: Instant| match bytes / MIB {
            2 if now < Instant::from_nanos(50_000_000) => 280,
            1 | 2 => 60,
            mib => (30 * mib).min(250),
        };
        let (mean, tuner) = mean_rate(rate);
        assert!(mean >= 180 && tuner.target() >= 8 * MIB, "{mean} MiB/s at {}", tuner.target());
    }

    #[test]
    fn never_leaves_its_bounds() {
        let mut tuner = WindowTuner::new(MIB, 5 * MIB);
        let mut now = Instant::ZERO;
        for _ in 0..500 {
            run(&mut tuner, 1 << 40, Duration::from_millis(50), &mut now, 1);
            assert!((MIB..=5 * MIB).contains(&tuner.target()));
        }
        assert_eq!(tuner.target(), 5 * MIB);
    }
}
