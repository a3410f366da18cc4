//! One thread that writes back dirty pages for any number of caches that share their memory. It does what
//! `flusher.rs` does for one cache, but waits for no device: it visits a cache, starts the I/O that is due, collects
//! the I/O that has completed, and visits the next one. So a slow device does not delay the others.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use iopath_core::Instant;

use super::CacheShared;
use super::waiter::Flusher;
use crate::clock;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::thread::{self, Thread};
use crate::sync::{Mutex, MutexGuard};

/// The flusher polls the device after this time if I/O is in flight and no thread waits for it. A writer does not wait
/// for the write-back that it starts, so without this poll write-back would stop.
pub(super) const UNPOLLED_MAX: Duration = Duration::from_millis(250);

/// The time between two visits of a cache whose I/O makes progress, and for which no thread waits.
const VISIT_MIN: Duration = Duration::from_millis(1);

/// The thread that writes back dirty pages for several caches. It runs while one of them has dirty pages or I/O.
///
/// A clone is a handle of the same thread.
#[derive(Clone, Default)]
pub struct SharedFlusher {
    visits: Arc<Mutex<Visits>>,
}

impl fmt::Debug for SharedFlusher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedFlusher").finish_non_exhaustive()
    }
}

/// The visits to come, in the order of their times.
#[derive(Default)]
struct Visits {
    due: BTreeMap<(Instant, u64), Visit>,
    next: u64,
    thread: Option<Thread>,
}

/// A cache to be visited.
struct Visit {
    place: Arc<Place>,
    /// The cache at the last visit.
    last: Last,
}

#[derive(Default)]
struct Last {
    was_visited: bool,
    was_idle: bool,
    activity: u64,
    reaped: u64,
    pause: Duration,
}

/// A cache as the thread finds it. Locked during a visit.
#[derive(Default)]
pub(super) struct Place(Mutex<Weak<CacheShared>>);

/// The handle of one cache.
#[derive(Debug)]
pub(super) struct Background {
    flusher: SharedFlusher,
    place: Arc<Place>,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").finish_non_exhaustive()
    }
}

impl Background {
    pub(super) fn new(flusher: SharedFlusher) -> Self {
        Self { flusher, place: Arc::default() }
    }

    /// Plans the first visit of `cache`. Returns false if the system refuses a thread.
    pub(super) fn start(&self, cache: &Arc<CacheShared>) -> bool {
        *self.place.lock() = Arc::downgrade(cache);
        let visit = Visit { place: Arc::clone(&self.place), last: Last::default() };
        self.flusher.add(clock::now() + UNPOLLED_MAX, visit)
    }

    /// Ends the visits of the cache, after the one that is going on.
    pub(super) fn stop(&self) {
        *self.place.lock() = Weak::new();
    }
}

impl Place {
    fn lock(&self) -> MutexGuard<'_, Weak<CacheShared>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Visits the cache. Returns the pause before the next visit; `None` if there is no next one.
    fn visit(&self, last: &mut Last) -> Option<Duration> {
        let cache = self.lock();
        let shared = cache.upgrade()?;
        // A thread that panics with the lock of a cache leaves that cache unusable, but not the others.
        let pause = catch_unwind(AssertUnwindSafe(|| shared.visit_in_background(last))).unwrap_or(None);
        // Before the lock ends: the cache may be closed then, and no other reference may exist.
        drop(shared);
        drop(cache);
        pause
    }
}

impl SharedFlusher {
    fn lock(&self) -> MutexGuard<'_, Visits> {
        self.visits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns false if the system refuses a thread.
    fn add(&self, due: Instant, visit: Visit) -> bool {
        let mut visits = self.lock();
        let is_first = visits.due.first_key_value().is_none_or(|((first, _), _)| due < *first);
        let number = visits.insert(due, visit);
        if let Some(thread) = &visits.thread {
            if is_first {
                thread.unpark();
            }
            return true;
        }
        let flusher = self.clone();
        let builder = thread::Builder::new().name("iopath-flush".to_owned());
        let started = builder.spawn(move || flusher.run());
        visits.thread = started.ok().map(|handle| handle.thread().clone());
        let has_thread = visits.thread.is_some();
        if !has_thread {
            visits.due.remove(&(due, number));
        }
        has_thread
    }

    /// The thread: visits caches until none is to be visited.
    fn run(&self) {
        loop {
            let mut visits = self.lock();
            let Some((&(due, number), _)) = visits.due.first_key_value() else {
                // With the lock: the next visit starts a thread.
                visits.thread = None;
                return;
            };
            let now = clock::now();
            if due > now {
                drop(visits);
                thread::park_timeout(due.saturating_since(now));
                continue;
            }
            let Some(mut visit) = visits.due.remove(&(due, number)) else { continue };
            drop(visits);
            if let Some(pause) = visit.place.visit(&mut visit.last) {
                self.lock().insert(clock::now() + pause, visit);
            }
        }
    }
}

impl Visits {
    fn insert(&mut self, due: Instant, visit: Visit) -> u64 {
        let number = self.next;
        self.next += 1;
        self.due.insert((due, number), visit);
        number
    }
}

impl CacheShared {
    /// Starts the I/O that is due, and collects the I/O that has completed. Returns the pause before the next visit.
    /// `None`: the cache is idle, and [`CacheShared::start_flusher`] plans the next visit; or it is closed.
    fn visit_in_background(&self, last: &mut Last) -> Option<Duration> {
        let mut state = self.lock_if_sound()?;
        if state.is_closing {
            return None;
        }
        state = self.report(state);
        // After a pause in which the cache stayed idle: a program that flushes after each write would plan a first
        // visit with each write otherwise. With the lock: a writer that makes a page dirty later finds the flag
        // cleared.
        if last.was_idle && state.is_idle() {
            self.has_flusher.store(false, Relaxed);
            state.flusher = Flusher::Ended;
            return None;
        }
        state.flusher = Flusher::Awake;
        let now = clock::now();
        if state.is_due(now) || last.was_visited && state.activity == last.activity {
            state.poll(now);
        }
        let made_progress = std::mem::replace(&mut last.reaped, state.reaped) != state.reaped;
        last.was_visited = true;
        last.was_idle = state.is_idle();
        last.activity = state.activity;
        let is_polling = state.needs_polling() && state.broken.is_none();
        last.pause = match (is_polling, made_progress) {
            (false, _) => state.flusher_sleep(),
            (true, true) => VISIT_MIN,
            // Slow I/O is looked for more and more rarely.
            (true, false) => (last.pause * 2).clamp(VISIT_MIN, UNPOLLED_MAX),
        };
        Some(last.pause)
    }
}
