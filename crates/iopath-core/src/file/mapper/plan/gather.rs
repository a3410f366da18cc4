//! Makes bios of mappings: joins mappings that are adjacent in the file and on the device, splits them at the device's
//! limits, and ends them at boundaries. `read.rs` and `write.rs` provide the mappings.

use super::{Boundary, Step};
use crate::block::bio::Op;
use crate::block::limits::Limits;
use crate::file::mapper::{FileRange, Mapping};
use crate::sector::{Extent, SECTOR_SHIFT};

/// The pending bio, which may still grow.
#[derive(Debug, Clone)]
pub(super) struct Gather {
    op: Op,
    boundary: Boundary,
    /// The bytes of a bio that is submitted alone: a block of the filesystem, or a page.
    unit_bytes: u32,
    pending: Option<(FileRange, Extent)>,
    /// The pending bio must not grow further.
    is_closed: bool,
    /// The pending bio ends at a boundary.
    at_boundary: bool,
    /// From this byte of the file on, each block is a separate bio.
    alone_from: Option<u64>,
    /// The next step is a [`Step::Submit`].
    submit_due: bool,
}

impl Gather {
    pub(super) const fn new(op: Op, boundary: Boundary, block_bytes: u32) -> Self {
        Self {
            op,
            boundary,
            unit_bytes: block_bytes,
            pending: None,
            is_closed: false,
            at_boundary: false,
            alone_from: None,
            submit_due: false,
        }
    }

    /// With [`Boundary::EveryBlock`], a bio is a page of the file if that is larger than a block.
    pub(super) fn use_pages(&mut self, page_bytes: u32) {
        self.unit_bytes = self.unit_bytes.max(page_bytes);
    }

    /// Adds a mapping that lies at `extent`. If the mapping cannot join the pending bio, closes that and returns false.
    pub(super) fn push(&mut self, mapping: &Mapping, extent: Extent) -> bool {
        let file = mapping.file;
        let joined = match self.pending {
            None => Some((file, extent)),
            Some((before, at)) if before.is_followed_by(file) => {
                at.join(extent).map(|extent| (FileRange::between(before.start(), file.end()), extent))
            }
            Some(_) => None,
        };
        if joined.is_none() {
            self.is_closed = true;
            return false;
        }
        self.pending = joined;
        if mapping.boundary && self.boundary != Boundary::Ignore {
            (self.is_closed, self.at_boundary) = (true, true);
            self.alone_from = (self.boundary == Boundary::EveryBlock).then_some(file.start());
        }
        true
    }

    /// The bytes added and not yet returned as steps.
    pub(super) fn pending(&self) -> Option<FileRange> {
        self.pending.map(|(file, _)| file)
    }

    /// Closes the pending bio. Returns whether there is one.
    pub(super) fn close(&mut self) -> bool {
        self.is_closed = true;
        self.pending.is_some()
    }

    /// A closed bio, or the [`Step::Submit`] after it.
    pub(super) fn poll(&mut self, limits: &Limits) -> Option<Step> {
        if std::mem::take(&mut self.submit_due) {
            return Some(Step::Submit);
        }
        let Some((file, extent)) = self.pending else {
            self.is_closed = false;
            return None;
        };
        let fits = limits.first_piece(self.op, extent);
        assert!(fits > 0, "the device does not support {}", self.op);
        if fits == extent.sectors() && !self.is_closed {
            return None;
        }
        let alone = self.alone_from.map(|from| self.unit_end(from.max(file.start())));
        let sectors = alone.map_or(fits, |end| fits.min((end - file.start()) >> SECTOR_SHIFT));
        let (first, rest) = extent.split_at(sectors);
        let cut = file.start() + first.bytes();
        self.submit_due = alone == Some(cut);
        if rest.is_empty() {
            self.submit_due |= std::mem::take(&mut self.at_boundary);
            (self.pending, self.alone_from) = (None, None);
        } else {
            self.pending = Some((file.from_offset(cut), rest));
        }
        Some(Step::Transfer { file: file.up_to(cut), extent: first })
    }

    /// The end of the block or page that contains a byte of the file.
    fn unit_end(&self, offset: u64) -> u64 {
        FileRange::new(offset, 1).outward(self.unit_bytes.into()).end()
    }
}
