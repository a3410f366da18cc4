//! Changes the elevator of a queue in use, or its tunables. The tunables themselves are in `elevator/settings.rs`.

use super::RequestQueue;
use super::scheduler::Scheduler;
use crate::block::bio::Stream;
use crate::block::elevator::{ElevatorError, ElevatorSpec};
use crate::block::request::Tag;
use crate::memory::Memory;
use crate::time::Instant;

impl<M: Memory> RequestQueue<M> {
    /// Replaces the elevator; the new one gets the queued requests, oldest first. Allocates. Weights of streams are
    /// lost. The dispatches of the starvation bound count anew for each queued request.
    pub fn set_elevator(&mut self, spec: &ElevatorSpec, now: Instant) {
        let mut next = Scheduler::new(spec, self.requests.capacity());
        let mut queued: Vec<Tag> = std::iter::from_fn(|| self.elevator.take_any(&self.requests)).collect();
        queued.sort_by_key(|tag| self.requests[*tag].arrived());
        for tag in queued {
            next.insert(tag, &self.requests, now);
        }
        self.elevator = next;
        self.spec = spec.clone();
        self.log_elevator(now);
    }

    /// Applies `spec`. An elevator of the same kind keeps its state and gets the new settings; any other is replaced.
    pub fn apply_spec(&mut self, spec: &ElevatorSpec, now: Instant) {
        if !self.spec.is_of_kind(spec) {
            return self.set_elevator(spec, now);
        }
        spec.apply(&mut *self.elevator);
        self.spec.clone_from(spec);
    }

    /// Sets the number of requests at the device at once, within the limits of the device. Takes effect at the next
    /// dispatch: requests at the device stay there.
    pub fn set_depth(&mut self, depth: u32) {
        self.depth = depth.min(self.limits.depth_max).max(1);
    }

    /// The value of a tunable of the elevator.
    ///
    /// # Errors
    /// If the elevator has no tunable of that name.
    pub fn tunable(&self, name: &str) -> Result<u64, ElevatorError> {
        self.elevator.tunable(name)
    }

    /// Sets a tunable of the elevator, from the next request on. A batch in progress may end under the old value. The
    /// dispatches of the starvation bound count anew for each queued request.
    ///
    /// # Errors
    /// If the elevator has no tunable of that name, or the value is out of its range.
    pub fn set_tunable(&mut self, name: &str, value: u64) -> Result<(), ElevatorError> {
        self.spec.set(name, value)?;
        self.elevator.set_tunable(name, value)
    }

    /// Sets the weight of a stream, clamped to 1..=10,000. The default is 100. Only elevators with shares (`fair`) use
    /// it.
    pub fn set_weight(&mut self, stream: Stream, weight: u32) {
        self.elevator.set_weight(stream, weight);
    }

    /// The name of the elevator in use.
    pub fn elevator(&self) -> &'static str {
        self.elevator.name()
    }

    /// The elevator in use and its settings.
    pub const fn elevator_spec(&self) -> &ElevatorSpec {
        &self.spec
    }
}
