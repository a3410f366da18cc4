//! Workloads on a modelled target: exact counts, laws that hold on every run, and the same bytes from the same seed.

use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use iopath_bench::paths::{PATHS, find_path};
use iopath_bench::progress::Silent;
use iopath_bench::{
    BlockSize, CacheSettings, Depth, End, Jobs, LogSettings, ModelHost, Rate, ReadShare, Readahead,
    Repetitions, Workload,
};
use iopath_log::{Block, Filter, LogReader};
use iopath_report::Rw;
use iopath_report::format::{Document, View};
use iopath_report::result::{Clock, Report, RunResult};

const MIB: u64 = 1 << 20;

/// A disk whose figures follow from its parameters: a millisecond for each request, no more requests at once than asked
/// for, and no limit of rate that matters.
const STEADY: &str = "kind = \"cloud\"\ncapacity_gib = 1\nlatency_min_us = 1000\nlatency_p50_us = 1000\n\
    latency_p99_us = 1000\nlatency_max_us = 1000\nsustained_iops = 1e6\nburst_iops = 1e6\ncredits = 0\n\
    io_unit_kib = 1024\nsustained_mib_per_s = 1e5\nburst_mib_per_s = 1e5\ncredits_mib = 0\ndepth_max = 64\n";

/// A model file in a directory of its own.
struct Model {
    directory: tempfile::TempDir,
}

impl Model {
    fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("disk.toml"), text).unwrap();
        Self { directory }
    }

    fn target(&self) -> PathBuf {
        Path::new(&format!("model:{}", self.directory.path().join("disk.toml").display())).to_owned()
    }
}

fn on(target: impl Into<PathBuf>, path: &str) -> Workload {
    Workload {
        path: find_path(path).unwrap(),
        target: Some(target.into()),
        repetitions: Repetitions::constant(2),
        ..Workload::default()
    }
}

fn report(workload: &Workload) -> Report {
    iopath_bench::report(workload, &mut Silent).unwrap()
}

fn run(workload: &Workload) -> RunResult {
    report(workload).runs.remove(0)
}

#[test]
fn nothing_in_a_report_is_of_this_machine() {
    let report = report(&Workload { size_bytes: Some(MIB), ..on("model:cloud", "iopath-direct") });
    let run = &report.runs[0];
    assert_eq!((report.clock, run.clock, &report.host), (Clock::Virtual, Clock::Virtual, &None));
    assert_eq!((run.cpu, run.served_by), (None, None));
    assert_eq!(run.warnings, Vec::<String>::new());
    let target = report.target.as_ref().unwrap();
    assert_eq!((target.path.as_str(), target.kind.as_str()), ("model:cloud", "model"));
    for repeat in &run.repeats {
        assert_eq!((repeat.cpu, repeat.cached_before_bytes, repeat.storage_read_bytes), (None, None, None));
    }
    assert_eq!(serde_json::from_str::<Report>(&report.to_json()).unwrap(), report);
}

#[test]
fn every_path_moves_every_byte_in_every_pattern_and_depth() {
    let paths = PATHS.iter().filter(|row| row.capabilities.runs_on_models());
    // A model has no trims.
    let patterns = || Rw::ALL.into_iter().filter(|rw| !rw.trims());
    for (row, rw) in paths.flat_map(|row| patterns().map(move |rw| (row, rw))) {
        for (elevator, jobs) in [("none", 1), ("none", 3), ("deadline", 3)] {
            let workload = Workload {
                rw,
                size_bytes: Some(6 * MIB),
                block_size: BlockSize::constant(16 << 10),
                depth: Depth::constant(7),
                jobs: Jobs::constant(jobs),
                elevator: Some(elevator.parse().unwrap()),
                ..on("model:cloud", row.name)
            };
            let result = run(&workload);
            let named = format!("{} {rw} {elevator} {jobs}", row.name);
            // A rewrite transfers each block twice.
            let bytes = if rw == Rw::Rewrite { 24 * MIB } else { 12 * MIB };
            assert_eq!((result.bytes, result.ios), (bytes, bytes / (16 << 10)), "{named}");
            assert!(result.seconds > 0.0 && result.latency_ns.min <= result.latency_ns.p50, "{named}");
            let device = result.device.unwrap();
            if row.capabilities.direct {
                assert_eq!(device.read_bytes + device.written_bytes, bytes, "{named}");
            }
            if !rw.reads() && row.capabilities.cache {
                assert!(device.written_bytes > 0, "the final flush writes back: {named}");
            }
        }
    }
}

