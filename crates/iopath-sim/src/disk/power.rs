//! The write cache of a disk: flushes, and what a power failure leaves. A disk that lies acknowledges a flush, and
//! still loses the bytes at a power failure.

use std::collections::BTreeMap;
use std::ops::Range;

use iopath_core::Op;

use super::{Platter, SECTOR, Version};
use crate::arena::Arena;
use crate::random::Random;

/// The acknowledged writes that a disk has not made durable.
#[derive(Debug, Default)]
pub(super) struct Lies {
    is_on: bool,
    /// Earlier bytes of a sector, which a power failure may bring back, oldest first.
    earlier: BTreeMap<u64, Vec<[u8; SECTOR]>>,
}

impl Lies {
    /// A forced write replaces these bytes of the medium.
    pub(super) fn force(&mut self, sector: u64, medium: &[u8]) {
        if self.is_on {
            self.add(sector, medium);
        } else {
            self.earlier.remove(&sector);
        }
    }

    /// The earlier bytes, by sector.
    pub(super) fn earlier_mut(&mut self) -> impl Iterator<Item = (&u64, &mut Vec<[u8; SECTOR]>)> {
        self.earlier.iter_mut()
    }

    /// The medium has other bytes at these sectors.
    pub(super) fn forget(&mut self, sectors: Range<u64>) {
        self.earlier.retain(|sector, _| !sectors.contains(sector));
    }

    fn add(&mut self, sector: u64, bytes: &[u8]) {
        let bytes = bytes.try_into().expect("a sector");
        self.earlier.entry(sector).or_default().push(bytes);
    }
}

/// The bytes of a disk.
#[derive(Debug)]
pub(crate) struct Image {
    bytes: Vec<u8>,
    medium: Vec<u8>,
}

impl Platter {
    /// Power fails: each sector of the writes in service may have been written, and any version of each sector is left.
    pub(crate) fn lose_power(&mut self, arena: &Arena, random: &mut Random) {
        let physical = self.config.physical_sectors;
        let mut written = 0;
        for request in std::mem::take(&mut self.in_service).into_iter().flatten() {
            if !request.op.is_write() || request.op == Op::Discard {
                continue;
            }
            let bytes = request.written_bytes(arena);
            for (index, sector) in bytes.chunks_exact(SECTOR).enumerate() {
                let start = self.range(request.extent).start + index * SECTOR;
                let place = (start / SECTOR) as u64 % physical;
                if physical > 1 && (index == 0 || place == 0) {
                    // All, none, or the first of the sectors that the medium writes together.
                    written = random.below(2) * physical + random.below(2) * random.below(physical);
                }
                let is_written = if physical == 1 { random.one_in(2) } else { place < written };
                if is_written {
                    self.bytes[start..start + SECTOR].copy_from_slice(sector);
                    self.record(start..start + SECTOR, request.fua);
                }
            }
        }
        for orphan in std::mem::take(&mut self.orphans) {
            if random.one_in(2) {
                self.execute_orphan(&orphan);
            }
        }
        let (mut group, mut cut, mut torn_at) = (None, 0, 0);
        for (sector, versions) in std::mem::take(&mut self.unflushed) {
            if physical > 1 && group.replace(sector / physical) != Some(sector / physical) {
                cut = random.below(versions.len() as u64 + 1);
                torn_at = if random.one_in(2) { random.below(physical) } else { physical };
            }
            let chosen = if physical == 1 || sector % physical >= torn_at {
                random.below(versions.len() as u64 + 1)
            } else {
                cut.min(versions.len() as u64)
            };
            if let Some(version) = versions.get(chosen as usize) {
                let start = sector as usize * SECTOR;
                self.medium[start..start + SECTOR].copy_from_slice(&version.bytes);
            }
        }
        self.bytes.copy_from_slice(&self.medium);
        self.lose_length(random);
        self.free_at.fill(iopath_core::Instant::ZERO);
    }

    /// From now on, a flush and a forced write are acknowledged, and their bytes may be lost. Without a write cache,
    /// there is nothing to lie about.
    pub(crate) const fn set_lying(&mut self, is_on: bool) {
        self.lies.is_on = is_on && self.config.limits.volatile_cache;
    }

    /// Power has failed: the disk loses bytes that it has acknowledged. Returns the sectors.
    pub(crate) fn lose_acknowledged(&mut self, random: &mut Random) -> Vec<u64> {
        let mut lost = Vec::new();
        for (sector, earlier) in std::mem::take(&mut self.lies.earlier) {
            if random.one_in(2) {
                let place = sector as usize * SECTOR..(sector as usize + 1) * SECTOR;
                let bytes = random.pick(&earlier);
                self.medium[place.clone()].copy_from_slice(bytes);
                self.bytes[place].copy_from_slice(bytes);
                lost.push(sector);
            }
        }
        self.zero_past_file();
        lost
    }

    /// The bytes, to restore them.
    pub(crate) fn image(&self) -> Image {
        Image { bytes: self.bytes.clone(), medium: self.medium.clone() }
    }

    pub(crate) fn restore(&mut self, image: Image) {
        (self.bytes, self.medium) = (image.bytes, image.medium);
    }

    /// Moves all versions up to this number to the medium.
    pub(super) fn flush(&mut self, covers: u64) {
        let Self { unflushed, medium, lies, lengths, .. } = self;
        if !lies.is_on {
            lies.earlier.clear();
        }
        if let Some(lengths) = lengths {
            lengths.flush(covers);
        }
        unflushed.retain(|sector, versions: &mut Vec<Version>| {
            let covered = versions.iter().take_while(|version| version.number <= covers).count();
            if let Some(last) = covered.checked_sub(1) {
                let start = *sector as usize * SECTOR;
                if lies.is_on {
                    lies.add(*sector, &medium[start..start + SECTOR]);
                    versions[..last].iter().for_each(|version| lies.add(*sector, &version.bytes));
                }
                medium[start..start + SECTOR].copy_from_slice(&versions[last].bytes);
                versions.drain(..covered);
            }
            !versions.is_empty()
        });
    }
}
