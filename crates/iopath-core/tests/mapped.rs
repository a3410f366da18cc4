//! A mapped file on a modelled stripe of faulty disks, in virtual time: queue, mapping, queue, stripe, queues, faults
//! and disks, without a system call. `iopath-os/tests/devices` tests real devices.
//!
//! `IOPATH_MODEL_SEED` repeats a single seed.

mod blocked;
mod disk;
mod host;
mod lengths;
mod life;

use iopath_core::mapper::{Boundary, MAPPERS};
use life::{Events, Life};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const OPS: u64 = 400;

fn mappers() -> impl Iterator<Item = &'static str> {
    // An identity file shows the earlier bytes of the disk; other tests cover it.
    MAPPERS.iter().map(|kind| kind.name).filter(|name| *name != "identity")
}

#[test]
fn two_engines_on_faulty_stripes_never_show_a_wrong_byte() {
    let one = std::env::var("IOPATH_MODEL_SEED").ok().map(|seed| seed.parse().expect("a seed is a number"));
    let seeds = one.map_or(0..24, |seed: u64| seed..seed + 1);
    let mut met = Events::default();
    for seed in seeds.clone() {
        for mapper in mappers() {
            let boundary = Boundary::ALL[seed as usize % 3];
            let life = catch_unwind(AssertUnwindSafe(|| Life::new(seed, mapper, boundary).run(OPS).1));
            met += life.unwrap_or_else(|panic| {
                eprintln!("again: IOPATH_MODEL_SEED={seed} cargo test -p iopath-core --test all mapped::");
                resume_unwind(panic)
            });
        }
    }
    eprintln!("{met:?}");
    let Events { done, failed, faults, blocked, bytes_checked } = met;
    let least = [(done, 300), (failed, 5), (faults, 50), (blocked, 5), (bytes_checked, 500_000)];
    let lives = 2 * (seeds.end - seeds.start);
    assert!(least.iter().all(|(count, least)| *count >= least * lives), "an event was too rare: {met:?}");
}

#[test]
fn a_seed_decides_every_completion_and_its_time() {
    for mapper in mappers() {
        let [first, second, other] = [1, 1, 2].map(|seed| Life::new(seed, mapper, Boundary::Once).run(OPS));
        assert_eq!(first, second, "{mapper}");
        assert_ne!(first.0, other.0, "{mapper}");
    }
}
