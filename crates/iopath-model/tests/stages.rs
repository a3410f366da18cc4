//! Delay, throttle, link and host around modelled devices: caps, shares, bottlenecks, and completions exactly once.

use crate::rig::{Device, Random, Rig, device, iops, mb_per_s};
use iopath_core::{BlockDevice, Duration, Instant, LengthOnly, Op};
use iopath_model::{
    Delay, Host, HostModel, Link, LinkModel, LockOrder, Model, Staged, Threads, Throttle, Work,
};

fn fast() -> Device {
    let overrides = [
        ("latency_min_us", "100"),
        ("latency_p50_us", "100"),
        ("latency_p99_us", "100"),
        ("latency_max_us", "100"),
        ("sustained_iops", "1000000"),
        ("burst_iops", "1000000"),
        ("sustained_mib_per_s", "10000"),
        ("burst_mib_per_s", "10000"),
    ];
    device(&Model::preset_with("cloud", &overrides).unwrap())
}

fn link(name: &str) -> LinkModel {
    let (name, text) = LinkModel::PRESETS.iter().find(|preset| preset.0 == name).unwrap();
    LinkModel::parse(name, text).unwrap()
}

const HOST: &str =
    "cpus = 1\nio_ns = 5000\nsegment_ns = 500\ncopy_mb_per_s = 200\ninterrupt_ns = 4000\nrequest_ns = 500\n";

fn read_4k(n: u32) -> (Op, u64, u64) {
    (Op::Read, u64::from(n) * 8, 4096)
}

#[test]
fn a_delay_adds_its_time_to_each_request_and_to_nothing_else() {
    let mut rig = Rig::new(Staged::new(fast(), Delay::new(Duration::from_millis(2))));
    assert_eq!(rig.run(Op::Read, 0, 4096).latency(), 2_100_000);
    let done = rig.keep(64, 6400, read_4k);
    assert!(done.iter().all(|one| one.latency().abs_diff(2_100_000) < 70_000));
}

#[test]
fn a_throttle_caps_ios_and_bytes() {
    let throttled = |ios, bytes| Rig::new(Staged::new(fast(), Throttle::new(ios, bytes)));
    let rate = iops(&throttled(Some(1000), None).keep(32, 3000, read_4k));
    assert!((990.0..1015.0).contains(&rate), "{rate}");
    let rate = mb_per_s(
        &throttled(None, Some(50_000_000)).keep(32, 3000, |n| (Op::Write, u64::from(n) * 128, 65536)),
    );
    assert!((49.5..51.0).contains(&rate), "{rate}");
    let both = throttled(Some(1000), Some(50_000_000)).keep(32, 3000, read_4k);
    assert!((990.0..1015.0).contains(&iops(&both)), "the lower cap holds");
}

#[test]
fn devices_on_one_link_share_its_bandwidth() {
    let model = link("fc-2g");
    let link = Link::new(&model);
    let bytes = 1 << 20;
    let wire = model.transfer(bytes).as_nanos() as f64;
    let expected = bytes as f64 * 1e3 / wire;
    assert!((200.0..212.5).contains(&expected), "{expected}");
    let mut rigs: Vec<_> = (0..4).map(|_| Rig::new(Staged::new(fast(), link.clone()))).collect();
    let (mut next, mut done) = ([0_u64; 4], [0_u64; 4]);
    let mut now = 0;
    while now < 2_000_000_000 {
        for (index, rig) in rigs.iter_mut().enumerate() {
            rig.now = now;
            while rig.poll().is_some() {
                done[index] += 1;
            }
            while rig.in_flight() < 4 {
                rig.submit(Op::Read, next[index] * 2048, bytes);
                next[index] += 1;
            }
            rig.commit();
        }
        now = rigs.iter().filter_map(|rig| rig.device.poll_timeout()).min().unwrap().as_nanos().max(now);
    }
    let total = done.iter().sum::<u64>() as f64 * bytes as f64 * 1e3 / now as f64;
    assert!(total <= expected * 1.001 && total > expected * 0.99, "{total} of {expected}");
    assert!(done.iter().all(|one| one.abs_diff(done[0]) <= 2), "{done:?}");
    let busy = link.busy_up().as_nanos() as f64;
    assert!(busy > now as f64 * 0.99);
}

