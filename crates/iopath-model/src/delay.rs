//! Stages in front of a device: a constant delay, and caps on I/Os and bytes a second.

use iopath_core::{Duration, Instant};

use crate::bucket::Bucket;
use crate::stage::{Passage, Stage};

/// Adds a constant time to each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay {
    extra: Duration,
}

impl Delay {
    /// Requests complete `extra` later. They do not wait for each other.
    pub const fn new(extra: Duration) -> Self {
        Self { extra }
    }
}

impl Stage for Delay {
    fn enter(&mut self, _request: &Passage, now: Instant) -> Instant {
        now
    }

    fn leave(&mut self, _request: &Passage, now: Instant) -> Instant {
        now + self.extra
    }
}

/// Caps I/Os and bytes a second: requests wait in order before the device.
#[derive(Debug, Clone)]
pub struct Throttle {
    ios: Option<Bucket>,
    bytes: Option<Bucket>,
}

impl Throttle {
    /// `None` means no cap. Reads and writes count against the caps; requests without memory, such as flushes, do not.
    ///
    /// # Panics
    /// If a cap is 0.
    pub fn new(ios_per_s: Option<u32>, bytes_per_s: Option<u64>) -> Self {
        let bucket = |rate: f64| {
            assert!(rate >= 1.0, "a cap is at least 1 a second");
            Bucket::new(rate, rate, 0.0)
        };
        Self {
            ios: ios_per_s.map(|rate| bucket(f64::from(rate))),
            bytes: bytes_per_s.map(|rate| bucket(rate as f64)),
        }
    }
}

impl Stage for Throttle {
    fn enter(&mut self, request: &Passage, now: Instant) -> Instant {
        if !request.op.has_memory() {
            return now;
        }
        let mut at = now.as_nanos();
        for bucket in [&self.ios, &self.bytes].into_iter().flatten() {
            at = bucket.ready(at);
        }
        if let Some(ios) = &mut self.ios {
            ios.take(1, at);
        }
        if let Some(bytes) = &mut self.bytes {
            bytes.take(request.bytes, at);
        }
        Instant::from_nanos(at)
    }

    fn leave(&mut self, _request: &Passage, now: Instant) -> Instant {
        now
    }
}
