//! A machine on devices with known times: volumes and workloads at the same time, cut transfers, logs.

use iopath_model::{Model, ModelDevice};

use super::*;
use crate::workload::{BlockSize, Depth, End, Jobs, Rw};

/// A millisecond for each request, of any size.
const STEADY: &str = "kind = \"cloud\"\ncapacity_gib = 1\nlatency_min_us = 1000\nlatency_p50_us = 1000\n\
    latency_p99_us = 1000\nlatency_max_us = 1000\nsustained_iops = 1e6\nburst_iops = 1e6\ncredits = 0\n\
    io_unit_kib = 1024\nsustained_mib_per_s = 1e5\nburst_mib_per_s = 1e5\ncredits_mib = 0\ndepth_max = 64\n";

const DIRECT: Top = Top::Direct { bio_bytes_max: None, serial: false };

fn steady() -> Box<dyn BlockDevice<Memory = Span>> {
    Box::new(ModelDevice::new(&Model::parse("steady", STEADY).unwrap(), 1))
}

fn volume(top: Top, workloads: Vec<Workload>) -> VolumeSetup {
    VolumeSetup {
        device: steady(),
        elevator: ElevatorSpec::default(),
        device_depth: None,
        requests_max: None,
        top,
        workloads,
    }
}

/// Reads of 64 KiB, one after another, in order.
fn reads(ios: u64) -> Workload {
    let block_size = BlockSize::constant(64 << 10);
    Workload { block_size, end: End::Bytes(ios << 16), ..Workload::default() }
}

fn run(volumes: Vec<VolumeSetup>, log: bool) -> Outcome {
    Machine { host: None, volumes }.run(7, log).unwrap()
}

fn is_about(seconds: f64, expected: f64) -> bool {
    (expected..expected * 1.01).contains(&seconds)
}

#[test]
fn volumes_work_at_the_same_time() {
    let short = volume(DIRECT, vec![reads(50)]);
    let outcome = run(vec![volume(DIRECT, vec![reads(100)]), short, volume(DIRECT, vec![reads(80)])], false);
    let ends: Vec<f64> = outcome.volumes.iter().map(|volume| volume.jobs[0].ended).collect();
    assert!(is_about(ends[0], 0.1) && is_about(ends[1], 0.05) && is_about(ends[2], 0.08), "{ends:?}");
    assert!((outcome.seconds - ends[0]).abs() < 1e-12);
    assert_eq!(outcome.volumes.iter().map(|volume| volume.device.reads).collect::<Vec<_>>(), [100, 50, 80]);
    assert_eq!(outcome.bytes(), 230 << 16);
    assert!((outcome.bytes_per_second() - (230 << 16) as f64 / ends[0]).abs() < 1.0);
}

#[test]
fn workloads_of_a_volume_run_at_the_same_time_and_have_results_of_their_own() {
    let writes = Workload { rw: Rw::RandWrite, depth: Depth::constant(4), ..reads(40) };
    let many = Workload { jobs: Jobs::constant(3), ..reads(30) };
    let outcome = run(vec![volume(DIRECT, vec![writes, many])], false);
    let jobs = &outcome.volumes[0].jobs;
    assert_eq!(
        jobs.iter().map(|job| (job.workload, job.ios)).collect::<Vec<_>>(),
        [(0, 40), (1, 10), (1, 10), (1, 10)]
    );
    assert!(jobs.iter().all(|job| is_about(job.ended, 0.01)), "{jobs:?}");
    assert!(jobs.iter().all(|job| job.latency_ns.len() == job.ios && job.bytes == job.ios << 16));
    let DiskCounters { reads, writes, .. } = outcome.volumes[0].device;
    assert_eq!((reads, writes), (30, 40));
}

#[test]
fn the_bios_of_a_transfer_merge_under_one_plug_or_go_one_after_another() {
    let cut = |serial| {
        let top = Top::Direct { bio_bytes_max: Some(4096), serial };
        run(vec![volume(top, vec![reads(10)])], true)
    };
    let (together, serial, whole) = (cut(false), cut(true), run(vec![volume(DIRECT, vec![reads(10)])], true));
    assert_eq!(whole.log.unwrap().report.events.back_merge, 0);
    assert_eq!(together.log.unwrap().report.events.back_merge, 150);
    assert_eq!(serial.log.unwrap().report.events.back_merge, 0);
    assert!(together.volumes[0].device.reads == 10 && is_about(together.seconds, whole.seconds));
    assert_eq!((serial.volumes[0].device.reads, serial.volumes[0].jobs[0].ios), (160, 10));
    assert!(is_about(serial.seconds, 0.16), "{}", serial.seconds);
}

