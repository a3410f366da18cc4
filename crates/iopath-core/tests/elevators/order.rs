//! Random requests, merges and dispatches: each elevator is compared with its oracle, and dispatches each request once.

use super::oracle::Oracle;
use super::{every_elevator, spec};
use iopath_core::elevator::{ElevatorKind, ElevatorSpec, Harness, Outline};
use iopath_core::{Duration, Extent, Instant, NoMerge, Op, Priority, Sector, Stream};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const REQUESTS_MAX: usize = 48;
const BLOCKS: u64 = 256;
/// Enough requests that elevators prefetch.
const DEEP: usize = 4500;

/// Random I/O. No block is queued twice at one time.
struct Traffic {
    rng: ChaCha8Rng,
    queued: Vec<bool>,
    now: Instant,
}

impl Traffic {
    fn new(seed: u64, blocks: u64) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            queued: vec![false; blocks as usize],
            now: Instant::ZERO,
        }
    }

    fn arrival(&mut self) -> Option<Outline> {
        let block = self.rng.random_range(0..self.queued.len() as u64);
        if std::mem::replace(&mut self.queued[block as usize], true) {
            return None;
        }
        let op = if self.rng.random_bool(0.6) { Op::Read } else { Op::Write };
        let priority = Priority::ALL[[0, 1, 1, 1, 1, 2][self.rng.random_range(0..6)]];
        let extent = Extent::new(Sector(block * 8), 8).unwrap();
        Some(Outline { op, extent, stream: Stream(self.rng.random_range(0..5)), priority, segments: 1 })
    }

    fn dispatched(&mut self, io: &Outline) {
        for block in io.extent.start().0 / 8..io.extent.end().0 / 8 {
            assert!(
                std::mem::replace(&mut self.queued[block as usize], false),
                "block {block} was dispatched twice"
            );
        }
    }
}

fn follow(spec: &ElevatorSpec, seed: u64, ops: u32) {
    follow_with(spec, Traffic::new(seed, BLOCKS), seed, ops, REQUESTS_MAX);
}

fn follow_with(spec: &ElevatorSpec, mut traffic: Traffic, seed: u64, ops: u32, requests_max: usize) {
    let mut harness = Harness::new(spec, requests_max);
    let mut oracle = Oracle::new(spec.name(), harness.elevator().settings().values());
    let compare = |harness: &mut Harness, oracle: &mut Oracle, traffic: &mut Traffic| {
        let out = harness.dispatch(traffic.now);
        let expected = oracle.dispatch(traffic.now);
        assert_eq!(out.map(|(tag, _)| tag), expected, "{spec}, seed {seed}, of {:?}", oracle.items);
        if let Some((_, io)) = out {
            traffic.dispatched(&io);
        }
        out.is_some()
    };
    for _ in 0..ops {
        traffic.now = traffic.now + Duration::from_micros(traffic.rng.random_range(0..3000));
        let is_full = oracle.items.len() == requests_max;
        // A deep queue fills up first. Then there is one dispatch for each arrival.
        if is_full || (requests_max < DEEP && traffic.rng.random_bool(0.45)) {
            compare(&mut harness, &mut oracle, &mut traffic);
        } else if let Some(io) = traffic.arrival() {
            harness.prefetch(&[io]);
            match harness.merge(&io, traffic.now) {
                Ok(tag) => oracle.merged(tag, harness.request(tag)),
                Err(_) => oracle.insert(harness.insert(&io, traffic.now), io, traffic.now),
            }
        }
    }
    while compare(&mut harness, &mut oracle, &mut traffic) {}
    assert!(
        traffic.queued.iter().all(|queued| !queued),
        "{spec}, seed {seed}: a request was never dispatched"
    );
    assert!(harness.elevator().is_empty());
}

