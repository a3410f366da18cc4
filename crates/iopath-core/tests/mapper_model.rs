//! Drives every mapper and its plans against a simple model of the possible values of each byte of a file: concurrent
//! reads, writes, punches, growth and truncation, with errors. No stale byte may ever be visible. `tests/mapper` checks
//! the number of bios.
//!
//! `IOPATH_MODEL_OPS` sets the total number of random steps (default 150,000), `IOPATH_MODEL_SEED` a single seed to
//! repeat.

mod disk;
mod task;
mod world;

use iopath_core::mapper::MAPPERS;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::panic::{catch_unwind, resume_unwind};
use world::{Events, World};

const STEPS_PER_LIFE: u64 = 1_500;

fn run(seed: u64) -> Events {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let kind = &MAPPERS[rng.random_range(0..MAPPERS.len())];
    let mut world = World::new(kind, &mut rng);
    for _ in 0..STEPS_PER_LIFE {
        world.step(&mut rng);
    }
    world.end(&mut rng)
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a number")))
}

#[test]
fn no_stale_byte_is_ever_visible() {
    if let Some(seed) = number("IOPATH_MODEL_SEED") {
        run(seed);
        return;
    }
    let steps = number("IOPATH_MODEL_OPS").unwrap_or(150_000);
    let mut all = Events::default();
    for seed in 0..steps.div_ceil(STEPS_PER_LIFE) {
        let lived = catch_unwind(|| run(seed)).unwrap_or_else(|panic| {
            eprintln!(
                "seed {seed} fails; again: IOPATH_MODEL_SEED={seed} cargo test -p iopath-core --test all mapper_model::"
            );
            resume_unwind(panic)
        });
        all.add(&lived);
    }
    eprintln!("{all:?}");
    let least = steps / 1000;
    assert!(
        all.reads > least && all.writes > least && all.failed_writes > least / 10,
        "an event was too rare"
    );
    assert!(all.punches > least / 4 && all.growths > least / 4 && all.truncations > least / 10);
    assert!(all.metadata_reads > least / 4 && all.kept_back > least / 10 && all.out_of_space > 0);
}
