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
//!   calls without a wait for the device ─▶ regular holder ── waits for the device ─▶ none
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

/// The queue may be saturated from this score on. A call without a wait for the device adds one, up to twice as many; a
/// wait subtracts half of it. So the few waits that the system prolongs do not matter, and a disk never reaches it.
const SATURATED: u32 = if cfg!(iopath_explore) { 2 } else { 16 };

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
    /// See [`SATURATED`].
    score: AtomicU32,
    /// The number of clients of the queue.
    clients: AtomicU32,
}

impl Regular {
    pub(super) const fn new() -> Self {
        Self {
            packed: AtomicU64::new(0),
            since: AtomicU64::new(0),
            next: AtomicU32::new(NONE),
            score: AtomicU32::new(0),
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

    /// Client `number` has rested. It takes over if the term has ended.
    pub(super) fn rested(&self, number: u32, now: Instant) {
        let term_nanos = now.as_nanos().saturating_sub(self.since.load(Relaxed));
        if self.next.load(Relaxed) == NONE && u128::from(term_nanos) > TERM.as_nanos() {
            self.next.store(number, Relaxed);
        }
    }

    /// Client `number` holds the queue and returns to its caller. In this call it has waited for the device or not.
    /// With a time, it returns to the queue within this time, and can be the regular holder.
    pub(super) fn leave(&self, number: u32, has_waited: bool, within: Option<Duration>, now: Instant) {
        let mut score = self.score.load(Relaxed);
        if !has_waited && score < 2 * SATURATED {
            score += 1;
            self.score.store(score, Relaxed);
        }
        let nanos = within.filter(|_| score >= SATURATED).map_or(0, |time| time.as_nanos() as u64);
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

    /// The poller has waited for the device for this long. Returns whether that is a wait.
    pub(super) fn device_waited(&self, time: Duration) -> bool {
        let has_waited = time >= DEVICE_WAIT_MIN;
        if has_waited {
            let score = self.score.load(Relaxed).saturating_sub(SATURATED / 2);
            self.score.store(score, Relaxed);
            if score < SATURATED && self.packed.load(Relaxed) != 0 {
                self.packed.store(0, Relaxed);
            }
        }
        has_waited
    }

    pub(super) fn set_clients(&self, clients: u32) {
        self.clients.store(clients, Relaxed);
    }

    /// The length of a rest.
    pub(super) fn rest(&self) -> Duration {
        REST * self.clients.load(Relaxed).clamp(2, RESTING_MAX)
    }
}

/// How long a client holds the queue, and how long it stays away from it. Only its own thread uses it.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The end of the last call, if the client held the queue then.
    left: Option<Instant>,
    /// Averages, in nanoseconds.
    away_nanos: u64,
    held_nanos: u64,
}

impl Pace {
    /// The client enters the queue.
    pub(super) fn enter(&mut self, now: Instant) {
        if let Some(left) = self.left.take() {
            average(&mut self.away_nanos, now.saturating_since(left));
        }
    }

    /// The client holds the queue since `held`, and returns to its caller. Returns the time within which it returns to
    /// the queue, if it can be the regular holder.
    pub(super) fn leave(&mut self, held: Instant, now: Instant) -> Option<Duration> {
        self.left = Some(now);
        average(&mut self.held_nanos, now.saturating_since(held));
        let is_regular = self.away_nanos <= self.held_nanos.min(AWAY_MAX_NANOS);
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
    const HELD: Duration = Duration::from_micros(4);

    /// Calls of client `number`, each of which holds the queue for `held` and is followed by `away`. Returns the time
    /// after the last one.
    fn call(
        regular: &Regular,
        (number, calls): (u32, u32),
        (held, away): (Duration, Duration),
        mut now: Instant,
    ) -> Instant {
        let mut pace = Pace::default();
        for _ in 0..calls {
            pace.enter(now);
            let began = now;
            now = now + held;
            regular.leave(number, false, pace.leave(began, now), now);
            now = now + away;
        }
        now
    }

    #[test]
    fn a_client_that_mostly_holds_the_queue_becomes_the_regular_holder() {
        let regular = Regular::new();
        let now = call(&regular, (7, SATURATED - 1), (HELD, MICRO), Instant::ZERO);
        assert_eq!(regular.returns_within(1), None);
        call(&regular, (7, SATURATED), (HELD, MICRO), now);
        let within = regular.returns_within(1).unwrap();
        assert!(MICRO < within && within <= 4 * MICRO, "{within:?}");
        assert_eq!(regular.returns_within(7), None, "it does not wait for itself");
    }

    #[test]
    fn a_client_that_is_mostly_away_never_does() {
        let regular = Regular::new();
        for (held, away) in [(MICRO, 4 * MICRO), (400 * MICRO, 100 * MICRO)] {
            let now = call(&regular, (7, 1000), (held, away), Instant::ZERO);
            let mut pace = Pace::default();
            pace.enter(now);
            pace.leave(now, now + held);
            pace.enter(now + held + away);
            assert_eq!(pace.leave(now + held + away, now + 2 * held + away), None, "{away:?} of {held:?}");
            assert_eq!(regular.returns_within(1), None);
        }
    }

    #[test]
    fn waits_for_the_device_end_it_and_a_single_long_one_does_not() {
        let regular = Regular::new();
        let now = call(&regular, (7, 100), (HELD, MICRO), Instant::ZERO);
        for (time, is_wait) in [(MICRO, false), (100 * MICRO, true), (100 * MICRO, true)] {
            assert!(regular.returns_within(1).is_some());
            assert_eq!(regular.device_waited(time), is_wait);
        }
        assert!(regular.returns_within(1).is_some());
        regular.device_waited(100 * MICRO);
        assert_eq!(regular.returns_within(1), None);
        call(&regular, (7, SATURATED), (HELD, MICRO), now);
        assert!(regular.returns_within(1).is_some());
    }

    #[test]
    fn a_client_of_a_disk_never_becomes_the_regular_holder() {
        let regular = Regular::new();
        for _ in 0..1000 {
            let has_waited = regular.device_waited(50 * MICRO);
            regular.leave(7, has_waited, Some(MICRO), Instant::ZERO);
            // Another client finds its completions at hand.
            regular.leave(8, false, Some(MICRO), Instant::ZERO);
            assert_eq!(regular.returns_within(1), None);
        }
    }

    #[test]
    fn the_first_client_that_has_rested_after_the_term_takes_over() {
        let regular = Regular::new();
        let now = call(&regular, (0, 100), (HELD, MICRO), Instant::ZERO);
        regular.rested(1, now);
        assert!(!regular.must_yield(0), "the term is not over");
        for number in [2, 3] {
            regular.rested(number, now + TERM);
        }
        assert!(regular.must_yield(0));
        assert!(regular.returns_within(2).is_none() && regular.returns_within(3).is_some());
        regular.leave(2, false, Some(MICRO), now + TERM);
        assert!(!regular.must_yield(0) && !regular.must_yield(2));
        assert!(regular.returns_within(0).is_some() && regular.returns_within(2).is_none());
        regular.rested(0, now + TERM + MICRO);
        assert!(!regular.must_yield(2), "a new term has begun");
    }

    #[test]
    fn a_client_that_does_not_take_over_gives_way() {
        let regular = Regular::new();
        let now = call(&regular, (0, 100), (HELD, MICRO), Instant::ZERO);
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
