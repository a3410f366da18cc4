//! Torture: random operations on a volume in memory or on files, with errors, short transfers, reordering and power failures.
//! Each byte is compared with a model. `cargo xtask torture` runs any number of operations.
//!
//! The arguments are the variables `IOPATH_TORTURE_SEED`, `_OPS`, `_THREADS` and `_TARGET` (`memory`, `tmpfs`, or the path of a
//! file to create and remove); `IOPATH_TEST_ENGINE` is the engine. Several threads first write separate ranges of a volume;
//! then all threads write to all ranges. A hang is a failure (`watchdog.rs`).
//!
//! ```text
//!   trial ── phases of ops ──▶ worker (one a thread) ──▶ Volume ──▶ faults ──▶ backend: memory disk, file, stripe
//!    │                             │ every read         conditions ┘            ▲
//!    │ faults, reopen, resize,     ▼                                            │
//!    └ crash ─────────────────▶  model: possible values of each byte             crash ┘
//! ```
//!
//! Each operation is a row of `OPS` (`ops.rs`). Each trial draws a device, block and mapping (`backend.rs`), a mode, cache and
//! elevator (`trial/mode.rs`), and faults (`trial/faults.rs`). `Conditions` has the outcomes that operations must accept.

mod backend;
mod conditions;
mod history;
mod losses;
mod model;
mod ops;
mod overlap;
mod settings;
mod trial;
mod watchdog;
mod worker;

use settings::{Settings, Target};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::Instant;
use trial::{TRIAL_OPS, Totals};
use watchdog::Watchdog;
use worker::Source;

/// Runs trials until the requested number of operations is reached.
fn torture(settings: &Settings) {
    let source = Source::new();
    let watchdog = Watchdog::new(settings.target.path().map(Path::to_owned));
    let (mut totals, mut seed) = (Totals::default(), settings.seed);
    let begun = Instant::now();
    while totals.ops < settings.ops {
        let ops = TRIAL_OPS.min(settings.ops - totals.ops);
        watchdog.watch(settings.replay(seed, ops));
        let trial = trial::run(settings, &source, &watchdog.progress, seed, ops);
        totals.add(trial.unwrap_or_else(|wrong| panic!("{wrong}")));
        seed = seed.wrapping_add(1);
    }
    let (rate, threads) = (totals.ops as f64 / begun.elapsed().as_secs_f64(), settings.threads);
    let last = seed.wrapping_sub(1);
    let Totals { ops, faults, crashes, sizes } = totals;
    println!(
        "seeds {} to {last}, {threads} threads: {ops} operations ({rate:.0}/s), {faults} faults, {crashes} power failures, \
         {sizes} sizes",
        settings.seed
    );
    assert!(ops < 10 * TRIAL_OPS || faults > 0 && sizes > 0, "no faults were injected and no sizes changed");
}

/// Runs threads that overwrite each other, until the requested number of operations is reached.
fn overlap(settings: &Settings) {
    if !settings.target.keeps_sectors_whole() {
        eprintln!("skipped: on tmpfs, a read that overlaps a write may return a part of it");
        return;
    }
    let source = Source::new();
    let watchdog = Watchdog::new(settings.target.path().map(Path::to_owned));
    let (mut ops, mut seed) = (0, settings.seed);
    let begun = Instant::now();
    while ops < settings.ops {
        // All rounds of the seed: this test runs a quarter of the operations.
        let replay = settings.replay(seed, 4 * overlap::ops_max(settings.threads));
        watchdog.watch(replay.clone());
        let run = || overlap::run(settings, &source, &watchdog.progress, seed, settings.ops - ops);
        ops += catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            eprintln!("seed {seed} fails; run again: {replay}");
            resume_unwind(panic)
        });
        seed = seed.wrapping_add(1);
    }
    let rate = ops as f64 / begun.elapsed().as_secs_f64();
    println!("overlapping, {} threads: {ops} operations ({rate:.0}/s)", settings.threads.max(2));
}

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
        Some(settings) => overlap(&Settings { ops: settings.ops / 4, ..settings }),
        None => overlap(&Settings::small(3, Target::Memory)),
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
            overlap(&Settings { ops: 2_000, ..Settings::small(2, file) });
        }
    }
}
