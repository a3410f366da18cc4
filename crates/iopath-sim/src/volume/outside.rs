//! Events from outside: another program writes a page of the same disks, a disk is detached or truncated, gets space,
//! or begins to lie about flushes.

use iopath_core::Instant;

use super::{PAGE, Volume};
use crate::contents::{ANY, NO_QUEUE, fill};
use crate::scenario::{Do, Layout};

/// A page that only another program writes, past the page cache of the volume. Caches of two programs are not coherent,
/// so a read of the volume may return any earlier bytes. On the disks, the page has the bytes of its owner at all
/// times: the volume writes only pages that its program has written.
#[derive(Debug)]
pub(super) struct Outsider {
    /// The offset of the page in the volume, from the first byte of the volume on.
    place: u64,
    bytes: Vec<u8>,
}

impl Volume {
    pub(super) fn add_outsider(&mut self) {
        let Some(page) = self.plan.extras.disks.outsider_page else { return };
        self.outsider = Some(Outsider { place: page * PAGE, bytes: vec![0; PAGE as usize] });
        self.allow_outsider();
    }

    /// The model does not know the bytes of the page.
    pub(super) fn allow_outsider(&mut self) {
        let Some(Outsider { place, .. }) = self.outsider else { return };
        let start = self.plan.base_bytes() + place;
        let clock = self.tick();
        self.contents.begin_write(&(start..start + PAGE), ANY, clock, NO_QUEUE);
    }

    /// Whether a call may write these bytes: they are not of the page of the other program.
    pub(super) fn may_write(&self, offset: u64, bytes: u64) -> bool {
        let base = self.plan.base_bytes();
        let overlaps =
            |Outsider { place, .. }: &Outsider| offset < base + place + PAGE && base + place < offset + bytes;
        !self.outsider.as_ref().is_some_and(overlaps)
    }

    /// The other program writes its page, and makes it durable.
    fn write_outside(&mut self, now: Instant) {
        let Some(Outsider { place, .. }) = self.outsider else { return };
        self.writes += 1;
        let mut bytes = vec![0; PAGE as usize];
        fill(place, &mut bytes, self.writes);
        for (sector, bytes) in (place / 512..).zip(bytes.chunks_exact(512)) {
            let (member, there) = self.locate(sector);
            self.platters[member].borrow_mut().write_outside(there, bytes);
        }
        self.outsider = Some(Outsider { place, bytes });
        self.log(now, 0, "write outside", place, PAGE);
    }

    /// The disks have the bytes of the other program in its page.
    pub(super) fn check_outsider(&self) {
        let Some(Outsider { place, bytes }) = &self.outsider else { return };
        for (sector, bytes) in (place / 512..).zip(bytes.chunks_exact(512)) {
            let (member, there) = self.locate(sector);
            let start = there as usize * 512;
            let is_same = self.platters[member].borrow().bytes()[start..start + 512] == *bytes;
            assert!(
                is_same || self.has_damage,
                "rule 2: the volume has written sector {sector}, which only another program writes"
            );
        }
    }

    /// A file is truncated from outside, and its bytes from this cell on are gone. I/O past the end fails until the
    /// disk works again; then the bytes are zeroes.
    fn cut_outside(&mut self, at: u64, now: Instant) {
        if self.plan.layout != Layout::Plain || self.outsider.is_some() {
            return;
        }
        let base = self.plan.base_bytes();
        let place = (at * 64).min(self.plan.bytes) / 512 * 512;
        self.log(now, 0, "cut outside", place, 0);
        self.faults[0].borrow_mut().end = Some((base + place) / 512);
        self.platters[0].borrow_mut().cut(place / 512);
        let range = base + place..base + self.plan.bytes;
        let start = self.tick();
        self.contents.begin_write(&range, 0, start, NO_QUEUE);
        let end = self.tick();
        // As a write that has failed: cached pages and unwritten ones still have other bytes.
        self.contents.end_write(&range, start, end, false, false);
    }

    /// An event from outside.
    pub(crate) fn happen(&mut self, what: &Do, now: Instant) {
        match *what {
            Do::WriteOutside => self.write_outside(now),
            Do::CutOutside { at } => self.cut_outside(at, now),
            Do::Detach { member } => {
                let member = member % self.faults.len();
                self.faults[member].borrow_mut().is_gone = true;
            }
            Do::Repair => self.faults.iter().for_each(|faults| {
                let faults = &mut *faults.borrow_mut();
                (faults.is_gone, faults.end) = (false, None);
            }),
            Do::AddSpace { sectors } => self.faults.iter().for_each(|faults| {
                let left = &mut faults.borrow_mut().space.left;
                *left = left.map(|left| left + sectors);
            }),
            Do::SetLying(is_lying) => {
                self.platters.iter().for_each(|platter| platter.borrow_mut().set_lying(is_lying));
            }
            _ => unreachable!("{what:?} is no event from outside"),
        }
    }
}
