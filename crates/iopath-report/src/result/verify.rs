//! The outcome of a verification: the blocks that were checked, and their faults.

use serde::{Deserialize, Serialize};

/// The blocks that were checked, over all repetitions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VerifyResult {
    /// Checked blocks. A block that was read several times counts several times.
    pub blocks: u64,
    /// Checked bytes.
    pub bytes: u64,
    /// Blocks with the content from before their last write.
    pub lost: u64,
    /// Reads of an old content, although another read has returned a newer one.
    pub stale: u64,
    /// Blocks with parts of several writes.
    pub torn: u64,
    /// Blocks with the content of another offset.
    pub misdirected: u64,
    /// Blocks with a content of no write.
    pub corrupt: u64,
    /// Blocks without a stamp, in a run that only reads: never written with verification, or their write is lost.
    #[serde(default)]
    pub unstamped: u64,
    /// The first faults, 20 at most.
    pub first: Vec<VerifyFault>,
}

impl VerifyResult {
    /// Faults of all kinds.
    pub fn faults(&self) -> u64 {
        self.lost + self.stale + self.torn + self.misdirected + self.corrupt + self.unstamped
    }
}

/// A block with an unexpected content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VerifyFault {
    /// `lost`, `stale`, `torn`, `misdirected`, `corrupt` or `unstamped`.
    pub kind: String,
    /// The block, in bytes from the start of the target.
    pub offset: u64,
    /// Its size in bytes.
    pub bytes: u32,
    /// The first byte that differs, from the start of the target.
    pub first_bad: u64,
    /// The number of the last write of the block; none in a run that only reads.
    pub expected: Option<u32>,
    /// The number of the write that the content is of, 0 for before the run; none for a content of no write.
    pub found: Option<u64>,
    /// The offset that the content belongs to, of a misdirected write.
    pub belongs_to: Option<u64>,
}
