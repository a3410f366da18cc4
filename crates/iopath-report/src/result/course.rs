//! The course of a repetition over time, as a part of its result.

use serde::{Deserialize, Serialize};

/// The bytes of all jobs in equal intervals, from the start of the repetition to the end of its last job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Course {
    /// The length of an interval in seconds.
    pub interval_seconds: f64,
    /// The bytes transferred in each interval. The last interval of a writing job includes its final flush.
    pub bytes: Vec<u64>,
}
