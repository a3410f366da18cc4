//! Laws that hold for every model: Little's law, throughput within the limit of the mechanism, and the response time of
//! a queue with one deterministic server where the model is one.

use crate::rig::{Random, Rig, device, iops, mb_per_s, models};
use iopath_core::{BlockDevice, Op};
use iopath_model::{Model, Preset};

/// Mean number in flight, integrated over time, against rate times mean latency.
#[test]
fn littles_law_holds_on_every_model_at_every_depth() {
    for (name, model) in models() {
        for depth in [1, 7, 32] {
            let depth = depth.min(model.limits().depth_max);
            let mut rig = Rig::new(device(&model));
            let mut random = Random(depth.into());
            let (mut area, mut submitted, mut done) = (0_u128, 0, Vec::new());
            while done.len() < 1000 {
                while submitted < 1000 && rig.in_flight() < depth as usize {
                    let op = if random.below(10) < 3 { Op::Write } else { Op::Read };
                    rig.submit(op, random.below(model.capacity() / 8 - 8) * 8, 4096 << random.below(3));
                    submitted += 1;
                }
                rig.commit();
                let before = rig.now;
                rig.step();
                area += rig.in_flight() as u128 * u128::from(rig.now - before);
                done.extend(std::iter::from_fn(|| rig.poll()));
            }
            let latencies: u128 = done.iter().map(|one| u128::from(one.latency())).sum();
            assert_eq!(area, latencies, "{name}, depth {depth}");
            let mean_in_flight = area as f64 / rig.now as f64;
            assert!(mean_in_flight <= f64::from(depth) + 1e-9, "{name}, depth {depth}");
        }
    }
}

/// Arrivals at random (Poisson) to servers of `service_ns`, each with a load of `load`; the mean response time without
/// `constant_ns`. Each server has sectors of its own: those of a request are 8 times the number of its server.
fn response_ns(model: &Model, servers: u64, service_ns: f64, load: f64, constant_ns: f64) -> f64 {
    let mut rig = Rig::new(device(model));
    let (mut random, mut next, mut sum, mut count) = (Random(11), 0.0_f64, 0.0, 0);
    let requests = if servers == 1 { 150_000 } else { 60_000 };
    for _ in 0..requests {
        let uniform = (random.below(1 << 53) as f64 + 1.0) / (1_u64 << 53) as f64;
        next -= uniform.ln() * service_ns / (load * servers as f64);
        let arrival = next as u64;
        while let Some(due) =
            rig.device.poll_timeout().map(iopath_core::Instant::as_nanos).filter(|&due| due <= arrival)
        {
            rig.now = rig.now.max(due);
            while let Some(done) = rig.poll() {
                (sum, count) = (sum + done.latency() as f64, count + 1);
            }
        }
        rig.now = arrival;
        rig.submit(Op::Read, 8 * random.below(servers), 4096);
        rig.commit();
    }
    while rig.in_flight() > 0 {
        sum += rig.wait().latency() as f64;
        count += 1;
    }
    assert_eq!(count, requests);
    sum / f64::from(count) - constant_ns
}

#[test]
fn a_server_of_constant_time_has_the_response_time_of_an_m_d_1_queue() {
    let capped = [
        ("latency_min_us", "0"),
        ("latency_p50_us", "0"),
        ("latency_p99_us", "0"),
        ("latency_max_us", "0"),
        ("depth_max", "4096"),
    ];
    let cloud = Model::preset_with("cloud", &capped).unwrap();
    let one_die = [
        ("channels", "1"),
        ("dies_per_channel", "1"),
        ("command_ns", "0"),
        ("channel_mb_per_s", "100000"),
        ("interface_mb_per_s", "1000000"),
        ("read_latency_us", "0"),
        ("depth_max", "4096"),
    ];
    let flash = Model::preset_with("ssd-nvme", &one_die).unwrap();
    for (model, service_ns, constant_ns, waits_only) in
        [(cloud, 1e9 / 3000.0, 0.0, true), (flash, 65_000.0, 45.0, false)]
    {
        for load in [0.3, 0.6, 0.8] {
            let wait = load * service_ns / (2.0 * (1.0 - load));
            // The cap is at the entry: a request passes it at once when it is free.
            let expected = if waits_only { wait } else { wait + service_ns };
            let got = response_ns(&model, 1, service_ns, load, constant_ns);
            assert!(
                (got / expected - 1.0).abs() < 0.05,
                "{}, load {load}: {got} for {expected}",
                model.name()
            );
        }
    }
}

