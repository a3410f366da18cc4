//! Random requests, merges and dispatches: each elevator against its oracle, and each request out once.

use crate::oracle::Oracle;
use crate::{every_elevator, spec};
use iopath_core::elevator::{ElevatorKind, ElevatorSpec, Harness, Outline};
use iopath_core::{Duration, Extent, Instant, NoMerge, Op, Priority, Sector, Stream};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const REQUESTS_MAX: usize = 48;
const BLOCKS: u64 = 256;
/// So many that elevators look ahead for memory.
const DEEP: usize = 4500;

/// Random I/O over blocks of which none is queued twice.
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

    fn out(&mut self, io: &Outline) {
        for block in io.extent.start().0 / 8..io.extent.end().0 / 8 {
            assert!(
                std::mem::replace(&mut self.queued[block as usize], false),
                "block {block} came out twice"
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
            traffic.out(&io);
        }
        out.is_some()
    };
    for _ in 0..ops {
        traffic.now = traffic.now + Duration::from_micros(traffic.rng.random_range(0..3000));
        let is_full = oracle.items.len() == requests_max;
        // A deep queue fills up first: then one goes for each that comes.
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
    assert!(traffic.queued.iter().all(|queued| !queued), "{spec}, seed {seed}: a request never came out");
    assert!(harness.elevator().is_empty());
}

/// The elevator with tunables small enough to matter in so short a life.
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
fn every_elevator_orders_as_its_definition_says() {
    for plain in every_elevator() {
        for seed in 0..60 {
            follow(&plain, seed, 1000);
            follow(&random_settings(plain.clone(), seed), seed, 1000);
        }
    }
}

#[test]
fn looking_ahead_for_memory_changes_no_order() {
    for plain in every_elevator() {
        for spec in [random_settings(plain.clone(), 1), plain] {
            // Far more blocks than requests, or most would merge.
            follow_with(&spec, Traffic::new(1, 1 << 18), 1, DEEP as u32 + 2000, DEEP);
        }
    }
}

#[test]
fn an_oracle_of_another_order_is_told_apart() {
    for this in every_elevator() {
        for other in every_elevator().filter(|other| other.name() != this.name()) {
            let disagree = (0..20).any(|seed| {
                let settings = |spec: &ElevatorSpec| random_settings(spec.clone(), seed);
                disagrees(&settings(&this), &settings(&other), seed)
            });
            assert!(disagree, "the order of {this} is that of {other}: the traffic tells nothing");
        }
    }
}

/// Whether an elevator and the oracle of another differ on some request.
fn disagrees(this: &ElevatorSpec, other: &ElevatorSpec, seed: u64) -> bool {
    let mut harness = Harness::new(this, REQUESTS_MAX);
    let mut oracle = Oracle::new(other.name(), other.build(1).settings().values());
    let mut traffic = Traffic::new(seed, BLOCKS);
    for _ in 0..200 {
        if oracle.items.len() == REQUESTS_MAX {
            let (out, io) = harness.dispatch(traffic.now).expect("the queue is full");
            traffic.out(&io);
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
fn tens_of_thousands_of_requests_come_out_once_each() {
    const QUEUED: usize = 20_000;
    for spec in every_elevator() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let mut harness = Harness::new(&spec, QUEUED);
        let mut places: Vec<u64> = (0..2 * QUEUED as u64).collect();
        places.shuffle(&mut rng);
        let mut came_out = vec![false; places.len()];
        for plug in places.chunks(32) {
            let plug: Vec<_> = plug.iter().map(|place| crate::read(place * 16)).collect();
            harness.prefetch(&plug);
            for io in &plug {
                if harness.elevator().len() == QUEUED {
                    let (_, out) = harness.dispatch(Instant::ZERO).expect("the queue is full");
                    assert!(!std::mem::replace(&mut came_out[out.extent.start().0 as usize / 16], true));
                }
                assert_eq!(harness.merge(io, Instant::ZERO), Err(NoMerge::NotAdjacent));
                harness.insert(io, Instant::ZERO);
            }
        }
        while let Some((_, out)) = harness.dispatch(Instant::ZERO) {
            assert!(!std::mem::replace(&mut came_out[out.extent.start().0 as usize / 16], true));
        }
        assert!(came_out.iter().all(|out| *out), "{spec}: some never came out");
    }
}

#[test]
fn what_is_refused_a_merge_is_told_why() {
    let mut harness = Harness::new(&spec("deadline"), 4);
    let io = crate::read(0);
    harness.insert(&io, Instant::ZERO);
    assert_eq!(harness.merge(&crate::read(16), Instant::ZERO), Err(NoMerge::NotAdjacent));
    assert!(harness.merge(&crate::read(8), Instant::ZERO).is_ok());
}
