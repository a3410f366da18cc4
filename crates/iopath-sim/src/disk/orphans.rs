//! Writes of a program that has died: the disk continues them, and nobody gets their completion.

use std::ops::Range;

use iopath_core::{Instant, Op};

use super::{Platter, SECTOR};
use crate::arena::Arena;

/// A write in service when its program died.
#[derive(Debug)]
pub(crate) struct Orphan {
    due: Instant,
    /// The first sector of the disk.
    pub(crate) sector: u64,
    pub(crate) bytes: Vec<u8>,
    fua: bool,
    /// The number that its owner gave it.
    pub(crate) number: u64,
}

impl Orphan {
    fn range(&self) -> Range<usize> {
        let start = self.sector as usize * SECTOR;
        start..start + self.bytes.len()
    }
}

impl Platter {
    /// The program with these ports has died. Calls `number` for each of its writes in service. The disk executes them,
    /// from copies of their bytes. It forgets the other requests.
    pub(crate) fn orphan(&mut self, arena: &Arena, mut number: impl FnMut(&Orphan) -> u64) {
        for request in std::mem::take(&mut self.in_service).into_iter().flatten() {
            let bytes = match request.op {
                Op::Write | Op::WriteZeroes => request.written_bytes(arena),
                Op::Discard if self.config.discard_zeroes => vec![0; request.extent.bytes() as usize],
                _ => continue,
            };
            let sector = (self.range(request.extent).start / SECTOR) as u64;
            let mut orphan = Orphan { due: request.due, sector, bytes, fua: request.fua, number: 0 };
            orphan.number = number(&orphan);
            self.orphans.push(orphan);
        }
    }

    /// Executes the next orphan that is due, and returns it.
    pub(crate) fn poll_orphan(&mut self, now: Instant) -> Option<Orphan> {
        let next = (0..self.orphans.len()).min_by_key(|index| self.orphans[*index].due)?;
        (self.orphans[next].due <= now).then_some(())?;
        let orphan = self.orphans.remove(next);
        self.execute_orphan(&orphan);
        Some(orphan)
    }

    pub(crate) fn orphans_due(&self) -> Option<Instant> {
        self.orphans.iter().map(|orphan| orphan.due).min()
    }

    pub(super) fn execute_orphan(&mut self, orphan: &Orphan) {
        self.bytes[orphan.range()].copy_from_slice(&orphan.bytes);
        self.record(orphan.range(), orphan.fua);
    }
}
