//! Names of events, operations and reasons in text, JSON and on command lines; blkparse's letters.

use iopath_core::log::Event;
use iopath_core::{NoMerge, Op};

/// Each event with its name and letter, which is blkparse's if it has the event.
const EVENTS: [(Event, &str, char); Event::ALL.len()] = [
    (Event::Queue, "queue", 'Q'),
    (Event::Hold, "hold", 'H'),
    (Event::Split, "split", 'X'),
    (Event::SlotWait, "slot-wait", 'S'),
    (Event::Get, "get", 'G'),
    (Event::BackMerge, "back-merge", 'M'),
    (Event::FrontMerge, "front-merge", 'F'),
    (Event::NoMerge, "no-merge", 'N'),
    (Event::Plug, "plug", 'P'),
    (Event::Unplug, "unplug", 'U'),
    (Event::Insert, "insert", 'I'),
    (Event::Dispatch, "dispatch", 'D'),
    (Event::Requeue, "requeue", 'R'),
    (Event::Complete, "complete", 'C'),
    (Event::Flush, "flush", 'W'),
    (Event::Retry, "retry", 'A'),
    (Event::Clock, "clock", 'T'),
    (Event::Missed, "missed", '!'),
    (Event::Elevator, "elevator", 'E'),
    (Event::Access, "access", 'B'),
    (Event::AccessEnd, "access-end", 'Z'),
    (Event::Remap, "remap", 'L'),
];

/// The name of an event.
pub fn event_name(event: Event) -> &'static str {
    row(event).map_or("unknown", |(_, name, _)| name)
}

/// The letter of an event in a dump.
pub(crate) fn event_letter(event: Event) -> char {
    row(event).map_or('?', |(.., letter)| *letter)
}

/// The event with that name or letter.
pub fn event_named(name: &str) -> Option<Event> {
    let has_it = |(_, own, letter): &&(Event, &str, char)| *own == name || name.chars().eq([*letter]);
    EVENTS.iter().find(has_it).map(|(event, ..)| *event)
}

fn row(event: Event) -> Option<&'static (Event, &'static str, char)> {
    EVENTS.get(Event::index_of_code(event.code()))
}

/// The name of a reason not to merge.
pub const fn reason_name(reason: NoMerge) -> &'static str {
    match reason {
        NoMerge::NotAdjacent => "not adjacent",
        NoMerge::Direction => "direction",
        NoMerge::SizeLimit => "size limit",
        NoMerge::SegmentLimit => "segment limit",
        NoMerge::Boundary => "boundary",
        NoMerge::Barrier => "barrier",
        NoMerge::Elevator => "elevator veto",
        NoMerge::LatencyBound => "latency bound",
        NoMerge::StarvationBound => "starvation bound",
        NoMerge::Priority => "priority",
        _ => "unknown",
    }
}

/// The name of an operation.
pub const fn op_name(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Flush => "flush",
        Op::Discard => "discard",
        Op::WriteZeroes => "write-zeroes",
    }
}

/// The letter of an operation, as in blkparse; `Z` for write-zeroes, which blkparse shows as a write.
pub const fn op_letter(op: Op) -> char {
    match op {
        Op::Read => 'R',
        Op::Write => 'W',
        Op::Flush => 'F',
        Op::Discard => 'D',
        Op::WriteZeroes => 'Z',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_event_has_a_unique_name_and_letter() {
        for event in Event::ALL {
            assert_eq!(event_named(event_name(event)), Some(event));
            assert_eq!(event_named(&event_letter(event).to_string()), Some(event));
        }
        assert_eq!((event_named("nothing"), event_named("")), (None, None));
    }

    #[test]
    fn every_reason_has_a_unique_name() {
        let names: BTreeSet<_> = NoMerge::ALL.into_iter().map(reason_name).collect();
        assert_eq!(names.len(), NoMerge::ALL.len());
        assert!(!names.contains("unknown"));
    }
}
