//! The events of the kernel's block layer, independent of their source.

use iopath_core::{Instant, Op};
use std::fmt;

/// The number of a block device, as the kernel stores it: major number in the upper 12 bits, minor in the lower 20.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber(pub u32);

impl DeviceNumber {
    /// The device of these numbers; `None` if the kernel has no such device.
    pub const fn new(major: u32, minor: u32) -> Option<Self> {
        if major >> 12 != 0 || minor >> 20 != 0 { None } else { Some(Self(major << 20 | minor)) }
    }

    /// The major number: the driver.
    pub const fn major(self) -> u32 {
        self.0 >> 20
    }

    /// The minor number.
    pub const fn minor(self) -> u32 {
        self.0 & ((1 << 20) - 1)
    }
}

impl fmt::Display for DeviceNumber {
    /// As in sysfs: `8:0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major(), self.minor())
    }
}

/// The range and the operation of a bio or request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelIo {
    /// The device.
    pub device: DeviceNumber,
    /// The first sector.
    pub sector: u64,
    /// The number of sectors; 0 for a flush.
    pub sectors: u32,
    /// The operation; `None` for commands of drivers, which are not recorded.
    pub op: Option<Op>,
    /// Whether the cache of the device is flushed first. Without sectors, it is a flush.
    pub is_preflush: bool,
    /// Forced unit access.
    pub is_fua: bool,
}

impl KernelIo {
    /// An I/O with the operation in `rwbs`, the letters of the kernel's block events, such as `WS` or `FWFS`.
    pub fn new(device: DeviceNumber, sector: u64, sectors: u32, rwbs: &[u8]) -> Self {
        let end = rwbs.iter().position(|letter| *letter == 0).unwrap_or(rwbs.len());
        let letters = &rwbs[..end];
        // A flush of the device is `FF`: its operation is a flush, too.
        let (is_preflush, rest) = match letters {
            [b'F', rest @ ..] if !rest.is_empty() => (true, rest),
            _ => (false, letters),
        };
        let op = match rest {
            [b'W', b'Z', ..] => Some(Op::WriteZeroes),
            [b'W', ..] => Some(Op::Write),
            [b'R', ..] => Some(Op::Read),
            [b'D', ..] => Some(Op::Discard),
            [b'F', ..] => Some(Op::Flush),
            // Older kernels have no letter for write-zeroes. Commands of drivers have no sectors.
            [b'N', ..] if sectors > 0 => Some(Op::WriteZeroes),
            _ => None,
        };
        let is_fua = rest.len() > 1 && rest[1..].contains(&b'F');
        Self { device, sector, sectors, op, is_preflush, is_fua }
    }

    /// Whether it is a flush: it has no data.
    pub(super) fn is_flush(&self) -> bool {
        self.op == Some(Op::Flush) || self.is_preflush && self.sectors == 0
    }

    /// The sector after the last one; saturates.
    pub(super) const fn end(&self) -> u64 {
        self.sector.saturating_add(self.sectors as u64)
    }
}

/// One event.
#[derive(Debug, Clone, Copy)]
pub struct KernelEvent {
    /// The time.
    pub at: Instant,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The name of the thread's command, ended by a zero; all zeroes if the event has none.
    pub command: [u8; 16],
    /// What happened.
    pub what: What,
}

/// The kind of an event, with its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// `block_bio_queue`
    Queue(KernelIo),
    /// `block_bio_remap`: the range on the new device.
    Remap {
        /// The range on the new device.
        to: KernelIo,
        /// The old device.
        from: DeviceNumber,
        /// The first sector on the old device.
        from_sector: u64,
    },
    /// `block_split`
    Split {
        /// The device.
        device: DeviceNumber,
        /// The first sector of the bio.
        sector: u64,
        /// The first sector of the rest.
        new_sector: u64,
    },
    /// `block_getrq`
    Get(KernelIo),
    /// `block_plug`
    Plug,
    /// `block_unplug`
    Unplug {
        /// The number of requests.
        requests: u32,
    },
    /// `block_bio_backmerge`
    BackMerge(KernelIo),
    /// `block_bio_frontmerge`
    FrontMerge(KernelIo),
    /// `block_rq_merge`: the request that was merged into the one before it.
    MergeRequest(KernelIo),
    /// `block_rq_insert`
    Insert(KernelIo),
    /// `block_rq_issue`
    Issue(KernelIo),
    /// `block_rq_requeue`
    Requeue(KernelIo),
    /// `block_rq_complete`: the sectors that have completed, and 0 or the errno.
    Complete(KernelIo, u32),
    /// `block_bio_complete`: a bio without a request, and 0 or the errno.
    BioComplete(KernelIo, u32),
    /// Events were lost before this one.
    Lost {
        /// How many.
        events: u64,
    },
    /// A process started another one.
    Fork {
        /// The new process.
        child: u32,
        /// The process that started it.
        parent: u32,
    },
}

impl What {
    /// A split at `new_sector`, of which the event of the kernel has the lower 32 bits.
    pub const fn split(device: DeviceNumber, sector: u64, new_sector: u64) -> Self {
        let sectors = (new_sector as u32).wrapping_sub(sector as u32);
        Self::Split { device, sector, new_sector: sector.saturating_add(sectors as u64) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_letters_of_the_kernel_name_operation_and_flags() {
        let io = |sectors, rwbs: &[u8]| KernelIo::new(DeviceNumber(0), 0, sectors, rwbs);
        let of = |io: KernelIo| (io.op, io.is_preflush, io.is_fua, io.is_flush());
        assert_eq!(of(io(8, b"RA\0\0x")), (Some(Op::Read), false, false, false));
        assert_eq!(of(io(8, b"WFSM")), (Some(Op::Write), false, true, false));
        assert_eq!(of(io(8, b"FWFS")), (Some(Op::Write), true, true, false));
        assert_eq!(of(io(0, b"FWS\0")), (Some(Op::Write), true, false, true));
        assert_eq!(of(io(0, b"FF")), (Some(Op::Flush), true, false, true));
        assert_eq!(of(io(8, b"DES")), (Some(Op::Discard), false, false, false));
        assert_eq!(of(io(8, b"N")), (Some(Op::WriteZeroes), false, false, false));
        assert_eq!(of(io(0, b"N")), (None, false, false, false));
        assert_eq!(of(io(0, b"F")), (Some(Op::Flush), false, false, true));
        assert_eq!(of(io(0, b"")), (None, false, false, false));
    }

    #[test]
    fn a_device_number_has_the_bits_of_the_kernel() {
        let number = DeviceNumber::new(254, 3).unwrap();
        assert_eq!((number.0, number.to_string().as_str()), (254 << 20 | 3, "254:3"));
        assert_eq!((DeviceNumber::new(4096, 0), DeviceNumber::new(0, 1 << 20)), (None, None));
    }
}