/// Lincoln Dale, linux-kernel, 11 July 2002: 194.61 MiB/s over one link, the highest rate of nine runs.
#[test]
fn frames_and_responses_explain_the_highest_published_rate_of_a_link_of_2_gbit_per_s() {
    let bytes = 128 << 10;
    let mib_per_s = bytes as f64 / link("fc-2g").transfer(bytes).as_secs_f64() / f64::from(1 << 20);
    assert!((mib_per_s / 194.61 - 1.0).abs() < 0.015, "{mib_per_s}");
}

#[test]
fn both_directions_of_a_link_are_used_at_the_same_time() {
    let mut rig = Rig::new(Staged::new(fast(), Link::new(&link("gbe"))));
    let mixed =
        rig.keep(32, 2000, |n| (if n % 2 == 0 { Op::Read } else { Op::Write }, u64::from(n) * 128, 65536));
    assert!((225.0..240.0).contains(&mb_per_s(&mixed)), "{}", mb_per_s(&mixed));
    let mut rig = Rig::new(Staged::new(fast(), Link::new(&link("gbe"))));
    let reads = rig.keep(32, 2000, |n| (Op::Read, u64::from(n) * 128, 65536));
    assert!((114.0..118.7).contains(&mb_per_s(&reads)), "{}", mb_per_s(&reads));
}

#[test]
fn a_host_whose_cpu_is_busy_is_the_bottleneck_and_reports_its_use() {
    let host = Host::new(&HostModel::parse("host", HOST).unwrap());
    let mut rig = Rig::new(Staged::new(fast(), host.clone()));
    let done = rig.keep(64, 20_000, read_4k);
    // 5000 + 500 + 500 + 4000 ns for each request on the one CPU.
    let rate = iops(&done);
    assert!((99_000.0..100_100.0).contains(&rate), "{rate}");
    assert_eq!(host.busy(), Duration::from_millis(200));
    let idle = Host::new(&HostModel::parse("host", HOST).unwrap());
    let mut rig = Rig::new(Staged::new(fast(), idle.clone()));
    let done = rig.keep(1, 1000, read_4k);
    assert_eq!(done[0].latency(), 110_000);
    let share = idle.busy().as_nanos() as f64 / rig.now as f64;
    assert!((0.090..0.092).contains(&share), "{share}");
}

/// The threads that are done, each with its time.
fn drain(threads: &[Threads], until: u64) -> Vec<(u64, u32)> {
    let mut done = Vec::new();
    while let Some(due) = threads.iter().filter_map(Threads::poll_timeout).min() {
        if due.as_nanos() > until {
            break;
        }
        for group in threads {
            done.extend(std::iter::from_fn(|| group.poll_done(due)).map(|thread| (due.as_nanos(), thread)));
        }
    }
    done
}

const CALLS: [Work; 2] = [Work { calls: 1, ..NO_WORK }, Work { calls: 2, ..NO_WORK }];
const NO_WORK: Work =
    Work { calls: 0, bios: 0, ios: 0, segments: 0, bytes_copied: 0, interrupts: 0, requests: 0, pages: 0 };

