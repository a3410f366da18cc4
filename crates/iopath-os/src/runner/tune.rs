//! The elevator of a runner's queue, changed while I/O is in flight.

use iopath_core::elevator::{ElevatorError, ElevatorSpec};
use iopath_core::{Instant, Stream};

use super::Runner;
use crate::clock;
use crate::device::RealDevice;

impl<D: ?Sized + RealDevice> Runner<D> {
    /// Lets another elevator take over what is queued. Allocates; weights of streams go with the elevator that they
    /// were set in.
    pub fn set_elevator(&mut self, spec: &ElevatorSpec) {
        let now = self.time();
        self.queue.set_elevator(spec, now);
        self.rest_log_if_idle();
    }

    /// Makes the elevator what `spec` says: one of that kind is only set anew, from any other that of `spec` takes
    /// over.
    pub fn follow(&mut self, spec: &ElevatorSpec) {
        let now = self.time();
        self.queue.follow(spec, now);
        self.rest_log_if_idle();
    }

    /// Sets a tunable of the elevator; it counts from the next request on.
    pub fn set_tunable(&mut self, name: &str, value: u64) -> Result<(), ElevatorError> {
        self.queue.set_tunable(name, value)
    }

    /// Gives a stream a share of `weight`, 1 to 10,000, against the 100 of others; what lies outside is taken for the
    /// nearest of these.
    pub fn set_weight(&mut self, stream: Stream, weight: u32) {
        self.queue.set_weight(stream, weight);
    }

    /// The elevator and how it is set now.
    pub const fn elevator(&self) -> &ElevatorSpec {
        self.queue.elevator_spec()
    }

    /// The time of the batch that is being collected; of this moment if there is none.
    fn time(&mut self) -> Instant {
        if !self.is_plugged {
            self.now = clock::now();
        }
        self.now
    }
}
