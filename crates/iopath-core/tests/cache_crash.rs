//! The buffered path and power failures. Runs every workload of up to three operations, buffered and direct, with every
//! order of completion, a power failure after every step, and every loss of the device's write cache. Then runs long
//! random workloads. `cache_model` tests contents without a power failure.
//!
//! `IOPATH_MODEL_OPS` sets the number of random operations (default 200,000), `IOPATH_MODEL_SEED` a single seed to
//! repeat.

mod rig;

use iopath_core::Duration;
use iopath_core::cache::CacheConfig;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rig::{Do, Rig};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const OPS_PER_RUN: u64 = 1_000;

/// One operation of each kind, on pages 0 to 2.
const ALL: &[Do] = &[
    Do::Read(1),
    Do::Read(2),
    Do::Write(0),
    Do::WritePart(0),
    Do::Write(1),
    Do::Flush,
    Do::WriteBack(0),
    Do::Direct { page: 0, forced: false },
    Do::Direct { page: 0, forced: true },
    Do::Zero(0),
];

fn config(frames: u32) -> CacheConfig {
    // Dirty pages are written back as soon as time has passed, during the operations that follow.
    let expire = Duration::from_micros(1);
    CacheConfig { frames, io_pages_max: 2, reads_max: 2, writes_max: 2, expire, ..CacheConfig::default() }
}

/// Makes the choices of a script, then the first choice each time; records the number of choices.
struct Script {
    picks: Vec<usize>,
    widths: Vec<usize>,
}

impl Script {
    fn pick(&mut self, among: usize) -> usize {
        self.widths.push(among);
        self.picks.get(self.widths.len() - 1).copied().unwrap_or(0)
    }

    /// The next script in order, if there is one.
    fn next(mut self) -> Option<Self> {
        self.picks.resize(self.widths.len(), 0);
        while self.picks.last().is_some_and(|pick| pick + 1 == self.widths[self.picks.len() - 1]) {
            self.picks.pop();
        }
        *self.picks.last_mut()? += 1;
        self.widths.clear();
        Some(self)
    }
}

/// Runs every schedule of one workload. Returns their number, and the number of schedules in which a flush succeeded.
fn explore(workload: &[Do], frames: u32, failures: u32) -> (u64, u64) {
    let (mut schedules, mut promised) = (0, 0);
    let mut next = Some(Script { picks: Vec::new(), widths: Vec::new() });
    while let Some(mut script) = next {
        let mut rig = Rig::new(config(frames), 3);
        rig.failures = failures;
        rig.flush_loses = schedules % 2 == 1;
        let run = AssertUnwindSafe(|| {
            for what in workload {
                rig.execute(*what, &mut |among| script.pick(among));
                rig.pass_time(Duration::from_micros(10));
            }
        });
        catch_unwind(run).unwrap_or_else(|panic| {
            eprintln!("{workload:?} in {frames} frames, schedule {:?}", script.picks);
            resume_unwind(panic)
        });
        schedules += 1;
        promised += u64::from(rig.promises > 0);
        next = script.next();
    }
    (schedules, promised)
}

fn explore_all(frames: u32, failures: u32) -> (u64, u64) {
    let mut sum = (0, 0);
    for length in 1..=3 {
        for number in 0..ALL.len().pow(length) {
            let workload: Vec<Do> =
                (0..length).map(|place| ALL[number / ALL.len().pow(place) % ALL.len()]).collect();
            let (schedules, promised) = explore(&workload, frames, failures);
            sum = (sum.0 + schedules, sum.1 + promised);
        }
    }
    eprintln!("{frames} frames, {failures} failures: {} schedules, {} with a promise", sum.0, sum.1);
    sum
}

#[test]
fn flushed_bytes_survive_every_crash_of_every_short_workload() {
    for frames in [2, 3] {
        let (schedules, promised) = explore_all(frames, 0);
        assert!(schedules > 1_000 && promised > 100);
    }
}

#[test]
fn flushed_bytes_survive_with_one_failure() {
    for frames in [2, 3] {
        let (schedules, promised) = explore_all(frames, 1);
        assert!(schedules > 1_000 && promised > 100);
    }
}

fn random_do(rng: &mut ChaCha8Rng, pages: u64) -> Do {
    let page = rng.random_range(0..pages);
    let kinds = [
        Do::Read(page),
        Do::Write(page),
        Do::Write(page),
        Do::WritePart(page),
        Do::WritePart(page),
        Do::WriteBack(page),
        Do::Direct { page, forced: rng.random() },
        Do::Zero(page),
        Do::Flush,
    ];
    *kinds.choose(rng).expect("there are some")
}

fn run_random(seed: u64) -> u64 {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let pages = rng.random_range(2..24);
    let config = CacheConfig {
        frames: rng.random_range(2..16),
        io_pages_max: rng.random_range(1..8),
        reads_max: rng.random_range(1..4),
        writes_max: rng.random_range(1..6),
        background_percent: rng.random_range(5..60),
        limit_percent: 70,
        expire: Duration::from_micros(rng.random_range(10..10_000)),
        ..CacheConfig::default()
    };
    let mut rig = Rig::new(config, pages as usize);
    rig.flush_loses = rng.random();
    let fails = rng.random_range(0..3) == 0;
    for _ in 0..OPS_PER_RUN {
        rig.failures = u32::from(fails && rng.random_range(0..20) == 0);
        rig.pass_time(Duration::from_micros(rng.random_range(0..100)));
        let what = random_do(&mut rng, pages);
        rig.execute(what, &mut |among| rng.random_range(0..among));
    }
    rig.promises
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a number")))
}

#[test]
fn flushed_bytes_survive_every_crash_of_random_workloads() {
    if let Some(seed) = number("IOPATH_MODEL_SEED") {
        run_random(seed);
        return;
    }
    let ops = number("IOPATH_MODEL_OPS").unwrap_or(200_000);
    let mut promises = 0;
    for seed in 0..ops.div_ceil(OPS_PER_RUN) {
        promises += catch_unwind(|| run_random(seed)).unwrap_or_else(|panic| {
            eprintln!("seed {seed} fails; again: IOPATH_MODEL_SEED={seed} cargo test -p iopath-core --test all cache_crash::flushed_bytes");
            resume_unwind(panic)
        });
    }
    assert!(promises > ops / 50, "too few flushes succeeded");
}