#[test]
fn threads_wait_for_a_cpu_in_the_order_of_arrival_across_volumes() {
    let host = |cpus: &str| {
        let text = format!("call_ns = 1000\n{}", HOST.replace("cpus = 1", &format!("cpus = {cpus}")));
        Host::new(&HostModel::parse("host", &text).unwrap())
    };
    for (cpus, expected) in [
        ("1", [(2000, 1), (3000, 2), (5000, 3), (6000, 4)]),
        ("2", [(1000, 2), (2000, 1), (3000, 3), (3000, 4)]),
    ] {
        let host = host(cpus);
        let volumes = [host.threads(), host.threads()];
        for (thread, work) in [(1, 1), (2, 0), (3, 1), (4, 0)] {
            volumes[thread as usize % 2].begin(thread, &CALLS[work], Instant::ZERO);
        }
        let mut done = drain(&volumes, u64::MAX);
        done.sort_unstable();
        assert_eq!(done, expected, "{cpus} CPUs");
        assert_eq!(host.busy(), Duration::from_micros(6));
    }
}

#[test]
fn an_interrupt_suspends_a_thread_and_does_not_wait_for_queued_threads() {
    let host = Host::new(&HostModel::parse("host", &format!("call_ns = 1000\n{HOST}")).unwrap());
    let threads = [host.threads()];
    threads[0].begin(1, &CALLS[0], Instant::ZERO);
    threads[0].begin(2, &CALLS[0], Instant::ZERO);
    let interrupt = Work { interrupts: 1, ..Work::default() };
    let at = |nanos| Instant::from_nanos(nanos);
    assert_eq!(host.run(&interrupt, at(400)), at(4400), "at once, on the CPU of thread 1");
    assert_eq!(host.run(&interrupt, at(500)), at(8400), "after the first interrupt");
    assert_eq!(drain(&threads, u64::MAX), [(9000, 1), (10_000, 2)]);
    threads[0].begin(3, &Work::default(), at(20_000));
    assert_eq!(drain(&threads, u64::MAX), [(20_001, 3)], "time passes even without work");
}

#[test]
fn the_cpu_that_is_free_first_does_the_work() {
    let host = Host::new(&HostModel::parse("host", &HOST.replace("cpus = 1", "cpus = 2")).unwrap());
    let work = Work { bytes_copied: 1_000_000, ..Work::default() };
    let ends = [0; 3].map(|_| host.run(&work, Instant::ZERO).as_nanos());
    let near =
        |time: u64, wanted: u64| assert!(time.abs_diff(wanted) < wanted / 1000, "{time} instead of {wanted}");
    near(ends[0], 5_000_000);
    near(ends[1], 5_000_000);
    near(ends[2], 10_000_000);
    assert_eq!(host.run(&Work::default(), Instant::ZERO), Instant::ZERO, "no work takes no time");
    let endless = Work { bytes_copied: u64::MAX, ..Work::default() };
    assert_eq!(host.run(&endless, Instant::ZERO), Instant::from_nanos(u64::MAX));
}

#[test]
fn stages_complete_each_request_once_at_times_that_polling_does_not_change() {
    let run = |polls: u64| {
        let host = Host::new(&HostModel::parse("host", HOST).unwrap());
        let model = Model::preset("sata-2006").unwrap();
        let inner = Staged::new(Staged::new(device(&model), Throttle::new(Some(5000), None)), host);
        let mut rig = Rig::new(Staged::new(inner, Link::new(&link("gbe"))));
        let (mut random, mut done) = (Random(4), Vec::new());
        for _ in 0..2000 {
            let op = [Op::Read, Op::Write, Op::Flush][random.below(20).min(2) as usize % 3];
            let (sector, bytes) = if op == Op::Flush { (0, 0) } else { (random.below(1 << 20) * 8, 16384) };
            let _ = rig.try_submit(op, sector, bytes);
            rig.commit();
            let (start, pause) = (rig.now, random.below(4_000_000));
            for poll in 1..=polls {
                rig.now = start + pause * poll / polls;
                done.extend(std::iter::from_fn(|| rig.poll()).map(|one| one.number));
            }
        }
        while rig.in_flight() > 0 {
            done.push(rig.wait().number);
        }
        (done, rig.now)
    };
    let (few, often) = (run(1), run(5));
    assert_eq!(few, often);
    let mut numbers = few.0;
    numbers.sort_unstable();
    assert!(numbers.len() > 500 && numbers.iter().enumerate().all(|(at, &number)| at == number as usize));
}

