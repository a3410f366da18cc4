//! Makes bios of mappings: joins what touches in the file and on the device, cuts at the device's limits, ends at
//! boundaries. Looks nothing up: see `read.rs` and `write.rs`.

use super::{Boundary, Step};
use crate::bio::Op;
use crate::limits::Limits;
use crate::mapper::FileRange;
use crate::sector::Extent;

/// The bio that is pending, since it might still grow.
#[derive(Debug, Clone)]
pub(super) struct Gather {
    op: Op,
    boundary: Boundary,
    pending: Option<(FileRange, Extent)>,
    /// Nothing more joins what is pending.
    is_closed: bool,
    /// A submit follows what is pending.
    submits: bool,
}

impl Gather {
    pub(super) const fn new(op: Op, boundary: Boundary) -> Self {
        Self { op, boundary, pending: None, is_closed: false, submits: false }
    }

    /// How much of a mapping to take at once.
    pub(super) fn portion(&self, file: FileRange, boundary: bool, block_bytes: u32) -> FileRange {
        if boundary && self.boundary == Boundary::EveryBlock {
            file.and(FileRange::new(file.start(), 1).outward(block_bytes.into()))
        } else {
            file
        }
    }

    /// Takes a mapping, or a portion of it; not if it does not join what is pending, which is then closed.
    pub(super) fn push(&mut self, file: FileRange, place: Extent, boundary: bool) -> bool {
        let joined = match self.pending {
            None => Some((file, place)),
            Some((before, at)) if before.is_followed_by(file) => {
                at.join(place).map(|place| (FileRange::between(before.start(), file.end()), place))
            }
            Some(_) => None,
        };
        let Some(joined) = joined else {
            self.is_closed = true;
            return false;
        };
        self.pending = Some(joined);
        if boundary && self.boundary != Boundary::Ignore {
            (self.is_closed, self.submits) = (true, true);
        }
        true
    }

    /// What was taken and not given out.
    pub(super) fn pending(&self) -> Option<FileRange> {
        self.pending.map(|(file, _)| file)
    }

    /// Lets nothing more join; whether there is something to give out.
    pub(super) fn close(&mut self) -> bool {
        self.is_closed = true;
        self.pending.is_some()
    }

    /// A bio that cannot grow, or the submit behind it.
    pub(super) fn poll(&mut self, limits: &Limits) -> Option<Step> {
        let Some((file, place)) = self.pending else {
            self.is_closed = false;
            return std::mem::take(&mut self.submits).then_some(Step::Submit);
        };
        let sectors = limits.first_piece(self.op, place);
        assert!(sectors > 0, "a device that takes no {} has no file to plan for", self.op);
        if sectors == place.sectors() && !self.is_closed {
            return None;
        }
        let (first, rest) = place.split_at(sectors);
        let cut = file.start() + first.bytes();
        self.pending = (!rest.is_empty()).then(|| (file.from_offset(cut), rest));
        Some(Step::Transfer { file: file.up_to(cut), place: first })
    }
}