#[test]
fn the_time_of_a_run_follows_from_the_model() {
    let disk = Model::new(STEADY);
    for (depth, jobs, in_flight) in [(1, 1, 1), (8, 1, 8), (4, 4, 16), (64, 2, 64)] {
        let workload = Workload {
            rw: Rw::RandRead,
            depth: Depth::constant(depth),
            jobs: Jobs::constant(jobs),
            size_bytes: Some(4096 * 1024),
            ..on(disk.target(), "iopath-direct")
        };
        let result = run(&workload);
        let rounds = 1024.0 / f64::from(in_flight);
        let seconds = result.repeats[0].seconds;
        assert!((rounds * 1e-3..rounds * 1.2e-3).contains(&seconds), "{depth}x{jobs}: {seconds}");
    }
}

#[test]
fn littles_law_holds() {
    for (elevator, jobs) in [("none", 1), ("none", 4), ("deadline", 4), ("fair", 2)] {
        let workload = Workload {
            rw: Rw::RandRw,
            depth: Depth::constant(16),
            jobs: Jobs::constant(jobs),
            elevator: Some(elevator.parse().unwrap()),
            end: End::Time(Duration::from_secs(5)),
            ..on("model:cloud", "iopath-direct")
        };
        let result = run(&workload);
        let in_flight = result.iops.mean * result.latency_ns.mean / 1e9;
        let wanted = f64::from(16 * jobs);
        assert!((in_flight / wanted - 1.0).abs() < 0.01, "{elevator} {jobs}: {in_flight} of {wanted}");
    }
}

#[test]
fn readahead_makes_few_large_requests_of_many_small_reads() {
    let disk = Model::new(STEADY);
    let buffered = |readahead| {
        let cache = CacheSettings { readahead: Some(readahead), ..CacheSettings::default() };
        run(&Workload { cache, size_bytes: Some(64 * MIB), ..on(disk.target(), "iopath-buffered") })
    };
    let (ahead, off) = (buffered(Readahead::Auto), buffered(Readahead::Off));
    let direct = run(&Workload { size_bytes: Some(64 * MIB), ..on(disk.target(), "iopath-direct") });
    for run in [&ahead, &off, &direct] {
        assert_eq!(run.bytes, 128 * MIB);
    }
    let ratio = ahead.bytes_per_second.mean / direct.bytes_per_second.mean;
    assert!(ratio > 20.0, "readahead hides the latency: {ratio}");
    assert!(off.bytes_per_second.mean < 1.1 * direct.bytes_per_second.mean, "{off:?}");
    let size = ahead.device.and_then(|device| device.mean_io_bytes()).unwrap();
    assert!(size > 100_000.0, "{size}");
    let used = ahead.cache.as_ref().unwrap().used;
    assert!(used.readahead > 30_000 && used.hits + used.joins > 30_000, "{used:?}");
}

#[test]
fn a_warm_run_has_hits_only_and_ends() {
    let workload = Workload { warm: true, size_bytes: Some(MIB), ..on("model:cloud", "iopath-buffered") };
    let result = run(&workload);
    let used = result.cache.as_ref().unwrap().used;
    assert_eq!((used.hits, used.misses, used.pages_read), (2 * 256, 0, 0));
    assert_eq!(result.device.unwrap().reads, 0);
    assert!(result.bytes_per_second.mean.is_finite(), "the clock has a resolution: {result:?}");
}

