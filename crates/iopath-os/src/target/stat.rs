//! The properties of an open file that one statx(2) reports: identity, kind, size, and the alignment of direct I/O.

use std::fs::File;
use std::io;

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags};

use super::WANTED;
use super::roots::{DeviceNumber, FileId};

/// `STATX_DIO_READ_ALIGN` of <linux/stat.h> (Linux 6.14).
const STATX_DIO_READ_ALIGN: StatxFlags = StatxFlags::from_bits_retain(0x0002_0000);

/// The properties of an open file at one time.
#[derive(Debug)]
pub struct FileStat(Statx);

/// The alignment that the kernel reports for a file.
pub(super) enum Reported {
    /// The kernel or the filesystem reports none.
    Nothing,
    /// The file does not support direct I/O.
    Refused,
    Aligned {
        memory_bytes: u32,
        offset_bytes: u32,
        read_offset_bytes: u32,
    },
}

impl FileStat {
    /// The properties of `file` now.
    ///
    /// # Errors
    /// The error of `statx(2)`.
    pub fn of(file: &File) -> io::Result<Self> {
        let wanted = WANTED.union(StatxFlags::DIOALIGN).union(STATX_DIO_READ_ALIGN);
        Ok(Self(rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted)?))
    }

    /// The identity of the file; of a block device, of its node.
    pub fn id(&self) -> FileId {
        FileId::from(&self.0)
    }

    /// The length of a regular file.
    pub fn file_bytes(&self) -> Option<u64> {
        (self.kind() == FileType::RegularFile).then_some(self.0.stx_size)
    }

    /// The number of a block device.
    pub fn device(&self) -> Option<DeviceNumber> {
        let Statx { stx_rdev_major: major, stx_rdev_minor: minor, .. } = self.0;
        (self.kind() == FileType::BlockDevice).then_some(DeviceNumber { major, minor })
    }

    fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.0.stx_mode.into())
    }

    /// Both alignments are 0 if the file does not support direct I/O.
    pub(super) fn alignment(&self) -> Reported {
        let stat = &self.0;
        let is_reported = |flag: StatxFlags| stat.stx_mask & flag.bits() != 0;
        let (memory_bytes, offset_bytes) = (stat.stx_dio_mem_align, stat.stx_dio_offset_align);
        if !is_reported(StatxFlags::DIOALIGN) {
            return Reported::Nothing;
        }
        if memory_bytes == 0 || offset_bytes == 0 {
            return Reported::Refused;
        }
        let for_reads = stat.stx_dio_read_offset_align;
        let read_offset_bytes =
            if is_reported(STATX_DIO_READ_ALIGN) && for_reads != 0 { for_reads } else { offset_bytes };
        Reported::Aligned { memory_bytes, offset_bytes, read_offset_bytes }
    }
}
