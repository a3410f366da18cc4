//! The description of an export. It holds no data and opens nothing.

use crate::protocol::TransmissionFlags;

/// Sizes of requests that a server accepts, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths must be multiples of this power of two, at most 65,536.
    pub min: u32,
    /// Requests of this size and alignment need no extra work. A power of two, at least 512.
    pub preferred: u32,
    /// Longest payload of a read or write. A multiple of `min`, or `u32::MAX` for no limit.
    pub max: u32,
}

impl BlockSizes {
    /// Largest permitted [`BlockSizes::min`].
    pub(crate) const MIN_MAX: u32 = 1 << 16;

    /// Whether the sizes follow the rules of the protocol.
    #[must_use]
    pub fn is_valid(self) -> bool {
        let Self { min, preferred, max } = self;
        min.is_power_of_two()
            && min <= Self::MIN_MAX
            && preferred.is_power_of_two()
            && preferred >= min.max(512)
            && max >= min
            && (max == u32::MAX || max.is_multiple_of(min))
    }
}

impl Default for BlockSizes {
    /// The sizes that a client assumes if the server states none: any alignment, 4 KiB preferred, 32 MiB at most.
    fn default() -> Self {
        Self { min: 1, preferred: 4096, max: 32 << 20 }
    }
}

/// An export: a range of bytes that a server offers under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The name, at most 4096 bytes of UTF-8. The first export also answers to the empty name.
    pub name: String,
    /// A text for people, or empty.
    pub description: String,
    /// Bytes.
    pub size: u64,
    /// Accepted commands and properties. The handshake adds or removes flags that depend on it.
    pub flags: TransmissionFlags,
    /// Sizes of requests.
    pub block_sizes: BlockSizes,
    /// Whether the server can state the allocation of a range (`base:allocation`).
    pub has_allocation: bool,
}

impl Export {
    /// A read-only export of `size` bytes, with the default block sizes.
    #[must_use]
    pub fn new(name: impl Into<String>, size: u64) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            size,
            flags: TransmissionFlags::READ_ONLY,
            block_sizes: BlockSizes::default(),
            has_allocation: false,
        }
    }
}
