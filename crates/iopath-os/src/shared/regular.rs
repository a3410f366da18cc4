//! Restricts how many clients use a saturated queue at a time.
//!
//! When another thread holds the queue, its state, some hundred cache lines, moves to another processor. That takes as
//! long as the service of a batch. If the device completes requests at once, and a client spends more time in the queue
//! than between its calls, then a second client adds no throughput, only such moves. So the first client becomes the
//! *regular* holder and serves all. The others publish their bios and *rest*: they sleep for a fixed time, and then
//! take the completions that have accumulated. After a term, the next client that has rested takes over. See Dice,
//! Kogan: Avoiding Scalability Collapse by Restricting Concurrency, 2019.
//!
//! ```text
//!   STREAK calls, no wait for the device ─▶ regular holder ── a wait for the device ─▶ none
//!                                            │        ▲
//!                                      TERM has passed: the next client that has rested
//! ```
//!
//! A resting client depends on no wake-up: the time limit bounds its wait, also if the regular holder does not return.
//! With a device that lets its poller wait, there is no regular holder, and no client rests.

use std::time::Duration;

use iopath_core::Instant;

use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::atomic::{AtomicU32, AtomicU64};

/// Calls without a wait for the device before a client becomes the regular holder.
const STREAK: u32 = if cfg!(iopath_explore) { 2 } else { 16 };

/// A device that lets its poller wait less completes requests at once.
const DEVICE_WAIT_MIN: Duration = Duration::from_micros(5);

/// A client that stays away for longer between two calls is not the regular holder.
const AWAY_MAX_NANOS: u64 = 16_000;

/// How long a client is the regular holder while others rest.
const TERM: Duration = Duration::from_millis(10);

/// The length of a rest, for each client of the queue. So the wake-ups per second do not grow with the clients.
const REST: Duration = Duration::from_micros(64);
/// The maximum number of clients that count in a rest.
const RESTING_MAX: u32 = 64;

/// No client.
const NONE: u32 = u32::MAX;

/// The regular holder, as other clients see it. All fields are hints: the lock decides who holds the queue.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Regular {
    /// Its number in the low half. In the high half, within how many nanoseconds it returns; zero if there is none.
    packed: AtomicU64,
    /// The start of its term, in nanoseconds.
    since: AtomicU64,
    /// The client that takes over.
    next: AtomicU32,
    /// Counts the waits for the device.
    device_waits: AtomicU32,
    /// The number of clients of the queue.
    clients: AtomicU32,
}

impl Regular {
    pub(super) const fn new() -> Self {
        Self {
            packed: AtomicU64::new(0),
            since: AtomicU64::new(0),
            next: AtomicU32::new(NONE),
            device_waits: AtomicU32::new(0),
            clients: AtomicU32::new(0),
        }
    }

    /// Within which time a regular holder other than client `number` returns to the queue. None if there is no such
    /// holder, or this client is to take over.
    pub(super) fn returns_within(&self, number: u32) -> Option<Duration> {
        let packed = self.packed.load(Relaxed);
        let is_own = packed as u32 == number || self.next.load(Relaxed) == number;
        (packed >> 32 != 0 && !is_own).then(|| Duration::from_nanos(packed >> 32))
    }

    /// Whether client `number` is the regular holder, and another one is to take over.
    pub(super) fn must_yield(&self, number: u32) -> bool {
        let next = self.next.load(Relaxed);
        next != NONE && next != number && self.packed.load(Relaxed) as u32 == number
    }

    /// The client that was to take over has not done so.
    pub(super) fn clear_next(&self) {
        self.next.store(NONE, Relaxed);
    }

    /// Client `number` has rested. It takes over if the term is over.
    pub(super) fn rested(&self, number: u32, now: Instant) {
        let term_nanos = now.as_nanos().saturating_sub(self.since.load(Relaxed));
        if self.next.load(Relaxed) == NONE && u128::from(term_nanos) > TERM.as_nanos() {
            self.next.store(number, Relaxed);
        }
    }

