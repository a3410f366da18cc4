//! Conformance of every path of the table, on a small scratch file and through the public interface: counted bytes,
//! every pattern, errors in one line.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use iopath_bench::path::PathRow;
use iopath_bench::paths::{PATHS, find_path};
use iopath_bench::progress::{Silent, Stage};
use iopath_bench::{
    BenchError, BlockSize, CacheSettings, Depth, End, Jobs, Lab, LatencySampling, Progress, Readahead,
    Repetitions, Target, Workload,
};
use iopath_report::Rw;
use iopath_report::result::RunResult;

const MIB: u64 = 1 << 20;
const ONCE: Repetitions = Repetitions::constant(1);
const FOUR: Depth = Depth::constant(4);

/// Runs a workload after a short sample of the idle machine.
fn run(workload: &Workload) -> Result<RunResult, BenchError> {
    let target = Target::prepare(workload, &mut Silent)?;
    Lab::new(Duration::from_millis(1), &mut Silent).run(workload, &target, &mut Silent)
}

/// As [`run`]. None, with a message, if this machine lacks direct I/O or `io_uring`.
fn run_here(workload: &Workload) -> Option<RunResult> {
    match run(workload) {
        Ok(result) => Some(result),
        Err(error @ (BenchError::UringRefused { .. } | BenchError::Direct(_))) => {
            eprintln!("skipped {}: {error}", workload.path.name);
            None
        }
        Err(error) => panic!("{} {}: {error}", workload.path.name, workload.rw),
    }
}

fn workload(path: &'static PathRow, target: &Path) -> Workload {
    Workload {
        path,
        target: Some(target.to_owned()),
        block_size: BlockSize::constant(16 << 10),
        size_bytes: Some(2 * MIB),
        repetitions: Repetitions::constant(2),
        ..Workload::default()
    }
}

fn file_of(bytes: u64) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), vec![7; bytes as usize]).unwrap();
    file
}

#[test]
fn every_path_transfers_every_byte_in_every_pattern() {
    let directory = tempfile::tempdir().unwrap();
    for row in PATHS {
        for rw in Rw::ALL {
            let workload =
                Workload { rw, jobs: Jobs::constant(2), depth: FOUR, ..workload(row, directory.path()) };
            let Some(result) = run_here(&workload) else { continue };
            let named = format!("{} {rw}: {result:?}", row.name);
            assert_eq!(result.repeats.len(), 2, "{named}");
            // A rewrite transfers each block twice.
            let bytes =
                if matches!(rw, Rw::Rewrite | Rw::TrimWrite | Rw::RandTrimWrite) { 8 * MIB } else { 4 * MIB };
            assert_eq!((result.bytes, result.ios), (bytes, bytes / (16 << 10)), "{named}");
            assert_eq!(result.io_depth, if row.capabilities.synchronous { 1 } else { 4 }, "{named}");
            assert!(result.latency_ns.min <= result.latency_ns.p50, "{named}");
            assert!(result.latency_ns.p50 <= result.latency_ns.max, "{named}");
            assert!(result.seconds > 0.0 && result.bytes_per_second.mean > 0.0, "{named}");
            assert!(result.cpu.unwrap().seconds_per_gib > 0.0, "{named}");
        }
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "scratch files are removed");
}

#[test]
fn written_blocks_reach_the_file_and_differ() {
    let file = file_of(MIB);
    for row in PATHS.iter().filter(|row| row.capabilities.needs_target) {
        fs::write(file.path(), vec![7; MIB as usize]).unwrap();
        let workload = Workload {
            rw: Rw::Write,
            size_bytes: None,
            repetitions: ONCE,
            depth: FOUR,
            overwrite: true,
            ..workload(row, file.path())
        };
        if run_here(&workload).is_none() {
            continue;
        }
        let bytes = fs::read(file.path()).unwrap();
        let blocks: std::collections::HashSet<&[u8]> = bytes.chunks(16 << 10).collect();
        assert_eq!(bytes.len() as u64, MIB, "{}", row.name);
        assert_eq!(blocks.len(), 64, "{}: all blocks were written, no two alike", row.name);
    }
}

#[test]
fn a_run_bound_by_time_takes_that_time() {
    // Four blocks: even a slow machine passes the end of the range within the time.
    let (file, size_bytes) = (file_of(MIB), 64 << 10);
    for row in PATHS {
        let end = End::Time(Duration::from_millis(200));
        let workload =
            Workload { end, repetitions: ONCE, size_bytes: Some(size_bytes), ..workload(row, file.path()) };
        let Some(result) = run_here(&workload) else { continue };
        assert!((0.2..10.0).contains(&result.seconds), "{}: {}", row.name, result.seconds);
        assert!(result.ios > 4, "{}: the job continues after the last block: {}", row.name, result.ios);
    }
}

