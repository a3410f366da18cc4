//! The torture of `iopath` on an export of our server over a unix socket, with a disk in memory behind it: random
//! operations, faults, new sizes, and power failures of the machine of the server. Each byte is compared with a model.
//!
//! The modules are those of `crates/iopath/tests/torture`; its `main.rs` describes them. Only the storage of a trial is
//! here. `cargo xtask torture --target nbd` runs any number of operations.

mod export;

#[allow(dead_code, reason = "without the parts for files")]
#[path = "../../../iopath/tests/torture"]
mod shared {
    pub(crate) mod backend;
    pub(crate) mod conditions;
    pub(crate) mod history;
    pub(crate) mod losses;
    pub(crate) mod model;
    pub(crate) mod ops;
    pub(crate) mod overlap;
    pub(crate) mod run;
    pub(crate) mod settings;
    pub(crate) mod trial;
    pub(crate) mod watchdog;
    pub(crate) mod worker;
}

// The modules name each other from the root of the crate.
use shared::{
    backend, conditions, history, losses, model, ops, overlap, run, settings, trial, watchdog, worker,
};

use run::{overlapping, torture};
use settings::{Settings, Target};

const TARGET: Target = Target::Export(export::new);

/// The settings of the environment, or the given ones.
fn settings(otherwise: Settings) -> Settings {
    Settings::from_environment().map_or(otherwise, |settings| Settings { target: TARGET, ..settings })
}

#[test]
fn every_byte_of_an_export_is_as_written() {
    torture(&settings(Settings { ops: 10_000, ..Settings::small(1, TARGET) }));
}

#[test]
fn every_byte_of_an_export_is_as_written_by_several_threads() {
    let settings = settings(Settings { ops: 10_000, ..Settings::small(3, TARGET) });
    if settings.threads > 1 {
        overlapping(&Settings { ops: settings.ops / 4, ..settings.clone() });
    }
    if Settings::from_environment().is_none() {
        torture(&settings);
    }
}
