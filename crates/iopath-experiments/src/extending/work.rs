//! The CPU work for a request of a disk: the thread submits the request, and an interrupt completes it. Also counts the
//! requests.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use iopath_core::{Instant, Op};
use iopath_model::{Host, Passage, Stage};

/// The work for the requests of one disk.
#[derive(Debug)]
pub(super) struct Work {
    thread: Host,
    interrupts: Host,
    read_extra: Duration,
    /// Requests of all disks.
    ios: Rc<Cell<u64>>,
}

impl Work {
    pub(super) fn new((thread, interrupts): (&Host, &Host), read_extra_ms: f64, ios: &Rc<Cell<u64>>) -> Self {
        let read_extra = Duration::from_secs_f64(read_extra_ms / 1e3);
        Self { thread: thread.clone(), interrupts: interrupts.clone(), read_extra, ios: Rc::clone(ios) }
    }
}

impl Stage for Work {
    fn enter(&mut self, _request: &Passage, now: Instant) -> Instant {
        self.ios.set(self.ios.get() + 1);
        self.thread.run(&iopath_model::Work { ios: 1, ..iopath_model::Work::default() }, now)
    }

    fn leave(&mut self, request: &Passage, now: Instant) -> Instant {
        let work =
            iopath_model::Work { interrupts: 1, segments: request.segments, ..iopath_model::Work::default() };
        let done = self.interrupts.run(&work, now);
        if request.op == Op::Read { done + self.read_extra } else { done }
    }
}
