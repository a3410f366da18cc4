//! The format of a verified block: each sector has a header with its offset, generation and checksum. docs/verify.md
//! describes the bytes. Does not know the expected content.

use crc32fast::Hasher;
use iopath_report::random::generator;
use rand_xoshiro::rand_core::RngCore;

/// The unit of checksums, in bytes. A device writes a sector wholly or not at all, so a torn write has whole sectors of
/// both writes.
pub const SECTOR_BYTES: u32 = 512;

const MAGIC: [u8; 8] = *b"iopathV1";

/// The length of the header: magic, offset, generation, run, checksum and 4 bytes of zeroes.
const HEADER_BYTES: usize = 40;

/// The checksum covers all other bytes of the sector.
const CHECKSUM: std::ops::Range<usize> = 32..36;

/// The header of a sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    /// The offset of the sector in its target, in bytes.
    pub(super) offset: u64,
    /// The number of the write of its block, from 1.
    pub(super) generation: u64,
    /// A random number of the run.
    pub(super) run: u64,
}

/// The content of a sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sector {
    /// A stamp with a correct checksum.
    Stamped(Stamp),
    /// A stamp with a wrong checksum.
    Damaged,
    /// No stamp.
    Unstamped,
}

impl Stamp {
    /// Fills a sector.
    pub(super) fn put(self, sector: &mut [u8]) {
        let Self { offset, generation, run } = self;
        sector[..8].copy_from_slice(&MAGIC);
        sector[8..16].copy_from_slice(&offset.to_le_bytes());
        sector[16..24].copy_from_slice(&generation.to_le_bytes());
        sector[24..32].copy_from_slice(&run.to_le_bytes());
        sector[32..HEADER_BYTES].fill(0);
        generator(run ^ generation.rotate_left(32), [offset, generation])
            .fill_bytes(&mut sector[HEADER_BYTES..]);
        let checksum = checksum(sector);
        sector[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Reads a sector.
    pub(super) fn get(sector: &[u8]) -> Sector {
        if sector[..8] != MAGIC {
            return Sector::Unstamped;
        }
        if sector[CHECKSUM] != checksum(sector).to_le_bytes() {
            return Sector::Damaged;
        }
        let number = |at: usize| u64::from_le_bytes(sector[at..at + 8].try_into().expect("8 bytes"));
        Sector::Stamped(Self { offset: number(8), generation: number(16), run: number(24) })
    }
}

/// CRC-32 (IEEE 802.3) of the sector without the checksum itself.
fn checksum(sector: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&sector[..CHECKSUM.start]);
    hasher.update(&sector[CHECKSUM.end..]);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_back_and_any_changed_bit_is_noticed() {
        let stamp = Stamp { offset: 1 << 40, generation: 7, run: 3 };
        let mut sector = [0; SECTOR_BYTES as usize];
        stamp.put(&mut sector);
        assert_eq!(Stamp::get(&sector), Sector::Stamped(stamp));
        for byte in 0..sector.len() {
            let mut changed = sector;
            changed[byte] ^= 0x10;
            let expected = if byte < 8 { Sector::Unstamped } else { Sector::Damaged };
            assert_eq!(Stamp::get(&changed), expected, "byte {byte}");
        }
        assert_eq!(Stamp::get(&[0; 512]), Sector::Unstamped);
    }

    #[test]
    fn sectors_of_different_writes_differ_everywhere() {
        let content = |offset, generation| {
            let mut sector = [0; 512];
            Stamp { offset, generation, run: 1 }.put(&mut sector);
            sector[HEADER_BYTES..].to_vec()
        };
        assert_ne!(content(0, 1), content(512, 1));
        assert_ne!(content(0, 1), content(0, 2));
    }
}
