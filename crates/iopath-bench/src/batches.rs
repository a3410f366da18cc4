//! The transfers that a job submits together, and when a job whose depth was in flight starts transfers again.
//! `job/drive.rs` and `job/batch.rs` follow it.

use std::num::NonZeroU32;

/// The transfers that a job submits together, and when it starts transfers again after its depth was in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Batches {
    /// The transfers of one submission at most, on a path that submits by a call of its own; unset is the number of the
    /// path.
    pub submit_max: Option<NonZeroU32>,
    /// After this number of completions; unset is one.
    pub complete_min: Option<NonZeroU32>,
    /// When this number of transfers is in flight at most; unset is one less than the depth.
    pub low: Option<NonZeroU32>,
}
