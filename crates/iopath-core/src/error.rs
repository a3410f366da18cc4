//! How an I/O can fail, and why a bio can be refused. Where it happened (path, offset) is added by `Volume`.

use crate::block::bio::Bio;

/// Why a device could not do an I/O. Small and `Copy`: it travels with completions on the hot path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// The medium could not be read or written (EIO).
    #[error("the device reports a media error (EIO); see the kernel log for the sector")]
    Media,
    /// No room left for the data (ENOSPC, EDQUOT).
    #[error("no space left; free some or choose another target")]
    NoSpace,
    /// The device does not know the operation (EOPNOTSUPP).
    #[error("the device does not support this operation")]
    Unsupported,
    /// The device is no longer there (ENODEV, ENXIO, ESTALE).
    #[error("the device is gone; it was removed or detached while in use")]
    Gone,
    /// The device or file may not be written (EROFS, EBADF, EPERM).
    #[error("the target is read-only; open it for writing")]
    ReadOnly,
    /// Memory, offset or length do not meet the alignment that the device asks for (EINVAL).
    #[error("the device refuses the alignment of memory, offset or length")]
    Alignment,
    /// The file or device ended before the range did.
    #[error("the target ends before the range does; it may have been truncated while in use")]
    EndOfDevice,
    /// Any other error of the operating system.
    #[error("the operating system reports error {0}")]
    Os(i32),
}

impl IoError {
    /// Whether a write that was to be on the medium may have failed with this because the device could not be flushed.
    pub const fn may_be_of_a_flush(self) -> bool {
        matches!(self, Self::Media | Self::Gone | Self::Os(_))
    }

    /// The number that Linux has for it (`errno.h`): what stands in the log.
    pub const fn errno(self) -> i32 {
        match self {
            Self::Media => 5,
            Self::NoSpace => 28,
            Self::Unsupported => 95,
            Self::Gone => 19,
            Self::ReadOnly => 30,
            Self::Alignment => 22,
            Self::EndOfDevice => 61,
            Self::Os(errno) => errno,
        }
    }
}

/// Why the queue did not take a bio. Refusing gives ownership back: the bio is inside.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SubmitError<M> {
    /// As many bios as the queue has slots for are not yet completed and collected.
    #[error("the queue holds as many bios as it has slots for; collect completions, then submit again")]
    QueueFull(Bio<M>),
    /// The extent is empty or reaches past the end of the device.
    #[error("{} of {} lies outside the device's {capacity} sectors", .bio.op, .bio.extent)]
    OutOfRange {
        /// The bio.
        bio: Bio<M>,
        /// The device's size in sectors.
        capacity: u64,
    },
    /// Start or length are not whole logical blocks.
    #[error("{} of {} is not whole blocks of {block_bytes} bytes; align it or read-modify-write", .bio.op, .bio.extent)]
    Unaligned {
        /// The bio.
        bio: Bio<M>,
        /// The device's logical block size.
        block_bytes: u32,
    },
    /// A read or write whose memory is missing or not as long as its extent, or memory where none belongs.
    #[error("{} of {} has {memory_bytes} bytes of memory where {} belong", .bio.op, .bio.extent, .bio.memory_bytes())]
    MemoryMismatch {
        /// The bio.
        bio: Bio<M>,
        /// How many bytes came with it.
        memory_bytes: u64,
    },
    /// The device cannot do this operation.
    #[error("the device does not support {}", .0.op)]
    Unsupported(Bio<M>),
}

impl<M> SubmitError<M> {
    /// The bio that was refused.
    pub fn into_bio(self) -> Bio<M> {
        match self {
            Self::QueueFull(bio)
            | Self::OutOfRange { bio, .. }
            | Self::Unaligned { bio, .. }
            | Self::MemoryMismatch { bio, .. }
            | Self::Unsupported(bio) => bio,
        }
    }
}
