//! The elevator (I/O scheduler) of a batch, changed while I/O runs.

use super::Batch;
use crate::error::Result;
use crate::source::threading::Threading;
use iopath_core::Stream;
use iopath_core::elevator::{ElevatorError, ElevatorSpec, Tunable};

impl<T: Threading> Batch<T> {
    /// The elevator and its settings. It orders the requests of this batch.
    pub fn elevator(&mut self) -> &ElevatorSpec {
        self.runner().elevator()
    }

    /// Changes the elevator of this batch, until the elevator of the volume is changed. I/O in flight continues, and
    /// overlapping I/Os keep their order.
    pub fn set_elevator(&mut self, spec: &ElevatorSpec) {
        self.runner().set_elevator(spec);
    }

    /// The tunables of the elevator with their values.
    pub fn tunables(&mut self) -> impl ExactSizeIterator<Item = (&'static Tunable, u64)> {
        self.elevator().tunables()
    }

    /// The value of a tunable of the elevator.
    ///
    /// # Errors
    /// [`ElevatorError`] if the elevator has no such tunable.
    pub fn tunable(&mut self, name: &str) -> Result<u64, ElevatorError> {
        self.elevator().tunable(name)
    }

    /// Sets a tunable of the elevator for this batch, from the next request on, until the elevator of the volume or one of its
    /// settings is changed.
    ///
    /// # Errors
    /// [`ElevatorError`] if the elevator has no such tunable, or the value is out of range.
    pub fn set_tunable(&mut self, name: &str, value: u64) -> Result<(), ElevatorError> {
        self.runner().set_tunable(name, value)
    }

    /// Sets the weight of a stream, 1 to 10,000; others have 100. A value outside is clamped. Only elevators with shares
    /// (`fair`) use it. Changing the elevator resets it.
    pub fn set_weight(&mut self, stream: Stream, weight: u32) {
        self.runner().set_weight(stream, weight);
    }
}
