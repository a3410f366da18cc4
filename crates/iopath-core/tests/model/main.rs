//! Drives the queue with random bios, limits, elevators, completions, errors and requeues against a plain
//! model of a disk. Not about speed.
//!
//! One seed is one short life of one queue. `IOPATH_MODEL_OPS` sets how many operations in all (default
//! 200,000), `IOPATH_MODEL_SEED` the one seed to live again.

mod disk;
mod life;
mod log;

use life::Life;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const OPS_PER_LIFE: u64 = 2_000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a number")))
}

#[test]
fn every_bio_is_carried_out_once_in_order_and_within_limits() {
    if let Some(seed) = number("IOPATH_MODEL_SEED") {
        Life::new(seed).live(OPS_PER_LIFE);
        return;
    }
    let ops = number("IOPATH_MODEL_OPS").unwrap_or(200_000);
    let mut seen = [0; 7];
    for seed in 0..ops.div_ceil(OPS_PER_LIFE) {
        let lived = catch_unwind(AssertUnwindSafe(|| Life::new(seed).live(OPS_PER_LIFE)));
        let stats = lived.unwrap_or_else(|panic| {
            eprintln!(
                "seed {seed} fails; again: IOPATH_MODEL_SEED={seed} cargo test -p iopath-core --test model"
            );
            resume_unwind(panic)
        });
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
    assert!(seen.iter().all(|count| *count > ops / 2000), "the lives met too little: {seen:?}");
}
