//! The elevator of a queue in use: how it is set, and how another takes over. What can be set is each elevator's own
//! (`elevator/tunable.rs`).

use super::RequestQueue;
use crate::block::bio::Stream;
use crate::block::elevator::{ElevatorError, ElevatorSpec};
use crate::block::request::Tag;
use crate::memory::Memory;
use crate::time::Instant;

impl<M: Memory> RequestQueue<M> {
    /// Lets another elevator take over what is queued, the oldest first. Allocates; weights of streams go
    /// with the elevator that they were set in.
    pub fn set_elevator(&mut self, spec: &ElevatorSpec, now: Instant) {
        let mut next = spec.build(self.requests.capacity());
        let mut queued: Vec<Tag> = std::iter::from_fn(|| self.elevator.take_any(&self.requests)).collect();
        queued.sort_by_key(|tag| self.requests[*tag].arrived());
        for tag in queued {
            next.insert(tag, &self.requests, now);
        }
        self.elevator = next;
        self.spec = spec.clone();
        self.log_elevator(now);
    }

    /// Makes the elevator what `spec` says: one of that kind stays, with its head and its shares, and is only set
    /// anew; from any other that of `spec` takes over.
    pub fn follow(&mut self, spec: &ElevatorSpec, now: Instant) {
        if !self.spec.is_of_kind(spec) {
            return self.set_elevator(spec, now);
        }
        spec.apply(&mut *self.elevator);
        self.spec.clone_from(spec);
    }

    /// The value of a tunable of the elevator.
    pub fn tunable(&self, name: &str) -> Result<u64, ElevatorError> {
        self.elevator.tunable(name)
    }

    /// Sets a tunable of the elevator; it counts from the next request on.
    pub fn set_tunable(&mut self, name: &str, value: u64) -> Result<(), ElevatorError> {
        self.spec.set(name, value)?;
        self.elevator.set_tunable(name, value)
    }

    /// Gives a stream a share of `weight`, 1 to 10,000, against the 100 of others; what lies outside is taken for
    /// the nearest of these. Only elevators with shares (`fair`) heed it.
    pub fn set_weight(&mut self, stream: Stream, weight: u32) {
        self.elevator.set_weight(stream, weight);
    }

    /// The name of the elevator.
    pub fn elevator(&self) -> &'static str {
        self.elevator.name()
    }

    /// The elevator and how it is set now.
    pub const fn elevator_spec(&self) -> &ElevatorSpec {
        &self.spec
    }
}
