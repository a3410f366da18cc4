//! A machine on devices with known times: volumes and workloads at the same time, cut transfers, logs.

use iopath_log::Filter;
use iopath_model::{Model, ModelDevice};
use iopath_report::Rw;

use super::*;
use crate::workload::{BlockSize, Depth, End, Jobs};

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
    assert!(jobs.iter().all(|job| job.latency_ns.count() == job.ios && job.bytes == job.ios << 16));
    let DiskCounters { reads, writes, .. } = outcome.volumes[0].device;
    assert_eq!((reads, writes), (30, 40));
}

#[test]
fn the_bios_of_a_transfer_merge_under_one_plug_or_are_in_flight_one_after_another() {
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

/// 1 us for a call, 2 for a bio, 3 for a request, 4 for an interrupt, 5 for 4 KiB copied, 6 for a page.
fn host(cpus: u32) -> Host {
    let text = format!(
        "cpus = {cpus}\ncall_ns = 1000\nbio_ns = 2000\nio_ns = 2000\nrequest_ns = 600\nsegment_ns = 400\n\
        interrupt_ns = 4000\ncopy_mb_per_s = 819.2\npage_ns = 6000\n"
    );
    Host::new(&iopath_model::HostModel::parse("host", &text).unwrap())
}

fn run_on(cpus: u32, volumes: Vec<VolumeSetup>) -> Outcome {
    Machine { host: Some(host(cpus)), volumes }.run(7, true).unwrap()
}

fn assert_near(value: f64, expected: f64) {
    assert!((value / expected - 1.0).abs() < 0.001, "{value} instead of {expected}");
}

#[test]
fn each_step_of_a_direct_transfer_costs_cpu_time() {
    let outcome = run_on(2, vec![volume(DIRECT, vec![reads(100)])]);
    let cpu = outcome.cpu.unwrap();
    // The model's burst rates add some ns to each request.
    let of_device = run(vec![volume(DIRECT, vec![reads(100)])], false).seconds;
    assert_near(outcome.seconds, of_device + 100.0 * 10e-6);
    assert_near(cpu.busy_seconds, 100.0 * 10e-6);
    assert_eq!(cpu.cpus, 2);
    assert_near(cpu.idle, 1.0 - cpu.busy_seconds / 2.0 / outcome.seconds);
    let latency_ns = &outcome.volumes[0].jobs[0].latency_ns;
    assert_near(latency_ns.mean_ns(), outcome.seconds * 1e7);
}

#[test]
fn small_bios_cost_cpu_time_although_they_merge() {
    let cut = |serial| {
        let top = Top::Direct { bio_bytes_max: Some(4096), serial };
        run_on(1, vec![volume(top, vec![reads(10)])])
    };
    let (together, serial) = (cut(false), cut(true));
    // 16 bios of a call, one request.
    assert_near(together.cpu.unwrap().busy_seconds, 10.0 * (1e-6 + 16.0 * 2e-6 + 7e-6));
    assert_eq!(together.volumes[0].device.reads, 10);
    // 16 requests, one after another.
    assert_near(serial.cpu.unwrap().busy_seconds, 10.0 * (1e-6 + 16.0 * 9e-6));
    assert_eq!(serial.volumes[0].device.reads, 160);
    assert!(serial.seconds > 0.16);
}

#[test]
fn a_cpu_that_is_busy_bounds_the_rate_and_volumes_share_it() {
    let many = || volume(DIRECT, vec![Workload { depth: Depth::constant(64), ..reads(2000) }]);
    let outcome = run_on(1, vec![many(), many()]);
    let cpu = outcome.cpu.unwrap();
    assert_near(cpu.busy_seconds, 4000.0 * 10e-6);
    assert!(cpu.idle < 0.06, "{cpu:?}");
    let ends: Vec<f64> = outcome.volumes.iter().map(|volume| volume.jobs[0].ended).collect();
    assert!((ends[0] - ends[1]).abs() < 0.02 * ends[0], "{ends:?}");
    assert!(run_on(2, vec![many(), many()]).seconds < 0.9 * outcome.seconds);
}

const BUFFERED: Top = Top::Buffered {
    cache: CacheSettings { cache_bytes: None, page_bytes: None, readahead: None, borrow: false },
    unplug: Unplug::AtOnce,
};

#[test]
fn a_page_that_is_cached_costs_its_look_up_and_its_copy() {
    let passes = |ios| Workload { size_bytes: Some(8 << 20), ..reads(ios) };
    let seconds = |ios| run_on(1, vec![volume(BUFFERED, vec![passes(ios)])]).seconds;
    // 128 reads are one pass; the second finds its pages in the cache.
    assert_near(seconds(256) - seconds(128), 128.0 * (1e-6 + 16.0 * 11e-6));
    let small =
        |ios: u64| Workload { block_size: BlockSize::constant(512), end: End::Bytes(ios * 512), ..passes(1) };
    let seconds = |ios| run_on(1, vec![volume(BUFFERED, vec![small(ios)])]).seconds;
    assert_near(seconds(32_768) - seconds(16_384), 16_384.0 * (1e-6 + 6e-6 + 5e-6 / 8.0));
}

#[test]
fn io_continues_while_the_cpu_copies_the_pages_of_one_large_read() {
    let one = Workload { block_size: BlockSize::constant(64 << 20), ..reads(1 << 10) };
    let outcome = run_on(1, vec![volume(BUFFERED, vec![one.clone()])]);
    let without = run(vec![volume(BUFFERED, vec![one])], false);
    let busy = outcome.cpu.unwrap().busy_seconds;
    // 16,384 pages, and few bios of many pages each.
    assert!((16_384.0 * 11e-6..16_384.0 * 11.1e-6).contains(&busy), "{busy}");
    assert_eq!(outcome.bytes(), 64 << 20);
    assert!(outcome.seconds < busy + without.seconds / 2.0, "{} {busy} {}", outcome.seconds, without.seconds);
    assert!(outcome.seconds >= busy);
}

#[test]
fn a_buffered_write_costs_its_copies_pages_and_bios() {
    let writes = Workload { rw: Rw::Write, ..reads(256) };
    let outcome = run_on(2, vec![volume(BUFFERED, vec![writes.clone(), Workload { seed: 2, ..writes }])]);
    let cpu = outcome.cpu.unwrap();
    let (requests, pages) = (outcome.volumes[0].device.writes as f64, 2.0 * 256.0 * 16.0);
    assert_eq!(outcome.bytes(), 2 * (256 << 16));
    let least = 512.0 * 1e-6 + pages * 11e-6 + requests * 7e-6;
    // The bios of the write-back cost between nothing and one bio for each page.
    assert!((least..least + pages * 2.1e-6).contains(&cpu.busy_seconds), "{cpu:?} {least}");
}

#[test]
fn the_same_seed_gives_the_same_log_and_cpu_time_on_a_host() {
    let once = || {
        let random = Workload { rw: Rw::RandRw, jobs: Jobs::constant(3), ..reads(300) };
        let direct = Workload { depth: Depth::constant(4), ..random.clone() };
        let outcome = run_on(2, vec![volume(BUFFERED, vec![random]), volume(DIRECT, vec![direct])]);
        (outcome.log.unwrap().bytes, outcome.cpu)
    };
    let (first, second) = (once(), once());
    assert_eq!(first, second);
}

#[test]
fn rates_and_think_times_hold_on_each_top_half() {
    let rate = std::num::NonZeroU64::new(100).map(crate::workload::Rate::Ios);
    for top in [|| DIRECT, || BUFFERED] {
        for cpus in [None, Some(1)] {
            let rated = Workload { rate, jobs: Jobs::constant(2), ..reads(100) };
            let machine = Machine { host: cpus.map(host), volumes: vec![volume(top(), vec![rated])] };
            let outcome = machine.run(1, false).unwrap();
            // 50 transfers of each job: the last starts after 490 ms.
            assert!((0.49..0.493).contains(&outcome.seconds), "{}", outcome.seconds);
            let think = std::time::Duration::from_millis(9);
            let thinks = Workload { think, rw: Rw::RandRead, ..reads(50) };
            let machine = Machine { host: cpus.map(host), volumes: vec![volume(top(), vec![thinks])] };
            let seconds = machine.run(1, false).unwrap().seconds;
            assert!((0.49..0.51).contains(&seconds), "{seconds}");
        }
    }
}

#[test]
fn the_block_size_causes_no_dip_in_buffered_reads_of_any_kind_of_device() {
    let presets =
        [("sata-2006", 64), ("hdd-20tb", 128), ("ssd-sata", 256), ("ssd-nvme", 1024), ("cloud", 128)];
    for (preset, size_mib) in presets {
        let rates = (12..=26).map(|bits| {
            let device = ModelDevice::new(&Model::preset(preset).unwrap(), 1);
            let workload = Workload {
                block_size: BlockSize::constant(1 << bits),
                size_bytes: Some(size_mib << 20),
                end: End::Pass,
                ..Workload::default()
            };
            let top = Top::Buffered { cache: CacheSettings::default(), unplug: Unplug::AtOnce };
            let volume = VolumeSetup { device: Box::new(device), ..volume(top, vec![workload]) };
            run(vec![volume], false).bytes_per_second() / f64::from(1 << 20)
        });
        let rates: Vec<f64> = rates.collect();
        let (worst, best) =
            rates.iter().fold((f64::MAX, 0.0_f64), |(a, b), rate| (a.min(*rate), b.max(*rate)));
        eprintln!("{preset}: {worst:.0} to {best:.0} MiB/s");
        assert!(worst >= 0.9 * best, "{preset}: {rates:.0?} MiB/s");
    }
}
