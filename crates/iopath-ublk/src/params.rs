//! The parameters of a disk (`struct ublk_params`), from the facts of a volume. Plain data.

use iopath::Volume;

/// The unit of the protocol.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// The size of the structure up to the parameters of discards.
pub(crate) const PARAMS_BYTES: usize = 60;

/// The largest discard or write of zeroes: 1 GiB.
const CLEAR_SECTORS_MAX: u32 = 1 << 21;

/// The kernel has no larger blocks than a page.
const BLOCK_BYTES_MAX: u32 = 4096;

const TYPE_BASIC: u32 = 1 << 0;
const TYPE_DISCARD: u32 = 1 << 1;

const READ_ONLY: u32 = 1 << 0;
const VOLATILE_CACHE: u32 = 1 << 2;
const FUA: u32 = 1 << 3;

/// The properties of a disk that the kernel needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Params {
    /// The size in sectors: whole blocks.
    pub sectors: u64,
    /// The size of a block in bytes: 512 to 4096, a power of two.
    pub block_bytes: u32,
    /// The preferred size of I/O in bytes: a power of two.
    pub preferred_bytes: u32,
    /// The largest request with data, in bytes.
    pub request_bytes_max: u32,
    /// Whether the disk can be written.
    pub is_writable: bool,
    /// Whether a discard frees space.
    pub has_discard: bool,
    /// Whether zeroes can be written without data.
    pub has_zeroes: bool,
}

impl Params {
    /// The parameters of a volume.
    #[must_use]
    pub fn new(volume: &Volume, is_writable: bool, request_bytes_max: u32) -> Self {
        let facts = volume.facts();
        let support = volume.range_support();
        let block_bytes = facts.block_bytes.next_power_of_two().clamp(SECTOR_BYTES as u32, BLOCK_BYTES_MAX);
        let blocks = volume.size_bytes() / u64::from(block_bytes);
        Self {
            sectors: blocks * (u64::from(block_bytes) / SECTOR_BYTES),
            block_bytes,
            preferred_bytes: facts.block_bytes.next_power_of_two().max(BLOCK_BYTES_MAX),
            request_bytes_max,
            is_writable,
            has_discard: is_writable && support.discard,
            has_zeroes: is_writable && support.zero,
        }
    }

    /// The structure of the kernel. A completed write may be lost in a power failure until a flush, on each path.
    pub(crate) fn to_bytes(self) -> [u8; PARAMS_BYTES] {
        let mut bytes = [0; PARAMS_BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        let has_ranges = self.has_discard || self.has_zeroes;
        let types = if has_ranges { TYPE_BASIC | TYPE_DISCARD } else { TYPE_BASIC };
        let attributes = VOLATILE_CACHE | FUA | if self.is_writable { 0 } else { READ_ONLY };
        let preferred_shift = self.preferred_bytes.ilog2() as u8;
        let clear_max = |has: bool| if has { CLEAR_SECTORS_MAX } else { 0 };
        put(0, &(PARAMS_BYTES as u32).to_ne_bytes());
        put(4, &types.to_ne_bytes());
        put(8, &attributes.to_ne_bytes());
        put(12, &[self.block_bytes.ilog2() as u8, preferred_shift, preferred_shift, preferred_shift]);
        put(16, &(self.request_bytes_max / SECTOR_BYTES as u32).to_ne_bytes());
        put(24, &self.sectors.to_ne_bytes());
        if has_ranges {
            put(44, &self.preferred_bytes.to_ne_bytes());
            put(48, &clear_max(self.has_discard).to_ne_bytes());
            put(52, &clear_max(self.has_zeroes).to_ne_bytes());
            put(56, &1u16.to_ne_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; PARAMS_BYTES]) -> Self {
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let mut sectors = [0; 8];
        sectors.copy_from_slice(&bytes[24..32]);
        let has_ranges = word(4) & TYPE_DISCARD != 0;
        let size_of = |shift: u8| 1u32.checked_shl(u32::from(shift)).unwrap_or_default();
        Self {
            sectors: u64::from_ne_bytes(sectors),
            block_bytes: size_of(bytes[12]),
            preferred_bytes: size_of(bytes[14]),
            request_bytes_max: word(16).saturating_mul(SECTOR_BYTES as u32),
            is_writable: word(8) & READ_ONLY == 0,
            has_discard: has_ranges && word(48) > 0,
            has_zeroes: has_ranges && word(52) > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_survive_the_structure_of_the_kernel() {
        let params = Params {
            sectors: 1 << 33,
            block_bytes: 512,
            preferred_bytes: 4096,
            request_bytes_max: 512 << 10,
            is_writable: true,
            has_discard: true,
            has_zeroes: false,
        };
        let bytes = params.to_bytes();
        assert_eq!(Params::from_bytes(&bytes), params);
        assert_eq!(bytes[8], 0b1100, "a volatile cache, and writes that bypass it");
        assert_eq!(bytes[12..16], [9, 12, 12, 12]);
        assert_eq!(u32::from_ne_bytes(bytes[16..20].try_into().unwrap()), 1024);
        let read_only = Params { is_writable: false, has_discard: false, ..params };
        let bytes = read_only.to_bytes();
        assert_eq!(Params::from_bytes(&bytes), read_only);
        assert_eq!((bytes[4], bytes[8]), (1, 0b1101), "no ranges, and not writable");
    }
}