#[test]
fn a_users_file_is_written_only_with_permission() {
    let file = file_of(MIB);
    for row in PATHS.iter().filter(|row| row.capabilities.needs_target) {
        for rw in Rw::ALL.into_iter().filter(|rw| rw.writes()) {
            let error = run(&Workload { rw, size_bytes: None, ..workload(row, file.path()) })
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("set overwrite permission") && error.contains(file.path().to_str().unwrap()),
                "{error}"
            );
        }
    }
    assert_eq!(fs::read(file.path()).unwrap(), vec![7; MIB as usize]);
}

#[test]
fn invalid_input_is_named_in_one_line() {
    let file = file_of(MIB);
    let good = workload(PATHS[0], file.path());
    let direct = Workload { path: find_path("kernel-direct").unwrap(), ..good.clone() };
    for (workload, parts) in [
        (Workload { target: None, ..good.clone() }, &["kernel-buffered needs a target"][..]),
        (
            Workload { target: Some("/no/such/file".into()), ..good.clone() },
            &["/no/such/file does not exist"],
        ),
        (Workload { target: Some("/dev/null".into()), ..good.clone() }, &["/dev/null", "character device"]),
        (Workload { size_bytes: Some(MIB + 1), ..good.clone() }, &["holds 1 MiB", "smaller size"]),
        (Workload { size_bytes: Some(4096), ..good.clone() }, &["size 4096", "use 16 KiB or more"]),
        (
            Workload { block_size: BlockSize::constant(1000), size_bytes: Some(MIB), ..direct },
            &["1000 bytes", "multiple of", "use "],
        ),
    ] {
        let error = match run(&workload) {
            Err(BenchError::Direct(error)) => {
                eprintln!("skipped: {error}");
                continue;
            }
            other => other.unwrap_err().to_string(),
        };
        assert!(!error.contains('\n'), "{error}");
        for part in parts {
            assert!(error.contains(part), "{error:?} names {part:?}");
        }
    }
}

#[test]
fn a_file_that_may_not_be_read_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let file = file_of(MIB);
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o000)).unwrap();
    if File::open(file.path()).is_ok() {
        eprintln!("skipped: this user may read everything");
        return;
    }
    let error =
        run(&Workload { size_bytes: None, ..workload(PATHS[0], file.path()) }).unwrap_err().to_string();
    assert!(
        error.starts_with("no permission to open ") && error.contains(file.path().to_str().unwrap()),
        "{error}"
    );
}

/// Cuts the file short when the measurement begins.
struct Shorten<'a>(&'a File);

impl Progress for Shorten<'_> {
    fn stage(&mut self, stage: &Stage) {
        if matches!(stage, Stage::Repeat { .. }) {
            self.0.set_len(MIB / 2).unwrap();
        }
    }

    fn advance(&mut self, _done: f64) {}
}

#[test]
fn a_target_that_shrinks_while_it_is_read_is_an_error_at_an_offset() {
    for row in PATHS.iter().filter(|row| row.capabilities.needs_target) {
        let file = file_of(MIB);
        let workload = Workload { size_bytes: Some(MIB), repetitions: ONCE, ..workload(row, file.path()) };
        let target = Target::prepare(&workload, &mut Silent).unwrap();
        let lab = Lab::new(Duration::from_millis(1), &mut Silent);
        let error = match lab.run(&workload, &target, &mut Shorten(file.as_file())) {
            Err(BenchError::UringRefused { .. } | BenchError::Direct(_)) => continue,
            other => other.unwrap_err().to_string(),
        };
        assert!(error.starts_with("the read of 16 KiB at offset 524288 of "), "{}: {error}", row.name);
    }
}

#[test]
fn a_cold_run_reads_from_the_disk_and_a_warm_one_from_the_cache() {
    let directory = tempfile::tempdir().unwrap();
    let cold = Workload { size_bytes: Some(8 * MIB), ..workload(PATHS[0], directory.path()) };
    let result = run(&cold).unwrap();
    for repeat in &result.repeats {
        if repeat.cached_before_bytes != Some(0) {
            eprintln!("skipped: this filesystem keeps its pages ({result:?})");
            return;
        }
    }
    let warm = run(&Workload { warm: true, ..cold }).unwrap();
    assert!(warm.repeats.iter().all(|repeat| repeat.cached_before_bytes.is_none()), "{warm:?}");
    if let (Some(from_disk), Some(from_cache)) = (result.device, warm.device) {
        // Rounding and metadata: a lower bound for the cold run, a ratio for the warm one.
        assert!(from_disk.read_bytes >= 16 * MIB, "{from_disk:?}");
        assert!(from_cache.read_bytes < from_disk.read_bytes / 2, "{from_cache:?} {from_disk:?}");
    }
}

