//! Seeds of the simulator of both ends that have found a defect, and the determinism of a run. New seeds:
//! `cargo xtask sim --nbd`.

use iopath_nbd::sim;

#[test]
fn a_seed_fixes_every_event() {
    for seed in 0..20 {
        assert_eq!(sim::run_seed(seed), sim::run_seed(seed), "seed {seed}");
    }
}

#[test]
fn seeds_that_found_a_defect_find_it_no_more() {
    for (seed, defect) in FAILED {
        if let Err(failure) = sim::run_seed(*seed) {
            panic!(
                "seed {seed}: {failure}\nthe defect was: {defect}\nagain: cargo xtask sim --nbd --seed {seed}"
            );
        }
    }
}

/// A seed that failed, and the defect.
const FAILED: &[(u64, &str)] = &[
    (2562, "after a flush that the server failed, the client treated the writes before it as flushed"),
    (1001, "a request that later ones overtook was never lost"),
    (1009, "I/O waited for room that the I/O of a client that had left took, and did not go on"),
    (2044, "a write waited for a buffer while transfers of other clients took each free one"),
    (1002, "the end of a client with I/O in flight was reported to the server again and again"),
];
