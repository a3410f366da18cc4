//! Computes the pauses of writers, which grow as the number of dirty pages approaches its limit. The driver executes
//! the pauses.
//!
//! ```text
//!  pause ▲                       │        One writer reaches an equilibrium in the middle, where the write of a page
//!  /page │                     ╱ │        takes as long as its write-back. n writers reach it at n/(n+1): close
//!        │                  ╱    │        to the limit, and always below it.
//!        │            ╱          │
//!        └────┬──────────────────┴──▶ dirty
//!          background          limit
//! ```

use super::CacheConfig;
use crate::file::rate::Meter;
use crate::time::{Duration, Instant};

/// The pause for writers, from the share of dirty pages and the measured rate of write-back.
#[derive(Debug)]
pub(super) struct Throttle {
    background: u32,
    limit: u32,
    page_bytes: u64,
    meter: Meter,
    /// Bytes per second of write-back.
    rate: u64,
}

impl Throttle {
    /// The assumed rate of write-back before the first measurement.
    const RATE_UNKNOWN: u64 = 100 << 20;
    /// The minimum busy time of the device in a measurement.
    const ROUND_MIN: Duration = Duration::from_millis(20);
    /// The maximum pause for a page, for any device.
    const PAUSE_MAX: Duration = Duration::from_millis(100);

    pub(super) fn new(config: &CacheConfig) -> Self {
        let mut throttle = Self {
            background: 0,
            limit: 0,
            page_bytes: u64::from(config.page_bytes),
            meter: Meter::default(),
            rate: Self::RATE_UNKNOWN,
        };
        throttle.resize(config);
        throttle
    }

    /// Sets the thresholds for the frames of `config`.
    pub(super) fn resize(&mut self, config: &CacheConfig) {
        let share = |percent: u8| (u64::from(config.frames) * u64::from(percent) / 100) as u32;
        self.background = share(config.background_percent).max(1);
        self.limit = share(config.limit_percent).max(self.background + 1);
    }

    /// The number of dirty pages above which write-back runs.
    pub(super) const fn background(&self) -> u32 {
        self.background
    }

    pub(super) fn issued(&mut self, bytes: u64, now: Instant) {
        self.meter.issued(bytes, now);
    }

    pub(super) fn completed(&mut self, bytes: u64, is_ok: bool, now: Instant) {
        self.meter.completed(bytes, if is_ok { bytes } else { 0 }, now);
        if !is_ok {
            // The time until an error is not that of a transfer.
            self.meter.take_rate();
        } else if self.meter.busy() >= Self::ROUND_MIN {
            let rate = self.meter.take_rate();
            self.rate = (self.rate - self.rate / 4 + rate / 4).max(1);
        }
    }

    /// The pause of a writer that made a page dirty; `dirty` is the number of all dirty pages.
    pub(super) fn pause(&self, dirty: u32) -> Duration {
        let above = u64::from(dirty.saturating_sub(self.background));
        if above == 0 {
            return Duration::ZERO;
        }
        let below = u64::from(self.limit.saturating_sub(dirty)).max(1);
        let page_nanos = u128::from(self.page_bytes) * 1_000_000_000 / u128::from(self.rate);
        let nanos = page_nanos * u128::from(above) / u128::from(below);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(Self::PAUSE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_smoothly_and_end() {
        let throttle = Throttle::new(&CacheConfig { frames: 1000, ..CacheConfig::default() });
        assert_eq!(throttle.pause(100), Duration::ZERO);
        let pauses: Vec<Duration> = (100..1000).map(|dirty| throttle.pause(dirty)).collect();
        assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]));
        let page = Duration::from_nanos(4096 * 1_000_000_000 / Throttle::RATE_UNKNOWN);
        assert_eq!(throttle.pause(250), page, "in the middle, as long as the page takes to write back");
        assert!(pauses.iter().all(|pause| *pause <= Throttle::PAUSE_MAX));
    }
}
