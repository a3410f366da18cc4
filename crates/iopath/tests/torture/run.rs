//! Runs trials, or threads that overwrite each other, until the number of operations of the settings is reached.

use crate::overlap;
use crate::settings::Settings;
use crate::trial::{self, TRIAL_OPS, Totals};
use crate::watchdog::Watchdog;
use crate::worker::Source;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::Instant;

/// Runs trials until the requested number of operations is reached.
pub(crate) fn torture(settings: &Settings) {
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
pub(crate) fn overlapping(settings: &Settings) {
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