    /// Client `number` has held the queue and returns to its caller. With a time it is the regular holder, and returns
    /// within this time.
    pub(super) fn leave(&self, number: u32, returns_within: Option<Duration>, now: Instant) {
        let nanos = returns_within.map_or(0, |time| time.as_nanos() as u64);
        let packed = if nanos == 0 { 0 } else { nanos << 32 | u64::from(number) };
        let before = self.packed.load(Relaxed);
        // Mostly the same. A store would take the cache line from the other clients.
        if before != packed {
            self.packed.store(packed, Relaxed);
            if before == 0 || before as u32 != number {
                self.since.store(now.as_nanos(), Relaxed);
            }
        }
        if self.next.load(Relaxed) == number {
            self.clear_next();
        }
    }

    /// The poller has waited for the device for this long.
    pub(super) fn device_waited(&self, time: Duration) {
        if time >= DEVICE_WAIT_MIN {
            self.device_waits.fetch_add(1, Relaxed);
            if self.packed.load(Relaxed) != 0 {
                self.packed.store(0, Relaxed);
            }
        }
    }

    pub(super) fn set_clients(&self, clients: u32) {
        self.clients.store(clients, Relaxed);
    }

    /// The length of a rest.
    pub(super) fn rest(&self) -> Duration {
        REST * self.clients.load(Relaxed).clamp(2, RESTING_MAX)
    }
}

/// How long a client stays in the queue, and how long away from it. Only its own thread uses it.
#[derive(Debug, Default)]
pub(super) struct Pace {
    entered: Instant,
    /// The end of the last call, if the client held the queue then.
    left: Option<Instant>,
    /// Averages, in nanoseconds.
    away_nanos: u64,
    inside_nanos: u64,
    /// The latest calls without a wait for the device.
    streak: u32,
    /// The waits for the device at the end of the last call.
    device_waits: u32,
}

impl Pace {
    /// The client enters the queue.
    pub(super) fn enter(&mut self, now: Instant) {
        self.entered = now;
        if let Some(left) = self.left.take() {
            average(&mut self.away_nanos, now.saturating_since(left));
        }
    }

    /// The client holds the queue and returns to its caller. Returns the time within which it returns to the queue, if
    /// it can be the regular holder. `has_slept`: it has slept in this call.
    pub(super) fn leave(&mut self, has_slept: bool, regular: &Regular, now: Instant) -> Option<Duration> {
        self.left = Some(now);
        let device_waits = regular.device_waits.load(Relaxed);
        let has_waited = std::mem::replace(&mut self.device_waits, device_waits) != device_waits;
        if has_slept || has_waited {
            self.streak = 0;
            return None;
        }
        average(&mut self.inside_nanos, now.saturating_since(self.entered));
        self.streak = self.streak.saturating_add(1);
        let is_regular = self.streak >= STREAK && self.away_nanos <= self.inside_nanos.min(AWAY_MAX_NANOS);
        // In powers of two, so that the value seldom changes.
        is_regular.then(|| Duration::from_nanos((2 * self.away_nanos).max(1024).next_power_of_two()))
    }
}

fn average(nanos: &mut u64, latest: Duration) {
    *nanos = (3 * *nanos + latest.as_nanos() as u64) / 4;
}

#[cfg(all(test, not(iopath_explore)))]
mod tests {
    use super::*;

    const MICRO: Duration = Duration::from_micros(1);

    /// A client that calls until it is the regular holder, or for `calls` calls. Returns the time.
    fn call(
        (regular, pace): (&Regular, &mut Pace),
        (number, calls): (u32, u32),
        (inside, away): (Duration, Duration),
        mut now: Instant,
    ) -> Instant {
        for _ in 0..calls {
            pace.enter(now);
            now = now + inside;
            regular.leave(number, pace.leave(false, regular, now), now);
            now = now + away;
        }
        now
    }

