//! The device as the events of all queues, in the order of time, change it: its depth and its head. Not that order:
//! see `timeline.rs`.

use super::super::depth::DepthOverTime;
use super::super::report::{Depth, Seeks};
use super::super::seeks::{Distances, Head};
use super::waiting::{Event, Extent};

/// The device after the last event.
#[derive(Debug)]
pub(super) struct Device {
    /// The time of the latest event.
    now_ns: u64,
    out_of_order: u64,
    /// When repeats begin, in order.
    marks: Vec<u64>,
    marks_passed: usize,
    /// The first mark that was not passed, or no time.
    next_mark_ns: u64,
    /// Of all queues.
    in_flight: u32,
    head: Head,
    distances: Distances,
    depth: DepthOverTime,
}

/// The requests of one queue that are in flight.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    requests: u32,
    /// The marks that had been passed when the number changed: it is 0 after the next one.
    marks_passed: usize,
}

impl Device {
    pub(super) fn new(start_ns: u64) -> Self {
        Self {
            now_ns: start_ns,
            out_of_order: 0,
            marks: Vec::new(),
            marks_passed: 0,
            next_mark_ns: u64::MAX,
            in_flight: 0,
            head: Head::default(),
            distances: Distances::default(),
            depth: DepthOverTime::new(start_ns),
        }
    }

    pub(super) fn mark(&mut self, at_ns: u64) {
        if self.marks.len() == self.marks_passed {
            self.next_mark_ns = at_ns;
        }
        self.marks.push(at_ns);
    }

    pub(super) fn seeks(&self) -> Seeks {
        self.distances.report()
    }

    pub(super) fn depth(&self, measured_ns: u64) -> Depth {
        self.depth.report(measured_ns)
    }

    pub(super) const fn out_of_order(&self) -> u64 {
        self.out_of_order
    }

    /// An event of the queue that has these requests in flight. A dispatch has an extent.
    #[inline]
    pub(super) fn process(&mut self, event: Event, at_ns: u64, extent: Extent, in_flight: &mut InFlight) {
        match event {
            Event::Dispatch => {
                self.pass_time(at_ns);
                self.renew(in_flight);
                in_flight.requests += 1;
                self.in_flight += 1;
                self.head.access(extent.sector, extent.sectors, &mut self.distances);
            }
            Event::Leave => {
                self.pass_time(at_ns);
                self.renew(in_flight);
                let leaves = u32::from(in_flight.requests > 0);
                in_flight.requests -= leaves;
                self.in_flight -= leaves;
            }
            Event::Gap => {
                // Not an event of the device: it ends no period of equal depth.
                self.renew(in_flight);
                self.in_flight -= std::mem::take(&mut in_flight.requests);
                self.head = Head::default();
            }
            Event::Canceled => {}
        }
    }

    #[inline]
    fn pass_time(&mut self, at_ns: u64) {
        if self.next_mark_ns <= at_ns {
            self.pass_marks(at_ns);
        }
        self.out_of_order += u64::from(at_ns < self.now_ns);
        let now_ns = at_ns.max(self.now_ns);
        self.depth.add(self.now_ns, now_ns, self.in_flight);
        self.now_ns = now_ns;
    }

    /// A repeat begins with an idle device: requests of the one before that never completed in the log do not count, and
    /// no distance leads from one repeat to the next.
    #[cold]
    fn pass_marks(&mut self, at_ns: u64) {
        while self.next_mark_ns <= at_ns {
            self.now_ns = self.next_mark_ns.max(self.now_ns);
            self.marks_passed += 1;
            self.next_mark_ns = self.marks.get(self.marks_passed).copied().unwrap_or(u64::MAX);
        }
        self.in_flight = 0;
        self.head = Head::default();
    }

    #[inline]
    fn renew(&self, in_flight: &mut InFlight) {
        if in_flight.marks_passed != self.marks_passed {
            *in_flight = InFlight { requests: 0, marks_passed: self.marks_passed };
        }
    }
}
