//! The possible values of every byte of a volume, now and after a power failure. Independent of the code under test.
//!
//! Most sectors have one possible content. After a failed write, a sector has either the old or the new content, until
//! a read returns one of them or a write covers the sector. After a power failure, it may have any content since the
//! last flush.
//!
//! **Several threads.** Each worker has a model, and ranges of bytes that no other worker writes, with any boundaries:
//! workers share blocks and pages, never bytes. Therefore operations of other workers do not change the model, with two
//! exceptions.
//!
//! - While failed flushes lose writes, a flush of another worker can return a sector to any content since the last
//!   successful flush of its worker, and a later write-back can restore the newest content.
//!   [`Model::check_beside_loss`] then checks reads without a change of the model, and workers write whole blocks, so
//!   that no content is a mixture. A successful flush still saves all earlier writes of the worker.
//! - While several workers resize, the ranges of each worker are below a floor that no resize removes; the model ends
//!   at the floor. Above it, all workers write one pattern, in which the offset determines each byte (`ops/resize.rs`),
//!   so that a read returns the pattern or zeroes.
//!
//! `overlap.rs` checks bytes that several threads write, without this model.

const SECTOR: usize = 512;

type Sector = [u8; SECTOR];

/// The expected bytes.
#[derive(Debug)]
pub(crate) struct Model {
    size: usize,
    /// The current content; for a sector in doubt, the most likely content.
    now: Vec<u8>,
    /// The other possible contents of sectors.
    doubts: Versions,
    /// The content when it was last saved.
    saved: Saved,
}

#[derive(Debug)]
struct Saved {
    bytes: Vec<u8>,
    /// The other possible contents of sectors after a power failure.
    newer: Versions,
}

/// Two bytes that differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// The offset from the start of the volume.
    pub(crate) offset: usize,
    pub(crate) expected: u8,
    pub(crate) found: u8,
    /// The number of other possible contents of the sector.
    pub(crate) doubts: usize,
}

impl Model {
    /// A model of `size` zeroes.
    pub(crate) fn new(size: usize) -> Self {
        let bytes = vec![0; size.next_multiple_of(SECTOR)];
        let sectors = bytes.len() / SECTOR;
        let saved = Saved { bytes: bytes.clone(), newer: Versions::new(sectors) };
        Self { size, now: bytes, doubts: Versions::new(sectors), saved }
    }

    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    /// Checks that a read may return these bytes.
    pub(crate) fn check(&mut self, offset: usize, found: &[u8]) -> Result<(), Mismatch> {
        if self.now[offset..offset + found.len()] == *found && !self.doubts.any() {
            return Ok(());
        }
        for (at, found) in pieces(offset, found) {
            let sector = at / SECTOR;
            let expected = &self.now[at..at + found.len()];
            if expected != found {
                let mismatch = |expected: &[u8]| {
                    let differs =
                        (0..found.len()).find(|index| expected[*index] != found[*index]).unwrap_or(0);
                    let (expected, found) = (expected[differs], found[differs]);
                    Mismatch { offset: at + differs, expected, found, doubts: self.doubts.of(sector).count() }
                };
                let within = at % SECTOR..at % SECTOR + found.len();
                let fits = self.doubts.of(sector).find(|other| other[within.clone()] == *found).copied();
                let Some(fits) = fits else { return Err(mismatch(expected)) };
                self.now[sector * SECTOR..][..SECTOR].copy_from_slice(&fits);
            }
            // Drop the contents that differ in the bytes read.
            let within = at % SECTOR..at % SECTOR + found.len();
            let now = &self.now[sector * SECTOR..][..SECTOR];
            self.doubts.retain(sector, |other| other[within.clone()] == *found && other[..] != *now);
        }
        Ok(())
    }

    /// Checks that a read may return these bytes while losses of other workers revert sectors and write-back restores
    /// them.
    pub(crate) fn check_beside_loss(&self, offset: usize, found: &[u8]) -> Result<(), Mismatch> {
        for (at, found) in pieces(offset, found) {
            let (sector, within) = (at / SECTOR, at % SECTOR..at % SECTOR + found.len());
            let of_sector = |bytes: &[u8]| bytes[sector * SECTOR..][within.clone()] == *found;
            let mut others = self.doubts.of(sector).chain(self.saved.newer.of(sector));
            let fits = of_sector(&self.now)
                || of_sector(&self.saved.bytes)
                || others.any(|other| other[within.clone()] == *found);
            if !fits {
                let now = &self.now[at..at + found.len()];
                let differs = (0..found.len()).find(|index| now[*index] != found[*index]).unwrap_or(0);
                let (expected, found) = (now[differs], found[differs]);
                let doubts = 1 + self.doubts.of(sector).chain(self.saved.newer.of(sector)).count();
                return Err(Mismatch { offset: at + differs, expected, found, doubts });
            }
        }
        Ok(())
    }

