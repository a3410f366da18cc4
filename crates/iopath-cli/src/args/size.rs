//! The size that a run accesses: bytes, or a share of its target. `args/values.rs` parses it.

use iopath_lab::jobfile::Amount;
use iopath_lab::{LabError, Target};

use super::RunArgs;

impl RunArgs {
    /// The size in bytes. A share is a multiple of the largest block, as the last block of a pass is whole.
    pub(super) fn size_bytes(&self) -> Result<Option<u64>, LabError> {
        let of_split = self.bssplit.iter().map(|sizes| u64::from(sizes.max())).max();
        let align_bytes = of_split.or(self.bs.iter().copied().max()).unwrap_or(1);
        Ok(match self.size {
            None => None,
            Some(Amount::Bytes(bytes)) => Some(bytes),
            Some(Amount::Percent(percent)) => {
                Some(Target::share_bytes(&self.targets(), percent, align_bytes)?)
            }
        })
    }
}
