//! Runs that end at their steady state, and flushes between transfers, in virtual time: exact times from models whose
//! rates are known. The detector itself is tested on series of rates, beside its code.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use iopath_bench::paths::find_path;
use iopath_bench::progress::Silent;
use iopath_bench::steady::SteadyState;
use iopath_bench::{Depth, End, Jobs, Repetitions, Workload};
use iopath_report::Rw;
use iopath_report::result::RunResult;

/// A disk with 10,000 transfers a second for 10 s, and 1,000 a second from then on.
const BURST: &str = "kind = \"cloud\"\ncapacity_gib = 1\nlatency_min_us = 1000\nlatency_p50_us = 1000\n\
    latency_p99_us = 1000\nlatency_max_us = 1000\nsustained_iops = 1e3\nburst_iops = 1e4\ncredits = 90000\n\
    io_unit_kib = 1024\nsustained_mib_per_s = 1e5\nburst_mib_per_s = 1e5\ncredits_mib = 0\ndepth_max = 64\n";

fn burst() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("disk.toml");
    fs::write(&file, BURST).unwrap();
    let target = format!("model:{}", file.display()).into();
    (directory, target)
}

fn on(target: impl Into<PathBuf>, steady: SteadyState) -> Workload {
    Workload {
        path: find_path("iopath-direct").unwrap(),
        target: Some(target.into()),
        rw: Rw::RandRead,
        steady_state: Some(steady),
        depth: Depth::constant(32),
        end: End::Time(Duration::from_secs(100)),
        repetitions: Repetitions::constant(2),
        ..Workload::default()
    }
}

fn run(workload: &Workload) -> RunResult {
    iopath_bench::report(workload, &mut Silent).unwrap().runs.remove(0)
}

/// The default limits in a window of 4 s with a sample every 400 ms, after `ramp` seconds.
fn after(ramp: u64) -> SteadyState {
    SteadyState {
        ramp: Duration::from_secs(ramp),
        ..SteadyState::default().in_window(Duration::from_secs(4))
    }
}

#[test]
fn a_constant_rate_ends_the_run_after_one_window() {
    let (_directory, target) = burst();
    for (rw, jobs) in [(Rw::RandRead, 1), (Rw::RandWrite, 3), (Rw::RandRw, 2)] {
        let jobs = Jobs::constant(jobs);
        let result = run(&Workload { rw, jobs, ..on(target.clone(), after(0)) });
        let steady = result.steady_state.unwrap();
        assert!(steady.reached && result.warnings.is_empty(), "{rw}: {:?}", result.warnings);
        for (repeat, steady) in result.repeats.iter().zip(&steady.repeats) {
            assert_eq!(steady.reached_seconds, Some(4.0), "{rw}");
            // The transfers in flight complete.
            assert!((4.0..4.02).contains(&repeat.seconds), "{rw}: {}", repeat.seconds);
            let means: f64 =
                [&steady.read, &steady.write].into_iter().flatten().map(|window| window.mean).sum();
            assert!((9_900.0..10_100.0).contains(&means), "{rw}: {means}");
            assert_eq!((steady.read.is_some(), steady.write.is_some()), (rw.reads(), rw.writes()));
        }
    }
}

#[test]
fn a_rate_that_falls_is_steady_one_window_after_the_fall() {
    let (_directory, target) = burst();
    let result = run(&on(target, after(8)));
    let steady = result.steady_state.unwrap();
    // The first window would end at 12 s, and the fall at 10 s is in it.
    for repeat in &steady.repeats {
        let reached = repeat.reached_seconds.unwrap();
        assert!((13.9..14.5).contains(&reached), "{reached}");
        let mean = repeat.read.as_ref().unwrap().mean;
        assert!((980.0..1020.0).contains(&mean), "{mean}");
    }
}

#[test]
fn a_run_that_is_never_steady_ends_at_its_time_limit_with_a_warning() {
    let (_directory, target) = burst();
    // Each window has the fall.
    let steady = SteadyState::default().in_window(Duration::from_secs(15));
    let end = End::Time(Duration::from_secs(16));
    let result = run(&Workload { end, repetitions: Repetitions::constant(1), ..on(target, steady) });
    let steady = result.steady_state.unwrap();
    assert!(!steady.reached && steady.repeats[0].reached_seconds.is_none());
    assert!((16.0..16.1).contains(&result.seconds), "{}", result.seconds);
    let warning = result.warnings.iter().find(|text| text.contains("steady state")).expect("a warning");
    assert!(
        warning.starts_with(
            "the steady state was not reached in 1 of 1 repetitions (in the last window, reads: "
        ),
        "{warning}"
    );
}

#[test]
fn the_write_cache_of_a_disk_is_not_its_steady_state() {
    let of = |criterion: &str, target: &str| {
        let steady: SteadyState = criterion.parse().unwrap();
        run(&Workload {
            rw: Rw::RandWrite,
            depth: Depth::constant(1),
            repetitions: Repetitions::constant(1),
            ..on(target, steady.in_window(Duration::from_secs(10)))
        })
    };
    // The cache has room for 4096 random blocks, and fills in the first second.
    let cached = of("iops:25%:25%", "model:hdd-20tb?write_cache_runs=4096");
    let steady = cached.steady_state.unwrap();
    let reached = steady.repeats[0].reached_seconds.expect("the medium is steady");
    assert!((11.0..60.0).contains(&reached), "{reached}");
    let mean = steady.repeats[0].write.as_ref().unwrap().mean;
    let more = cached.ios as f64 - mean * reached;
    assert!(mean < 1000.0 && more > 3000.0, "the cache took {more} writes, the medium {mean} a second");
}

#[test]
fn jobs_on_a_model_flush_after_each_number_of_writes() {
    for (path, depth) in [("iopath-direct", 4), ("iopath-direct", 1), ("iopath-buffered", 1)] {
        for jobs in [1, 2] {
            let workload = |flush_every| Workload {
                path: find_path(path).unwrap(),
                target: Some("model:hdd-20tb".into()),
                rw: Rw::RandWrite,
                depth: Depth::constant(depth),
                jobs: Jobs::constant(jobs),
                end: End::Bytes(u64::from(jobs) * 100 * 4096),
                size_bytes: Some(1 << 30),
                flush_every,
                repetitions: Repetitions::constant(1),
                ..Workload::default()
            };
            let (with, without) = (run(&workload(std::num::NonZeroU64::new(10))), run(&workload(None)));
            let named = format!("{path} {depth} {jobs}");
            let flushes = with.flushes.unwrap_or_else(|| panic!("{named} has flushes"));
            assert_eq!((flushes.every, flushes.count), (10, u64::from(jobs) * 10), "{named}");
            // Ten random blocks take some seeks and rotations.
            assert!(flushes.latency_ns.min > 1_000_000, "{named}: {:?}", flushes.latency_ns);
            assert!(with.seconds > without.seconds * 1.2, "{named}: {} {}", with.seconds, without.seconds);
            assert_eq!((with.ios, with.bytes), (without.ios, without.bytes), "{named}");
            assert!(without.flushes.is_none(), "{named}");
        }
    }
}