/// A flash with one die and nothing else that takes time: a server of 65 µs.
const ONE_DIE: &str = "base = 'ssd-nvme'\nchannels = 1\ndies_per_channel = 1\ncommand_ns = 0\nchannel_mb_per_s = 100000\n\
                       interface_mb_per_s = 1000000\nread_latency_us = 0\ndepth_max = 4096\n";

#[test]
fn layers_keep_the_response_time_of_the_m_d_1_queues_beneath_them() {
    let models = [
        ("delay", 1, 65_000.0, 250_045.0, format!("kind = 'delay'\ndelay_us = 250\n[device]\n{ONE_DIE}")),
        (
            "stripe",
            4,
            65_000.0,
            45.0,
            format!("kind = 'stripe'\nmembers = 4\nchunk_kib = 4\n[device]\n{ONE_DIE}"),
        ),
        (
            "mapped file on a stripe",
            4,
            65_000.0,
            45.0,
            format!(
                "kind = 'mapped'\nsize_mib = 100\n[device]\nkind = 'stripe'\nmembers = 4\nchunk_kib = 4\n\
                 [device.device]\n{ONE_DIE}"
            ),
        ),
    ];
    for (name, servers, service_ns, constant_ns, text) in models {
        let model = Model::parse(name, &text).unwrap();
        for load in [0.3, 0.7] {
            let expected = service_ns + load * service_ns / (2.0 * (1.0 - load));
            let got = response_ns(&model, servers, service_ns, load, constant_ns);
            assert!((got / expected - 1.0).abs() < 0.05, "{name}, load {load}: {got} for {expected}");
        }
    }
}

#[test]
fn no_layer_exceeds_the_limit_of_its_mechanism() {
    // I/Os a second and MB/s that the layers permit.
    let models = [
        (
            "throttle",
            2000.0,
            41.94,
            "kind = 'throttle'\ncap_iops = 2000\ncap_mib_per_s = 40\ndevice.base = 'ssd-nvme'\n",
        ),
        (
            "throttle around a stripe",
            2000.0,
            41.94,
            "kind = 'throttle'\ncap_iops = 2000\ncap_mib_per_s = 40\n[device]\nkind = 'stripe'\nmembers = 4\n\
             chunk_kib = 4\ndevice.base = 'ssd-nvme'\n",
        ),
        (
            "mapped file on a throttle",
            2000.0,
            f64::INFINITY,
            "kind = 'mapped'\nsize_mib = 100\n[device]\nkind = 'throttle'\ncap_iops = 2000\ndevice.base = 'ssd-nvme'\n",
        ),
        // A request of a stripe has a part on each member that it covers.
        (
            "stripe of throttles",
            8000.0,
            4.0 * 41.94,
            "kind = 'stripe'\nmembers = 4\nchunk_kib = 4\n[device]\nkind = 'throttle'\ncap_iops = 2000\n\
             cap_mib_per_s = 40\ndevice.base = 'ssd-nvme'\n",
        ),
    ];
    for (name, iops_max, mb_max, text) in models {
        let model = Model::parse(name, text).unwrap();
        for (op, kib) in [(Op::Read, 4), (Op::Read, 128), (Op::Write, 4), (Op::Write, 128)] {
            for depth in [1, 32, 256] {
                let (depth, bytes) = (depth.min(model.limits().depth_max), kib << 10);
                let mut rig = Rig::new(device(&model));
                // Mapped files and stripes merge adjacent requests, so no two requests are adjacent, also on a member.
                let blocks = (10 << 20) / bytes;
                let done = rig.keep(depth, 4000, |n| (op, u64::from(n) % blocks * 10 * (bytes / 512), bytes));
                assert!(iops(&done) <= iops_max * 1.02, "{name}, {op} {kib} KiB, {depth}: {}", iops(&done));
                let rate = mb_per_s(&done);
                assert!(rate <= mb_max * 1.02, "{name}, {op} {kib} KiB, {depth}: {rate} MB/s");
            }
        }
    }
}

