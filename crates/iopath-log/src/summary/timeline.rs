//! Orders dispatches and completions by time across all queues, and measures depth and seeks in that order. Blocks of
//! different queues lie in the file one after another. So an event waits here until no later block can contain an
//! earlier event, or until the bound on memory is reached. `timeline/waiting.rs` stores the waiting events.

mod device;
mod waiting;

use super::report::{Depth, Seeks};
use device::{Device, InFlight};
use iopath_core::Record;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use waiting::{Event, Waiting};

/// Maximum number of waiting events: 24 MiB. Then the earliest eighth is released.
const WAITING_MAX: usize = if cfg!(test) { 1 << 13 } else { 1 << 21 };

/// The maximum while all events are of one queue: 2 MiB, which stay in CPU caches. They suffice for the records that
/// the writer may write before the first block of a second queue: see `BLOCKS_BETWEEN_MAX` in `writer.rs`.
const WAITING_OF_ONE_MAX: usize = if cfg!(test) { 1 << 12 } else { 1 << 17 };

/// Identifies a dispatch of a queue, so that it can be canceled.
pub(super) type EventNumber = u64;

/// Events of all queues in the order of time.
#[derive(Debug)]
pub(super) struct Timeline {
    /// The events of each queue, by its number.
    queues: Vec<QueueEvents>,
    /// Queues that had an event.
    queues_used: usize,
    /// Waiting events of all queues.
    waiting: usize,
    waiting_max: usize,
    device: Device,
}

/// The events of one queue.
#[derive(Debug, Default)]
struct QueueEvents {
    waiting: Waiting,
    in_flight: InFlight,
}

impl Timeline {
    /// Events after `start_ns`. `has_heads`: each queue is a device with a head of its own.
    pub(super) fn new(start_ns: u64, has_heads: bool) -> Self {
        Self {
            queues: Vec::new(),
            queues_used: 0,
            waiting: 0,
            waiting_max: WAITING_OF_ONE_MAX,
            device: Device::new(start_ns, has_heads),
        }
    }

    /// A repeat begins at `at_ns`. Marks come in order.
    pub(super) fn mark(&mut self, at_ns: u64) {
        self.device.mark(at_ns);
    }

    #[inline]
    pub(super) fn dispatch(&mut self, queue: u16, record: Record, at_ns: u64) -> EventNumber {
        let waiting = self.waiting(queue);
        waiting.push_extent(record.sector(), record.sectors());
        waiting.push(Event::Dispatch, at_ns)
    }

    #[inline]
    pub(super) fn complete(&mut self, queue: u16, at_ns: u64) {
        self.waiting(queue).push(Event::Leave, at_ns);
    }

    /// The device has refused the request of that dispatch.
    pub(super) fn cancel(&mut self, dispatch: EventNumber, queue: u16, at_ns: u64) {
        if !self.queues[usize::from(queue)].waiting.cancel(dispatch) {
            self.complete(queue, at_ns);
        }
    }

    pub(super) fn gap(&mut self, queue: u16, at_ns: u64) {
        self.waiting(queue).push(Event::Gap, at_ns);
    }

    /// Releases all events.
    pub(super) fn finish(&mut self) {
        self.release(usize::MAX);
    }

    /// The distances of seeks, after [`Timeline::finish`].
    pub(super) fn seeks(&self) -> Seeks {
        self.device.seeks()
    }

    /// The depth over time, after [`Timeline::finish`]. The mean is over `measured_ns`.
    pub(super) fn depth(&self, measured_ns: u64) -> Depth {
        self.device.depth(measured_ns)
    }

    pub(super) const fn out_of_order(&self) -> u64 {
        self.device.out_of_order()
    }

