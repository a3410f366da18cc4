//! The elevator of a volume, changed while I/O runs. One choice for all of the volume's queues; each follows it at its
//! next I/O, by a number that it compares, without a lock. What an elevator makes of a setting is the core's.

use iopath_core::QueueConfig;
use iopath_core::elevator::ElevatorSpec;
use iopath_os::{RealDevice, Runner};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the queues of a volume are to follow.
#[derive(Debug)]
pub(crate) struct Tuning {
    /// Counts the changes of `wanted`.
    generation: AtomicU64,
    wanted: Mutex<ElevatorSpec>,
}

/// A runner that follows.
#[derive(Debug)]
pub(crate) struct Tuned<D: ?Sized + RealDevice> {
    runner: Runner<D>,
    /// What it has followed so far.
    generation: u64,
}

impl Tuning {
    pub(crate) const fn new(wanted: ElevatorSpec) -> Self {
        Self { generation: AtomicU64::new(0), wanted: Mutex::new(wanted) }
    }

    /// A queue of that configuration, but for the elevator, in front of `device`.
    pub(crate) fn runner<D: ?Sized + RealDevice>(&self, device: Box<D>, config: &QueueConfig) -> Tuned<D> {
        let (elevator, generation) = self.wanted();
        let runner = Runner::new(device, &QueueConfig { elevator, ..config.clone() });
        Tuned { runner, generation }
    }

    pub(crate) fn wanted(&self) -> (ElevatorSpec, u64) {
        let wanted = self.lock();
        // Only changed under the lock.
        (wanted.clone(), self.generation.load(Ordering::Relaxed))
    }

    pub(crate) fn change<E>(&self, change: impl FnOnce(&mut ElevatorSpec) -> Result<(), E>) -> Result<(), E> {
        let mut wanted = self.lock();
        change(&mut wanted)?;
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ElevatorSpec> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: ?Sized + RealDevice> Tuned<D> {
    /// The runner, with the elevator that is wanted: for the next I/O.
    pub(crate) fn runner(&mut self, tuning: &Tuning) -> &mut Runner<D> {
        if tuning.generation.load(Ordering::Acquire) != self.generation {
            self.follow(tuning);
        }
        &mut self.runner
    }

    /// The runner as it is: for what is no I/O.
    pub(crate) const fn as_is(&self) -> &Runner<D> {
        &self.runner
    }

    /// The runner, for one who is told of changes ([`Volume::set_elevator`]) rather than looks for them.
    pub(crate) fn untuned(self) -> Runner<D> {
        self.runner
    }

    /// The same to collect what has completed.
    pub(crate) const fn as_is_mut(&mut self) -> &mut Runner<D> {
        &mut self.runner
    }

    #[cold]
    fn follow(&mut self, tuning: &Tuning) {
        let (wanted, generation) = tuning.wanted();
        self.runner.follow(&wanted);
        self.generation = generation;
    }
}
