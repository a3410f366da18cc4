//! Changes the elevator of a runner's queue while I/O is in flight.

use iopath_core::elevator::{ElevatorError, ElevatorSpec};
use iopath_core::{Instant, Stream};

use super::Runner;
use crate::device::RealDevice;
use crate::io_buf::IoBuf;

impl<D: ?Sized + RealDevice, B: IoBuf> Runner<D, B> {
    /// Replaces the elevator; the new one gets the queued requests. Allocates. The weights of streams are lost.
    pub fn set_elevator(&mut self, spec: &ElevatorSpec) {
        let now = self.time();
        self.pump.queue_mut().set_elevator(spec, now);
        self.publish_log_if_idle();
    }

    /// Makes the elevator match `spec`: an elevator of the same kind gets the new tunables, any other is replaced.
    pub fn follow(&mut self, spec: &ElevatorSpec) {
        let now = self.time();
        self.pump.queue_mut().apply_spec(spec, now);
        self.publish_log_if_idle();
    }

    /// Sets the number of requests at the device at once, from the next dispatch on.
    pub fn set_depth(&mut self, depth: u32) {
        self.pump.queue_mut().set_depth(depth);
    }

    /// Sets a tunable of the elevator. It applies from the next request on.
    pub fn set_tunable(&mut self, name: &str, value: u64) -> Result<(), ElevatorError> {
        self.pump.queue_mut().set_tunable(name, value)
    }

    /// Sets a stream's weight, clamped to 1..=10,000. The default is 100.
    pub fn set_weight(&mut self, stream: Stream, weight: u32) {
        self.pump.queue_mut().set_weight(stream, weight);
    }

    /// The elevator and its current settings.
    pub const fn elevator(&self) -> &ElevatorSpec {
        self.pump.queue().elevator_spec()
    }

    /// The time of the current batch; the current time if the queue is not plugged.
    fn time(&mut self) -> Instant {
        self.start_batch();
        self.now
    }
}
