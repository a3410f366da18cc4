//! Errors of an I/O, as devices and the queue report them. A caller such as `Volume` adds path and offset.

/// The reason why a device failed an I/O. Small and `Copy`: it travels with completions on the hot path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// The medium could not be read or written (EIO).
    #[error("the device reports a media error (EIO); see the kernel log for the sector")]
    Media,
    /// No space left for the data (ENOSPC, EDQUOT).
    #[error("no space left; free some space or choose another target")]
    NoSpace,
    /// The device does not support the operation (EOPNOTSUPP).
    #[error("the device does not support this operation")]
    Unsupported,
    /// The device no longer exists (ENODEV, ENXIO, ESTALE).
    #[error("the device no longer exists; it was removed or detached while in use")]
    Gone,
    /// The connection to the server of a remote device is lost, and could not be made anew in time (ENOTCONN). For a
    /// flush: the server may have been restarted, and may have lost completed writes.
    #[error("the connection to the server is lost")]
    Disconnected,
    /// The device or file is read-only (EROFS, EBADF, EPERM).
    #[error("the target is read-only; open it for writing")]
    ReadOnly,
    /// Memory, offset or length violates the alignment of the device (EINVAL).
    #[error("the device refuses the alignment of memory, offset or length")]
    Alignment,
    /// The range extends past the end of the file or device.
    #[error("the target ends before the range does; it may have been truncated while in use")]
    EndOfDevice,
    /// Any other error number of the operating system.
    #[error("the operating system reports error {0}")]
    Os(i32),
}

impl IoError {
    /// Whether a forced-unit-access write may have failed with this error because the flush failed, not the write.
    pub const fn may_come_from_flush(self) -> bool {
        matches!(self, Self::Media | Self::Gone | Self::Disconnected | Self::Os(_))
    }

    /// The error number of Linux (`errno.h`), as the request log stores it.
    pub const fn errno(self) -> i32 {
        match self {
            Self::Media => 5,
            Self::NoSpace => 28,
            Self::Unsupported => 95,
            Self::Gone => 19,
            Self::Disconnected => 107,
            Self::ReadOnly => 30,
            Self::Alignment => 22,
            Self::EndOfDevice => 61,
            Self::Os(errno) => errno,
        }
    }
}
