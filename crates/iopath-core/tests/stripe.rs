//! A stripe compared with a simple model of its content, and the sizes of the requests to its members.
//! `src/block/stripe/map.rs` tests the positions of sectors.
//!
//! One seed is one short run of one stripe. `IOPATH_MODEL_OPS` sets the total number of operations (default 200,000),
//! `IOPATH_MODEL_SEED` a single seed to repeat.

#[path = "model/disk.rs"]
mod disk;
mod life;
mod requests;

use life::{Events, Life};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const OPS_PER_LIFE: u64 = 2_000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a number")))
}

#[test]
fn every_request_is_executed_once_on_the_right_members() {
    if let Some(seed) = number("IOPATH_MODEL_SEED") {
        Life::new(seed).live(OPS_PER_LIFE);
        return;
    }
    let ops = number("IOPATH_MODEL_OPS").unwrap_or(200_000);
    let mut met = Events::default();
    for seed in 0..ops.div_ceil(OPS_PER_LIFE) {
        let lived = catch_unwind(AssertUnwindSafe(|| Life::new(seed).live(OPS_PER_LIFE)));
        met += lived.unwrap_or_else(|panic| {
            eprintln!(
                "seed {seed} fails; again: IOPATH_MODEL_SEED={seed} cargo test -p iopath-core --test all stripe::"
            );
            resume_unwind(panic)
        });
    }
    eprintln!("{met:?}");
    let Events { done, failed, refused, merged, requeued, flushed } = met;
    let all = [done, failed, refused, merged, requeued, flushed];
    assert!(all.iter().all(|count| *count > ops / 2000), "an event was too rare: {met:?}");
}
