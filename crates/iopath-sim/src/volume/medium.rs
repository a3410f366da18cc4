//! The bytes of a volume on its disks: silent faults, power failures, and the check of what a power failure could
//! leave.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use iopath_core::mapped::MappedFile;
use iopath_core::mapper::{Location, Mapping};
use iopath_core::volume::RangeLocks;
use iopath_core::{Damage, Extent, Instant};

use super::call::Call;
use super::{MAPPED_CHUNK_SECTORS, Volume};
use crate::contents::Wrong;
use crate::disk::Platter;
use crate::map::{KeptMap, Stored};
use crate::random::Random;
use crate::scenario::Layout;

/// The map of a mapped file, and what its owner has stored of it.
#[derive(Debug)]
pub(super) struct Kept {
    map: KeptMap,
    stored: Stored,
    /// The number of the flush after which it was stored.
    stored_at: u64,
    begun: u64,
    /// Flushes in progress: queue, token, number, and the map when they began.
    flushes: Vec<(usize, u64, u64, Stored)>,
}

impl Kept {
    /// The state of a file that was opened: its map is stored.
    pub(super) fn new(map: &KeptMap) -> Self {
        Self { map: map.clone(), stored: map.stored(), stored_at: 0, begun: 0, flushes: Vec::new() }
    }
}

impl Volume {
    pub(super) fn take_damage(&mut self) {
        for (platter, faults) in self.platters.iter().zip(&self.faults) {
            if std::mem::take(&mut faults.borrow_mut().is_cache_lost) {
                platter.borrow_mut().lose_cache();
                self.contents.put_at_risk();
                if self.path.is_none() {
                    // Without a page cache, a program must write again after a failed flush.
                    self.contents.accept_loss();
                }
            }
        }
        if matches!(self.plan.layout, Layout::Mapped { .. }) {
            return;
        }
        for member in 0..self.platters.len() {
            let damage = self.faults[member].borrow_mut().plan.take_damage();
            for damage in damage {
                self.add_damage(member, damage);
            }
        }
    }

    /// A silent fault of a disk: the model no longer knows these bytes.
    fn add_damage(&mut self, member: usize, damage: Damage) {
        self.has_damage = true;
        let sectors = match damage {
            Damage::NotWritten(extent) | Damage::Overwritten(extent) => extent.start().0..extent.end().0,
            Damage::BitFlipped { offset, bit } => {
                let place = offset - self.plan.base_bytes();
                self.platters[member].borrow_mut().flip(place, bit);
                offset / 512..offset / 512 + 1
            }
        };
        for sector in sectors {
            let start = self.sector_at(member, sector) * 512;
            // A flipped bit changes only one cell.
            let range = match damage {
                Damage::BitFlipped { offset, .. } => start + offset % 512..start + offset % 512 + 1,
                _ => start..start + 512,
            };
            self.is_end_damaged |= range.end > self.size_bytes;
            self.contents.damage(&range);
        }
    }

    /// Power fails, and the volume is opened again. Checks that the medium has only bytes that may be left.
    pub(crate) fn power_cut(&mut self, now: Instant, random: &mut Random) {
        if self.host.is_some() && self.kept.is_none() {
            return; // The space of this mapped file is in memory only.
        }
        self.log(now, 0, "power cut", 0, 0);
        for platter in &self.platters {
            platter.borrow_mut().lose_power(&self.arena, random);
        }
        self.close();
        self.close_reader();
        self.check_length_after_power();
        let kept = self.kept.take();
        let (bytes, file, checked) = if let Some(kept) = &kept {
            let (bytes, file) = self
                .reopen(kept)
                .unwrap_or_else(|wrong| panic!("rule 1, durability: after a power failure, {wrong}"));
            let block_bytes = self.file_layout().block_bytes.into();
            let checked = self.contents.check_reopened(&bytes, block_bytes);
            (bytes, Some(file), checked)
        } else {
            let bytes = self.visible_bytes();
            let checked = self.contents.check_survivor(self.plan.base_bytes(), &bytes);
            (bytes, None, checked)
        };
        self.judge_survivor(checked);
        let (bytes, file) = self.lose_acknowledged(bytes, file, kept.as_ref(), random);
        let clock = self.tick();
        self.contents.restart(bytes, clock);
        self.open_end();
        self.open(file);
        self.open_reader();
        self.allow_outsider();
        self.check_outsider();
    }

    /// Disks that lied lose bytes that they had acknowledged. This loss is theirs: what an honest disk would have left
    /// was checked before. A mapped file whose metadata is damaged comes back from a copy.
    fn lose_acknowledged(
        &mut self,
        bytes: Vec<u8>,
        file: Option<MappedFile>,
        kept: Option<&Kept>,
        random: &mut Random,
    ) -> (Vec<u8>, Option<MappedFile>) {
        let images: Vec<_> = self.platters.iter().map(|platter| platter.borrow().image()).collect();
        let fail =
            |platter: &Rc<RefCell<Platter>>| platter.borrow_mut().lose_acknowledged(random).len() as u64;
        let lost = self.platters.iter().map(fail).sum::<u64>();
        if lost == 0 {
            return (bytes, file);
        }
        self.lost_sectors += lost;
        let Some(kept) = kept else { return (self.visible_bytes(), file) };
        if let Ok((bytes, file)) = self.reopen(kept) {
            return (bytes, Some(file));
        }
        for (platter, image) in self.platters.iter().zip(images) {
            platter.borrow_mut().restore(image);
        }
        let restored = self.reopen(kept);
        let (bytes, file) =
            restored.unwrap_or_else(|wrong| panic!("the same bytes are valid before: {wrong}"));
        (bytes, Some(file))
    }

