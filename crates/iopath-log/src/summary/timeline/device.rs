//! The state of the device: its depth and the position of its head, as the events of all queues change them.
//! `timeline.rs` sorts the events by time.

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
    /// The times at which repeats begin, in order.
    marks: Vec<u64>,
    marks_passed: usize,
    /// The time of the next mark, or `u64::MAX` if there is none.
    next_mark_ns: u64,
    /// Requests in flight of all queues.
    in_flight: u32,
    /// The head, if all queues are of one device.
    head: Head,
    has_heads: bool,
    distances: Distances,
    depth: DepthOverTime,
}

/// The requests of one queue that are in flight.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    requests: u32,
    /// The value of [`Device::marks_passed`] when `requests` last changed. If it has increased since, `requests` is
    /// outdated and counts as 0.
    marks_passed: usize,
    /// The head of the device of this queue, if each queue has one.
    head: Head,
}

impl Device {
    pub(super) fn new(start_ns: u64, has_heads: bool) -> Self {
        Self {
            now_ns: start_ns,
            out_of_order: 0,
            marks: Vec::new(),
            marks_passed: 0,
            next_mark_ns: u64::MAX,
            in_flight: 0,
            head: Head::default(),
            has_heads,
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

    /// Processes an event of the queue with the requests `in_flight`. Only a dispatch has an extent.
    #[inline]
    pub(super) fn process(&mut self, event: Event, at_ns: u64, extent: Extent, in_flight: &mut InFlight) {
        match event {
            Event::Dispatch => {
                self.pass_time(at_ns);
                self.renew(in_flight);
                in_flight.requests += 1;
                self.in_flight += 1;
                let head = if self.has_heads { &mut in_flight.head } else { &mut self.head };
                head.access(extent.sector, extent.sectors, &mut self.distances);
            }
            Event::Leave => {
                self.pass_time(at_ns);
                self.renew(in_flight);
                let leaves = u32::from(in_flight.requests > 0);
                in_flight.requests -= leaves;
                self.in_flight -= leaves;
            }
            Event::Gap => {
                // A gap is no event of the device. The depth before it remains valid up to the next event, so time does
                // not advance.
                self.renew(in_flight);
                self.in_flight -= std::mem::take(&mut in_flight.requests);
                self.head = Head::default();
                in_flight.head = Head::default();
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

    /// A repeat begins with an idle device. Requests of an earlier repeat without a completion in the log no longer
    /// count as in flight, and the first request of a repeat has no seek distance.
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
            *in_flight = InFlight { marks_passed: self.marks_passed, ..InFlight::default() };
        }
    }
}