#[test]
fn writers_are_slowed_to_the_speed_of_the_device() {
    let slow = STEADY
        .replace("sustained_mib_per_s = 1e5", "sustained_mib_per_s = 10")
        .replace("burst_mib_per_s = 1e5", "burst_mib_per_s = 10");
    let disk = Model::new(&slow);
    let cache = CacheSettings { cache_bytes: Some(16 * MIB), ..CacheSettings::default() };
    let workload = Workload {
        rw: Rw::Write,
        cache,
        jobs: Jobs::constant(2),
        size_bytes: Some(200 * MIB),
        ..on(disk.target(), "iopath-buffered")
    };
    let result = run(&workload);
    assert!((18.0..22.0).contains(&result.repeats[0].seconds), "{}", result.repeats[0].seconds);
    assert_eq!(result.device.unwrap().written_bytes, 400 * MIB);
}

/// The bytes of the log of a run with everything in it.
fn log_of(path: &str, elevator: &str, seed: u64) -> Vec<u8> {
    log_on("model:cloud".into(), path, elevator, seed)
}

fn log_on(target: PathBuf, path: &str, elevator: &str, seed: u64) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("log");
    let workload = Workload {
        rw: Rw::RandRw,
        seed,
        depth: Depth::constant(8),
        jobs: Jobs::constant(3),
        read_share: ReadShare::constant(70),
        elevator: Some(elevator.parse().unwrap()),
        end: End::Time(Duration::from_secs(2)),
        log: Some(LogSettings { file: file.clone(), limit_bytes: None, accesses: false }),
        ..on(target, path)
    };
    run(&workload);
    fs::read(file).unwrap()
}

#[test]
fn the_same_seed_writes_the_same_log_and_another_seed_another() {
    for (path, elevator) in
        [("iopath-direct", "none"), ("iopath-direct", "ascend"), ("iopath-buffered", "none")]
    {
        assert_eq!(log_of(path, elevator, 1), log_of(path, elevator, 1), "{path} {elevator}");
        assert_ne!(log_of(path, elevator, 1), log_of(path, elevator, 2), "{path} {elevator}");
    }
}

/// A hash of every step of a log with its queue, time and repeat (FNV-1a), independent of the compression.
fn hash(log: &[u8]) -> u64 {
    let (mut reader, mut block) = (LogReader::new(log).unwrap(), Block::default());
    let mut hash: u64 = 0xCBF2_9CE4_8422_2325;
    while reader.read_block(&mut block).unwrap() {
        for entry in block.entries() {
            let [first, second, third] = entry.record.to_words();
            let about = u64::from(entry.queue) << 32 | u64::from(entry.repeat);
            for word in [about, entry.time.as_nanos(), first, second, third] {
                hash = word
                    .to_le_bytes()
                    .iter()
                    .fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3));
            }
        }
    }
    hash
}

/// The same in each build profile and on each machine. A change of a model, a plan, an elevator or the record format
/// changes these numbers: then copy the new ones from the message.
#[test]
fn every_build_on_every_machine_writes_the_same_log() {
    let varied = STEADY
        .replace("latency_p99_us = 1000", "latency_p99_us = 2000")
        .replace("latency_max_us = 1000", "latency_max_us = 9000");
    let disk = Model::new(&varied);
    let hashes = [("iopath-direct", "none"), ("iopath-direct", "deadline"), ("iopath-buffered", "none")]
        .map(|(path, elevator)| format!("{:016x}", hash(&log_on(disk.target(), path, elevator, 7))));
    assert_eq!(hashes, ["8e0af56542e200a1", "6e3058669f8d1c57", "61fee8af5b2ed651"]);
}

#[test]
fn a_log_misses_nothing_and_names_its_clock_and_repeats() {
    let bytes = log_of("iopath-direct", "deadline", 1);
    let report = LogReader::new(bytes.as_slice()).unwrap().summarise(&Filter::default()).unwrap();
    assert_eq!((report.missed, report.over_limit), (0, 0));
    assert_eq!((report.log.clock.as_str(), report.log.target.as_str()), ("virtual", "model:cloud"));
    assert_eq!((report.log.started_unix_ns, report.log.start_ns, report.repeats.len()), (0, 0, 2));
    assert!(report.damage.is_none());
}

