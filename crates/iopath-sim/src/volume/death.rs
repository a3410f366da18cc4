//! A program dies alone: its memory is gone, and its disks go on. They execute the writes in flight while the next
//! program, with an empty page cache, already reads and writes.

use std::rc::Rc;

use iopath_core::Instant;

use super::Volume;
use crate::disk::{Orphan, Platter};

impl Volume {
    /// The program dies, and another starts.
    pub(crate) fn kill(&mut self, now: Instant) {
        if self.host.is_some() {
            return; // The map of a mapped file is in the memory of the program.
        }
        self.log(now, 0, "death", 0, 0);
        let clock = self.tick();
        // The next program does not know which bytes a failed flush has lost.
        self.contents.accept_loss();
        self.contents.die(clock);
        for (member, platter) in self.platters.clone().iter().enumerate() {
            let arena = self.arena.clone();
            let orphan = |orphan: &Orphan| {
                let number = self.tick();
                for (sector, bytes) in (orphan.sector..).zip(orphan.bytes.chunks_exact(512)) {
                    let offset = self.offset_of(member, sector);
                    self.contents.begin_literal(offset, bytes.to_vec(), number);
                }
                number
            };
            platter.borrow_mut().orphan(&arena, orphan);
        }
        let clock = self.tick();
        self.contents.set_died(clock);
        self.close();
        // The disk forgets the requests of all programs.
        self.close_reader();
        self.open_end();
        self.open(None);
        self.open_reader();
    }

    /// Executes the writes of dead programs that are due. Returns whether there were any.
    pub(super) fn advance_orphans(&mut self, now: Instant) -> bool {
        let mut is_changed = false;
        for member in 0..self.platters.len() {
            let platter = Rc::clone(&self.platters[member]);
            let next = |platter: &mut Platter| platter.poll_orphan(now);
            while let Some(orphan) = next(&mut platter.borrow_mut()) {
                is_changed = true;
                let clock = self.tick();
                // A page cache may have read the bytes before, and so may a bounced write, which then writes them back:
                // neither is coherent with another program.
                let is_seen = self.path.is_none() && !self.shape.bounces;
                for sector in (orphan.sector..).take(orphan.bytes.len() / 512) {
                    let offset = self.offset_of(member, sector);
                    self.contents.end_write(&(offset..offset + 512), orphan.number, clock, is_seen, false);
                }
            }
        }
        is_changed
    }

    /// The offset in the volume of a sector of a disk.
    fn offset_of(&self, member: usize, sector: u64) -> u64 {
        self.plan.base_bytes() + self.sector_at(member, sector) * 512
    }
}
