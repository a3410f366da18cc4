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
const FAILED: &[(u64, &str)] = &[];
