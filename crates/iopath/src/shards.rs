//! A queue and engine for each thread with blocking I/O, created at first use. Threads share no common lock: each
//! thread has its own shard, and uses another only if its shard is locked.

use crate::error::OpenError;
use crate::queues::{Queue, SharedDevice};
use iopath_os::sync::{Mutex, MutexGuard};
use iopath_os::thread_number;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{OnceLock, PoisonError, TryLockError};

/// The maximum number of threads with concurrent blocking I/O on one volume; further threads wait.
const SHARDS: usize = 64;

#[derive(Debug)]
pub(crate) struct Shards {
    /// Most volumes with a page cache have none.
    shards: OnceLock<Box<[Shard]>>,
    /// Not zero while other calls than I/O lock shards. A thread then waits for its own shard: it would create an
    /// unnecessary queue and engine in another one.
    lockers: AtomicU32,
}

/// Aligned, to avoid false sharing of the locks.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    /// Boxed: most shards are never used.
    runner: Mutex<Option<Box<Queue<SharedDevice>>>>,
}

impl Shards {
    /// Shards; `first` is the queue of the calling thread, if it has one.
    pub(crate) fn new(first: Option<Queue<SharedDevice>>) -> Self {
        let shards = Self { shards: OnceLock::new(), lockers: AtomicU32::new(0) };
        if let Some(first) = first {
            *shards.claim() = Some(Box::new(first));
        }
        shards
    }

    fn all(&self) -> &[Shard] {
        self.shards.get_or_init(|| (0..SHARDS).map(|_| Shard::default()).collect())
    }

    /// Calls `act` with the queue of the calling thread. `make` creates the queue if there is none.
    pub(crate) fn with<R>(
        &self,
        make: impl FnOnce() -> Result<Queue<SharedDevice>, OpenError>,
        act: impl FnOnce(&mut Queue<SharedDevice>) -> R,
    ) -> Result<R, OpenError> {
        let mut shard = self.claim();
        let runner = match &mut *shard {
            Some(runner) => runner,
            empty => empty.insert(Box::new(make()?)),
        };
        Ok(act(runner))
    }

    /// Runs `act` while no thread is in blocking I/O; other threads wait before they begin. The caller ensures that
    /// only one thread calls this at a time.
    pub(crate) fn alone<R>(&self, act: impl FnOnce() -> R) -> R {
        let _locker = self.add_locker();
        let _locked: Vec<_> = self.all().iter().map(Shard::lock).collect();
        act()
    }

    /// Runs `act` as [`Shards::alone`] does. `None` if a thread is in blocking I/O.
    pub(crate) fn try_alone<R>(&self, act: impl FnOnce() -> R) -> Option<R> {
        let _locker = self.add_locker();
        let locked: Option<Vec<_>> = self.all().iter().map(Shard::try_lock).collect();
        locked.as_ref().map(|_| act())
    }

    /// Calls `look` with each queue, one after another: each while no thread is in blocking I/O with it.
    pub(crate) fn for_each(&self, mut look: impl FnMut(&Queue<SharedDevice>)) {
        let _locker = self.add_locker();
        for shard in self.shards.get().into_iter().flatten() {
            if let Some(queue) = &*shard.lock() {
                look(queue);
            }
        }
    }

    fn add_locker(&self) -> Locker<'_> {
        self.lockers.fetch_add(1, Ordering::SeqCst);
        Locker(&self.lockers)
    }

    /// Locks the thread's own shard, or the next free one. Waits for its own shard if none is free.
    fn claim(&self) -> MutexGuard<'_, Option<Box<Queue<SharedDevice>>>> {
        let shards = self.all();
        let own = thread_number() % SHARDS;
        let free = (0..SHARDS).find_map(|step| {
            let may_try = step == 0 || self.lockers.load(Ordering::SeqCst) == 0;
            let runner = &shards[(own + step) % SHARDS].runner;
            may_try.then(|| runner.try_lock().ok()).flatten()
        });
        free.unwrap_or_else(|| shards[own].lock())
    }
}

/// A call that locks shards, for other purposes than I/O.
struct Locker<'a>(&'a AtomicU32);

impl Drop for Locker<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, Option<Box<Queue<SharedDevice>>>> {
        self.runner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Option<Box<Queue<SharedDevice>>>>> {
        match self.runner.try_lock() {
            Ok(runner) => Some(runner),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
