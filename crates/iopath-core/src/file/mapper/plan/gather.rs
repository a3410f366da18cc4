//! Makes bios of mappings: joins what touches in the file and on the device, cuts at the device's limits, ends at
//! boundaries. Looks nothing up: see `read.rs` and `write.rs`.

use super::{Boundary, Step};
use crate::block::bio::Op;
use crate::block::limits::Limits;
use crate::file::mapper::{FileRange, Mapping};
use crate::sector::{Extent, SECTOR_SHIFT};

/// The bio that is pending, since it might still grow.
#[derive(Debug, Clone)]
pub(super) struct Gather {
    op: Op,
    boundary: Boundary,
    block_bytes: u32,
    pending: Option<(FileRange, Extent)>,
    /// Nothing more joins what is pending.
    is_closed: bool,
    /// What is pending ends at a boundary.
    at_boundary: bool,
    /// From this byte of the file on each block is a bio of its own.
    alone_from: Option<u64>,
    /// A submit comes before anything else.
    submit_due: bool,
}

impl Gather {
    pub(super) const fn new(op: Op, boundary: Boundary, block_bytes: u32) -> Self {
        Self {
            op,
            boundary,
            block_bytes,
            pending: None,
            is_closed: false,
            at_boundary: false,
            alone_from: None,
            submit_due: false,
        }
    }

    /// Takes a mapping that lies at `place`; not if it does not join what is pending, which is then closed.
    pub(super) fn push(&mut self, mapping: &Mapping, place: Extent) -> bool {
        let file = mapping.file;
        let joined = match self.pending {
            None => Some((file, place)),
            Some((before, at)) if before.is_followed_by(file) => {
                at.join(place).map(|place| (FileRange::between(before.start(), file.end()), place))
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
        if std::mem::take(&mut self.submit_due) {
            return Some(Step::Submit);
        }
        let Some((file, place)) = self.pending else {
            self.is_closed = false;
            return None;
        };
        let fits = limits.first_piece(self.op, place);
        assert!(fits > 0, "a device that takes no {} has no file to plan for", self.op);
        if fits == place.sectors() && !self.is_closed {
            return None;
        }
        let alone = self.alone_from.map(|from| self.block_end(from.max(file.start())));
        let sectors = alone.map_or(fits, |end| fits.min((end - file.start()) >> SECTOR_SHIFT));
        let (first, rest) = place.split_at(sectors);
        let cut = file.start() + first.bytes();
        self.submit_due = alone == Some(cut);
        if rest.is_empty() {
            self.submit_due |= std::mem::take(&mut self.at_boundary);
            (self.pending, self.alone_from) = (None, None);
        } else {
            self.pending = Some((file.from_offset(cut), rest));
        }
        Some(Step::Transfer { file: file.up_to(cut), place: first })
    }

    /// The end of the filesystem's block that a byte of the file is in.
    fn block_end(&self, offset: u64) -> u64 {
        FileRange::new(offset, 1).outward(self.block_bytes.into()).end()
    }
}
