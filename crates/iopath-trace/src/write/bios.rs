//! Follows bios from their queueing to their completion, for formats with a line for each.

use std::collections::HashMap;

use iopath_core::log::Event;
use iopath_core::{Op, Record};
use iopath_log::Entry;

/// A bio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bio {
    pub(super) queue: u16,
    pub(super) queued_ns: u64,
    pub(super) op: Op,
    pub(super) sector: u64,
    pub(super) sectors: u64,
    pub(super) stream: u32,
}

/// Bios in flight, by queue and number.
#[derive(Debug, Default)]
pub(super) struct Bios {
    bios: HashMap<(u16, u32), Bio>,
    /// The bio of each request.
    of_request: HashMap<(u16, u32), u32>,
}

/// What a step means for the bios.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Followed {
    /// The bio was queued. Its number may have been that of another bio without an end.
    Queued(Option<Bio>),
    /// The bio that was just queued is one of a device above: it is no I/O of its own, and forgotten.
    Remapped(Bio),
    Completed(Bio),
    Other,
}

impl Bios {
    pub(super) fn follow(&mut self, entry: &Entry) -> Followed {
        let record = entry.record;
        let number = (entry.queue, record.tag());
        match record.event() {
            Some(Event::Queue) => {
                let Some(op) = record.op() else { return Followed::Other };
                let bio = Bio {
                    queue: entry.queue,
                    queued_ns: entry.time.as_nanos(),
                    op,
                    sector: record.sector(),
                    sectors: record.sectors(),
                    stream: record.stream().0,
                };
                Followed::Queued(self.bios.insert(number, bio))
            }
            Some(Event::Remap) => self.bios.remove(&number).map_or(Followed::Other, Followed::Remapped),
            // From here on, the number is that of a piece.
            Some(Event::Split) => {
                self.bios.remove(&number);
                Followed::Other
            }
            Some(Event::Get) => {
                self.of_request.insert(number, record.other());
                Followed::Other
            }
            Some(Event::Complete) if record.is_request() => self.complete_request(number, record),
            Some(Event::Complete) => self.bios.remove(&number).map_or(Followed::Other, Followed::Completed),
            Some(Event::Missed) => {
                self.bios.retain(|(queue, _), _| *queue != entry.queue);
                self.of_request.retain(|(queue, _), _| *queue != entry.queue);
                Followed::Other
            }
            _ => Followed::Other,
        }
    }

    fn complete_request(&mut self, number: (u16, u32), record: Record) -> Followed {
        let bio = self.of_request.remove(&number).filter(|_| record.is_last());
        let bio = bio.and_then(|bio| self.bios.remove(&(number.0, bio)));
        bio.map_or(Followed::Other, Followed::Completed)
    }

    /// The bios without an end, in the order of their queueing.
    pub(super) fn take_rest(&mut self) -> Vec<Bio> {
        let mut rest: Vec<Bio> = self.bios.drain().map(|(_, bio)| bio).collect();
        rest.sort_by_key(|bio| (bio.queued_ns, bio.queue, bio.sector));
        rest
    }
}
