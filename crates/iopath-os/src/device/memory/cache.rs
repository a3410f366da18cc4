//! The write cache of a disk in memory: every version of every sector that is not yet on the medium. Which of them a
//! crash keeps is the caller's choice; this knows what may be chosen.
//!
//! ```text
//!   wrote ──▶ versions, oldest first ──┬── flush: those whose writes have completed ──▶ medium
//!                                      ├── oldest, when there is no room for more   ──▶ medium
//!                                      └── crash: of each sector the first n        ──▶ medium, the rest is gone
//! ```

use iopath_core::{SECTOR_BYTES, Sector};
use std::collections::VecDeque;

use crate::aligned::{AlignedBuf, NoMemory};

const SECTOR: usize = SECTOR_BYTES as usize;

/// What a disk has taken and not put on its medium.
#[derive(Debug)]
pub(super) struct WriteCache {
    /// What is left without power.
    medium: AlignedBuf,
    /// Of each sector the number of the first version that is newer than the medium.
    unsaved_from: Vec<u64>,
    versions: VecDeque<Version>,
    /// The bytes of version `n` are at `n` modulo the room there is.
    bytes: AlignedBuf,
    /// The number of the next version.
    next: u64,
    /// Writes that were carried out and not yet reported.
    in_flight: Vec<u64>,
    /// The number of the next write.
    next_write: u64,
}

/// The sector of a version that is gone.
const NOWHERE: u64 = u64::MAX;

/// Why versions are lost.
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
        // Refused by the system if it is more than there is; lists that go with it are small beside it.
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

    /// Takes what was written from sector `start` on; straight to the medium if `forced`. The number of the write, to be
    /// named when it has completed.
    pub(super) fn wrote(&mut self, start: Sector, bytes: &[u8], forced: bool) -> u64 {
        let write = self.next_write;
        self.next_write += 1;
        self.in_flight.push(write);
        for (sector, bytes) in (start.0..).zip(bytes.chunks_exact(SECTOR)) {
            if forced {
                // Older versions are not to come after it.
                self.unsaved_from[sector as usize] = self.next;
                self.medium[sector as usize * SECTOR..][..SECTOR].copy_from_slice(bytes);
                continue;
            }
            if self.versions.len() * SECTOR == self.bytes.len() {
                self.save_oldest();
            }
            let at = self.place(self.next);
            self.bytes[at..at + SECTOR].copy_from_slice(bytes);
            self.versions.push_back(Version { sector, write });
            self.next += 1;
        }
        write
    }

    /// A write has been reported: flushes from now on cover it.
    pub(super) fn completed(&mut self, write: u64) {
        // Gone if there was a crash meanwhile.
        if let Some(place) = self.in_flight.iter().position(|other| *other == write) {
            self.in_flight.swap_remove(place);
        }
    }

    /// Puts on the medium what the writes wrote that have completed. Not more: who flushes too early must not get away
    /// with it.
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

    /// Loses versions: of each sector all but as many as `choose` says. What is in flight is no concern of a flush that
    /// fails, but goes when the power does.
    pub(super) fn lose(&mut self, loss: Loss, mut choose: impl FnMut(u32) -> u32) {
        let first = self.first();
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

    /// What reads give: the medium, and what has been written since.
    pub(super) fn show(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.medium);
        for (number, version) in (self.first()..).zip(&self.versions) {
            if self.is_live(number, version) {
                let at = self.place(number);
                let shown = &mut bytes[version.sector as usize * SECTOR..][..SECTOR];
                shown.copy_from_slice(&self.bytes[at..at + SECTOR]);
            }
        }
    }

    /// Sectors of which a version is not on the medium.
    pub(super) fn unsaved_sectors(&self) -> usize {
        let live = (self.first()..).zip(&self.versions).filter(|(number, v)| self.is_live(*number, v));
        let mut sectors: Vec<u64> = live.map(|(_, version)| version.sector).collect();
        sectors.sort_unstable();
        sectors.dedup();
        sectors.len()
    }

    /// The medium is `whole` bytes long from now on, with zeroes from byte `kept` on.
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
                let at = self.place(first + index as u64);
                self.bytes[at + (kept % SECTOR_BYTES) as usize..at + SECTOR].fill(0);
            }
        }
        Ok(())
    }

    /// The number of the oldest version.
    fn first(&self) -> u64 {
        self.next - self.versions.len() as u64
    }

    /// Whether the version is newer than what is on the medium, and the sector still there.
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

    /// Puts a version on the medium, unless it is there already or a newer one is.
    fn save(&mut self, number: u64, sector: u64) {
        let Some(from) = self.unsaved_from.get_mut(sector as usize).filter(|from| number >= **from) else {
            return;
        };
        *from = number + 1;
        let at = self.place(number);
        let target = sector as usize * SECTOR..(sector as usize + 1) * SECTOR;
        self.medium[target].copy_from_slice(&self.bytes[at..at + SECTOR]);
    }

    /// Where the bytes of a version start.
    fn place(&self, number: u64) -> usize {
        number as usize % (self.bytes.len() / SECTOR) * SECTOR
    }
}
