//! Changes the elevator of a runner's queue while I/O is in flight.

use iopath_core::elevator::{ElevatorError, ElevatorSpec};
use iopath_core::{Instant, Stream};

use super::Runner;
use crate::device::RealDevice;

impl<D: ?Sized + RealDevice> Runner<D> {
    /// Replaces the elevator, which takes over the queued requests. Allocates. Stream weights are lost with the elevator
    /// they were set in.
    pub fn set_elevator(&mut self, spec: &ElevatorSpec) {
        let now = self.time();
        self.pump.queue_mut().set_elevator(spec, now);
        self.publish_log_if_idle();
    }

    /// Makes the elevator match `spec`: sets the tunables of one of the same kind, replaces one of another kind.
    pub fn follow(&mut self, spec: &ElevatorSpec) {
        let now = self.time();
        self.pump.queue_mut().apply_spec(spec, now);
        self.publish_log_if_idle();
    }

    /// Sets a tunable of the elevator. It applies from the next request on.
    pub fn set_tunable(&mut self, name: &str, value: u64) -> Result<(), ElevatorError> {
        self.pump.queue_mut().set_tunable(name, value)
    }

    /// Sets a stream's weight, 1 to 10,000; other streams have 100. Values outside are clamped.
    pub fn set_weight(&mut self, stream: Stream, weight: u32) {
        self.pump.queue_mut().set_weight(stream, weight);
    }

    /// The elevator and its current settings.
    pub const fn elevator(&self) -> &ElevatorSpec {
        self.pump.queue().elevator_spec()
    }

    /// The time of the current batch; the clock's if the queue is not plugged.
    fn time(&mut self) -> Instant {
        self.start_batch();
        self.now
    }
}
