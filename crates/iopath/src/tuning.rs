//! The elevator of a volume, changed while I/O runs. One choice for all of the volume's queues; each follows it at its
//! next I/O, by a number that it compares, without a lock. What an elevator makes of a setting is the core's.

use crate::batch::Batch;
use crate::volume::Volume;
use iopath_core::elevator::{ElevatorError, ElevatorSpec, Tunable};
use iopath_core::{QueueConfig, Stream};
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

    fn wanted(&self) -> (ElevatorSpec, u64) {
        let wanted = self.lock();
        // Only changed under the lock.
        (wanted.clone(), self.generation.load(Ordering::Relaxed))
    }

    fn change<E>(&self, change: impl FnOnce(&mut ElevatorSpec) -> Result<(), E>) -> Result<(), E> {
        let mut wanted = self.lock();
        change(&mut wanted)?;
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, ElevatorSpec> {
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

/// The elevator, while I/O runs.
impl Volume {
    /// The elevator that orders the requests of each thread and batch, and how it is set.
    pub fn elevator(&self) -> ElevatorSpec {
        self.tuning().wanted().0
    }

    /// Lets another elevator take over, on every thread and batch at its next I/O. Nothing in flight is lost, and I/Os
    /// of one batch that overlap keep their order.
    ///
    /// ```no_run
    /// # let volume = iopath::Volume::open("data.bin", &iopath::Options::new())?;
    /// volume.set_elevator(&"deadline:read_expire_ms=100".parse()?);
    /// volume.set_tunable("fifo_batch", 8)?;
    /// assert_eq!(volume.elevator().to_string(), "deadline:read_expire_ms=100,fifo_batch=8");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_elevator(&self, spec: &ElevatorSpec) {
        let changed = self.tuning().change(|wanted| {
            wanted.clone_from(spec);
            Ok::<(), std::convert::Infallible>(())
        });
        let Ok(()) = changed;
        self.tune_cache();
    }

    /// The value of a tunable of the elevator.
    pub fn tunable(&self, name: &str) -> Result<u64, ElevatorError> {
        self.tuning().lock().tunable(name)
    }

    /// Sets a tunable of the elevator, on every thread and batch from its next I/O on. What a batch had set for itself
    /// gives way.
    pub fn set_tunable(&self, name: &str, value: u64) -> Result<(), ElevatorError> {
        self.tuning().change(|wanted| wanted.set(name, value))?;
        self.tune_cache();
        Ok(())
    }

    /// The queue behind the page cache follows at once.
    fn tune_cache(&self) {
        if let Some(cache) = self.cache_if_any() {
            let (wanted, _) = self.tuning().wanted();
            cache.follow(&wanted);
        }
    }
}

/// The elevator, while I/O runs.
impl Batch {
    /// The elevator that orders the requests of this batch, and how it is set.
    pub fn elevator(&mut self) -> &ElevatorSpec {
        self.runner().elevator()
    }

    /// Lets another elevator take over what is queued and what comes. Nothing in flight is lost, and I/Os that overlap
    /// keep their order. It holds for this batch, until the volume's is changed.
    pub fn set_elevator(&mut self, spec: &ElevatorSpec) {
        self.runner().set_elevator(spec);
    }

    /// What can be set in the elevator, and what it is set to.
    pub fn tunables(&mut self) -> impl ExactSizeIterator<Item = (&'static Tunable, u64)> {
        self.elevator().tunables()
    }

    /// The value of a tunable of the elevator.
    pub fn tunable(&mut self, name: &str) -> Result<u64, ElevatorError> {
        self.elevator().tunable(name)
    }

    /// Sets a tunable of the elevator; it counts from the next request on, for this batch, until the volume's elevator
    /// or one of its settings is changed.
    pub fn set_tunable(&mut self, name: &str, value: u64) -> Result<(), ElevatorError> {
        self.runner().set_tunable(name, value)
    }

    /// Gives a stream a share of `weight`, 1 to 10,000, against the 100 of others; what lies outside is taken for the
    /// nearest of these. Only elevators with shares (`fair`) heed it, and it goes with the elevator when another takes
    /// over.
    pub fn set_weight(&mut self, stream: Stream, weight: u32) {
        self.runner().set_weight(stream, weight);
    }
}
