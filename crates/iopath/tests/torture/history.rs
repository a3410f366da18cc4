//! The last operations of a worker, for the message of a mismatch.

use std::collections::VecDeque;
use std::fmt;

/// The maximum number of recorded operations.
const LENGTH: usize = 1 << 16;
/// The maximum number of operations in a message: on the sector; half as many on the whole volume.
const SHOWN: usize = 16;

/// One operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) number: u64,
    pub(crate) what: &'static str,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    /// The offset in the source of written bytes.
    pub(crate) source: Option<usize>,
    pub(crate) is_ok: bool,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, what, offset, bytes, source, is_ok } = self;
        write!(f, "{number:>9}  {what:<14}  {offset:>9} + {bytes:<8}")?;
        if let Some(source) = source {
            write!(f, "  source {source:<7}")?;
        }
        if *is_ok { Ok(()) } else { write!(f, "  failed") }
    }
}

#[derive(Debug)]
pub(crate) struct History {
    events: VecDeque<Event>,
}

impl History {
    pub(crate) fn new() -> Self {
        Self { events: VecDeque::with_capacity(LENGTH) }
    }

    pub(crate) fn add(&mut self, event: Event) {
        if self.events.len() == LENGTH {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// The last operations on the sector of a byte, oldest first, with operations on the whole volume (an empty range).
    pub(crate) fn of_byte(&self, offset: usize) -> String {
        let (mut own, mut common) = (SHOWN, SHOWN / 2);
        let is_shown = |event: &&Event| {
            // A write of a part of a sector may write all of it.
            let sector = offset / 512 * 512..(offset / 512 + 1).saturating_mul(512);
            let is_own = event.offset < sector.end && sector.start < event.offset + event.bytes;
            let room = if is_own { &mut own } else { &mut common };
            let is_shown = (is_own || event.bytes == 0) && *room > 0;
            *room -= usize::from(is_shown);
            is_shown
        };
        let mut lines: Vec<String> =
            self.events.iter().rev().filter(is_shown).map(Event::to_string).collect();
        lines.reverse();
        lines.join("\n")
    }
}
