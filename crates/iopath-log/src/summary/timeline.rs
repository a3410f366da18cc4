//! Orders dispatches and completions by time across all queues, and measures depth and seeks in that order. Blocks of
//! different queues lie in the file one after another. So events wait here until no later block can contain an earlier
//! event. The memory for waiting events is bounded.

use super::depth::DepthOverTime;
use super::report::{Depth, Seeks};
use super::seeks::{Distances, Head};
use iopath_core::Record;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Maximum number of waiting events: 48 MiB. At the maximum, the earlier half is released.
const WAITING_MAX: usize = if cfg!(test) { 1 << 12 } else { 1 << 21 };

/// One event at the device.
#[derive(Debug, Clone, Copy)]
struct DeviceEvent {
    at_ns: u64,
    sector: u64,
    sectors: u32,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Dispatch,
    /// A completion, or a refusal by the device after the dispatch was released.
    Leave,
    /// Records of the queue are missing: its requests in flight and the position of the head are unknown.
    Gap,
    /// A dispatch that the device refused.
    Canceled,
}

/// Identifies a dispatch of a queue, so that it can be canceled.
pub(super) type EventNumber = u64;

/// The events of one queue.
#[derive(Debug, Default)]
struct QueueEvents {
    waiting: VecDeque<DeviceEvent>,
    /// The number of events released so far, which is the number of the first waiting event.
    released: EventNumber,
    in_flight: u32,
}

/// Events of all queues in the order of time.
#[derive(Debug)]
pub(super) struct Timeline {
    /// By queue number.
    queues: Vec<QueueEvents>,
    /// Waiting events of all queues.
    waiting: usize,
    /// The time of the latest event released.
    released_ns: u64,
    out_of_order: u64,
    /// When repeats begin, in order.
    marks: Vec<u64>,
    marks_passed: usize,
    in_flight: u32,
    head: Head,
    distances: Distances,
    depth: DepthOverTime,
}

impl Timeline {
    pub(super) fn new(start_ns: u64) -> Self {
        Self {
            queues: Vec::new(),
            waiting: 0,
            released_ns: start_ns,
            out_of_order: 0,
            marks: Vec::new(),
            marks_passed: 0,
            in_flight: 0,
            head: Head::default(),
            distances: Distances::default(),
            depth: DepthOverTime::new(start_ns),
        }
    }

    /// A repeat begins at `at_ns`. Marks come in order.
    pub(super) fn mark(&mut self, at_ns: u64) {
        self.marks.push(at_ns);
    }

    #[inline]
    pub(super) fn dispatch(&mut self, queue: u16, record: Record, at_ns: u64) -> EventNumber {
        let (sector, sectors) = (record.sector(), record.sectors() as u32);
        self.push(queue, DeviceEvent { at_ns, sector, sectors, kind: Kind::Dispatch })
    }

    #[inline]
    pub(super) fn complete(&mut self, queue: u16, at_ns: u64) {
        self.push(queue, DeviceEvent { at_ns, sector: 0, sectors: 0, kind: Kind::Leave });
    }

    /// The device refused the request of that dispatch.
    pub(super) fn cancel(&mut self, dispatch: EventNumber, queue: u16, at_ns: u64) {
        let events = &mut self.queues[usize::from(queue)];
        let index = dispatch.checked_sub(events.released);
        match index.and_then(|index| events.waiting.get_mut(index as usize)) {
            Some(event) => event.kind = Kind::Canceled,
            None => self.complete(queue, at_ns),
        }
    }

    pub(super) fn gap(&mut self, queue: u16, at_ns: u64) {
        self.push(queue, DeviceEvent { at_ns, sector: 0, sectors: 0, kind: Kind::Gap });
    }

    /// Releases all events.
    pub(super) fn finish(&mut self) {
        self.release(usize::MAX);
    }

    /// After [`Timeline::finish`].
    pub(super) fn seeks(&self) -> Seeks {
        self.distances.report()
    }

    /// After [`Timeline::finish`]: the mean is over `measured_ns`.
    pub(super) fn depth(&self, measured_ns: u64) -> Depth {
        self.depth.report(measured_ns)
    }

    pub(super) const fn out_of_order(&self) -> u64 {
        self.out_of_order
    }

    #[inline]
    fn push(&mut self, queue: u16, event: DeviceEvent) -> EventNumber {
        if self.waiting == WAITING_MAX {
            self.release(WAITING_MAX / 2);
        }
        let index = usize::from(queue);
        if self.queues.len() <= index {
            self.queues.resize_with(index + 1, QueueEvents::default);
        }
        let events = &mut self.queues[index];
        events.waiting.push_back(event);
        self.waiting += 1;
        events.released + events.waiting.len() as u64 - 1
    }

    /// Releases the earliest `count` events: merges the queues.
    #[cold]
    fn release(&mut self, count: usize) {
        let mut left = count;
        let first_of =
            |(queue, events): (usize, &QueueEvents)| Some(Reverse((events.waiting.front()?.at_ns, queue)));
        let mut firsts: BinaryHeap<_> = self.queues.iter().enumerate().filter_map(first_of).collect();
        while let Some(Reverse((_, queue))) = firsts.pop() {
            let next = firsts.peek().map_or(u64::MAX, |Reverse((next, _))| *next);
            while left > 0 {
                let events = &mut self.queues[queue];
                let Some(event) = events.waiting.front().copied().filter(|event| event.at_ns <= next) else {
                    break;
                };
                events.waiting.pop_front();
                events.released += 1;
                self.waiting -= 1;
                left -= 1;
                self.process(queue, event);
            }
            let events = &mut self.queues[queue].waiting;
            if events.len() < events.capacity() / 4 {
                // Other queues may need the memory.
                events.shrink_to(events.len() * 2);
            }
            if left == 0 {
                return;
            }
            if let Some(first) = events.front() {
                firsts.push(Reverse((first.at_ns, queue)));
            }
        }
    }

