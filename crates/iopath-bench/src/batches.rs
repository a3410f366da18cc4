//! When a job whose depth was in flight starts transfers again. `job/batch.rs` follows it.

use std::num::NonZeroU32;

/// When a job starts transfers again after its depth was in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Batches {
    /// After this number of completions; unset is one.
    pub complete_min: Option<NonZeroU32>,
    /// When this number of transfers is in flight at most; unset is one less than the depth.
    pub low: Option<NonZeroU32>,
}