#[test]
fn a_model_without_room_is_refused() {
    let wanted = Workload { size_bytes: Some(200 << 30), ..on("model:cloud", "iopath-direct") };
    let text = iopath_bench::run(&wanted, &mut Silent).unwrap_err().to_string();
    assert!(text.starts_with("model:cloud holds 100 GiB, less than the 200 GiB"), "{text}");
    let block = Workload { block_size: BlockSize::constant(1 << 30), jobs: Jobs::constant(4), ..wanted };
    let tiny = Model::new(&STEADY.replace("capacity_gib = 1\n", "capacity_gib = 0.5\n"));
    let too_large = Workload { target: Some(tiny.target()), size_bytes: None, ..block };
    iopath_bench::run(&too_large, &mut Silent).unwrap_err();
}

#[test]
fn a_wrong_parameter_is_refused_with_its_file_and_line() {
    let disk = Model::new(&STEADY.replace("capacity_gib = 1\n", "capacity_gib = -1\n"));
    let text = iopath_bench::run(&on(disk.target(), "iopath-direct"), &mut Silent).unwrap_err().to_string();
    assert!(text.contains("disk.toml:2") && text.contains("capacity_gib"), "{text}");
}

fn on_host(path: &str, text: &str) -> (Model, Workload) {
    let host = Model::new(text);
    let file = host.directory.path().join("disk.toml");
    let named = ModelHost::find(file.to_str().unwrap()).unwrap();
    let disk = Model::new(STEADY);
    let workload = Workload { host: Some(named), size_bytes: Some(16 * MIB), ..on(disk.target(), path) };
    (disk, workload)
}

#[test]
fn the_cpu_of_a_result_is_that_of_the_modelled_host() {
    const HOST: &str = "cpus = 4\ncall_ns = 1000\nbio_ns = 1000\nio_ns = 5000\nsegment_ns = 0\n\
        copy_mb_per_s = 1000\ninterrupt_ns = 3000\nrequest_ns = 0\n";
    let (_disk, workload) = on_host("iopath-direct", HOST);
    let result = run(&workload);
    let cpu = result.cpu.unwrap();
    assert!((cpu.microseconds_per_io - 10.0).abs() < 1e-6, "{cpu:?}");
    assert!((cpu.machine_seconds - result.ios as f64 * 10e-6).abs() < 1e-9);
    let host = result.model_host.as_ref().unwrap();
    assert_eq!(host.cpus, 4);
    assert!((host.idle - (1.0 - cpu.machine_seconds / 4.0 / result.seconds)).abs() < 1e-9);
    assert!((1_008_000..1_012_000).contains(&result.latency_ns.min));
    for jobs in [3, 1] {
        let without = run(&Workload { host: None, jobs: Jobs::constant(jobs), ..workload.clone() });
        let with = run(&Workload { jobs: Jobs::constant(jobs), ..workload.clone() });
        assert_eq!((without.cpu, &without.model_host), (None, &None));
        assert!(with.seconds > without.seconds && with.ios == without.ios);
    }
    let (_disk, buffered) = on_host("iopath-buffered", HOST);
    let (cold, warm) = (run(&buffered), run(&Workload { warm: true, ..buffered }));
    // 4 KiB in 4.096 us, and a call.
    let hit = warm.cpu.unwrap().microseconds_per_io;
    assert!((5.0..5.2).contains(&hit), "{hit}");
    assert!(cold.cpu.unwrap().microseconds_per_io > hit);
    assert!((warm.seconds - warm.cpu.unwrap().machine_seconds).abs() < 1e-6, "a hit waits for nothing else");
}

