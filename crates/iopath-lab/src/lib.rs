//! Campaigns of measurements: lists of workloads, surveys, sweeps, comparisons, trials of settings, fitted models,
//! replays. One measurement is in [`iopath_bench`]; the formats of all results are in [`iopath_report`].

mod campaign;
mod combinations;
pub mod compare;
pub mod fit;
pub mod hosts;
pub mod map;
pub mod metrics;
mod modelled;
pub mod preset;
pub mod record;
mod recorded_times;
pub mod replay;
pub mod serve;
pub mod survey;
pub mod sweep;
pub mod tune;
pub mod whatif;

pub use combinations::{report_all, report_all_with};
