//! Figures of a recording in progress, one interval after another: `iopath record --top`.

use super::join::Join;
use super::report::{DeviceShare, StreamShare};
use super::slots::Budget;
use super::tallies::Tallies;
use crate::block::Clock;
use crate::labels::Labels;
use iopath_core::log::NoRoom;
use iopath_core::{Instant, LogSink, RecordBatch};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Follows the records of a recording in progress, and reports the devices and processes of each interval.
#[derive(Debug, Clone)]
pub struct Intervals {
    shared: Arc<Mutex<Shared>>,
}

/// The figures of one interval.
#[derive(Debug, Clone)]
pub struct Interval {
    /// Its length.
    pub span_ns: u64,
    /// The devices with an I/O, the busiest first. Latencies are of the requests that completed in the interval.
    pub devices: Vec<DeviceShare>,
    /// The processes that queued or completed an I/O, those with the most bytes first.
    pub processes: Vec<StreamShare>,
}

#[derive(Debug)]
struct Shared {
    joins: Vec<Join>,
    budget: Budget,
    tallies: Tallies,
    begun_ns: u64,
}

/// Receives the records of one device.
#[derive(Debug)]
struct Sink {
    shared: Arc<Mutex<Shared>>,
    queue: usize,
    clock: Clock,
    /// Receives the records after this sink.
    next: Option<Box<dyn LogSink>>,
}

impl Intervals {
    /// Begins the first interval.
    pub fn new(start: Instant) -> Self {
        let begun_ns = start.as_nanos();
        let tallies = Tallies::new(begun_ns, true);
        let shared = Shared { joins: Vec::new(), budget: Budget::default(), tallies, begun_ns };
        Self { shared: Arc::new(Mutex::new(shared)) }
    }

    /// A sink for the next device, which passes the records on.
    pub fn add_queue(&self, next: Option<Box<dyn LogSink>>) -> Box<dyn LogSink> {
        let mut shared = lock(&self.shared);
        let queue = shared.joins.len();
        shared.joins.push(Join::new(u16::try_from(queue).unwrap_or(u16::MAX)));
        Box::new(Sink { shared: Arc::clone(&self.shared), queue, clock: Clock::default(), next })
    }

    /// Ends an interval at `now`, and begins the next one. The records up to `now` must have arrived.
    pub fn take(&self, now: Instant, labels: &Labels) -> Interval {
        let mut shared = lock(&self.shared);
        let now_ns = now.as_nanos();
        let span_ns = now_ns.saturating_sub(shared.begun_ns);
        let mut next = Tallies::new(now_ns, true);
        if let (Some(devices), Some(next)) = (&mut shared.tallies.devices, &mut next.devices) {
            *next = devices.begin_interval(now_ns);
        }
        // Requests in flight refer to their dispatches by number.
        std::mem::swap(&mut shared.tallies.timeline, &mut next.timeline);
        shared.begun_ns = now_ns;
        let ended = std::mem::replace(&mut shared.tallies, next);
        drop(shared);
        let devices = ended.devices.map_or_else(Vec::new, |devices| devices.report(labels, span_ns));
        let used = devices.into_iter().filter(|device| device.bios > 0 || device.depth_max > 0);
        let (processes, _) = ended.streams.report(now_ns.saturating_sub(span_ns), labels);
        Interval { span_ns, devices: used.collect(), processes }
    }
}

impl LogSink for Sink {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        let mut shared = lock(&self.shared);
        let Shared { joins, budget, tallies, .. } = &mut *shared;
        for record in batch.records() {
            let now = self.clock.time(*record).as_nanos();
            joins[self.queue].follow(*record, now, budget, tallies);
        }
        drop(shared);
        match &mut self.next {
            Some(next) => next.take(batch)?,
            None => batch.clear(),
        }
        Ok(())
    }

    fn publish(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        self.take(batch)
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::{QueueLabel, StreamLabel};
    use iopath_core::{Bio, Extent, LengthOnly, Limits, QueueConfig, RequestQueue, Sector, Stream};

    fn labels() -> Labels {
        Labels {
            queues: vec![QueueLabel { queue: 0, name: "sda".to_owned(), number: "8:0".to_owned() }],
            streams: vec![StreamLabel { stream: 7, pid: Some(70), command: "db".to_owned(), is_own: false }],
            losses: Vec::new(),
            ..Labels::default()
        }
    }

    #[test]
    fn a_request_across_the_border_of_two_intervals_counts_where_it_began_and_where_it_ended() {
        let intervals = Intervals::new(Instant::ZERO);
        let mut queue = RequestQueue::new(Limits::with_capacity(1 << 20), &QueueConfig::default());
        queue.start_log(intervals.add_queue(None));
        let at = Instant::from_nanos;
        let extent = Extent::new(Sector(2048), 8).expect("within the address space");
        let bio = Bio::read(extent, LengthOnly::new(4096), 1).on_stream(Stream(7));
        queue.submit_bio(bio, at(100)).expect("a free slot");
        let tag = queue.poll_dispatch(at(400)).expect("it is queued").tag;
        queue.publish_log();

        let first = intervals.take(at(1000), &labels());
        let [device] = &first.devices[..] else { panic!("{first:?}") };
        assert_eq!((device.device.as_str(), device.requests, device.request_bytes), ("sda", 1, 4096));
        assert_eq!((device.completed, device.depth_max), (0, 1));
        assert!((device.busy - 0.6).abs() < 1e-9, "{device:?}");
        let [process] = &first.processes[..] else { panic!("{first:?}") };
        assert_eq!((process.pid, process.bios, process.completed), (Some(70), 1, 0));

        queue.handle_completion(tag, Ok(()), at(1200));
        queue.end_log();
        let second = intervals.take(at(2000), &labels());
        let [device] = &second.devices[..] else { panic!("{second:?}") };
        assert_eq!((device.requests, device.completed, device.max_d2c_ns), (0, 1, 800));
        assert!((device.busy - 0.2).abs() < 1e-9, "{device:?}");
        let [process] = &second.processes[..] else { panic!("{second:?}") };
        assert_eq!((process.bios, process.completed, process.max_q2c_ns), (0, 1, 1100));

        let third = intervals.take(at(3000), &labels());
        assert!(third.devices.is_empty() && third.processes.is_empty(), "{third:?}");
    }

    #[test]
    fn a_request_that_the_device_refuses_in_a_later_interval_is_no_longer_in_flight() {
        let intervals = Intervals::new(Instant::ZERO);
        let mut queue = RequestQueue::new(Limits::with_capacity(1 << 20), &QueueConfig::default());
        queue.start_log(intervals.add_queue(None));
        let at = Instant::from_nanos;
        let extent = Extent::new(Sector(2048), 8).expect("within the address space");
        queue.submit_bio(Bio::read(extent, LengthOnly::new(4096), 1), at(100)).expect("a free slot");
        let tag = queue.poll_dispatch(at(400)).expect("it is queued").tag;
        queue.publish_log();
        intervals.take(at(1000), &labels());

        queue.requeue(tag, at(1200));
        queue.publish_log();
        intervals.take(at(2000), &labels());
        let third = intervals.take(at(3000), &labels());
        assert!(third.devices.is_empty(), "{third:?}");
    }
}
