//! Follows bios from their queueing to their completion, for formats with a line for each, and for replays.

use std::collections::HashMap;

use iopath_core::log::Event;
use iopath_core::{Op, Record};
use iopath_log::Entry;

/// A bio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bio {
    /// The number of bios that were queued before.
    pub(crate) number: u64,
    pub(crate) queue: u16,
    pub(crate) queued_ns: u64,
    pub(crate) op: Op,
    pub(crate) sector: u64,
    pub(crate) sectors: u64,
    pub(crate) stream: u32,
    pub(crate) is_fua: bool,
}

/// The queues whose own bios a log has. A partition has none: its bios are in the log as bios of the disk.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    has_bios: Vec<bool>,
}

impl Levels {
    /// A bio of this queue was queued.
    #[inline]
    pub(crate) fn queued(&mut self, queue: u16) {
        let queue = usize::from(queue);
        if self.has_bios.len() <= queue {
            self.has_bios.resize(queue + 1, false);
        }
        self.has_bios[queue] = true;
    }

    /// Whether the log has the bio of this remap as one of the device above, too.
    pub(crate) fn has_above(&self, remap: Record) -> bool {
        self.has_bios.get(remap.other() as usize).copied().unwrap_or(false)
    }
}

/// Bios in flight, by queue and number.
#[derive(Debug, Default)]
pub(crate) struct Bios {
    in_flight: HashMap<(u16, u32), Bio>,
    /// The bio of each request.
    of_request: HashMap<(u16, u32), u32>,
    levels: Levels,
    /// The bios that were queued so far.
    queued: u64,
}

/// What a step means for the bios.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Followed {
    /// The bio was queued. Its slot may have been that of another bio without an end.
    Queued(Bio, Option<Bio>),
    /// The bio that was just queued is one of a device above, which the log has, too.
    Remapped(Bio),
    Completed(Bio),
    Other,
}

impl Bios {
    pub(crate) fn follow(&mut self, entry: &Entry) -> Followed {
        let record = entry.record;
        let number = (entry.queue, record.tag());
        match record.event() {
            Some(Event::Queue) => {
                let Some(op) = record.op() else { return Followed::Other };
                self.levels.queued(entry.queue);
                let bio = Bio {
                    number: self.queued,
                    queue: entry.queue,
                    queued_ns: entry.time.as_nanos(),
                    op,
                    sector: record.sector(),
                    sectors: record.sectors(),
                    stream: record.stream().0,
                    is_fua: record.step().is_ok_and(|step| step.is_fua),
                };
                self.queued += 1;
                Followed::Queued(bio, self.in_flight.insert(number, bio))
            }
            Some(Event::Remap) if self.levels.has_above(record) => {
                self.in_flight.get(&number).copied().map_or(Followed::Other, Followed::Remapped)
            }
            // From here on, the number is that of a piece.
            Some(Event::Split) => {
                self.in_flight.remove(&number);
                Followed::Other
            }
            Some(Event::Get) => {
                self.of_request.insert(number, record.other());
                Followed::Other
            }
            Some(Event::Complete) if record.is_request() => self.complete_request(number, record),
            Some(Event::Complete) => {
                self.in_flight.remove(&number).map_or(Followed::Other, Followed::Completed)
            }
            Some(Event::Missed) => {
                self.in_flight.retain(|(queue, _), _| *queue != entry.queue);
                self.of_request.retain(|(queue, _), _| *queue != entry.queue);
                Followed::Other
            }
            _ => Followed::Other,
        }
    }

    /// Forgets the bio of this step.
    pub(crate) fn forget(&mut self, entry: &Entry) {
        self.in_flight.remove(&(entry.queue, entry.record.tag()));
    }

    fn complete_request(&mut self, number: (u16, u32), record: Record) -> Followed {
        let bio = self.of_request.remove(&number).filter(|_| record.is_last());
        let bio = bio.and_then(|bio| self.in_flight.remove(&(number.0, bio)));
        bio.map_or(Followed::Other, Followed::Completed)
    }

    /// The bios without an end, in the order of their queueing.
    pub(crate) fn take_rest(&mut self) -> Vec<Bio> {
        let mut rest: Vec<Bio> = self.in_flight.drain().map(|(_, bio)| bio).collect();
        rest.sort_unstable_by_key(|bio| bio.number);
        rest
    }
}