    fn process(&mut self, queue: usize, event: DeviceEvent) {
        let DeviceEvent { at_ns, sector, sectors, kind } = event;
        match kind {
            Kind::Canceled => return,
            Kind::Gap => {
                // A gap is no event of the device, so it ends no period of equal depth.
                self.change(queue, |_| 0);
                self.head = Head::default();
                return;
            }
            Kind::Dispatch | Kind::Leave => {}
        }
        self.out_of_order += u64::from(at_ns < self.released_ns);
        self.pass_marks(at_ns);
        let now = at_ns.max(self.released_ns);
        self.depth.add(self.released_ns, now, self.in_flight);
        self.released_ns = now;
        if kind == Kind::Dispatch {
            self.change(queue, |depth| depth.saturating_add(1));
            self.head.access(sector, sectors, &mut self.distances);
        } else {
            self.change(queue, |depth| depth.saturating_sub(1));
        }
    }

    /// A repeat begins with an idle device. Requests of the previous repeat whose completion is not in the log no
    /// longer count as in flight. The first request of a repeat is no seek.
    fn pass_marks(&mut self, at_ns: u64) {
        while let Some(mark) = self.marks.get(self.marks_passed).filter(|mark| **mark <= at_ns) {
            self.released_ns = (*mark).max(self.released_ns);
            self.marks_passed += 1;
            self.queues.iter_mut().for_each(|events| events.in_flight = 0);
            self.in_flight = 0;
            self.head = Head::default();
        }
    }

    fn change(&mut self, queue: usize, change: impl FnOnce(u32) -> u32) {
        let in_flight = &mut self.queues[queue].in_flight;
        let before = *in_flight;
        *in_flight = change(before);
        self.in_flight = self.in_flight.saturating_sub(before).saturating_add(*in_flight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_core::log::{Event, Step, Subject};
    use iopath_core::{Extent, Instant, Sector};

    fn record(start: u64) -> Record {
        let extent = Extent::new(Sector(start), 8).unwrap();
        let step = Step { extent, ..Step::new(Event::Dispatch, Subject::Request(0)) };
        Record::new(&step, Instant::ZERO)
    }

    #[test]
    fn queues_are_interleaved_by_time_although_their_blocks_are_not() {
        let mut timeline = Timeline::new(0);
        // Each queue reads its own sequence; the device alternates between them.
        for queue in 0..2_u16 {
            for step in 0..100_u64 {
                let at_ns = 1000 + step * 100 + u64::from(queue) * 50;
                timeline.dispatch(queue, record(u64::from(queue) * 100_000 + step * 8), at_ns);
                timeline.complete(queue, at_ns + 90);
            }
        }
        timeline.finish();
        let (seeks, depth) = (timeline.seeks(), timeline.depth(10_000));
        assert_eq!((seeks.requests, seeks.count), (199, 199), "every request is a seek");
        assert_eq!((depth.max, timeline.out_of_order()), (2, 0));
    }

    #[test]
    fn a_dispatch_that_the_device_refused_is_neither_a_seek_nor_in_flight() {
        let mut timeline = Timeline::new(0);
        timeline.dispatch(0, record(0), 10);
        let refused = timeline.dispatch(0, record(5000), 10);
        timeline.dispatch(1, record(8), 11);
        timeline.cancel(refused, 0, 12);
        timeline.complete(0, 20);
        timeline.complete(1, 20);
        timeline.finish();
        assert_eq!((timeline.seeks().requests, timeline.seeks().count), (1, 0));
        assert_eq!(timeline.depth(20).max, 2);
    }

    #[test]
    fn more_events_than_may_wait_are_still_in_order_and_later_ones_are_counted() {
        let mut timeline = Timeline::new(0);
        for step in 0..10 * WAITING_MAX as u64 {
            // The two queues take turns in the file, 100 events each.
            let (queue, at_ns) = ((step / 100 % 2) as u16, step / 200 * 100 + step % 100);
            timeline.dispatch(queue, record(step), at_ns);
            timeline.complete(queue, at_ns);
        }
        assert_eq!(timeline.out_of_order(), 0);
        timeline.complete(0, 0);
        timeline.finish();
        assert_eq!(timeline.out_of_order(), 1);
    }

    #[test]
    fn a_repeat_begins_with_no_request_in_flight_and_no_distance() {
        let mut timeline = Timeline::new(0);
        timeline.mark(100);
        timeline.dispatch(0, record(0), 50);
        timeline.dispatch(1, record(5000), 120);
        timeline.complete(1, 130);
        timeline.finish();
        assert_eq!((timeline.seeks().requests, timeline.depth(130).max), (0, 1));
        assert!((timeline.depth(10).mean - 1.0).abs() < 1e-9, "only the second request is known to complete");
    }
}
