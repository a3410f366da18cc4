//! Torture: random operations on a volume, in memory or a file, with errors, short transfers, disorder and power
//! failures, each byte compared with what it must be. `cargo xtask torture` does as much of it as one likes.
//!
//! `IOPATH_TORTURE_SEED`, `_OPS`, `_THREADS` and `_TARGET` (`memory`, or the path of a file to be made and removed) are
//! its arguments. With several threads each writes its own ranges, then all write everywhere.
//!
//! ```text
//!   life ── stretches of ops ──▶ hand (one a thread) ──▶ Volume ──▶ faults ──▶ memory disk or file
//!    │                             │ every read               weather ┘            ▲
//!    │ faults, reopen, resize,     ▼                                               │
//!    └ crash ─────────────────▶  model: what each byte may be                crash ┘
//! ```

mod ground;
mod hand;
mod history;
mod life;
mod model;
mod ops;
mod overlap;
mod settings;

use hand::Source;
use life::{LIFE_OPS, Met, live};
use settings::{Settings, Target};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Instant;

/// Lives one life after another until there were as many operations as asked for.
fn torture(settings: &Settings) {
    let source = Source::new();
    let (mut met, mut seed) = (Met::default(), settings.seed);
    let begun = Instant::now();
    while met.ops < settings.ops {
        let ops = LIFE_OPS.min(settings.ops - met.ops);
        let life = live(settings, &source, seed, ops).unwrap_or_else(|wrong| panic!("{wrong}"));
        met.add(life);
        seed = seed.wrapping_add(1);
    }
    let (rate, threads) = (met.ops as f64 / begun.elapsed().as_secs_f64(), settings.threads);
    let last = seed.wrapping_sub(1);
    let Met { ops, faults, crashes, sizes } = met;
    println!(
        "seeds {} to {last}, {threads} threads: {ops} operations ({rate:.0}/s), {faults} faults, {crashes} power failures, \
         {sizes} sizes",
        settings.seed
    );
    assert!(ops < 10 * LIFE_OPS || faults > 0 && sizes > 0, "nothing happened to the volume");
}

/// Lets threads write over each other until there were as many operations as asked for.
fn overlap(settings: &Settings) {
    let source: Arc<Source> = Source::new();
    let (mut ops, mut seed) = (0, settings.seed);
    let begun = Instant::now();
    while ops < settings.ops {
        let live = AssertUnwindSafe(|| overlap::live(settings, &source, seed, settings.ops - ops));
        ops += catch_unwind(live).unwrap_or_else(|panic| {
            eprintln!("seed {seed} fails; again: {}", settings.replay(seed, LIFE_OPS));
            resume_unwind(panic)
        });
        seed = seed.wrapping_add(1);
    }
    let rate = ops as f64 / begun.elapsed().as_secs_f64();
    println!("overlapping, {} threads: {ops} operations ({rate:.0}/s)", settings.threads.max(2));
}

#[test]
fn every_byte_is_what_was_written() {
    if let Some(settings) = Settings::from_environment() {
        if settings.target.takes_direct_io() {
            torture(&settings);
        }
        return;
    }
    torture(&Settings::small(1, Target::Memory));
    torture(&Settings::small(3, Target::Memory));
}

#[test]
fn threads_that_overlap_see_what_somebody_wrote() {
    match Settings::from_environment() {
        Some(settings) if settings.threads == 1 => {}
        Some(settings) => overlap(&settings),
        None => overlap(&Settings::small(3, Target::Memory)),
    }
}

#[test]
fn every_byte_of_a_file_is_what_was_written() {
    if Settings::from_environment().is_some() {
        return; // The target was named.
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let file = Target::File(directory.path().join("tortured"));
    if file.takes_direct_io() {
        torture(&Settings { ops: 2_000, ..Settings::small(1, file.clone()) });
        overlap(&Settings { ops: 2_000, ..Settings::small(2, file) });
    }
}