/// The bytes a second of a link are those of its frames less their overhead. The devices behind it are much faster.
#[test]
fn a_link_bounds_and_reaches_the_rate_of_the_devices_behind_it() {
    const FLASH: &str = "kind = 'stripe'\nmembers = 4\nchunk_kib = 128\ndevice.base = 'ssd-nvme'\n";
    let link_mb = 1000.0 / 8.0 * 1448.0 / (1448.0 + 90.0);
    let models = [
        ("target with a stripe", 1.0, format!("base = 'iscsi-gbe'\n[device]\n{FLASH}")),
        (
            "delay around a target with a stripe",
            1.0,
            format!("kind = 'delay'\ndelay_us = 100\n[device]\nbase = 'iscsi-gbe'\n[device.device]\n{FLASH}"),
        ),
        (
            "stripe of targets",
            4.0,
            "kind = 'stripe'\nmembers = 4\nchunk_kib = 128\n[device]\nbase = 'iscsi-gbe'\n\
             [device.device]\nbase = 'ssd-nvme'\n"
                .to_owned(),
        ),
    ];
    for (name, links, text) in models {
        let model = Model::parse(name, &text).unwrap();
        for op in [Op::Read, Op::Write] {
            for depth in [1, 32] {
                let done =
                    Rig::new(device(&model)).keep(depth, 2000, |n| (op, u64::from(n) * 256, 128 << 10));
                let (rate, most) = (mb_per_s(&done), links * link_mb);
                assert!(rate <= most * 1.001, "{name}, {op}, depth {depth}: {rate} of {most} MB/s");
                let is_full = depth > 1 && op == Op::Read;
                assert!(!is_full || rate >= most * 0.9, "{name}, {op}, depth {depth}: {rate} of {most} MB/s");
            }
        }
    }
}

/// The delay of a layer bounds the rate from outside: a depth of requests in each delay.
#[test]
fn a_delay_bounds_the_rate_by_the_depth() {
    let text =
        "kind = 'delay'\ndelay_us = 250\n[device]\nkind = 'faulty'\nreorder = 1\ndevice.base = 'ssd-nvme'\n";
    let model = Model::parse("delay", text).unwrap();
    for depth in [1, 8, 32] {
        let done = Rig::new(device(&model)).keep(depth, 5000, |n| (Op::Read, u64::from(n) * 8, 4096));
        let most = f64::from(depth) / 250e-6;
        assert!(iops(&done) <= most * 1.001, "depth {depth}: {} of {most}", iops(&done));
    }
}

#[test]
fn no_depth_or_size_exceeds_the_limits_of_the_mechanism() {
    let value =
        |model: &Model, path: &str| model.settings().iter().find(|one| one.path == path).map(|one| one.value);
    for preset in Preset::ALL {
        let model = Model::preset(preset.name).unwrap();
        let interface = value(&model, "interface_mb_per_s").unwrap_or(f64::INFINITY);
        let cap = value(&model, "sustained_mib_per_s").map_or(f64::INFINITY, |mib| mib * 1.048_576);
        for (op, kib) in [(Op::Read, 4), (Op::Read, 128), (Op::Write, 4), (Op::Write, 128)] {
            for depth in [1, 32, 256] {
                let depth = depth.min(model.limits().depth_max);
                let mut rig = Rig::new(device(&model));
                let bytes = kib << 10;
                let done = rig.keep(depth, 2000, |n| (op, u64::from(n) * bytes / 512, bytes));
                let rate = mb_per_s(&done);
                assert!(
                    rate <= interface.min(cap) * 1.02,
                    "{}, {op} {kib} KiB, {depth}: {rate}",
                    preset.name
                );
                let most = value(&model, "command_ns").map_or(f64::INFINITY, |ns| 1e9 / ns);
                let most = most.min(value(&model, "sustained_iops").unwrap_or(f64::INFINITY));
                assert!(iops(&done) <= most * 1.02, "{}, {op} {kib} KiB, depth {depth}", preset.name);
            }
        }
    }
}
