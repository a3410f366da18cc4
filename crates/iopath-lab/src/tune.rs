//! `iopath tune`: shows and sets the settings of a block device, and finds better ones. The settings and their journal
//! are in `device_settings`.
//!
//! | file | content |
//! |---|---|
//! | `change.rs` | shows and sets settings |
//! | `trial.rs` | measures candidates on a workload |
//! | `workload.rs` | the workload: options of `iopath run`, or a job file |
//! | `halving.rs` | the search for the best candidate, and its confirmation |

mod change;
mod error;
mod halving;
mod trial;
mod workload;

pub use change::{set, settings_report};
pub use error::TuneError;
pub use halving::Limits;
pub use trial::{Measure, candidates, try_settings};
pub use workload::{JobWorkload, OneWorkload};
