//! Orders what the device got by time across all queues, and measures depth and seeks in that order. Blocks of
//! different queues lie in the file one after another, so events wait here until later blocks cannot precede them,
//! within a bound on memory.

use super::depth::DepthOverTime;
use super::report::{Depth, Seeks};
use super::seeks::{Distances, Head};
use iopath_core::Record;

/// Events that wait to be ordered: 48 MiB. The older half is released when so many wait.
const WAITING_MAX: usize = if cfg!(test) { 1 << 12 } else { 1 << 21 };

/// One event at the device.
#[derive(Debug, Clone, Copy)]
struct DeviceEvent {
    at_ns: u64,
    sector: u64,
    sectors: u32,
    queue: u16,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Dispatch,
    /// Completed, or returned by the device after the dispatch had been released.
    Leave,
    /// Records of the queue are missing: its requests in flight are unknown, and so is the head.
    Gap,
    /// A dispatch that the device did not accept.
    Canceled,
}

const _: () = assert!(size_of::<DeviceEvent>() == 24);

/// Identifies a dispatch, to cancel it.
pub(super) type EventNumber = u64;

/// Events of all queues in the order of time.
#[derive(Debug)]
pub(super) struct Timeline {
    waiting: Vec<DeviceEvent>,
    /// The number of `waiting[0]`, if that has not been sorted.
    first_number: EventNumber,
    /// Events of lower numbers have been sorted and cannot be found by number.
    sorted_to: EventNumber,
    /// The latest event released.
    released_ns: u64,
    out_of_order: u64,
    /// When repeats begin, in order.
    marks: Vec<u64>,
    marks_passed: usize,
    /// By queue.
    in_flight: Vec<u32>,
    in_flight_total: u32,
    head: Head,
    distances: Distances,
    depth: DepthOverTime,
}

impl Timeline {
    pub(super) fn new(start_ns: u64) -> Self {
        Self {
            waiting: Vec::new(),
            first_number: 0,
            sorted_to: 0,
            released_ns: start_ns,
            out_of_order: 0,
            marks: Vec::new(),
            marks_passed: 0,
            in_flight: Vec::new(),
            in_flight_total: 0,
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
        self.push(DeviceEvent { at_ns, sector, sectors, queue, kind: Kind::Dispatch })
    }

    #[inline]
    pub(super) fn complete(&mut self, queue: u16, at_ns: u64) {
        self.push(DeviceEvent { at_ns, sector: 0, sectors: 0, queue, kind: Kind::Leave });
    }

    /// The device did not accept the request of that dispatch.
    pub(super) fn cancel(&mut self, dispatch: EventNumber, queue: u16, at_ns: u64) {
        if dispatch < self.sorted_to {
            return self.complete(queue, at_ns);
        }
        self.waiting[(dispatch - self.first_number) as usize].kind = Kind::Canceled;
    }

    pub(super) fn gap(&mut self, queue: u16, at_ns: u64) {
        self.push(DeviceEvent { at_ns, sector: 0, sectors: 0, queue, kind: Kind::Gap });
    }

    /// Releases all events.
    pub(super) fn finish(&mut self) {
        self.release(self.waiting.len());
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
    fn push(&mut self, event: DeviceEvent) -> EventNumber {
        if self.waiting.len() == WAITING_MAX {
            self.release(WAITING_MAX / 2);
        }
        let number = self.first_number + self.waiting.len() as u64;
        self.waiting.push(event);
        number
    }

    /// Releases the earliest `count` events.
    #[cold]
    fn release(&mut self, count: usize) {
        let mut waiting = std::mem::take(&mut self.waiting);
        if !waiting.is_sorted_by_key(|event| event.at_ns) {
            // Stable: events of one queue keep their order.
            waiting.sort_by_key(|event| event.at_ns);
        }
        for event in waiting.drain(..count) {
            self.process(event);
        }
        self.waiting = waiting;
        self.first_number += count as u64;
        self.sorted_to = self.first_number + self.waiting.len() as u64;
    }

    fn process(&mut self, event: DeviceEvent) {
        let DeviceEvent { at_ns, sector, sectors, queue, kind } = event;
        if kind == Kind::Canceled {
            return;
        }
        if kind == Kind::Gap {
            // Not an event of the device: it ends no period of equal depth.
            self.change(queue, |_| 0);
            self.head = Head::default();
            return;
        }
        if at_ns < self.released_ns {
            self.out_of_order += 1;
        }
        self.pass_marks(at_ns);
        let now = at_ns.max(self.released_ns);
        self.depth.add(self.released_ns, now, self.in_flight_total);
        self.released_ns = now;
        match kind {
            Kind::Dispatch => {
                self.change(queue, |depth| depth.saturating_add(1));
                self.head.access(sector, sectors, &mut self.distances);
            }
            Kind::Leave => self.change(queue, |depth| depth.saturating_sub(1)),
            Kind::Gap | Kind::Canceled => {}
        }
    }

    /// A repeat begins with an idle device: requests of the one before that never completed in the log do not count, and
    /// no distance leads from one repeat to the next.
    fn pass_marks(&mut self, at_ns: u64) {
        while let Some(mark) = self.marks.get(self.marks_passed).filter(|mark| **mark <= at_ns) {
            self.released_ns = (*mark).max(self.released_ns);
            self.marks_passed += 1;
            self.in_flight.fill(0);
            self.in_flight_total = 0;
            self.head = Head::default();
        }
    }

    fn change(&mut self, queue: u16, change: impl FnOnce(u32) -> u32) {
        let slot = usize::from(queue);
        if self.in_flight.len() <= slot {
            self.in_flight.resize(slot + 1, 0);
        }
        let before = self.in_flight[slot];
        let after = change(before);
        self.in_flight[slot] = after;
        self.in_flight_total = self.in_flight_total.saturating_sub(before).saturating_add(after);
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