    /// A write has succeeded. It is durable if `forced`.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8], forced: bool) {
        self.now[offset..offset + bytes.len()].copy_from_slice(bytes);
        for (at, bytes) in pieces(offset, bytes) {
            let sector = at / SECTOR;
            if bytes.len() == SECTOR {
                self.doubts.clear(sector);
            } else {
                self.doubts.patch(sector, at % SECTOR, bytes);
            }
            let saved = &mut self.saved;
            let now = whole(&self.now[sector * SECTOR..][..SECTOR]);
            if forced {
                saved.newer.clear(sector);
                saved.bytes[sector * SECTOR..][..SECTOR].copy_from_slice(now);
            } else {
                saved.newer.add(sector, now);
            }
            for other in self.doubts.of(sector) {
                saved.newer.add(sector, other);
            }
        }
    }

    /// A write has failed: each sector has either the old or the new content.
    pub(crate) fn write_failed(&mut self, offset: usize, bytes: &[u8]) {
        for (at, bytes) in pieces(offset, bytes) {
            let sector = at / SECTOR;
            let within = at % SECTOR..at % SECTOR + bytes.len();
            let mut written = *whole(&self.now[sector * SECTOR..][..SECTOR]);
            written[within.clone()].copy_from_slice(bytes);
            if bytes.len() < SECTOR {
                self.doubts.double(sector, within.start, bytes);
            }
            self.doubts.add(sector, &written);
            for other in self.doubts.of(sector) {
                self.saved.newer.add(sector, other);
            }
        }
    }

    /// A flush has succeeded.
    pub(crate) fn flushed(&mut self) {
        let Self { now, doubts, saved, .. } = self;
        saved.newer.drain(|newer, sector| {
            saved.bytes[sector * SECTOR..][..SECTOR].copy_from_slice(&now[sector * SECTOR..][..SECTOR]);
            for other in doubts.of(sector) {
                newer.add(sector, other);
            }
        });
    }

    /// Any unsaved write may be lost, by a power failure or a failed flush.
    pub(crate) fn may_have_lost(&mut self) {
        let Self { doubts, saved, .. } = self;
        saved.newer.sectors().for_each(|sector| saved.add_to(doubts, sector));
    }

    /// The sectors may have any content since they were last saved.
    pub(crate) fn may_be_older(&mut self, offset: usize, bytes: usize) {
        let Self { doubts, saved, .. } = self;
        sectors(offset, bytes).for_each(|sector| saved.add_to(doubts, sector));
    }

    /// The power has failed, and reads have shown the content of all `owned` bytes. Versions that differ only in bytes
    /// of other workers are dropped.
    pub(crate) fn survived(&mut self, owned: &[std::ops::Range<usize>]) {
        let Self { now, doubts, .. } = self;
        let in_doubt: Vec<usize> = doubts.sectors().collect();
        for sector in in_doubt {
            let start = sector * SECTOR;
            let now = &now[start..start + SECTOR];
            doubts.retain(sector, |other| {
                owned.iter().any(|range| {
                    let (from, to) = (range.start.max(start), range.end.min(start + SECTOR));
                    from < to && other[from - start..to - start] != now[from - start..to - start]
                })
            });
        }
        assert!(!self.doubts.any(), "some sectors were not read");
        self.flushed();
    }

    /// The end of the volume has moved: removed bytes are gone, added bytes are zeroes, and both are saved.
    pub(crate) fn resize(&mut self, size: usize) {
        let kept = size.min(self.size);
        let all = size.next_multiple_of(SECTOR);
        let cut = |bytes: &mut Vec<u8>| {
            bytes.truncate(kept);
            bytes.resize(all, 0);
        };
        cut(&mut self.now);
        self.doubts.resize(kept, all / SECTOR);
        cut(&mut self.saved.bytes);
        self.saved.newer.resize(kept, all / SECTOR);
        self.size = size;
    }
}

