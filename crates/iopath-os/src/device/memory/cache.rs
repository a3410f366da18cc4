//! The write cache of a disk in memory: all versions of each sector that are not on the medium. The caller chooses
//! which versions a crash keeps.
//!
//! ```text
//!   wrote ──▶ versions, oldest first ──┬── flush: those whose writes have completed ──▶ medium
//!                                      ├── oldest, when there is no room for more   ──▶ medium
//!                                      └── crash: the first n of each sector        ──▶ medium, the rest is lost
//! ```

use iopath_core::{SECTOR_BYTES, Sector};
use std::collections::VecDeque;

use crate::aligned::{AlignedBuf, NoMemory};

const SECTOR: usize = SECTOR_BYTES as usize;

/// The versions that the disk has not yet written to its medium.
#[derive(Debug)]
pub(super) struct WriteCache {
    /// Survives a power failure.
    medium: AlignedBuf,
    /// For each sector, the number of the first version newer than the medium.
    unsaved_from: Vec<u64>,
    versions: VecDeque<Version>,
    /// The bytes of version `n` are at `n` modulo the number of versions that fit.
    bytes: AlignedBuf,
    /// The number of the next version.
    next: u64,
    /// Writes that were executed and not yet reported.
    in_flight: Vec<u64>,
    /// The number of the next write.
    next_write: u64,
}

/// The sector of a dropped version.
const NOWHERE: u64 = u64::MAX;

/// The cause of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// The power fails.
    Power,
    /// A flush failed.
    Flush,
}

#[derive(Debug, Clone, Copy)]
struct Version {
    sector: u64,
    write: u64,
}

impl WriteCache {
    /// An empty cache of `sectors` sectors in front of a medium.
    pub(super) fn new(medium: AlignedBuf, sectors: u64) -> Result<Self, NoMemory> {
        let bytes = usize::try_from(sectors.saturating_mul(SECTOR_BYTES)).unwrap_or(usize::MAX);
        // The system refuses an allocation that is too large; the other lists are small.
        let bytes = AlignedBuf::new(bytes)?;
        Ok(Self {
            unsaved_from: vec![0; medium.len() / SECTOR],
            medium,
            versions: VecDeque::with_capacity(sectors as usize),
            bytes,
            next: 0,
            in_flight: Vec::new(),
            next_write: 0,
        })
    }

    /// Stores the bytes written from sector `start` on; on the medium if `forced`. Returns the number of the write, for
    /// [`Self::completed`].
    pub(super) fn wrote(&mut self, start: Sector, bytes: &[u8], forced: bool) -> u64 {
        let write = self.next_write;
        self.next_write += 1;
        self.in_flight.push(write);
        for (sector, bytes) in (start.0..).zip(bytes.chunks_exact(SECTOR)) {
            if forced {
                // Older versions must not follow it.
                self.unsaved_from[sector as usize] = self.next;
                self.medium[sector as usize * SECTOR..][..SECTOR].copy_from_slice(bytes);
                continue;
            }
            if self.versions.len() * SECTOR == self.bytes.len() {
                self.save_oldest();
            }
            let at = self.offset(self.next);
            self.bytes[at..at + SECTOR].copy_from_slice(bytes);
            self.versions.push_back(Version { sector, write });
            self.next += 1;
        }
        write
    }

    /// The completion of a write has been polled: later flushes cover it.
    pub(super) fn completed(&mut self, write: u64) {
        // Absent if a crash happened since.
        if let Some(index) = self.in_flight.iter().position(|other| *other == write) {
            self.in_flight.swap_remove(index);
        }
    }

    /// Moves the versions of completed writes to the medium, and no others. So a test detects a flush that comes too
    /// early.
    pub(super) fn flush(&mut self) {
        let first = self.first();
        for index in 0..self.versions.len() {
            let Version { sector, write } = self.versions[index];
            if !self.in_flight.contains(&write) {
                self.save(first + index as u64, sector);
            }
        }
        self.forget_saved();
    }