    #[test]
    fn a_client_that_is_mostly_in_the_queue_becomes_the_regular_holder() {
        let (regular, mut pace) = (Regular::new(), Pace::default());
        let now = call((&regular, &mut pace), (7, STREAK - 1), (4 * MICRO, MICRO), Instant::ZERO);
        assert_eq!(regular.returns_within(1), None);
        call((&regular, &mut pace), (7, 1), (4 * MICRO, MICRO), now);
        let within = regular.returns_within(1).unwrap();
        assert!(MICRO < within && within <= 4 * MICRO, "{within:?}");
        assert_eq!(regular.returns_within(7), None, "it does not wait for itself");
    }

    #[test]
    fn a_client_that_is_mostly_away_never_does() {
        let (regular, mut pace) = (Regular::new(), Pace::default());
        call((&regular, &mut pace), (7, 1000), (MICRO, 4 * MICRO), Instant::ZERO);
        assert_eq!(regular.returns_within(1), None);
        call((&regular, &mut pace), (7, 1000), (400 * MICRO, 100 * MICRO), Instant::ZERO);
        assert_eq!(regular.returns_within(1), None, "others would wait for too long");
    }

    #[test]
    fn a_wait_for_the_device_ends_it_and_the_streak() {
        let (regular, mut pace) = (Regular::new(), Pace::default());
        let mut now = call((&regular, &mut pace), (7, 100), (4 * MICRO, MICRO), Instant::ZERO);
        regular.device_waited(MICRO);
        assert!(regular.returns_within(1).is_some(), "the device completes at once");
        regular.device_waited(100 * MICRO);
        assert_eq!(regular.returns_within(1), None);
        now = call((&regular, &mut pace), (7, STREAK), (4 * MICRO, MICRO), now);
        assert_eq!(regular.returns_within(1), None);
        call((&regular, &mut pace), (7, 1), (4 * MICRO, MICRO), now);
        assert!(regular.returns_within(1).is_some());
    }

    #[test]
    fn a_call_that_slept_ends_the_streak() {
        let (regular, mut pace) = (Regular::new(), Pace::default());
        call((&regular, &mut pace), (7, 100), (4 * MICRO, MICRO), Instant::ZERO);
        assert_eq!(pace.leave(true, &regular, Instant::ZERO), None);
        assert_eq!(pace.leave(false, &regular, Instant::ZERO), None);
    }

    #[test]
    fn the_first_client_that_has_rested_after_the_term_takes_over() {
        let (regular, mut pace) = (Regular::new(), Pace::default());
        let now = call((&regular, &mut pace), (0, 100), (4 * MICRO, MICRO), Instant::ZERO);
        regular.rested(1, now);
        assert!(!regular.must_yield(0), "the term is not over");
        for number in [2, 3] {
            regular.rested(number, now + TERM);
        }
        assert!(regular.must_yield(0));
        assert!(regular.returns_within(2).is_none() && regular.returns_within(3).is_some());
        regular.leave(2, Some(MICRO), now + TERM);
        assert!(!regular.must_yield(0) && !regular.must_yield(2));
        assert!(regular.returns_within(0).is_some() && regular.returns_within(2).is_none());
        regular.rested(0, now + TERM + MICRO);
        assert!(!regular.must_yield(2), "a new term has begun");
    }

    #[test]
    fn a_client_that_does_not_take_over_gives_way() {
        let (regular, mut pace) = (Regular::new(), Pace::default());
        let now = call((&regular, &mut pace), (0, 100), (4 * MICRO, MICRO), Instant::ZERO);
        regular.rested(1, now + TERM);
        regular.clear_next();
        assert!(!regular.must_yield(0) && regular.returns_within(1).is_some());
    }

    #[test]
    fn a_rest_grows_with_the_clients_up_to_a_limit() {
        let regular = Regular::new();
        let rests = [1, 2, 4, 64, 1000].map(|clients| {
            regular.set_clients(clients);
            regular.rest()
        });
        assert_eq!(rests, [2, 2, 4, 64, 64].map(|clients| REST * clients));
    }
}