impl Saved {
    /// Adds every possible content of a sector since it was last saved.
    fn add_to(&self, doubts: &mut Versions, sector: usize) {
        doubts.add(sector, whole(&self.bytes[sector * SECTOR..][..SECTOR]));
        for other in self.newer.of(sector) {
            doubts.add(sector, other);
        }
    }
}

/// The sectors that a range touches.
fn sectors(offset: usize, bytes: usize) -> std::ops::Range<usize> {
    offset / SECTOR..(offset + bytes).div_ceil(SECTOR)
}

/// A range divided at sectors: the offset of each piece, and its bytes.
fn pieces(offset: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    sectors(offset, bytes.len()).map(move |sector| {
        let (start, end) = ((sector * SECTOR).max(offset), ((sector + 1) * SECTOR).min(offset + bytes.len()));
        (start, &bytes[start - offset..end - offset])
    })
}

fn whole(bytes: &[u8]) -> &Sector {
    bytes.try_into().expect("a whole sector")
}

/// Other possible contents of sectors. Reuses its memory.
#[derive(Debug)]
struct Versions {
    bytes: Vec<Sector>,
    free: Vec<u32>,
    /// The versions of each sector, as indexes of `bytes`.
    of: Vec<Vec<u32>>,
    /// Sectors that may have versions.
    touched: Vec<u32>,
    count: usize,
}

impl Versions {
    fn new(sectors: usize) -> Self {
        Self {
            bytes: Vec::new(),
            free: Vec::new(),
            of: vec![Vec::new(); sectors],
            touched: Vec::new(),
            count: 0,
        }
    }

    const fn any(&self) -> bool {
        self.count > 0
    }

    fn of(&self, sector: usize) -> impl Iterator<Item = &Sector> {
        self.of[sector].iter().map(|place| &self.bytes[*place as usize])
    }

    fn sectors(&self) -> impl Iterator<Item = usize> {
        let in_doubt = |sector: &&u32| self.of.get(**sector as usize).is_some_and(|of| !of.is_empty());
        self.touched.iter().filter(in_doubt).map(|sector| *sector as usize)
    }

    fn add(&mut self, sector: usize, bytes: &Sector) {
        if self.of(sector).any(|known| known == bytes) {
            return;
        }
        if self.of[sector].is_empty() {
            self.touched.push(sector as u32);
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.bytes.push([0; SECTOR]);
            self.bytes.len() as u32 - 1
        });
        self.bytes[place as usize] = *bytes;
        self.of[sector].push(place);
        self.count += 1;
    }

    /// A part of a sector has this content in every version.
    fn patch(&mut self, sector: usize, at: usize, bytes: &[u8]) {
        for place in &self.of[sector] {
            self.bytes[*place as usize][at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// A part of a sector may have this content, in each version.
    fn double(&mut self, sector: usize, at: usize, bytes: &[u8]) {
        for index in 0..self.of[sector].len() {
            let mut other = self.bytes[self.of[sector][index] as usize];
            other[at..at + bytes.len()].copy_from_slice(bytes);
            self.add(sector, &other);
        }
    }

    fn clear(&mut self, sector: usize) {
        self.retain(sector, |_| false);
    }

    fn retain(&mut self, sector: usize, mut stays: impl FnMut(&Sector) -> bool) {
        if !self.any() || self.of[sector].is_empty() {
            return;
        }
        let Self { bytes, free, of, touched, count } = self;
        of[sector].retain(|place| {
            let stays = stays(&bytes[*place as usize]);
            if !stays {
                free.push(*place);
                *count -= 1;
            }
            stays
        });
        if *count == 0 {
            touched.clear();
        }
    }

    /// Empties each sector, and calls `then` with it.
    fn drain(&mut self, mut then: impl FnMut(&mut Self, usize)) {
        let mut touched = std::mem::take(&mut self.touched);
        for sector in touched.drain(..) {
            if self.of.get(sector as usize).is_some_and(|of| !of.is_empty()) {
                self.clear(sector as usize);
                then(self, sector as usize);
            }
        }
        if self.touched.is_empty() {
            self.touched = touched;
        }
    }

    /// Removes all versions of bytes after `kept`. The new number of sectors is `sectors`.
    fn resize(&mut self, kept: usize, sectors: usize) {
        for sector in kept / SECTOR..self.of.len() {
            if sector * SECTOR < kept {
                for place in &self.of[sector] {
                    self.bytes[*place as usize][kept % SECTOR..].fill(0);
                }
            } else {
                self.clear(sector);
            }
        }
        self.of.resize_with(sectors, Vec::new);
    }
}
