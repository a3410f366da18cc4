//! The time that a client has for a message: to send a request with its data, or to receive replies.
//!
//! A limit of the silence between two bytes is not enough, because a client that sends a byte now and then would hold
//! its buffer forever. So a message must also arrive at a minimum rate on average. It knows no sockets; time is an
//! argument.

use std::time::{Duration, Instant};

/// Longest data of a message. Fast bytes save no time for more slow ones than this.
const MESSAGE_MAX: u64 = 32 << 20;

/// The limits of a connection, and its progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    patience: Duration,
    /// Bytes in a second.
    rate_min: u64,
    /// Bytes of the connection in both directions at the last update.
    moved: u64,
    /// The time of the last byte.
    progressed: Instant,
    /// The time at which the client must have completed its message, while the connection waits for it.
    limit: Option<Instant>,
}

impl Pace {
    /// The limits of a new connection: a message may take `patience`, and the time of its bytes at `rate_min` bytes in
    /// a second. Its longest silence is `patience`.
    pub(super) fn new(patience: Duration, rate_min: u64, now: Instant) -> Self {
        Self { patience, rate_min: rate_min.max(1), moved: 0, progressed: now, limit: None }
    }

    /// Notes the bytes of the connection since its start, and whether it waits for the client within a message.
    pub(super) fn update(&mut self, moved: u64, is_within_message: bool, now: Instant) {
        let bytes = moved - self.moved;
        self.moved = moved;
        if bytes > 0 {
            self.progressed = now;
        }
        self.limit = is_within_message.then(|| {
            let limit = self.limit.unwrap_or(now + self.patience) + self.time_of(bytes);
            limit.min(now + self.patience + self.time_of(MESSAGE_MAX))
        });
    }

    /// Whether the client was silent or slow for too long.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        let silence = now.saturating_duration_since(self.progressed);
        self.limit.is_some_and(|limit| now >= limit || silence >= self.patience)
    }

    /// The time of the last byte.
    pub(super) fn progressed(&self) -> Instant {
        self.progressed
    }

    fn time_of(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.rate_min as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);
    const RATE: u64 = 16 << 10;

    /// The second at which a client is disconnected that moves `bytes` each `interval` seconds within a message.
    fn end(bytes: u64, interval: u64) -> Option<u64> {
        let start = Instant::now();
        let mut pace = Pace::new(PATIENCE, RATE, start);
        pace.update(28, true, start);
        (1..10_000).find(|second| {
            let now = start + Duration::from_secs(*second);
            if second % interval == 0 {
                pace.update(28 + second / interval * bytes, true, now);
            }
            pace.is_late(now)
        })
    }

    #[test]
    fn a_message_has_a_minimum_rate_and_a_longest_silence() {
        assert_eq!(end(1, 8), Some(31), "a byte now and then");
        assert_eq!(end(RATE, 1), None, "the minimum rate");
        assert!(end(RATE / 2, 1).is_some_and(|second| (60..70).contains(&second)), "half of it");
        assert_eq!(end(1 << 30, 31), Some(30), "silence");
        assert_eq!(end(20 * RATE, 20), None, "bursts");
    }

    #[test]
    fn a_client_between_two_messages_has_no_limit() {
        let start = Instant::now();
        let mut pace = Pace::new(PATIENCE, RATE, start);
        pace.update(28, true, start);
        pace.update(29, false, start);
        assert!(!pace.is_late(start + 100 * PATIENCE));
    }

    #[test]
    fn fast_bytes_save_time_for_one_message_only() {
        let start = Instant::now();
        let mut pace = Pace::new(PATIENCE, RATE, start);
        pace.update(1 << 40, true, start);
        let mut now = start;
        let longest = PATIENCE + Duration::from_secs(MESSAGE_MAX / RATE);
        for bytes in 1..=longest.as_secs() {
            now += Duration::from_secs(1);
            pace.update((1 << 40) + bytes, true, now);
        }
        assert!(!pace.is_late(start + longest / 2));
        assert!(pace.is_late(now + Duration::from_secs(1)));
    }
}
