//! Changes the elevator (I/O scheduler) of a volume while I/O runs.

use super::Volume;
#[cfg(feature = "elevator")]
use iopath_core::Stream;
#[cfg(feature = "elevator")]
use iopath_core::elevator::{ElevatorError, ElevatorSpec};

impl Volume {
    /// The elevator of the volume, with its settings.
    #[cfg(feature = "elevator")]
    pub fn elevator(&self) -> ElevatorSpec {
        self.tuning().wanted().0.elevator
    }

    /// Changes the elevator. I/O in flight continues, and overlapping I/Os of one batch keep their order.
    ///
    /// With `none`, each thread and batch has its own queue. With any other elevator, all share one queue and one
    /// engine, and the elevator orders the requests of all. After a change between the two, a thread or batch uses its
    /// old queue, with the new elevator, until none of its I/O is in flight. If the system refuses an engine for the
    /// new queue, the thread or batch keeps the old queue.
    ///
    /// ```no_run
    /// # let volume = iopath::Volume::open("data.bin", &iopath::Options::new())?;
    /// volume.set_elevator(&"deadline:read_expire_ms=100".parse()?);
    /// volume.set_tunable("fifo_batch", 8)?;
    /// assert_eq!(volume.elevator().to_string(), "deadline:read_expire_ms=100,fifo_batch=8");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "elevator")]
    pub fn set_elevator(&self, spec: &ElevatorSpec) {
        let changed = self.tuning().change(|wanted| {
            wanted.elevator.clone_from(spec);
            Ok::<(), std::convert::Infallible>(())
        });
        let Ok(()) = changed;
        self.tune_cache();
    }

    /// The value of a tunable of the elevator.
    ///
    /// # Errors
    /// [`ElevatorError`] if the elevator has no such tunable.
    #[cfg(feature = "elevator")]
    pub fn tunable(&self, name: &str) -> Result<u64, ElevatorError> {
        self.tuning().tunable(name)
    }

    /// Sets a tunable of the elevator, effective from the next request on.
    ///
    /// # Errors
    /// [`ElevatorError`] if the elevator has no such tunable, or the value is out of range.
    #[cfg(feature = "elevator")]
    pub fn set_tunable(&self, name: &str, value: u64) -> Result<(), ElevatorError> {
        self.tuning().change(|wanted| wanted.elevator.set(name, value))?;
        self.tune_cache();
        Ok(())
    }

    /// Sets the weight of a stream, 1 to 10,000; the default is 100. Other values are clamped. Only elevators with
    /// shares (`fair`) use weights; a page cache does not. A change of the elevator keeps the weights.
    #[cfg(feature = "elevator")]
    pub fn set_weight(&self, stream: Stream, weight: u32) {
        let changed = self.tuning().change(|wanted| {
            match wanted.weights.iter_mut().find(|(known, _)| *known == stream) {
                Some((_, known)) => *known = weight,
                None => wanted.weights.push((stream, weight)),
            }
            Ok::<(), std::convert::Infallible>(())
        });
        let Ok(()) = changed;
    }

    /// Changes the elevator of the queue behind the page cache immediately.
    pub(super) fn tune_cache(&self) {
        if let Some(cache) = self.cache_if_any() {
            loop {
                let (wanted, generation) = self.tuning().wanted();
                cache.follow(&wanted.elevator);
                // Another thread may have changed the elevator meanwhile, and tuned the cache before this thread did.
                if self.tuning().generation() == generation {
                    return;
                }
            }
        }
    }
}