#[test]
fn an_iopath_cache_is_empty_before_each_cold_repetition() {
    let file = file_of(2 * MIB);
    let row = find_path("iopath-buffered").unwrap();
    let cold = workload(row, file.path());
    let cold = Workload {
        jobs: Jobs::constant(2),
        block_size: BlockSize::constant(4096),
        size_bytes: Some(2 * MIB),
        ..cold
    };
    for readahead in [Readahead::Auto, Readahead::Off] {
        let cache = CacheSettings { cache_bytes: Some(4 * MIB), readahead: Some(readahead), ..cold.cache };
        let Some(result) = run_here(&Workload { cache, ..cold.clone() }) else { return };
        for repeat in &result.repeats {
            assert_eq!(repeat.cache.unwrap().pages_read, 2 * MIB / 4096, "each page once: {result:?}");
        }
        let used = result.cache.unwrap().used;
        assert_eq!(used.readahead > 0, readahead == Readahead::Auto, "{used:?}");
        for borrow in [false, true] {
            let cache = CacheSettings { borrow, ..cache };
            let warm = Workload { cache, warm: true, rw: Rw::RandRead, ..cold.clone() };
            let used = run_here(&warm).unwrap().cache.unwrap().used;
            assert_eq!((used.hits, used.pages_read), (4 * MIB / 4096, 0), "{used:?}");
        }
    }
}

#[test]
fn an_iopath_cache_accepts_any_block_size_and_refuses_hits_that_do_not_fit() {
    let file = file_of(MIB);
    let row = find_path("iopath-buffered").unwrap();
    let unaligned =
        Workload { block_size: BlockSize::constant(1000), size_bytes: None, ..workload(row, file.path()) };
    let Some(result) = run_here(&unaligned) else { return };
    assert_eq!(result.bytes, 2 * (MIB / 1000 * 1000));
    let cache = CacheSettings { cache_bytes: Some(MIB / 2), ..unaligned.cache };
    let error = run(&Workload { warm: true, cache, ..unaligned }).unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("the 1 MiB to access"), "{error}");
}

#[test]
fn a_synchronous_path_has_depth_one_and_warns() {
    let file = file_of(MIB);
    for row in PATHS.iter().filter(|row| row.capabilities.synchronous) {
        let workload = Workload {
            depth: Depth::constant(8),
            repetitions: ONCE,
            size_bytes: None,
            ..workload(row, file.path())
        };
        let Some(result) = run_here(&workload) else { continue };
        let said = result.warnings.iter().any(|warning| warning.contains("depth 1 was measured, not 8"));
        assert!(said && result.io_depth == 1, "{result:?}");
    }
}

#[test]
fn with_latency_sampling_all_transfers_are_made_and_counted() {
    let file = file_of(MIB);
    for row in PATHS.iter().filter(|row| row.capabilities.synchronous) {
        // 64 blocks per job: nine whole groups of 7 and one of a single block.
        let all = Workload {
            block_size: BlockSize::constant(8192),
            jobs: Jobs::constant(2),
            repetitions: ONCE,
            size_bytes: None,
            ..workload(row, file.path())
        };
        for latency_every in [7, 1000] {
            let latency_sampling = LatencySampling::constant(latency_every);
            let Some(result) = run_here(&Workload { latency_sampling, ..all.clone() }) else { continue };
            assert_eq!(
                (result.ios, result.bytes, result.latency_every),
                (128, MIB, latency_every),
                "{result:?}"
            );
            assert!(result.latency_ns.max > 0, "the last, partial group has a latency: {result:?}");
        }
        let timed = Workload {
            latency_sampling: LatencySampling::constant(64),
            end: End::Time(Duration::from_millis(20)),
            ..all
        };
        if let Some(result) = run_here(&timed) {
            assert!((0.02..60.0).contains(&result.seconds) && result.ios.is_multiple_of(64), "{result:?}");
        }
    }
}

#[test]
fn many_jobs_start_and_end_together() {
    let file = file_of(MIB);
    let begun = Instant::now();
    let workload = Workload {
        jobs: Jobs::constant(32),
        repetitions: Repetitions::constant(3),
        size_bytes: None,
        ..workload(PATHS[0], file.path())
    };
    let result = run(&workload).unwrap();
    assert_eq!((result.jobs, result.bytes), (32, 3 * MIB));
    assert!(begun.elapsed() < Duration::from_secs(120));
}
