//! Selects steps by time, stream, sector range, event and repeat. Each step passes or fails on its own.
//!
//! Steps of the queue itself have no stream and no sectors. `elevator` and `missed` concern all later I/O, so filters
//! by stream or sector let them pass; they reject `unplug` and `clock`.

use crate::block::{Block, Entry};
use crate::labels::QueueLabel;
use iopath_core::log::Event;
use iopath_core::{Extent, Record};
use std::ops::Range;
use std::time::Duration;

/// The steps to process; the default is all.
///
/// A filter by time or event may pass the end of an I/O without its start. The summary does not join such an I/O.
/// Filter by stream or sector to follow I/Os from start to end.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Selects the steps in this range of time since the log began.
    pub time: Option<Range<Duration>>,
    /// Selects these streams; empty selects all. Numbers from 65,535 on are one stream in a log.
    pub streams: Vec<u32>,
    /// Selects the steps whose range overlaps these sectors.
    pub sectors: Option<Extent>,
    /// Selects these events; empty selects all.
    pub events: Vec<Event>,
    /// Selects the queues of these devices, by name (`sda`, `/dev/sda`) or number (`8:0`); empty selects all.
    pub devices: Vec<String>,
    /// Selects these repeats of a measurement; empty selects all.
    pub repeats: Vec<u32>,
}

/// A filter in a form that is fast to evaluate.
#[derive(Debug, Clone)]
pub(crate) struct Matcher {
    start_ns: u64,
    end_ns: u64,
    /// The streams, sorted.
    streams: Vec<u32>,
    sectors: Option<Extent>,
    /// A bit for each event code.
    events: u32,
    repeats: Vec<u32>,
    devices: Vec<String>,
    passes_all: bool,
}

impl Matcher {
    /// Prepares a filter for a log that began at `origin_ns`.
    pub(crate) fn new(filter: &Filter, origin_ns: u64) -> Self {
        let at =
            |after: Duration| origin_ns.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
        let (start_ns, end_ns) =
            filter.time.as_ref().map_or((0, u64::MAX), |time| (at(time.start), at(time.end)));
        let mut streams: Vec<u32> =
            filter.streams.iter().map(|stream| (*stream).min(Record::STREAM_MAX)).collect();
        streams.sort_unstable();
        let bit = |event: &Event| 1 << event.code();
        let events = filter.events.iter().map(bit).fold(0, |all, bit: u32| all | bit);
        let passes_all = filter.time.is_none()
            && streams.is_empty()
            && filter.sectors.is_none()
            && filter.events.is_empty()
            && filter.repeats.is_empty()
            && filter.devices.is_empty();
        let events = if events == 0 { u32::MAX } else { events };
        let repeats = filter.repeats.clone();
        let name = |device: &String| device.strip_prefix("/dev/").unwrap_or(device).to_owned();
        let devices = filter.devices.iter().map(name).collect();
        Self { start_ns, end_ns, streams, sectors: filter.sectors, events, repeats, devices, passes_all }
    }

    /// Whether every step passes.
    pub(crate) const fn passes_all(&self) -> bool {
        self.passes_all
    }

    /// Whether the steps of the queue of a block may pass.
    pub(crate) fn passes_queue(&self, block: &Block) -> bool {
        let is_it = |label: &QueueLabel| {
            self.devices.iter().any(|device| *device == label.name || *device == label.number)
        };
        self.devices.is_empty() || block.device().is_some_and(is_it)
    }

    #[inline]
    pub(crate) fn passes(&self, entry: &Entry) -> bool {
        self.passes_all || self.matches(entry)
    }

    fn matches(&self, entry: &Entry) -> bool {
        let record = entry.record;
        let time_ns = entry.time.as_nanos();
        self.events >> record.event_code() & 1 == 1
            && self.start_ns <= time_ns
            && time_ns < self.end_ns
            && (self.repeats.is_empty() || self.repeats.contains(&entry.repeat))
            && self.matches_io(record)
    }

    /// Whether the stream and the sectors match.
    fn matches_io(&self, record: Record) -> bool {
        match record.event() {
            Some(Event::Elevator | Event::Missed) => true,
            Some(Event::Unplug | Event::Clock) => self.streams.is_empty() && self.sectors.is_none(),
            _ => {
                let overlaps = |extent: Extent| extent.overlaps(record.extent());
                (self.streams.is_empty() || self.streams.binary_search(&record.stream().0).is_ok())
                    && self.sectors.is_none_or(overlaps)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_core::log::{Step, Subject};
    use iopath_core::{Instant, Sector, Stream};

    fn entry(time_ns: u64, event: Event, stream: u32, start: u64) -> Entry {
        let time = Instant::from_nanos(time_ns);
        let extent = Extent::new(Sector(start), 8).unwrap();
        let step = Step { stream: Stream(stream), extent, ..Step::new(event, Subject::Bio(0)) };
        Entry { number: 0, queue: 0, time, repeat: 2, record: Record::new(&step, time) }
    }

    #[test]
    fn every_condition_must_match() {
        let filter = Filter {
            time: Some(Duration::from_nanos(10)..Duration::from_nanos(20)),
            streams: vec![7, 3],
            sectors: Extent::new(Sector(100), 10),
            events: vec![Event::Queue, Event::Dispatch],
            repeats: vec![1, 2],
            devices: Vec::new(),
        };
        let matcher = Matcher::new(&filter, 1000);
        assert!(matcher.passes(&entry(1010, Event::Dispatch, 3, 93)));
        assert!(!matcher.passes(&entry(1009, Event::Dispatch, 3, 93)), "too early");
        assert!(!matcher.passes(&entry(1020, Event::Dispatch, 3, 93)), "too late");
        assert!(!matcher.passes(&entry(1010, Event::Insert, 3, 93)), "another event");
        assert!(!matcher.passes(&entry(1010, Event::Queue, 4, 93)), "another stream");
        assert!(!matcher.passes(&entry(1010, Event::Queue, 7, 92)), "ends where the range begins");
        let of_third = Matcher::new(&Filter { repeats: vec![3], ..filter }, 1000);
        assert!(!of_third.passes(&entry(1010, Event::Dispatch, 3, 93)), "another repeat");
    }

    #[test]
    fn the_default_passes_every_step() {
        let matcher = Matcher::new(&Filter::default(), 0);
        assert!(matcher.passes(&entry(u64::MAX, Event::Missed, 9, 0)));
    }

    #[test]
    fn streams_above_the_largest_of_a_record_are_that_one() {
        let filter = Filter { streams: vec![1_000_000], ..Filter::default() };
        assert!(Matcher::new(&filter, 0).passes(&entry(0, Event::Queue, 70_000, 0)));
    }
}
