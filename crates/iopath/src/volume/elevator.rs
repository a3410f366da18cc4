//! The elevator (I/O scheduler) of a volume, changed while I/O runs.

use super::Volume;
use crate::error::Result;
use iopath_core::elevator::{ElevatorError, ElevatorSpec};

impl Volume {
    /// The elevator and its settings. It orders the requests of each thread and batch.
    pub fn elevator(&self) -> ElevatorSpec {
        self.tuning().wanted().0
    }

    /// Changes the elevator. Each thread and batch switches at its next I/O. I/O in flight continues, and overlapping I/Os of
    /// one batch keep their order.
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
    ///
    /// # Errors
    /// [`ElevatorError`] if the elevator has no such tunable.
    pub fn tunable(&self, name: &str) -> Result<u64, ElevatorError> {
        self.tuning().lock().tunable(name)
    }

    /// Sets a tunable of the elevator, for each thread and batch from its next I/O on. Overrides settings of a batch.
    ///
    /// # Errors
    /// [`ElevatorError`] if the elevator has no such tunable, or the value is out of range.
    pub fn set_tunable(&self, name: &str, value: u64) -> Result<(), ElevatorError> {
        self.tuning().change(|wanted| wanted.set(name, value))?;
        self.tune_cache();
        Ok(())
    }

    /// Changes the elevator of the queue behind the page cache at once.
    fn tune_cache(&self) {
        if let Some(cache) = self.cache_if_any() {
            let (wanted, _) = self.tuning().wanted();
            cache.follow(&wanted);
        }
    }
}