/// The elevator with tunables that are small enough to take effect in a short run.
fn random_settings(spec: ElevatorSpec, seed: u64) -> ElevatorSpec {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let kind = ElevatorKind::named(spec.name()).expect("it is in the table");
    kind.tunables().iter().fold(spec, |spec, tunable| {
        let most = match tunable.unit {
            "bytes" => 64 << 10,
            "ms" => 40,
            _ => 24,
        };
        spec.with(tunable.name, rng.random_range(*tunable.range.start()..=most)).expect("within its range")
    })
}

#[test]
fn every_elevator_follows_its_definition() {
    for plain in every_elevator() {
        for seed in 0..60 {
            follow(&plain, seed, 1000);
            follow(&random_settings(plain.clone(), seed), seed, 1000);
        }
    }
}

#[test]
fn prefetching_changes_no_order() {
    for plain in every_elevator() {
        for spec in [random_settings(plain.clone(), 1), plain] {
            // Many more blocks than requests, so that few merge.
            follow_with(&spec, Traffic::new(1, 1 << 18), 1, DEEP as u32 + 2000, DEEP);
        }
    }
}

#[test]
fn every_elevator_disagrees_with_the_oracles_of_the_others() {
    for this in every_elevator() {
        for other in every_elevator().filter(|other| other.name() != this.name()) {
            let disagree = (0..20).any(|seed| {
                let settings = |spec: &ElevatorSpec| random_settings(spec.clone(), seed);
                disagrees(&settings(&this), &settings(&other), seed)
            });
            assert!(disagree, "{this} and {other} have the same order in this traffic");
        }
    }
}

/// Whether an elevator and the oracle of another differ in some dispatch.
fn disagrees(this: &ElevatorSpec, other: &ElevatorSpec, seed: u64) -> bool {
    let mut harness = Harness::new(this, REQUESTS_MAX);
    let mut oracle = Oracle::new(other.name(), other.build(1).settings().values());
    let mut traffic = Traffic::new(seed, BLOCKS);
    for _ in 0..200 {
        if oracle.items.len() == REQUESTS_MAX {
            let (out, io) = harness.dispatch(traffic.now).expect("the queue is full");
            traffic.dispatched(&io);
            if oracle.dispatch(traffic.now) != Some(out) {
                return true;
            }
        } else if let Some(io) = traffic.arrival() {
            oracle.insert(harness.insert(&io, traffic.now), io, traffic.now);
        }
    }
    false
}

#[test]
fn tens_of_thousands_of_requests_are_dispatched_once_each() {
    const QUEUED: usize = 20_000;
    for spec in every_elevator() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let mut harness = Harness::new(&spec, QUEUED);
        let mut positions: Vec<u64> = (0..2 * QUEUED as u64).collect();
        positions.shuffle(&mut rng);
        let mut was_dispatched = vec![false; positions.len()];
        for plug in positions.chunks(32) {
            let plug: Vec<_> = plug.iter().map(|position| super::read(position * 16)).collect();
            harness.prefetch(&plug);
            for io in &plug {
                if harness.elevator().len() == QUEUED {
                    let (_, out) = harness.dispatch(Instant::ZERO).expect("the queue is full");
                    assert!(!std::mem::replace(
                        &mut was_dispatched[out.extent.start().0 as usize / 16],
                        true
                    ));
                }
                assert_eq!(harness.merge(io, Instant::ZERO), Err(NoMerge::NotAdjacent));
                harness.insert(io, Instant::ZERO);
            }
        }
        while let Some((_, out)) = harness.dispatch(Instant::ZERO) {
            assert!(!std::mem::replace(&mut was_dispatched[out.extent.start().0 as usize / 16], true));
        }
        assert!(was_dispatched.iter().all(|out| *out), "{spec}: some were never dispatched");
    }
}

#[test]
fn a_refused_merge_has_a_reason() {
    let mut harness = Harness::new(&spec("deadline"), 4);
    let io = super::read(0);
    harness.insert(&io, Instant::ZERO);
    assert_eq!(harness.merge(&super::read(16), Instant::ZERO), Err(NoMerge::NotAdjacent));
    assert!(harness.merge(&super::read(8), Instant::ZERO).is_ok());
}
