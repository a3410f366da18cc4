//! Flushes that trim the file of a page cache, which holds the last page meanwhile, and what follows a move of the end.

use iopath_core::cache::DirectStep;

use super::Volume;
use super::call::{Call, Kind, Stage};
use super::request::{Goal, Move, Next};

impl Volume {
    /// What a move of the end begins at last.
    pub(super) fn flush_after(&mut self, index: usize) -> Option<Kind> {
        let is_cached = self.path.is_some();
        let Call { offset, bytes, .. } = *self.call(index);
        match &self.move_of(index).goal {
            // It also trims the file.
            Goal::Write { forced: true, .. } if is_cached => {
                Some(Kind::Move(Move::new(Goal::flush(Some(offset..offset + bytes)))))
            }
            Goal::Write { forced: true, .. } => Some(Kind::Flush { queue: 0, range: None }),
            Goal::Flush { range, .. } => Some(Kind::Flush { queue: 0, range: range.clone() }),
            Goal::Write { .. } | Goal::Resize { .. } | Goal::Follow => None,
        }
    }

    /// Changes the length of the file from or to this byte, while the page cache writes nothing to its page.
    pub(super) fn hold_page(&mut self, index: usize, offset: u64) {
        let path = self.path.as_mut().expect("only a file with a page cache has steps");
        match path.begin_hold(offset, index as u64) {
            DirectStep::Go(tag) => self.move_of(index).pass_gate(tag),
            DirectStep::Wait => self.call(index).stage = Stage::Waiting,
        }
    }

    /// Truncates the file to the size of the volume.
    pub(super) fn trim(&mut self, index: usize) {
        let trimmed = self.set_file_length(self.size_bytes, false);
        if let Err(why) = trimmed {
            self.failed(index, why);
        }
        let moved = self.move_of(index);
        let gate = moved.gate.take().expect("it has passed the gate");
        (moved.next, moved.child) = (Next::Unlock, Some(trimmed.is_ok()));
        self.path.as_mut().expect("it gave the tag").end_direct(gate);
    }
}
