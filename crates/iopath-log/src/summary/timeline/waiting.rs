//! The waiting events of one queue, first in, first out. They use most of the memory of a summary, so they are packed:
//! 8 bytes for each event, and 8 for the extent of a dispatch. `timeline.rs` orders events across queues.

use super::EventNumber;
use iopath_core::Record;
use std::collections::VecDeque;

/// An event at the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A request was dispatched. The event has an extent.
    Dispatch = 0,
    /// A dispatch that the device refused.
    Canceled = 1,
    /// A request left the device: it completed, or the device refused it after its dispatch had been released.
    Leave = 2,
    /// Records of the queue are missing, so its requests in flight and the head position are unknown.
    Gap = 3,
}

/// The number of bits for the event; all other bits hold the time. Times later than 146 years are clamped.
const EVENT_BITS: u32 = 2;
const TIME_MAX: u64 = u64::MAX >> EVENT_BITS;

/// The number of lower bits of an extent that hold the sector, as in a record.
const SECTOR_BITS: u32 = 48;
const SECTOR_MAX: u64 = Record::SECTOR_MAX;

/// This value in place of the length means that the next word holds the length.
const LONG: u64 = u64::MAX >> SECTOR_BITS;

/// The sectors of a dispatch; empty for all other events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Extent {
    pub(super) sector: u64,
    pub(super) sectors: u64,
}

/// The waiting events of a queue.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    events: VecDeque<u64>,
    /// The extents of the dispatches.
    extents: VecDeque<u64>,
    /// The number of the first waiting event.
    first: EventNumber,
}

impl Event {
    #[inline]
    const fn of(word: u64) -> Self {
        match word & ((1 << EVENT_BITS) - 1) {
            0 => Self::Dispatch,
            1 => Self::Canceled,
            2 => Self::Leave,
            _ => Self::Gap,
        }
    }
}

impl Waiting {
    /// Whether the queue has had no event so far.
    #[inline]
    pub(super) fn is_new(&self) -> bool {
        self.first == 0 && self.events.is_empty()
    }

    /// Adds an event. For a dispatch, call [`Waiting::push_extent`] first.
    #[inline]
    pub(super) fn push(&mut self, event: Event, at_ns: u64) -> EventNumber {
        self.events.push_back(at_ns.min(TIME_MAX) << EVENT_BITS | event as u64);
        self.first + self.events.len() as u64 - 1
    }

    #[inline]
    pub(super) fn push_extent(&mut self, sector: u64, sectors: u64) {
        self.extents.push_back(sector | sectors.min(LONG) << SECTOR_BITS);
        if sectors >= LONG {
            self.extents.push_back(sectors);
        }
    }

    /// Marks a dispatch as canceled, if it still waits. Returns whether it does.
    pub(super) fn cancel(&mut self, dispatch: EventNumber) -> bool {
        let index = dispatch.checked_sub(self.first);
        let event = index.and_then(|index| self.events.get_mut(index as usize));
        event.map(|event| *event |= Event::Canceled as u64).is_some()
    }

    pub(super) fn first_ns(&self) -> Option<u64> {
        self.events.front().map(|event| event >> EVENT_BITS)
    }

    /// Removes the first `count` events up to the time `until_ns` and passes each to `process`; returns their number.
    #[inline]
    pub(super) fn release(
        &mut self,
        until_ns: u64,
        count: usize,
        mut process: impl FnMut(Event, u64, Extent),
    ) -> usize {
        let mut extents = self.extents.iter();
        let mut extents_used = 0;
        let mut released = 0;
        let (first, rest) = self.events.as_slices();
        for word in first.iter().chain(rest).take(count) {
            let at_ns = word >> EVENT_BITS;
            if at_ns > until_ns {
                break;
            }
            released += 1;
            let event = Event::of(*word);
            let mut extent = Extent::default();
            if let Event::Dispatch | Event::Canceled = event {
                let word = extents.next().copied().unwrap_or_default();
                extent = Extent { sector: word & SECTOR_MAX, sectors: word >> SECTOR_BITS };
                extents_used += 1;
                if extent.sectors == LONG {
                    extent.sectors = extents.next().copied().unwrap_or_default();
                    extents_used += 1;
                }
            }
            process(event, at_ns, extent);
        }
        self.events.drain(..released);
        self.extents.drain(..extents_used);
        self.first += released as u64;
        released
    }

    /// Frees most of the memory if little of it is used, since other queues may need memory.
    pub(super) fn shrink(&mut self) {
        for words in [&mut self.events, &mut self.extents] {
            if words.len() < words.capacity() / 8 {
                words.shrink_to(words.len() * 2);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_extents_return_as_they_were_added() {
        let mut waiting = Waiting::default();
        assert!(waiting.is_new());
        let extents = [(0, 0), ((1 << SECTOR_BITS) - 1, LONG - 1), (7, LONG), (8, (1 << 24) - 1), (9, 1)];
        for (at_ns, (sector, sectors)) in (10..).zip(extents) {
            waiting.push_extent(sector, sectors);
            assert_eq!(waiting.push(Event::Dispatch, at_ns), (at_ns - 10) * 2);
            waiting.push(Event::Leave, at_ns);
        }
        waiting.push(Event::Gap, u64::MAX);
        assert!(waiting.cancel(2) && !waiting.cancel(100));
        assert_eq!(waiting.first_ns(), Some(10));

        let mut wanted = Vec::new();
        for (at_ns, (sector, sectors)) in (10..).zip(extents) {
            let event = if at_ns == 11 { Event::Canceled } else { Event::Dispatch };
            wanted.push((event, at_ns, Extent { sector, sectors }));
            wanted.push((Event::Leave, at_ns, Extent::default()));
        }
        wanted.push((Event::Gap, TIME_MAX, Extent::default()));
        let mut seen = Vec::new();
        // The first three, then those up to a time, then the rest.
        for (until_ns, count, released) in [(u64::MAX, 3, 3), (12, 100, 3), (u64::MAX, 100, 5)] {
            let push = |event, at_ns, extent| seen.push((event, at_ns, extent));
            assert_eq!(waiting.release(until_ns, count, push), released);
        }
        assert_eq!(seen, wanted);
        assert!(!waiting.cancel(0) && !waiting.is_new(), "it is known that it had events");
        waiting.shrink();
        assert_eq!((waiting.events.capacity(), waiting.first_ns()), (0, None));
    }
}
