//! Results of measurements: their schemas, the statistics of repetitions, and the tables, texts and pages of them.
//!
//! Does not measure and does not decide what to measure: the lab fills these types. [`result`] is the schema of runs.

pub mod bounded;
pub mod elevators;
pub mod exports;
pub mod fixtures;
pub mod format;
pub mod marks;
pub mod numbers;
pub mod pattern;
pub mod random;
pub mod result;
pub mod section;
pub mod size;
pub mod stats;
pub mod terminal;
mod unknown;
pub mod value;

pub use pattern::Rw;
pub use unknown::UnknownName;
