//! Finds by trials how many bytes a device needs in flight. It doubles the distance while the measured throughput
//! rises, and halves it if the throughput stays the same. Independent of streams and pages.
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
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Doubling. The last `misses` rounds had no gain.
    Grow { misses: u32 },
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
    const PATIENCE_MIN: u32 = 16;
    const PATIENCE_MAX: u32 = 128;

    /// Tunes between `min` and `max` bytes, starting at `min`.
    pub(super) fn new(min: u64, max: u64) -> Self {
        Self {
            target: min,
            min,
            max: max.max(min),
            meter: Meter::default(),
            phase: Phase::Grow { misses: 0 },
            skips_round: false,
            rate: 0,
            trial_interval: Self::PATIENCE_MIN,
            is_up_next: true,
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
        let targets = if matches!(self.phase, Phase::Grow { .. }) { 1 } else { 4 };
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
            Phase::Grow { misses } => self.grow(rate, misses + 1),
            Phase::Steady { rounds_left: 0 } => self.start_trial(),
            Phase::Steady { rounds_left } => {
                self.rate = self.rate - self.rate / 8 + rate / 8;
                Phase::Steady { rounds_left: rounds_left - 1 }
            }
            // A clear loss needs no second round.
            Phase::Trial { from, first: None } if is_gain(rate, self.rate, 10) => self.end_trial(from, rate),
            Phase::Trial { from, first: None } => Phase::Trial { from, first: Some(rate) },
            Phase::Trial { from, first: Some(first) } => self.end_trial(from, u64::midpoint(first, rate)),
        }
    }

    fn grow(&mut self, rate: u64, misses: u32) -> Phase {
        if is_gain(self.rate, rate, 10) {
            self.rate = rate;
            if self.target < self.max {
                self.set_target(self.target.saturating_mul(2));
                return Phase::Grow { misses: 0 };
            }
        } else if misses < Self::MISSES_MAX {
            return Phase::Grow { misses };
        } else {
            self.set_target(self.target / 2);
        }
        Phase::Steady { rounds_left: self.trial_interval }
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
            self.trial_interval = (self.trial_interval * 2).min(Self::PATIENCE_MAX);
            return Phase::Steady { rounds_left: self.trial_interval };
        }
        self.rate = rate;
        self.trial_interval = Self::PATIENCE_MIN;
        if self.target > from && self.target < self.max {
            self.set_target(self.target.saturating_mul(2));
            return Phase::Grow { misses: 0 };
        }
        Phase::Steady { rounds_left: self.trial_interval }
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
