//! Results of measurements: their schemas, the statistics of repetitions, and the tables, texts and pages of them.
//!
//! Does not measure and does not decide what to measure: the lab fills these types. [`result`] is the schema of runs.

pub mod bounded;
pub mod compare;
pub mod elevators;
pub mod experiment;
pub mod exports;
pub mod fit;
pub mod fixtures;
pub mod format;
pub mod html;
pub mod map;
pub mod marks;
pub mod metrics;
pub mod numbers;
pub mod pattern;
pub mod random;
pub mod replay;
pub mod result;
#[cfg(feature = "schema")]
pub mod schema;
pub mod section;
pub mod shard;
pub mod size;
pub mod stats;
pub mod sweep;
pub mod terminal;
pub mod tune;
mod unknown;
pub mod value;
pub mod whatif;

pub use pattern::Rw;
pub use unknown::UnknownName;
