//! Which records are looked at: by time, stream, sector range and event. A record passes whole or not at all.
//!
//! The steps of a queue itself have no stream and no sectors, and in their places other things or nothing. What
//! changes all that follows, another elevator or a gap, is looked at whichever streams and sectors are asked for;
//! an unplug, which is of many, and the clock's upper bits are not.

use crate::block::Entry;
use iopath_core::log::Event;
use iopath_core::{Extent, Record};
use std::ops::Range;
use std::time::Duration;

/// What to look at; the default is everything.
///
/// Records are judged one by one: the I/O of a record that passes may have others that do not, and is then not
/// joined. Filter by stream or sector to follow I/Os whole.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only what happened in this time since the log began.
    pub time: Option<Range<Duration>>,
    /// Only these streams; none means all. Steps of a queue itself are of none: see [`Filter::sectors`].
    pub streams: Vec<u32>,
    /// Only what touches these sectors. With this or with streams, of the steps of a queue itself pass those that
    /// concern all I/O after them, [`Event::Elevator`] and [`Event::Missed`], and no others.
    pub sectors: Option<Extent>,
    /// Only these events; none means all.
    pub events: Vec<Event>,
}

/// A filter in the form that is quickest to ask.
#[derive(Debug, Clone)]
pub(crate) struct Sieve {
    start_ns: u64,
    end_ns: u64,
    streams: Vec<u32>,
    sectors: Option<Extent>,
    /// A bit for each code.
    events: u32,
    is_open: bool,
}

impl Sieve {
    /// Of a log that began at `origin_ns`.
    pub(crate) fn new(filter: &Filter, origin_ns: u64) -> Self {
        let at =
            |after: Duration| origin_ns.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
        let (start_ns, end_ns) =
            filter.time.as_ref().map_or((0, u64::MAX), |time| (at(time.start), at(time.end)));
        let mut streams = filter.streams.clone();
        streams.sort_unstable();
        let bit = |event: &Event| 1 << event.code();
        let events = filter.events.iter().map(bit).fold(0, |all, bit: u32| all | bit);
        let is_open = filter.time.is_none()
            && streams.is_empty()
            && filter.sectors.is_none()
            && filter.events.is_empty();
        let events = if events == 0 { u32::MAX } else { events };
        Self { start_ns, end_ns, streams, sectors: filter.sectors, events, is_open }
    }

    /// Whether everything passes.
    pub(crate) const fn is_open(&self) -> bool {
        self.is_open
    }

    #[inline]
    pub(crate) fn passes(&self, entry: &Entry) -> bool {
        self.is_open || self.passes_closed(entry)
    }

    fn passes_closed(&self, entry: &Entry) -> bool {
        let record = entry.record;
        let time_ns = entry.time.as_nanos();
        self.events >> record.event_code() & 1 == 1
            && self.start_ns <= time_ns
            && time_ns < self.end_ns
            && self.passes_place(record)
    }

    /// Whether it is of one of the streams, and touches the sectors.
    fn passes_place(&self, record: Record) -> bool {
        match record.event() {
            Some(Event::Elevator | Event::Missed) => true,
            Some(Event::Unplug | Event::Clock) => self.streams.is_empty() && self.sectors.is_none(),
            _ => {
                let touches = |extent: Extent| extent.overlaps(record.extent());
                (self.streams.is_empty() || self.streams.binary_search(&record.stream().0).is_ok())
                    && self.sectors.is_none_or(touches)
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
        Entry { number: 0, queue: 0, time, record: Record::new(&step, time) }
    }

    #[test]
    fn each_condition_must_hold() {
        let filter = Filter {
            time: Some(Duration::from_nanos(10)..Duration::from_nanos(20)),
            streams: vec![7, 3],
            sectors: Extent::new(Sector(100), 10),
            events: vec![Event::Queue, Event::Dispatch],
        };
        let sieve = Sieve::new(&filter, 1000);
        assert!(sieve.passes(&entry(1010, Event::Dispatch, 3, 93)));
        assert!(!sieve.passes(&entry(1009, Event::Dispatch, 3, 93)), "too early");
        assert!(!sieve.passes(&entry(1020, Event::Dispatch, 3, 93)), "too late");
        assert!(!sieve.passes(&entry(1010, Event::Insert, 3, 93)), "another event");
        assert!(!sieve.passes(&entry(1010, Event::Queue, 4, 93)), "another stream");
        assert!(!sieve.passes(&entry(1010, Event::Queue, 7, 92)), "ends where the range begins");
    }

    #[test]
    fn the_default_passes_everything() {
        let sieve = Sieve::new(&Filter::default(), 0);
        assert!(sieve.passes(&entry(u64::MAX, Event::Missed, 9, 0)));
    }
}
