//! A queue and engine for each thread that does blocking I/O, made when first needed. No lock is shared by all:
//! a thread comes back to its own place, and looks for another only when more threads than places are about.

use crate::error::OpenError;
use crate::queues::{Queue, SharedDevice};
use iopath_os::sync::{Mutex, MutexGuard};
use iopath_os::thread_number;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

/// Threads that can do blocking I/O on one volume at once without waiting for each other.
const PLACES: usize = 64;

#[derive(Debug)]
pub(crate) struct Shards {
    places: Box<[Place]>,
    /// Set while [`Shards::alone`] holds or takes every place. A thread then waits at its own: another place that looks
    /// free would get a queue and an engine that nothing needs.
    is_exclusive: AtomicBool,
}

/// On cache lines of its own, so that threads do not slow each other down through their neighbours' locks.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Place {
    runner: Mutex<Option<Queue<SharedDevice>>>,
}

impl Shards {
    /// Shards of which the calling thread may have one already.
    pub(crate) fn new(first: Option<Queue<SharedDevice>>) -> Self {
        let shards = Self {
            places: (0..PLACES).map(|_| Place::default()).collect(),
            is_exclusive: AtomicBool::new(false),
        };
        *shards.claim() = first;
        shards
    }

    /// Does something with the calling thread's runner, made by `make` if it has none yet.
    pub(crate) fn with<R>(
        &self,
        make: impl FnOnce() -> Result<Queue<SharedDevice>, OpenError>,
        act: impl FnOnce(&mut Queue<SharedDevice>) -> R,
    ) -> Result<R, OpenError> {
        let mut place = self.claim();
        let runner = match &mut *place {
            Some(runner) => runner,
            empty => empty.insert(make()?),
        };
        Ok(act(runner))
    }

    /// Runs `act` while no thread is in blocking I/O, and none begins. For one thread at a time.
    pub(crate) fn alone<R>(&self, act: impl FnOnce() -> R) -> R {
        self.is_exclusive.store(true, Ordering::SeqCst);
        let _places: Vec<_> = self.places.iter().map(Place::lock).collect();
        let result = act();
        self.is_exclusive.store(false, Ordering::SeqCst);
        result
    }

    /// The thread's own place, or the next free one, or its own once it is free.
    fn claim(&self) -> MutexGuard<'_, Option<Queue<SharedDevice>>> {
        let own = thread_number() % PLACES;
        let free = (0..PLACES).find_map(|step| {
            let may_try = step == 0 || !self.is_exclusive.load(Ordering::SeqCst);
            let runner = &self.places[(own + step) % PLACES].runner;
            may_try.then(|| runner.try_lock().ok()).flatten()
        });
        free.unwrap_or_else(|| self.places[own].lock())
    }
}

impl Place {
    fn lock(&self) -> MutexGuard<'_, Option<Queue<SharedDevice>>> {
        self.runner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