#[test]
fn mistakes_in_links_and_hosts_name_the_line_and_the_range() {
    let error =
        LinkModel::parse("l.toml", "latency_us = 3\nbandwidth_mbit_per_s = -4").unwrap_err().to_string();
    assert!(
        error.starts_with("l.toml:2: `bandwidth_mbit_per_s` = -4 is not allowed: a number from 0.1 to "),
        "{error}"
    );
    let error = HostModel::parse("h.toml", "cpus = 0").unwrap_err().to_string();
    assert_eq!(error, "h.toml:1: `cpus` = 0 is not allowed: a whole number from 1 to 1024");
    let error = HostModel::parse_with("h.toml", HOST, &[("ios_ns", "1")]).unwrap_err().to_string();
    assert!(error.starts_with("h.toml: `ios_ns` is not a parameter"), "{error}");
}

#[test]
fn a_busy_inner_device_gets_the_request_when_it_has_room() {
    // The stage has the depth of the device, so the device is full only when its completions are on the way back.
    let model = Model::preset("ide-2001").unwrap();
    let mut rig = Rig::new(Staged::new(device(&model), Delay::new(Duration::from_millis(5))));
    let done = rig.keep(1, 50, |n| (Op::Read, u64::from(n) * 256, 131_072));
    assert_eq!(done.len(), 50);
    let _: &dyn BlockDevice<Memory = LengthOnly> = &rig.device;
}

#[test]
fn a_target_is_bounded_by_its_link_its_host_or_its_device() {
    let rate = |overrides: &[(&str, &str)]| {
        let mut rig = Rig::new(device(&Model::preset_with("iscsi-gbe", overrides).unwrap()));
        mb_per_s(&rig.keep(8, 2000, |n| (Op::Read, u64::from(n) * 256, 131_072)))
    };
    let (disk, link, host) = (
        rate(&[]),
        rate(&[("link.bandwidth_mbit_per_s", "100")]),
        rate(&[("host.cpus", "1"), ("host.io_ns", "10000000")]),
    );
    assert!((60.0..66.0).contains(&disk), "{disk}");
    assert!((10.5..12.0).contains(&link), "{link}");
    // A request of 128 KiB each 10 ms.
    assert!((12.5..13.2).contains(&host), "{host}");
}

#[test]
fn one_lock_serves_one_thread_at_a_time_in_the_order_of_arrival_or_of_the_groups() {
    const CALL_MS: &str = "cpus = 4\ncall_ns = 1e6\nio_ns = 0\nsegment_ns = 0\ncopy_mb_per_s = 1e3\n\
        interrupt_ns = 0\nrequest_ns = 0\n";
    let ends = |host: Host| {
        let groups: Vec<_> = (0..3).map(|_| host.threads()).collect();
        for (group, threads) in groups.iter().enumerate().rev() {
            threads.begin(group as u32, &Work { calls: 1, ..Work::default() }, Instant::ZERO);
        }
        let after = Instant::ZERO + Duration::from_millis(10);
        let mut due = Vec::new();
        while let Some(next) = groups.iter().filter_map(Threads::poll_timeout).min() {
            let done = groups.iter().position(|threads| threads.poll_done(next).is_some());
            due.push((done.unwrap(), (next - Instant::ZERO).as_millis() as u64));
            assert!(next < after);
        }
        due
    };
    let model = HostModel::parse("h.toml", CALL_MS).unwrap();
    let free = ends(Host::new(&model));
    assert!(free.iter().all(|&(_, end)| end == 1), "{free:?}");
    assert_eq!(ends(Host::with_lock(&model, LockOrder::Arrival)), [(2, 1), (1, 2), (0, 3)]);
    // The last group came first, so it has the lock. Then the first group of the waiting ones gets it.
    assert_eq!(ends(Host::with_lock(&model, LockOrder::FirstGroup)), [(2, 1), (0, 2), (1, 3)]);
}
