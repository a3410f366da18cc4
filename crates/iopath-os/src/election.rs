//! The election of the thread that polls a device for all threads that wait for it: those of the page cache
//! (`buffered/wait.rs`) and the clients of a shared queue (`shared/wait.rs`). The state is under the lock of the
//! device. Threads poll and sleep without the lock, and in those files.
//!
//! ```text
//!   before a wait: elect ─┬─ I/O is at the device, no thread watches it ──▶ the thread polls: it watches the device
//!                         ├─ I/O is held back until a time, no poller ────▶ the thread polls: it sleeps until then
//!                         └─ else ────────────────────────────────────────▶ the thread sleeps
//!   before each release: ensure_polled ─┬─ I/O, and no poller ─────────────▶ wakes a sleeper to poll
//!                                       └─ the poller's wait ends too late ─▶ ends that wait
//! ```
//!
//! # No lost wake-up
//!
//! The rules are those of [`Polled`].
//!
//! - **An event wakes its waiter.** By rule 1 a thread counts as asleep before it last looks for its event, and by
//!   rule 2 the event precedes the wake-up. So the thread sees the event, or [`Polled::wake`] sees that it sleeps. A
//!   thread that watches the device does not sleep, and `wake` ends its watch.
//! - **While I/O is at the device or held back, a thread polls or was woken to poll, or no thread sleeps.** This holds
//!   after each release, by rule 3. Without the lock only the end of a wait can change it. By rule 4 another release
//!   follows, also if the thread has found its own event meanwhile and does not wait again.
//! - **The poller's wait ends in time.** A completion ends a watch. The time limit of the wait is not later than that
//!   of the I/O: [`Polled::elect`] sets it, and [`Polled::ensure_polled`] ends the wait when a thread has made the time
//!   of the I/O earlier, or has passed the first I/O to the device while the poller sleeps.
//! - **One thread watches at a time.** A thread that waits may replace a poller that sleeps, but not one that watches.
//!   The replaced thread keeps its time limit. When it returns, [`Election::handle_back`] may remove another poller
//!   that sleeps in its place. Then a sleeper is woken to poll: one wake-up too many, and none is lost.

use iopath_core::Instant;

/// A poller that watches the device, for [`Election::handle_back`].
pub(crate) const WATCHER: u32 = 1;
/// A poller that sleeps, for [`Election::handle_back`].
pub(crate) const SLEEPER: u32 = 2;

/// Which thread polls.
#[derive(Debug, Default)]
pub(crate) struct Election {
    poller: Option<Poller>,
    /// The waiter that was last woken to poll.
    woken: Option<usize>,
}

#[derive(Debug)]
struct Poller {
    waiter: usize,
    /// Whether it watches the device. Otherwise no I/O was at the device, and it sleeps.
    is_watching: bool,
    /// The time limit of its wait.
    until: Option<Instant>,
}

/// The state of a waiter as other threads see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// It runs, or watches the device.
    Awake = 0,
    /// It sleeps, or has announced that it will sleep.
    Asleep,
    /// It was woken to poll, and has not noticed yet.
    WokenToPoll,
}

/// How a thread waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    /// As the poller, by the watch of the device, at most until that time.
    Watch(Option<Instant>),
    /// As the poller, asleep until that time.
    SleepUntil(Instant),
    /// Asleep until it is woken.
    Sleep,
}

impl Election {
    /// Whether there is a poller.
    pub(crate) const fn is_polled(&self) -> bool {
        self.poller.is_some()
    }

    /// Whether a thread watches the device. No other thread may collect completions meanwhile.
    pub(crate) const fn is_watched(&self) -> bool {
        matches!(self.poller, Some(Poller { is_watching: true, .. }))
    }

    /// Whether `waiter` watches the device.
    pub(crate) fn is_watched_by(&self, waiter: usize) -> bool {
        matches!(self.poller, Some(Poller { is_watching: true, waiter: poller, .. }) if poller == waiter)
    }

