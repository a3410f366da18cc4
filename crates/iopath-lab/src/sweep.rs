//! `iopath sweep`: measures a matrix of workloads and settings. The program builds the workload of each cell from its
//! options.
//!
//! | file | content |
//! |---|---|
//! | `matrix.rs` | axes, their product |
//! | `measure.rs` | measures the cells, applies and restores settings |
//! | `model_settings.rs` | settings of modelled targets |
//! | `place.rs` | the directory and the target of a sweep that is continued |
//! | `file.rs` | the results file, which `--resume` reads |
//! | `parts.rs` | joins the results files of shares |

mod error;
mod file;
mod matrix;
mod measure;
mod model_settings;
mod parts;
mod place;

pub use error::SweepError;
pub use file::{check_replaceable, read, write};
pub use matrix::{CELLS_MAX, parse_axis, product};
pub use measure::{Planned, Sweep};
pub use model_settings::set_on_model;
pub use parts::merge;
pub use place::{current_place, enter, enter_directory};
