//! Error codes of the transmission phase. The server maps errors of its device to them.

use std::fmt;

/// An error of a request, as the protocol numbers it. The numbers are those of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(u32);

impl Errno {
    /// The operation is not permitted, for example a write to a read-only export.
    pub const PERMISSION: Self = Self(1);
    /// The device failed.
    pub const IO: Self = Self(5);
    /// The server lacks memory.
    pub const NO_MEMORY: Self = Self(12);
    /// The request is not valid: unknown, out of range, misaligned.
    pub const INVALID: Self = Self(22);
    /// No space left on the device.
    pub const NO_SPACE: Self = Self(28);
    /// The reply would not fit into one chunk.
    pub const OVERFLOW: Self = Self(75);
    /// The operation is not supported, or not fast.
    pub const NOT_SUPPORTED: Self = Self(95);
    /// The server shuts down.
    pub const SHUTDOWN: Self = Self(108);

    /// The error of `code`. Zero is not an error. Unknown codes count as [`Errno::INVALID`], as the protocol states.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        match code {
            0 => None,
            1 | 5 | 12 | 22 | 28 | 75 | 95 | 108 => Some(Self(code)),
            _ => Some(Self::INVALID),
        }
    }

    /// The number in the protocol.
    #[must_use]
    pub fn code(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::PERMISSION => "operation not permitted (EPERM)",
            Self::IO => "input/output error (EIO)",
            Self::NO_MEMORY => "the server lacks memory (ENOMEM)",
            Self::NO_SPACE => "no space left on the device (ENOSPC)",
            Self::OVERFLOW => "too large for one reply (EOVERFLOW)",
            Self::NOT_SUPPORTED => "operation not supported (ENOTSUP)",
            Self::SHUTDOWN => "the server shuts down (ESHUTDOWN)",
            _ => "invalid request (EINVAL)",
        })
    }
}

impl std::error::Error for Errno {}
