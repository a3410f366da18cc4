//! The CPU work for a request of a disk: the thread submits it, and an interrupt completes it. Counts the requests.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use iopath_core::{Instant, Op};
use iopath_model::{Host, Passage, Stage};

/// The disk of which the first requests are recorded, and their number.
const RECORDED: (u64, usize) = (9, 12);

/// The requests of all disks.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) ios: u64,
    /// The sizes of the first writes of one disk, in KiB.
    pub(super) first_kib: Vec<u64>,
}

/// The work for the requests of one disk.
#[derive(Debug)]
pub(super) struct Work {
    member: u64,
    thread: Host,
    interrupts: Host,
    read_extra: Duration,
    counts: Rc<RefCell<Counts>>,
}

impl Work {
    pub(super) fn new(
        member: u64,
        (thread, interrupts): (&Host, &Host),
        read_extra_ms: f64,
        counts: &Rc<RefCell<Counts>>,
    ) -> Self {
        let read_extra = Duration::from_secs_f64(read_extra_ms / 1e3);
        Self {
            member,
            thread: thread.clone(),
            interrupts: interrupts.clone(),
            read_extra,
            counts: Rc::clone(counts),
        }
    }
}

impl Stage for Work {
    fn enter(&mut self, request: &Passage, now: Instant) -> Instant {
        let mut counts = self.counts.borrow_mut();
        counts.ios += 1;
        let (member, recorded_max) = RECORDED;
        if self.member == member && request.op == Op::Write && counts.first_kib.len() < recorded_max {
            counts.first_kib.push(request.bytes >> 10);
        }
        self.thread.run(&iopath_model::Work { ios: 1, ..iopath_model::Work::default() }, now)
    }

    fn leave(&mut self, request: &Passage, now: Instant) -> Instant {
        let work =
            iopath_model::Work { interrupts: 1, segments: request.segments, ..iopath_model::Work::default() };
        let done = self.interrupts.run(&work, now);
        if request.op == Op::Read { done + self.read_extra } else { done }
    }
}
