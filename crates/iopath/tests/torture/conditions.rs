//! The outcomes of operations that a worker must accept. Set by `trial.rs` between phases, read by operations.

/// Failures and changes that are possible in a phase.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Conditions {
    /// I/O may fail.
    pub(crate) may_fail: bool,
    /// Flushes of the device may fail.
    pub(crate) flush_may_fail: bool,
    /// A failed flush loses unflushed writes.
    pub(crate) may_lose: bool,
    /// The page cache has recorded a loss: no flush succeeds until the volume is reopened.
    pub(crate) has_lost: bool,
    /// The device has no forced unit access: a forced write is followed by a flush.
    pub(crate) forces_by_flush: bool,
    /// The device may not support discard and write-zeroes.
    pub(crate) may_be_unsupported: bool,
    /// The volume may change its size.
    pub(crate) may_resize: bool,
    /// The device has a page cache of its own.
    pub(crate) is_cached_below: bool,
    /// Other workers use the volume at the same time.
    pub(crate) is_shared: bool,
    pub(crate) mode: Mode,
}

/// The properties of an open volume that matter here.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mode {
    /// Reads past the end are refused.
    pub(crate) is_raw: bool,
    /// Reads and writes may have any offset, length and memory.
    pub(crate) accepts_unaligned: bool,
    /// There is a page cache.
    pub(crate) is_cached: bool,
    /// The memory of the page cache is that of a context, and changes.
    pub(crate) is_in_context: bool,
    /// Writes past the end extend the volume.
    pub(crate) extends: bool,
}

impl Conditions {
    /// A flush of another worker may fail at any moment and lose writes of this worker.
    pub(crate) const fn loses_meanwhile(&self) -> bool {
        self.is_shared && self.may_lose && self.flush_may_fail
    }

    /// Other workers may move the end of the volume at any moment, above the bytes of this worker.
    pub(crate) const fn resizes_meanwhile(&self) -> bool {
        self.is_shared && self.may_resize
    }

    /// Only this worker moves the end, and its writes may.
    pub(crate) const fn extends_alone(&self) -> bool {
        self.resizes_alone() && self.mode.extends
    }

    /// Only this worker moves the end.
    pub(crate) const fn resizes_alone(&self) -> bool {
        !self.is_shared && self.may_resize
    }
}
