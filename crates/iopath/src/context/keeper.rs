//! The thread that divides the memory of a context when a cache lacks memory, and closes rings that no volume has used
//! for some time. It sleeps otherwise. Which cache gets how much: see `share.rs`.

use super::{Members, Round};
use iopath_os::{Demand, RingPool, SharedFlusher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// The time between two rounds that change budgets.
const ROUND: Duration = Duration::from_millis(10);

/// The longest time between two rounds.
const ROUND_MAX: Duration = Duration::from_millis(500);

/// A pause is at least this many times as long as the round before it.
const PAUSE_FACTOR: u32 = 20;

/// A ring that no volume has used for this time is closed.
const RING_IDLE: Duration = Duration::from_secs(3);

/// Rounds without a demand before the thread sleeps.
const CALM_ROUNDS: u32 = 10;

/// Wakes the thread. Caches call it with their locks.
#[derive(Debug, Default)]
pub(super) struct Notifier {
    /// Writes back dirty pages for all caches.
    flusher: SharedFlusher,
    /// Set until the thread looks at the caches, so that the lock below is taken once for each of its sleeps.
    is_notified: AtomicBool,
    /// The thread wakes when the next ring is to be closed.
    watches_rings: AtomicBool,
    is_closing: Mutex<bool>,
    changed: Condvar,
}

impl Demand for Notifier {
    fn flusher(&self) -> SharedFlusher {
        self.flusher.clone()
    }

    fn notify(&self) {
        if self.is_notified.swap(true, Ordering::AcqRel) {
            return;
        }
        // Under the lock, so that the thread cannot begin to sleep between its check and this call.
        let _lock = self.is_closing.lock().unwrap_or_else(PoisonError::into_inner);
        self.changed.notify_one();
    }
}

impl Notifier {
    /// Ends the thread.
    pub(super) fn close(&self) {
        *self.is_closing.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    /// A volume has left a ring. Wakes the thread unless it wakes by itself.
    pub(super) fn watch_rings(&self) {
        if !self.watches_rings.swap(true, Ordering::AcqRel) {
            self.notify();
        }
    }

    /// Waits for `timeout`, and, if `is_calm`, at most for a demand. Returns `false` when the context is closed.
    fn wait(&self, timeout: Option<Duration>, is_calm: bool) -> bool {
        let lock = self.is_closing.lock().unwrap_or_else(PoisonError::into_inner);
        let sleeps =
            |is_closing: &mut bool| !(*is_closing || is_calm && self.is_notified.load(Ordering::Acquire));
        let lock = match timeout {
            Some(timeout) => {
                self.changed
                    .wait_timeout_while(lock, timeout, sleeps)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
            None => self.changed.wait_while(lock, sleeps).unwrap_or_else(PoisonError::into_inner),
        };
        !*lock
    }
}

/// Starts the thread. It ends when the context is closed.
///
/// # Errors
/// The system starts no thread.
pub(super) fn start(
    notifier: Arc<Notifier>,
    members: Weak<Mutex<Members>>,
    rings: RingPool,
) -> std::io::Result<()> {
    let builder = thread::Builder::new().name("iopath-context".to_owned());
    builder.spawn(move || keep(&notifier, &members, &rings)).map(|_| ())
}

fn keep(notifier: &Notifier, members: &Weak<Mutex<Members>>, rings: &RingPool) {
    let mut rounds = Rounds::default();
    let mut rings_pause = None;
    loop {
        let pause = [rounds.pause, rings_pause].into_iter().flatten().min();
        if !notifier.wait(pause, rounds.pause.is_none()) {
            return;
        }
        // Before the look: a later demand notifies again.
        notifier.is_notified.store(false, Ordering::Release);
        // Before the look: a volume that leaves a ring later notifies again.
        notifier.watches_rings.store(false, Ordering::Release);
        let now = iopath_os::now();
        rings_pause = rings.close_older(RING_IDLE, now).map(|due| due.saturating_since(now));
        if rings_pause.is_some() {
            notifier.watches_rings.store(true, Ordering::Release);
        }
        let Some(members) = members.upgrade() else { return };
        let begun = Instant::now();
        let (round, evicted) = members.lock().unwrap_or_else(PoisonError::into_inner).divide();
        drop(evicted);
        rounds.end(round, begun.elapsed());
    }
}

/// The pauses between rounds. They become longer while rounds change nothing.
#[derive(Debug, Default)]
struct Rounds {
    /// `None`: until a cache notifies.
    pause: Option<Duration>,
    calm: u32,
}

impl Rounds {
    fn end(&mut self, round: Round, took: Duration) {
        self.calm = if round == Round::Calm { self.calm + 1 } else { 0 };
        let pause = match round {
            _ if self.calm > CALM_ROUNDS => {
                self.pause = None;
                self.calm = 0;
                return;
            }
            Round::Changed => ROUND,
            Round::Short | Round::Calm => (self.pause.unwrap_or(ROUND) * 2).min(ROUND_MAX),
        };
        // The rounds of many caches take little of a processor.
        self.pause = Some(pause.max(took * PAUSE_FACTOR));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_become_rare_while_nothing_changes_and_end_when_no_cache_is_short() {
        let mut rounds = Rounds::default();
        let short = Duration::from_micros(10);
        rounds.end(Round::Changed, short);
        assert_eq!(rounds.pause, Some(ROUND));
        (0..20).for_each(|_| rounds.end(Round::Short, short));
        assert_eq!(rounds.pause, Some(ROUND_MAX));
        rounds.end(Round::Changed, Duration::from_millis(5));
        assert_eq!(rounds.pause, Some(Duration::from_millis(5) * PAUSE_FACTOR));
        (0..=CALM_ROUNDS).for_each(|_| rounds.end(Round::Calm, short));
        assert_eq!(rounds.pause, None);
    }
}
