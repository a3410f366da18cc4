//! What may happen while operations are carried out, and so what a worker must accept. Set by `trial.rs` between
//! phases, read by operations; decides nothing.

/// What may go wrong or change in a phase.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Conditions {
    /// I/O may fail.
    pub(crate) may_fail: bool,
    /// Flushes of the device may.
    pub(crate) flush_may_fail: bool,
    /// A flush that fails loses what it should have saved.
    pub(crate) may_lose: bool,
    /// The page cache knows of bytes that are lost: no flush succeeds until the volume is opened anew.
    pub(crate) has_lost: bool,
    /// The device has no forced write of its own: it is followed by a flush.
    pub(crate) forces_by_flush: bool,
    /// The device may not know discard and write-zeroes.
    pub(crate) may_lack: bool,
    /// The volume may change its size.
    pub(crate) may_resize: bool,
    /// Other workers use the volume at the same time.
    pub(crate) is_shared: bool,
    pub(crate) mode: Mode,
}

/// What matters about how a volume was opened.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mode {
    /// Reads that reach past the end are refused.
    pub(crate) is_raw: bool,
    /// Reads and writes of any bytes from and to any memory.
    pub(crate) takes_any: bool,
    /// There is a page cache.
    pub(crate) is_cached: bool,
    /// Writes past the end extend the volume.
    pub(crate) extends: bool,
}

impl Conditions {
    /// A flush of another worker may fail at any moment, and lose what this one has written.
    pub(crate) const fn loses_meanwhile(&self) -> bool {
        self.is_shared && self.may_lose && self.flush_may_fail
    }

    /// Other workers move the end of the volume at any moment, above the bytes that this one has.
    pub(crate) const fn resizes_meanwhile(&self) -> bool {
        self.is_shared && self.may_resize
    }

    /// Only this worker moves the end, and its writes may.
    pub(crate) const fn extends_alone(&self) -> bool {
        self.resizes_alone() && self.mode.extends
    }

    /// Nothing but this worker moves the end.
    pub(crate) const fn resizes_alone(&self) -> bool {
        !self.is_shared && self.may_resize
    }
}