    /// The waits of pollers of these kinds, [`WATCHER`] or [`SLEEPER`] or both, have ended.
    pub(crate) fn handle_back(&mut self, kinds: u32) {
        let kind = |poller: &Poller| if poller.is_watching { WATCHER } else { SLEEPER };
        self.poller.take_if(|poller| kinds & kind(poller) != 0);
    }
}

/// A device with an election, and the threads that wait for it, each with a number.
///
/// The implementor keeps these rules:
/// 1. A thread that is to sleep becomes [`Sleep::Asleep`] before it last looks for its event. From then on a wake-up
///    ends its sleep, also one that has not begun.
/// 2. The event of a waiter precedes the call of [`Polled::wake`].
/// 3. [`Polled::ensure_polled`] precedes each release of the lock. It may be omitted if no thread sleeps or polls.
/// 4. After the wait of a poller, some thread takes the lock and calls [`Election::handle_back`]. After the sleep of a
///    thread that was woken to poll, and that is [`Sleep::Awake`] again, some thread takes the lock.
pub(crate) trait Polled {
    fn election(&mut self) -> &mut Election;

    /// Whether I/O is at the device.
    fn has_io(&self) -> bool;

    /// The time at which queue and device must be served without a completion.
    fn due(&self) -> Option<Instant>;

    /// Ends the watch in progress, or the next one.
    fn end_watch(&mut self);

    /// The numbers of all sleepers are less.
    fn numbers_end(&self) -> usize;

    fn was_woken_to_poll(&self, waiter: usize) -> bool;

    /// Wakes a waiter that is asleep, and changes its state to `state`. Returns false if it is not asleep.
    fn wake_to(&mut self, waiter: usize, state: Sleep) -> bool;

    /// Decides how `waiter` waits, at most until `until`. The caller then releases the lock and waits that way.
    fn elect(&mut self, waiter: usize, until: Option<Instant>) -> Pause {
        let (has_io, due) = (self.has_io(), self.due());
        let until = due.into_iter().chain(until).min();
        let poller = &mut self.election().poller;
        let pause = match (&*poller, until) {
            (Some(Poller { is_watching: true, .. }), _) => return Pause::Sleep,
            // A poller that sleeps is replaced, since that saves its wake-up.
            _ if has_io => Pause::Watch(until),
            (None, Some(until)) if due.is_some() => Pause::SleepUntil(until),
            _ => return Pause::Sleep,
        };
        *poller = Some(Poller { waiter, is_watching: has_io, until });
        pause
    }

    /// Ends the wait of `waiter`, whose event has happened.
    fn wake(&mut self, waiter: usize) {
        if !self.wake_to(waiter, Sleep::Awake) && self.election().is_watched_by(waiter) {
            self.end_watch();
        }
    }

    /// Ends the waits of all threads, after a failure.
    fn wake_waiters(&mut self) {
        (0..self.numbers_end()).for_each(|waiter| self.wake(waiter));
    }

    /// Wakes a sleeper to poll if I/O needs a poller, and ends the wait of the poller if it ends too late.
    fn ensure_polled(&mut self) {
        let (has_io, due) = (self.has_io(), self.due());
        let election = self.election();
        if let Some(Poller { waiter, is_watching, until }) = &mut election.poller {
            let is_late = due.is_some_and(|due| until.is_none_or(|until| due < until));
            if is_late {
                // Once is enough.
                *until = due;
            }
            let (waiter, is_watching) = (*waiter, *is_watching);
            if is_watching && is_late {
                self.end_watch();
            } else if !is_watching && (is_late || has_io) {
                self.wake_to(waiter, Sleep::Awake);
            }
        } else if has_io || due.is_some() {
            // One thread is enough. Until it has noticed, further releases wake no other one.
            let woken = election.woken;
            if !woken.is_some_and(|waiter| self.was_woken_to_poll(waiter)) {
                let woken = (0..self.numbers_end()).find(|number| self.wake_to(*number, Sleep::WokenToPoll));
                self.election().woken = woken;
            }
        }
    }
}
