//! The content of a whole log. Gathered if a filter was given, so that the user can correct a filter without matches.

use super::report::Contents;
use crate::block::Entry;
use crate::names::event_name;
use iopath_core::log::Event;
use std::collections::BTreeSet;
use std::ops::Range;

/// The maximum number of streams, and of repeats, in the list.
const LISTED_MAX: usize = 64;

/// The content of a log read so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    steps: u64,
    last_ns: u64,
    streams: BTreeSet<u32>,
    repeats: BTreeSet<u32>,
    sectors: Option<Range<u64>>,
    events: u32,
}

impl Seen {
    pub(crate) fn note(&mut self, entry: &Entry) {
        let record = entry.record;
        self.steps += 1;
        self.last_ns = self.last_ns.max(entry.time.as_nanos());
        self.events |= 1 << record.event_code();
        if self.repeats.len() < LISTED_MAX {
            self.repeats.insert(entry.repeat);
        }
        let is_of_queue =
            matches!(record.event(), Some(Event::Clock | Event::Missed | Event::Unplug | Event::Elevator));
        if is_of_queue {
            return;
        }
        if self.streams.len() < LISTED_MAX {
            self.streams.insert(record.stream().0);
        }
        if record.sectors() > 0 {
            let sectors = record.sector()..record.sector() + record.sectors();
            let seen = self.sectors.get_or_insert(sectors.clone());
            seen.start = seen.start.min(sectors.start);
            seen.end = seen.end.max(sectors.end);
        }
    }

    /// The content of a log that began at `start_ns`.
    pub(crate) fn report(self, start_ns: u64) -> Contents {
        let sectors = self.sectors.unwrap_or_default();
        let occurs = |event: &Event| self.events >> event.code() & 1 == 1;
        Contents {
            steps: self.steps,
            last_ns: self.last_ns.saturating_sub(start_ns),
            streams: self.streams.into_iter().collect(),
            first_sector: sectors.start,
            end_sector: sectors.end,
            events: Event::ALL.into_iter().filter(occurs).map(event_name).collect(),
            repeats: self.repeats.into_iter().collect(),
        }
    }
}
