//! Torture: random operations on a volume in memory or on files, with errors, short transfers, reordering and power
//! failures. Each byte is compared with a model. `cargo xtask torture` runs any number of operations.
//!
//! The arguments are the variables `IOPATH_TORTURE_SEED`, `_OPS`, `_THREADS` and `_TARGET` (`memory`, `tmpfs`, or the
//! path of a file to create and remove); `IOPATH_TEST_ENGINE` is the engine. Several threads first write separate
//! ranges of a volume; then all threads write to all ranges. A hang is a failure (`watchdog.rs`). The torture of
//! `iopath-nbd` consists of the same modules, with an export of a server as the target.
//!
//! ```text
//!   trial ── phases of ops ──▶ worker (one a thread) ──▶ Volume ──▶ faults ──▶ backend: memory disk, file, stripe
//!    │                             │ every read         conditions ┘            ▲
//!    │ faults, reopen, resize,     ▼                                            │
//!    └ crash ─────────────────▶  model: possible values of each byte             crash ┘
//! ```
//!
//! Each operation is a row of `OPS` (`ops.rs`). Each trial draws a device, block and mapping (`backend.rs`), a mode,
//! cache and elevator (`trial/mode.rs`), and faults (`trial/faults.rs`). `Conditions` has the outcomes that operations
//! must accept.

mod backend;
mod conditions;
mod history;
mod losses;
mod model;
mod ops;
mod overlap;
mod run;
mod settings;
mod trial;
mod watchdog;
mod worker;

use run::{overlapping, torture};
use settings::{Settings, Target};

#[test]
fn every_byte_is_as_written() {
    if let Some(settings) = Settings::from_environment() {
        if settings.target.is_usable() {
            torture(&settings);
        }
        return;
    }
    torture(&Settings::small(1, Target::Memory));
    torture(&Settings::small(3, Target::Memory));
}

#[test]
fn overlapping_threads_read_bytes_that_one_of_them_wrote() {
    match Settings::from_environment() {
        Some(settings) if settings.threads == 1 || !settings.target.is_usable() => {}
        // An operation costs as much as four of the other test.
        Some(settings) => overlapping(&Settings { ops: settings.ops / 4, ..settings }),
        None => overlapping(&Settings::small(3, Target::Memory)),
    }
}

#[test]
fn every_byte_of_a_file_is_as_written() {
    if Settings::from_environment().is_some() {
        return; // The environment names another target.
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    for file in [Target::File(directory.path().join("tortured")), Target::tmpfs()] {
        if file.is_usable() {
            torture(&Settings { ops: 2_000, ..Settings::small(1, file.clone()) });
            torture(&Settings { ops: 2_000, ..Settings::small(3, file.clone()) });
            overlapping(&Settings { ops: 2_000, ..Settings::small(2, file) });
        }
    }
}