#[test]
fn a_rate_on_a_model_is_kept_or_its_lack_is_in_the_latencies_and_the_warnings() {
    let disk = Model::new(STEADY);
    let rated = |iops| {
        run(&Workload {
            rw: Rw::RandRead,
            rate: NonZeroU64::new(iops).map(Rate::Ios),
            end: End::Time(Duration::from_secs(1)),
            jobs: Jobs::constant(2),
            ..on(disk.target(), "iopath-direct")
        })
    };
    let kept = rated(500);
    assert_eq!((kept.ios, kept.rate_iops), (2 * 2 * 500, Some(500.0)));
    assert!((kept.seconds - 2.0).abs() < 0.01 && kept.latency_ns.max < 1_100_000);
    assert!(kept.warnings.is_empty(), "{:?}", kept.warnings);
    let missed = rated(2000);
    // Each job makes 1,000 of 2,000 transfers a second: the last should have started half a second earlier.
    assert!((450_000_000..550_000_000).contains(&missed.latency_ns.max), "{:?}", missed.latency_ns);
    assert!(missed.warnings.iter().any(|text| text.starts_with("the rate was not kept: ")));
    let think = Workload {
        think: Duration::from_millis(4),
        end: End::Time(Duration::from_secs(1)),
        depth: Depth::constant(5),
        ..on(disk.target(), "iopath-direct")
    };
    let result = run(&think);
    assert!((result.iops.mean / 1000.0 - 1.0).abs() < 0.02, "{:?}", result.iops);
    assert!(result.latency_ns.max < 1_100_000 && result.think_ns == Some(4_000_000));
}

#[test]
fn several_targets_run_at_the_same_time_with_results_of_their_own() {
    let (slow, fast) = (Model::new(&STEADY.replace("_us = 1000", "_us = 2000")), Model::new(STEADY));
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let workload = Workload {
        more_targets: vec![fast.target(), slow.target()],
        rw: Rw::RandRead,
        size_bytes: Some(500 * 4096),
        log: Some(LogSettings { file: log.clone(), limit_bytes: None, accesses: false }),
        ..on(slow.target(), "iopath-direct")
    };
    let report = report(&workload);
    let result = &report.runs[0];
    assert_eq!((result.ios, result.device.unwrap().reads, result.targets.len()), (3000, 3000, 3));
    assert_eq!(report.more_targets.len(), 2);
    assert_eq!(report.more_targets[0].path, fast.target().to_str().unwrap());
    assert!((2.0..2.02).contains(&result.seconds), "the time of the slowest: {}", result.seconds);
    for (target, latency) in result.targets.iter().zip([2.0, 1.0, 2.0]) {
        assert_eq!((target.ios, target.device.unwrap().reads), (1000, 1000));
        assert!((target.iops.mean * latency / 1000.0 - 1.0).abs() < 0.01, "{target:?}");
        assert!((target.latency_ns.mean / latency / 1e6 - 1.0).abs() < 0.01, "{target:?}");
    }
    let logged = LogReader::open(&log).unwrap().summarise(&Filter::default()).unwrap();
    assert_eq!((logged.queues, logged.flow.bios), (2 * 3, 3000), "a queue for each target and repetition");
    assert!(report.text(View::plain(None)).contains("target "));
    assert_eq!(serde_json::from_str::<Report>(&report.to_json()).unwrap(), report);

    let alone = run(&Workload { more_targets: Vec::new(), log: None, ..workload.clone() });
    assert_eq!((alone.targets.len(), alone.latency_ns), (0, result.targets[0].latency_ns));
    let file = Workload { more_targets: vec![directory.path().to_owned()], log: None, ..workload };
    for refused in [Workload { path: find_path("kernel-direct").unwrap(), ..file.clone() }, file] {
        let error = iopath_bench::report(&refused, &mut Silent).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("are all models"), "{error}");
    }
}

#[test]
fn targets_share_the_cpus_of_the_host() {
    const HOST: &str = "cpus = 1\ncall_ns = 0\nio_ns = 300000\nsegment_ns = 0\ncopy_mb_per_s = 1000\n\
        interrupt_ns = 300000\nrequest_ns = 0\n";
    let (disk, workload) = on_host("iopath-direct", HOST);
    let workload = Workload { size_bytes: Some(1000 * 4096), ..workload };
    let alone = run(&workload);
    let five = run(&Workload { more_targets: vec![disk.target(); 4], ..workload });
    assert!(alone.model_host.unwrap().idle > 0.6);
    // 3 ms of CPU time for five transfers in parallel, one of which takes 1.6 ms.
    let busy = five.model_host.unwrap();
    assert!(busy.idle < 0.01, "{busy:?}");
    assert!((five.seconds / (2.0 * 5000.0 * 0.6e-3) - 1.0).abs() < 0.01, "{}", five.seconds);
}
