//! Metadata contexts: the states of ranges that a server can report. The only context is `base:allocation`.

use bitflags::bitflags;

/// The context for holes and zeroes.
pub const BASE_ALLOCATION: &str = "base:allocation";

/// The number of [`BASE_ALLOCATION`] on the wire. A server of iopath has one context, so the number is fixed.
pub(crate) const BASE_ALLOCATION_ID: u32 = 1;

/// Queries of one option that a server accepts.
pub(crate) const QUERIES_MAX: u32 = 32;

bitflags! {
    /// The state of a range in [`BASE_ALLOCATION`]. No flag: allocated data.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct BlockState: u64 {
        /// No space is allocated. A write may fail with [`crate::Errno::NO_SPACE`].
        const HOLE = 1;
        /// The range reads as zeroes.
        const ZERO = 1 << 1;
        const _ = !0;
    }
}

/// Consecutive bytes with the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockExtent {
    /// Bytes.
    pub length: u64,
    /// State.
    pub state: BlockState,
}

/// Whether `query` selects [`BASE_ALLOCATION`]. In a list, `base:` matches all contexts of the namespace.
pub(crate) fn selects_base_allocation(query: &[u8], is_list: bool) -> bool {
    query == BASE_ALLOCATION.as_bytes() || (is_list && query == b"base:")
}
