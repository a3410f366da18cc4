//! The connections to the servers of a run.

use serde::{Deserialize, Serialize};

/// Connections to servers that were lost and made anew while the run was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Connections {
    /// Established connections that ended.
    pub lost: u64,
    /// Connections that were established again.
    pub reconnected: u64,
}

impl std::iter::Sum for Connections {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            lost: sum.lost + one.lost,
            reconnected: sum.reconnected + one.reconnected,
        })
    }
}