    /// The waiting events of a queue, for the caller to add an event.
    #[inline]
    fn waiting(&mut self, queue: u16) -> &mut Waiting {
        if self.waiting >= self.waiting_max {
            self.release(self.waiting_max / 8);
        }
        self.waiting += 1;
        let index = usize::from(queue);
        if self.queues.get(index).is_none_or(|events| events.waiting.is_new()) {
            self.begin(index);
        }
        &mut self.queues[index].waiting
    }

    /// A queue has its first event.
    #[cold]
    fn begin(&mut self, index: usize) {
        if self.queues.len() <= index {
            self.queues.resize_with(index + 1, QueueEvents::default);
        }
        self.queues_used += 1;
        if self.queues_used > 1 {
            self.waiting_max = WAITING_MAX;
        }
    }

    /// Releases the earliest `count` events, merged over all queues.
    #[cold]
    fn release(&mut self, count: usize) {
        let mut left = count;
        let first_of =
            |(queue, events): (usize, &QueueEvents)| Some(Reverse((events.waiting.first_ns()?, queue)));
        let mut firsts: BinaryHeap<_> = self.queues.iter().enumerate().filter_map(first_of).collect();
        while left > 0
            && let Some(Reverse((_, queue))) = firsts.pop()
        {
            let next_ns = firsts.peek().map_or(u64::MAX, |Reverse((next_ns, _))| *next_ns);
            let QueueEvents { waiting, in_flight } = &mut self.queues[queue];
            let device = &mut self.device;
            let released = waiting.release(next_ns, left, |event, at_ns, extent| {
                device.process(event, at_ns, extent, in_flight);
            });
            self.waiting -= released;
            left -= released;
            waiting.shrink();
            if let Some(first_ns) = waiting.first_ns() {
                firsts.push(Reverse((first_ns, queue)));
            }
        }
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
        let mut timeline = Timeline::new(0, false);
        // Each queue reads its own sequence; the device alternates between them.
        for queue in 0..2_u16 {
            for step in 0..100_u64 {
                let at_ns = 1000 + step * 100 + u64::from(queue) * 50;
                timeline.dispatch(queue, record(u64::from(queue) * 100_000 + step * 8), at_ns);
                timeline.complete(queue, at_ns + 90);
            }
        }
        timeline.finish();
        let seeks = timeline.seeks();
        let depth = timeline.depth(10_000);
        assert_eq!((seeks.requests, seeks.count), (199, 199), "every request is a seek");
        assert_eq!((depth.max, timeline.out_of_order()), (2, 0));
    }

    #[test]
    fn a_dispatch_that_the_device_refused_is_neither_a_seek_nor_in_flight() {
        let mut timeline = Timeline::new(0, false);
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
        let mut timeline = Timeline::new(0, false);
        for step in 0..10 * WAITING_MAX as u64 {
            // The two queues take turns in the file, 100 events each.
            let queue = (step / 100 % 2) as u16;
            let at_ns = step / 200 * 100 + step % 100;
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
        let mut timeline = Timeline::new(0, false);
        timeline.mark(100);
        timeline.dispatch(0, record(0), 50);
        timeline.dispatch(1, record(5000), 120);
        timeline.complete(1, 130);
        timeline.finish();
        assert_eq!((timeline.seeks().requests, timeline.depth(130).max), (0, 1));
        assert!((timeline.depth(10).mean - 1.0).abs() < 1e-9, "only the second request is known to complete");
    }

    /// A log that was cut off after the first record of a repeat ends like this.
    #[test]
    fn the_last_event_may_be_at_the_start_of_a_repeat() {
        let mut timeline = Timeline::new(0, false);
        timeline.mark(1_000_000);
        timeline.dispatch(0, record(0), 10);
        timeline.complete(0, 20);
        timeline.dispatch(0, record(5000), 1_000_000);
        timeline.finish();
        let depth = timeline.depth(10);
        assert_eq!((depth.max, timeline.seeks().requests), (1, 0));
        assert!((depth.mean - 1.0).abs() < 1e-9, "{depth:?}");
    }
}
