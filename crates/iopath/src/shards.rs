//! A queue and engine for each thread that does blocking I/O, made when first needed. No lock is shared by all:
//! a thread comes back to its own place, and looks for another only when more threads than places are about.

use crate::error::OpenError;
use crate::open::SharedRunner;
use iopath_os::sync::{Mutex, MutexGuard};
use iopath_os::thread_number;
use std::sync::PoisonError;

/// Threads that can do blocking I/O on one volume at once without waiting for each other.
const PLACES: usize = 64;

#[derive(Debug)]
pub(crate) struct Shards {
    places: Box<[Place]>,
}

/// On cache lines of its own, so that threads do not slow each other down through their neighbours' locks.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Place {
    runner: Mutex<Option<SharedRunner>>,
}

impl Shards {
    /// Shards of which the calling thread may have one already.
    pub(crate) fn new(first: Option<SharedRunner>) -> Self {
        let shards = Self { places: (0..PLACES).map(|_| Place::default()).collect() };
        *shards.claim() = first;
        shards
    }

    /// Does something with the calling thread's runner, made by `make` if it has none yet.
    pub(crate) fn with<R>(
        &self,
        make: impl FnOnce() -> Result<SharedRunner, OpenError>,
        act: impl FnOnce(&mut SharedRunner) -> R,
    ) -> Result<R, OpenError> {
        let mut place = self.claim();
        let runner = match &mut *place {
            Some(runner) => runner,
            empty => empty.insert(make()?),
        };
        Ok(act(runner))
    }

    /// Does something while nobody is at blocking I/O, and nobody begins.
    pub(crate) fn alone<R>(&self, act: impl FnOnce() -> R) -> R {
        let _places: Vec<_> = self.places.iter().map(Place::lock).collect();
        act()
    }

    /// The thread's own place, or the next that nobody is at, or its own once it is free.
    fn claim(&self) -> MutexGuard<'_, Option<SharedRunner>> {
        let own = thread_number() % PLACES;
        let free = (0..PLACES).find_map(|step| self.places[(own + step) % PLACES].runner.try_lock().ok());
        free.unwrap_or_else(|| self.places[own].lock())
    }
}

impl Place {
    fn lock(&self) -> MutexGuard<'_, Option<SharedRunner>> {
        self.runner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
