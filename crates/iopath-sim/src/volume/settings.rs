//! Changes of settings while I/O is in flight: elevators, tunables, depth, weights, advice, and the metadata in memory.

use iopath_core::buffered::Advice;
use iopath_core::{Instant, Stream};

use super::Volume;

impl Volume {
    pub(crate) fn set_elevator(&mut self, name: &str, now: Instant) {
        let spec = self.plan.elevator(name);
        let has_settings = name.contains(':');
        for queue in &mut self.queues {
            let queue = queue.device.queue_mut();
            // With settings, an elevator of the same name keeps its state.
            if has_settings { queue.apply_spec(&spec, now) } else { queue.set_elevator(&spec, now) }
        }
    }

    /// Sets a tunable of the elevators, by its number.
    pub(crate) fn set_tunable(&mut self, tunable: usize, value: u64) {
        for queue in &mut self.queues {
            let queue = queue.device.queue_mut();
            let count = queue.elevator_spec().tunables().len();
            let spec = queue.elevator_spec();
            if count == 0 {
                continue;
            }
            let (tunable, _) = spec.tunables().nth(tunable % count).expect("a number below the count");
            let value = value.clamp(*tunable.range.start(), *tunable.range.end());
            queue.set_tunable(tunable.name, value).expect("the value is in the range");
            assert_eq!(queue.tunable(tunable.name).ok(), Some(value), "a tunable has the value that was set");
        }
    }

    pub(crate) fn set_depth(&mut self, depth: u32) {
        self.queues.iter_mut().for_each(|queue| queue.device.queue_mut().set_depth(depth));
    }

    pub(crate) fn set_weight(&mut self, stream: u32, weight: u32) {
        for queue in &mut self.queues {
            queue.device.queue_mut().set_weight(Stream(stream), weight);
        }
    }

    pub(crate) fn advise_pattern(&mut self, advice: Advice) {
        if let Some(path) = &mut self.path {
            path.advise(0, 0, advice);
        }
    }

    pub(crate) fn forget_metadata(&self) {
        if let Some(host) = &self.host {
            host.forget_metadata();
        }
    }
}