#[test]
fn a_transfer_of_more_bios_than_the_queue_accepts_is_complete() {
    let block_size = BlockSize::constant(64 << 20);
    let large = Workload { block_size, end: End::Bytes(128 << 20), ..Workload::default() };
    let top = Top::Direct { bio_bytes_max: Some(512), serial: false };
    let outcome = run(vec![volume(top, vec![large])], false);
    assert_eq!((outcome.bytes(), outcome.volumes[0].device.read_bytes), (128 << 20, 128 << 20));
}

#[test]
fn a_buffered_volume_runs_beside_a_direct_one() {
    let buffered = Top::Buffered { cache: CacheSettings::default(), unplug: Unplug::AtOnce };
    let two = Workload { jobs: Jobs::constant(2), ..reads(200) };
    let outcome = run(vec![volume(buffered, vec![two, reads(10)]), volume(DIRECT, vec![reads(5)])], true);
    let cache = outcome.volumes[0].cache.unwrap();
    assert!(cache.hits > 0 && cache.readahead > 0, "{cache:?}");
    assert_eq!(outcome.volumes[0].jobs.iter().map(|job| job.ios).collect::<Vec<_>>(), [100, 100, 10]);
    assert!(outcome.volumes[0].device.reads < 210, "readahead makes larger requests");
    assert!(outcome.volumes[1].cache.is_none() && is_about(outcome.volumes[1].jobs[0].ended, 0.005));
    assert_eq!(outcome.log.unwrap().report.queues, 2);
}

#[test]
fn the_same_seed_gives_the_same_log_and_another_seed_another() {
    let log = |seed| {
        let random = Workload { rw: Rw::RandRw, depth: Depth::constant(8), ..reads(500) };
        let volumes = vec![volume(DIRECT, vec![random.clone()]), volume(DIRECT, vec![random])];
        Machine { host: None, volumes }.run(seed, true).unwrap().log.unwrap().bytes
    };
    assert_eq!(log(1), log(1));
    assert_ne!(log(1), log(2));
}

#[test]
fn lines_of_the_log_are_picked_by_their_text() {
    let log = run(vec![volume(DIRECT, vec![reads(100)])], true).log.unwrap();
    let all = log.lines(&Filter::default(), usize::MAX, &mut |_| true).unwrap();
    let completed = |line: &str| line.contains(" complete ");
    let two = log.lines(&Filter::default(), 2, &mut |line| completed(line)).unwrap();
    let expected: Vec<_> = all.iter().filter(|line| completed(line)).take(2).cloned().collect();
    assert_eq!((two.len(), &two), (2, &expected));
    assert!(log.lines(&Filter::default(), 2, &mut |_| false).unwrap().is_empty());
}

#[test]
fn a_workload_that_does_not_fit_its_volume_is_refused_with_both_sizes() {
    let refused = |top, workload| {
        let volumes = vec![volume(DIRECT, vec![reads(1)]), volume(top, vec![workload])];
        Machine { host: None, volumes }.run(1, false).unwrap_err().to_string()
    };
    let large = refused(DIRECT, Workload { size_bytes: Some(2 << 30), ..reads(1) });
    assert!(large.starts_with("modelled volume 1") && large.contains("1 GiB"), "{large}");
    let none = refused(DIRECT, Workload { size_bytes: Some(4096), ..reads(1) });
    assert!(none.contains("4 KiB") && none.contains("64 KiB"), "{none}");
    let odd = refused(DIRECT, Workload { block_size: BlockSize::constant(1000), ..reads(1) });
    assert!(odd.contains("1000"), "{odd}");
    let cut = refused(Top::Direct { bio_bytes_max: Some(0), serial: false }, reads(1));
    assert!(cut.starts_with("block size 0"), "{cut}");
}