    /// Releases the memory of the program: its queues, page cache and calls.
    pub(super) fn close(&mut self) {
        self.queues.clear();
        (self.path, self.own, self.host, self.without_cache) = (None, None, None, None);
        self.locks = RangeLocks::default();
        for call in std::mem::take(&mut self.calls).into_iter().flatten() {
            call.abandon(&self.arena);
        }
        if let Some(frames) = self.frames.take() {
            frames.release(&self.arena);
        }
    }

    /// Opens a mapped file again with the map that its owner stored last. Returns its bytes, too.
    fn reopen(&mut self, kept: &Kept) -> Result<(Vec<u8>, MappedFile), String> {
        let layout = self.file_layout();
        let (map, free, blocks) = KeptMap::open(&kept.stored, &layout, |extent| self.bytes_of(extent))?;
        let mut bytes = Vec::new();
        for Mapping { file, location, .. } in blocks {
            match location {
                Location::Written(extent) => bytes.extend(self.bytes_of(extent)),
                Location::Hole | Location::Unwritten(_) => bytes.resize(file.end() as usize, 0),
            }
        }
        bytes.truncate(self.plan.bytes as usize);
        self.kept = Some(Kept::new(&map));
        Ok((bytes, MappedFile::new(Box::new(map), Box::new(free))))
    }

    /// The bytes of an extent of the disks.
    fn bytes_of(&self, extent: Extent) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(extent.bytes() as usize);
        for sector in extent.start().0..extent.end().0 {
            let (member, place) = self.locate(sector);
            let start = place as usize * 512;
            bytes.extend_from_slice(&self.platters[member].borrow().bytes()[start..start + 512]);
        }
        bytes
    }

    /// A device flush begins: the present map is on the medium when it succeeds, with all indirect blocks.
    pub(super) fn begin_store(&mut self, queue: usize, token: u64) {
        if let Some(kept) = &mut self.kept {
            kept.begun += 1;
            kept.flushes.push((queue, token, kept.begun, kept.map.stored()));
        }
    }

    /// A bio has completed. If it was a flush, the owner stores the map of its beginning, unless a later one is stored.
    pub(super) fn end_store(&mut self, queue: usize, token: u64, is_ok: bool) {
        let Some(kept) = &mut self.kept else { return };
        let place = kept.flushes.iter().position(|(of, flush, ..)| (*of, *flush) == (queue, token));
        let Some((_, _, begun, stored)) = place.map(|place| kept.flushes.remove(place)) else { return };
        if is_ok && begun > kept.stored_at {
            (kept.stored, kept.stored_at) = (stored, begun);
        }
    }

    /// The bytes of the volume on its disks.
    fn visible_bytes(&self) -> Vec<u8> {
        let sectors = self.plan.bytes.div_ceil(512);
        self.bytes_of(Extent::from_bytes(0, sectors * 512).expect("within the address space"))
    }

    /// The number of disks, and the sectors of a chunk.
    const fn stripe(&self) -> (u64, u64) {
        match self.plan.layout {
            Layout::Plain => (1, 1),
            Layout::Striped { members, chunk_sectors } => (members as u64, chunk_sectors),
            Layout::Mapped { members, .. } => (members as u64, MAPPED_CHUNK_SECTORS),
        }
    }

    /// The disk and the sector of a sector of the disks together.
    pub(super) const fn locate(&self, sector: u64) -> (usize, u64) {
        let (members, chunk_sectors) = self.stripe();
        let (chunk, rest) = (sector / chunk_sectors, sector % chunk_sectors);
        ((chunk % members) as usize, chunk / members * chunk_sectors + rest)
    }

    /// The sector of the disks together that is this sector of a disk.
    pub(super) const fn sector_at(&self, member: usize, sector: u64) -> u64 {
        let (members, chunk_sectors) = self.stripe();
        let (row, rest) = (sector / chunk_sectors, sector % chunk_sectors);
        (row * members + member as u64) * chunk_sectors + rest
    }

    /// A flush of a range, or of all, that began at `start` has succeeded: all bytes that a power failure could leave
    /// must be permitted.
    pub(super) fn flushed(&mut self, range: Option<&Range<u64>>, start: u64) {
        let oldest = self.calls.iter().flatten().map(Call::oldest).min().unwrap_or(u64::MAX);
        let stale = self.reader.as_ref().map_or(u64::MAX, |reader| reader.oldest());
        match range {
            Some(range) => self.contents.flushed_range(range, start, self.clock),
            None => self.contents.flushed(start, self.clock, oldest, stale),
        }
        // A flush of the device covers the length of the file.
        if let Some(end) = &mut self.end {
            end.flushed(start);
        }
        self.check_medium();
        self.check_outsider();
    }

    pub(super) fn check_medium(&mut self) {
        if matches!(self.plan.layout, Layout::Mapped { .. }) {
            return;
        }
        for sector in 0..self.plan.bytes.div_ceil(512) {
            let (member, place) = self.locate(sector);
            let platter = Rc::clone(&self.platters[member]);
            for bytes in platter.borrow().survivors(place) {
                self.check_survivor(self.plan.base_bytes() + sector * 512, bytes);
            }
        }
    }

    pub(super) fn check_survivor(&mut self, offset: u64, bytes: &[u8]) {
        self.judge_survivor(self.contents.check_survivor(offset, bytes));
    }

    fn judge_survivor(&mut self, checked: Result<u64, Wrong>) {
        match checked {
            Ok(damaged) => self.damaged_cells += damaged,
            Err(wrong) => panic!("rule 1, durability: a power failure could leave a wrong byte: {wrong}"),
        }
    }
}