    /// Drops versions: for each sector, keeps the number that `choose` returns. A power failure also drops writes in
    /// flight; a failed flush does not.
    pub(super) fn lose(&mut self, loss: Loss, mut choose: impl FnMut(u32) -> u32) {
        let first = self.first();
        // Pairs of sector and version, so that sorting groups the versions of a sector, oldest first.
        let mut at_stake: Vec<(u64, u64)> = Vec::new();
        for (number, version) in (first..).zip(&self.versions) {
            let is_exempt = loss == Loss::Flush && self.in_flight.contains(&version.write);
            if !is_exempt && self.is_live(number, version) {
                at_stake.push((version.sector, number));
            }
        }
        at_stake.sort_unstable();
        for versions in at_stake.chunk_by(|a, b| a.0 == b.0) {
            let kept = choose(versions.len() as u32) as usize;
            if let Some((sector, number)) = versions[..kept.min(versions.len())].last() {
                self.save(*number, *sector);
            }
            for (_, number) in versions {
                self.versions[(number - first) as usize].sector = NOWHERE;
            }
        }
        self.forget_saved();
        if loss == Loss::Power {
            self.in_flight.clear();
        }
    }

    /// The bytes that reads return: the medium with all versions applied.
    pub(super) fn show(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.medium);
        for (number, version) in (self.first()..).zip(&self.versions) {
            if self.is_live(number, version) {
                let at = self.offset(number);
                let shown = &mut bytes[version.sector as usize * SECTOR..][..SECTOR];
                shown.copy_from_slice(&self.bytes[at..at + SECTOR]);
            }
        }
    }

    /// Sectors with a version that is not on the medium.
    pub(super) fn unsaved_sectors(&self) -> usize {
        let live = (self.first()..).zip(&self.versions).filter(|(number, v)| self.is_live(*number, v));
        let mut sectors: Vec<u64> = live.map(|(_, version)| version.sector).collect();
        sectors.sort_unstable();
        sectors.dedup();
        sectors.len()
    }

    /// Resizes the medium to `whole` bytes, with zeroes from byte `kept` on.
    pub(super) fn resize(&mut self, whole: usize, kept: u64) -> Result<(), NoMemory> {
        super::resize_zeroed(&mut self.medium, whole, kept as usize)?;
        let sectors = kept.div_ceil(SECTOR_BYTES);
        self.unsaved_from.truncate(sectors as usize);
        self.unsaved_from.resize(whole / SECTOR, self.next);
        let first = self.first();
        for index in 0..self.versions.len() {
            let sector = self.versions[index].sector;
            if sector >= sectors {
                self.versions[index].sector = NOWHERE;
            } else if sector == kept / SECTOR_BYTES {
                let at = self.offset(first + index as u64);
                self.bytes[at + (kept % SECTOR_BYTES) as usize..at + SECTOR].fill(0);
            }
        }
        Ok(())
    }

    /// Changes one bit of a byte of the medium.
    pub(super) fn flip_bit(&mut self, byte: usize, bit: u8) {
        self.medium[byte] ^= 1 << (bit % 8);
    }

    /// The number of the oldest version.
    fn first(&self) -> u64 {
        self.next - self.versions.len() as u64
    }

    /// Whether the version is newer than the medium's, and the sector exists.
    fn is_live(&self, number: u64, version: &Version) -> bool {
        self.unsaved_from.get(version.sector as usize).is_some_and(|from| number >= *from)
    }

    fn forget_saved(&mut self) {
        while self.versions.front().is_some_and(|oldest| !self.is_live(self.first(), oldest)) {
            self.versions.pop_front();
        }
    }

    fn save_oldest(&mut self) {
        let number = self.first();
        if let Some(oldest) = self.versions.pop_front() {
            self.save(number, oldest.sector);
        }
    }

    /// Writes a version to the medium, unless the medium has this version or a newer one.
    fn save(&mut self, number: u64, sector: u64) {
        let Some(from) = self.unsaved_from.get_mut(sector as usize).filter(|from| number >= **from) else {
            return;
        };
        *from = number + 1;
        let at = self.offset(number);
        let target = sector as usize * SECTOR..(sector as usize + 1) * SECTOR;
        self.medium[target].copy_from_slice(&self.bytes[at..at + SECTOR]);
    }

    /// The offset of a version's bytes.
    fn offset(&self, number: u64) -> usize {
        number as usize % (self.bytes.len() / SECTOR) * SECTOR
    }
}
