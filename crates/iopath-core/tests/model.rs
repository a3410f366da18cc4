//! Drives the queue with random bios, limits, elevators, completions, errors and requeues, and compares it with a
//! simple model of a disk. It does not measure speed.
//!
//! One seed is one short run of one queue. `IOPATH_MODEL_OPS` sets the total number of operations (default 200,000),
//! `IOPATH_MODEL_SEED` a single seed to run, `IOPATH_MODEL_ELEVATOR` a single elevator.

mod disk;
mod life;
mod log;

use iopath_core::QueueStats;
use iopath_core::elevator::ELEVATORS;
use life::Life;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const OPS_PER_LIFE: u64 = 2_000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a number")))
}

/// One run from a seed; prints the command to repeat it if it fails.
fn live(seed: u64, elevator: Option<&str>) -> QueueStats {
    catch_unwind(AssertUnwindSafe(|| Life::new(seed, elevator).live(OPS_PER_LIFE))).unwrap_or_else(|panic| {
        let pinned = elevator.map(|name| format!(" IOPATH_MODEL_ELEVATOR={name}")).unwrap_or_default();
        eprintln!("seed {seed} fails; again: IOPATH_MODEL_SEED={seed}{pinned} cargo test -p iopath-core --test all model::");
        resume_unwind(panic)
    })
}

#[test]
fn every_bio_is_executed_once_in_order_and_within_limits() {
    let elevator = std::env::var("IOPATH_MODEL_ELEVATOR").ok();
    if let Some(seed) = number("IOPATH_MODEL_SEED") {
        live(seed, elevator.as_deref());
        return;
    }
    let ops = number("IOPATH_MODEL_OPS").unwrap_or(200_000);
    let mut seen = [0; 7];
    for seed in 0..ops.div_ceil(OPS_PER_LIFE) {
        let stats = live(seed, elevator.as_deref());
        let events = [
            stats.dispatched,
            stats.split,
            stats.held,
            stats.requeued,
            stats.slot_waits,
            stats.back_merges(),
            stats.front_merges(),
        ];
        seen.iter_mut().zip(events).for_each(|(sum, count)| *sum += count);
    }
    eprintln!("dispatched, split, held, requeued, slot waits, back and front merges: {seen:?}");
    assert!(seen.iter().all(|count| *count > ops / 5000), "a case was too rare: {seen:?}");
}

#[test]
fn each_elevator_alone_keeps_the_same_guarantees() {
    for kind in ELEVATORS {
        for seed in 0..15 {
            live(seed, Some(kind.name));
        }
    }
}
