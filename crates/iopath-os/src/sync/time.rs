//! Time in an explored run: the clock stands still while a thread can run, and jumps to the earliest timer when all
//! threads are blocked. So a run takes virtual time only if progress depends on a timeout. The virtual time of an
//! operation reveals a lost wake-up that a timeout hid.
//!
//! A separate task, the timekeeper, fires the timers. The scheduler chooses it last (`schedule.rs`). In some runs it
//! chooses the timekeeper earlier, so that timers race with the events that they guard.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use iopath_core::Instant as CoreInstant;
use shuttle::rand::Rng;
use shuttle::thread::Thread;

use super::waiter::Waiter;

/// The start of the clock in each run, in nanoseconds. Not zero, since code may treat zero as no time.
const START_NANOS: u64 = 1_000_000_000;

/// The maximum duration of a run. Then the clock stops, and the run is reported as a deadlock.
const LIMIT: Duration = Duration::from_secs(60);

thread_local! {
    // All tasks of an explored run are on one system thread.
    static TIME: RefCell<Option<Time>> = const { RefCell::new(None) };
}

#[derive(Debug)]
struct Time {
    now_nanos: u64,
    timers: Vec<Timer>,
    next_timer: u64,
    is_over: bool,
    keeper: Thread,
}

#[derive(Debug)]
struct Timer {
    number: u64,
    due_nanos: u64,
    wakes: Wakes,
}

/// The wait that a timer ends.
#[derive(Debug, Clone)]
pub(super) enum Wakes {
    /// A parked thread.
    Parked(Thread),
    /// A wait on a condition variable, or a sleep.
    Waiter(Arc<Waiter>),
}

/// A timer. Drop cancels it.
#[derive(Debug)]
pub(super) struct Armed(u64);

impl Drop for Armed {
    fn drop(&mut self) {
        with(|time| time.timers.retain(|timer| timer.number != self.0));
    }
}

fn with<R>(act: impl FnOnce(&mut Time) -> R) -> Option<R> {
    TIME.with(|time| time.borrow_mut().as_mut().map(act))
}

/// Sets a timer that ends a wait after `timeout`. Outside a run there is no clock, and no timer is set.
pub(super) fn arm(timeout: Duration, wakes: Wakes) -> Armed {
    let armed = with(|time| {
        let number = time.next_timer;
        time.next_timer += 1;
        let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        time.timers.push(Timer { number, due_nanos: time.now_nanos.saturating_add(nanos), wakes });
        (number, time.keeper.clone())
    });
    let Some((number, keeper)) = armed else { return Armed(u64::MAX) };
    keeper.unpark();
    Armed(number)
}

/// Now, if this is a thread of an explored run.
pub(crate) fn virtual_now() -> Option<CoreInstant> {
    with(|time| CoreInstant::from_nanos(time.now_nanos))
}

/// The virtual time since the run began.
pub fn elapsed() -> Duration {
    Duration::from_nanos(with(|time| time.now_nanos - START_NANOS).unwrap_or_default())
}

/// Starts the clock of a run, whose timekeeper is the task `keeper`.
pub(super) fn start(keeper: Thread) {
    let time = Time { now_nanos: START_NANOS, timers: Vec::new(), next_timer: 0, is_over: false, keeper };
    TIME.with(|slot| *slot.borrow_mut() = Some(time));
}

/// Ends [`keep`].
pub(super) fn stop() {
    if let Some(keeper) = with(|time| {
        time.is_over = true;
        time.keeper.clone()
    }) {
        keeper.unpark();
    }
}

/// Removes the clock of the last run.
pub(super) fn reset() {
    TIME.with(|slot| *slot.borrow_mut() = None);
}

/// The timekeeper: fires timers, the earliest first, until [`stop`].
pub(super) fn keep() {
    loop {
        let next = with(|time| {
            let earliest =
                time.timers.iter().enumerate().min_by_key(|(_, timer)| (timer.due_nanos, timer.number));
            let (index, _) = earliest?;
            let timer = time.timers.swap_remove(index);
            time.now_nanos = time.now_nanos.max(timer.due_nanos);
            Some(timer.wakes)
        });
        if with(|time| time.is_over) == Some(true) {
            return;
        }
        let Some(wakes) = next.flatten() else {
            shuttle::thread::park();
            continue;
        };
        if elapsed() > LIMIT {
            eprintln!("the clock stops: after {LIMIT:?} of virtual time threads still wait for timers");
            // No timer fires any more, so the blocked threads are reported.
            shuttle::thread::park();
            continue;
        }
        match wakes {
            Wakes::Parked(thread) => thread.unpark(),
            Wakes::Waiter(waiter) => waiter.time_out(),
        }
        // The threads that the timer woke run before the next timer fires.
        shuttle::thread::yield_now();
    }
}

/// Simulates a measurement of the time of an I/O, as with [`std::time::Instant`]. The clock stands still meanwhile, so
/// the scheduler's random numbers choose the result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Instant;

impl Instant {
    pub(crate) const fn now() -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "as the standard library's")]
    pub(crate) fn elapsed(self) -> Duration {
        // Mostly quick for the threads engine, sometimes slow enough to change its estimate.
        let is_quick = shuttle::rand::thread_rng().gen_ratio(7, 8);
        Duration::from_micros(if is_quick { 1 } else { 40 })
    }
}
