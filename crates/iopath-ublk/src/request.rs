//! A request of the kernel: operation, range, flags. Checks it against the disk; does no I/O.

use iopath_os::ublk::UblkDescriptor;
use rustix::io::Errno;

use crate::params::SECTOR_BYTES;

const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 2;
const DISCARD: u32 = 3;
const WRITE_ZEROES: u32 = 5;

/// The operation is in the lowest byte.
const OP_MASK: u32 = 0xff;

/// A write is durable when it completes.
const FLAG_FUA: u32 = 1 << 13;

/// A write of zeroes keeps its space.
const FLAG_KEEPS_SPACE: u32 = 1 << 15;

/// The disk of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// The size in bytes.
    pub bytes: u64,
    /// The size of the buffer of a request.
    pub buffer_bytes: u32,
    /// Whether it can be written.
    pub is_writable: bool,
    /// Whether a discard makes blocks read as zeroes.
    pub discard_zeroes: bool,
}

/// The work for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Reads into the buffer.
    Read {
        /// The first byte.
        offset: u64,
        /// The number of bytes, of 1 at least.
        bytes: u32,
    },
    /// Writes the buffer.
    Write {
        /// The first byte.
        offset: u64,
        /// The number of bytes, of 1 at least.
        bytes: u32,
        /// Whether it is durable when it completes.
        is_durable: bool,
    },
    /// Makes completed writes durable.
    Flush,
    /// Frees space.
    Discard {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        bytes: u64,
    },
    /// Zeroes a range.
    Zero {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        bytes: u64,
    },
    /// There is nothing to do.
    Nothing,
}

/// Decodes a request.
///
/// # Errors
/// The error number for the kernel: EOPNOTSUPP for an operation that the disk has not announced, EROFS for a change of
/// a disk that cannot be written, EIO for a range that is not in the disk, EINVAL for more data than its buffer holds.
pub fn decode(descriptor: &UblkDescriptor, disk: &Disk) -> Result<Work, Errno> {
    let op = descriptor.op_flags & OP_MASK;
    if op > WRITE_ZEROES || !matches!(op, READ | WRITE | FLUSH | DISCARD | WRITE_ZEROES) {
        return Err(Errno::OPNOTSUPP);
    }
    // A disk that cannot be written has nothing to flush.
    if op == FLUSH {
        return Ok(if disk.is_writable { Work::Flush } else { Work::Nothing });
    }
    if op != READ && !disk.is_writable {
        return Err(Errno::ROFS);
    }
    let bytes = u64::from(descriptor.sectors) * SECTOR_BYTES;
    let offset = descriptor.start_sector.checked_mul(SECTOR_BYTES).ok_or(Errno::IO)?;
    if offset.checked_add(bytes).is_none_or(|end| end > disk.bytes) {
        return Err(Errno::IO);
    }
    if bytes == 0 {
        return Ok(Work::Nothing);
    }
    let data_bytes =
        || u32::try_from(bytes).ok().filter(|&bytes| bytes <= disk.buffer_bytes).ok_or(Errno::INVAL);
    let is_durable = descriptor.op_flags & FLAG_FUA != 0;
    let may_free = disk.discard_zeroes && descriptor.op_flags & FLAG_KEEPS_SPACE == 0;
    Ok(match op {
        READ => Work::Read { offset, bytes: data_bytes()? },
        WRITE => Work::Write { offset, bytes: data_bytes()?, is_durable },
        WRITE_ZEROES if !may_free => Work::Zero { offset, bytes },
        _ => Work::Discard { offset, bytes },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Disk =
        Disk { bytes: 1 << 20, buffer_bytes: 64 << 10, is_writable: true, discard_zeroes: true };

    fn decoded(op_flags: u32, start_sector: u64, sectors: u32) -> Result<Work, Errno> {
        decode(&UblkDescriptor::new(op_flags, start_sector, sectors), &DISK)
    }

    #[test]
    fn each_operation_has_its_range_and_flags() {
        assert_eq!(decoded(READ, 8, 16), Ok(Work::Read { offset: 4096, bytes: 8192 }));
        let write = |is_durable| Ok(Work::Write { offset: 512, bytes: 512, is_durable });
        assert_eq!(decoded(WRITE, 1, 1), write(false));
        assert_eq!(decoded(WRITE | FLAG_FUA, 1, 1), write(true));
        // Hints such as REQ_META change nothing.
        assert_eq!(decoded(WRITE | 1 << 11, 1, 1), write(false));
        assert_eq!(decoded(FLUSH, 0, 0), Ok(Work::Flush));
        assert_eq!(decoded(DISCARD, 8, 8), Ok(Work::Discard { offset: 4096, bytes: 4096 }));
        assert_eq!(decoded(WRITE_ZEROES, 8, 8), Ok(Work::Discard { offset: 4096, bytes: 4096 }));
        let kept = decoded(WRITE_ZEROES | FLAG_KEEPS_SPACE, 8, 8);
        assert_eq!(kept, Ok(Work::Zero { offset: 4096, bytes: 4096 }));
        let disk = Disk { discard_zeroes: false, ..DISK };
        let zeroed = decode(&UblkDescriptor::new(WRITE_ZEROES, 8, 8), &disk);
        assert_eq!(zeroed, Ok(Work::Zero { offset: 4096, bytes: 4096 }));
        assert_eq!(decoded(READ, 2048, 0), Ok(Work::Nothing));
    }

    #[test]
    fn a_bad_descriptor_is_an_error_number() {
        for op in [4, 6, 10, 15, 18, 33, 255] {
            assert_eq!(decoded(op, 0, 1), Err(Errno::OPNOTSUPP), "operation {op}");
        }
        for (start, sectors) in
            [(2048, 1), (2047, 2), (u64::MAX, 1), (u64::MAX / 512, u32::MAX), (0, u32::MAX)]
        {
            for op in [READ, WRITE, DISCARD, WRITE_ZEROES] {
                assert_eq!(decoded(op, start, sectors), Err(Errno::IO), "{sectors} sectors at {start}");
            }
        }
        assert_eq!(decoded(READ, 0, 129), Err(Errno::INVAL), "longer than the buffer");
        assert!(decoded(DISCARD, 0, 129).is_ok(), "no data");
    }

    #[test]
    fn a_disk_that_cannot_be_written_only_reads() {
        let disk = Disk { is_writable: false, ..DISK };
        for op in [WRITE, DISCARD, WRITE_ZEROES] {
            assert_eq!(decode(&UblkDescriptor::new(op, 0, 1), &disk), Err(Errno::ROFS));
        }
        assert_eq!(decode(&UblkDescriptor::new(FLUSH, 0, 0), &disk), Ok(Work::Nothing));
        assert!(decode(&UblkDescriptor::new(READ, 0, 1), &disk).is_ok());
    }
}
