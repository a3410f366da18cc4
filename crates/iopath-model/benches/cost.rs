//! What a model costs for each request: the device alone, and behind a queue with elevator `deadline`. One core, no
//! log; CPU time, so that other programs disturb it little. `cargo bench -p iopath-model --bench cost [-- FILTER]`.

use std::time::Instant as Clock;

use iopath_core::{
    Bio, BlockDevice, Extent, Instant, Io, LengthOnly, Op, QueueConfig, QueuedDevice, Sector, Tag,
};
use iopath_model::{Model, ModelDevice};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

const REQUESTS: u32 = 2_000_000;

/// A workload: its name, whether request `n` writes, and its sector.
type Workload = (&'static str, fn(u32) -> Op, fn(u32, u64, u64) -> u64);

const WORKLOADS: &[Workload] = &[
    ("sequential read", |_| Op::Read, |n, _, capacity| u64::from(n) * 8 % (capacity / 8 * 8)),
    ("random read", |_| Op::Read, |_, random, capacity| random % (capacity / 8) * 8),
    ("random write", |_| Op::Write, |_, random, capacity| random % (capacity / 8) * 8),
    (
        "random 70:30",
        |n| if n % 10 < 3 { Op::Write } else { Op::Read },
        |_, random, capacity| random % (capacity / 8) * 8,
    ),
];

fn main() {
    let filter: Vec<String> = std::env::args().skip(1).filter(|one| !one.starts_with('-')).collect();
    println!("{:38} {:>12} {:>18}", "4 KiB, ns a request", "device", "queue and deadline");
    for preset in iopath_model::Preset::ALL {
        let model = Model::preset(preset.name).expect("a preset is valid");
        for workload in WORKLOADS {
            for depth in [1, 32] {
                let depth = depth.min(model.limits().depth_max);
                let name = format!("{}, {}, depth {depth}", preset.name, workload.0);
                if filter.is_empty() || filter.iter().any(|word| name.contains(word.as_str())) {
                    let (device, queued) = (device(&model, workload, depth), queued(&model, workload, depth));
                    println!("{name:38} {device:12.1} {queued:18.1}");
                }
            }
        }
    }
}

/// The CPU time of this thread where the system reports it, and the time of the clock elsewhere; in nanoseconds.
fn cpu_time(epoch: Clock) -> u64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let on_cpu = schedstat.and_then(|text| text.split_whitespace().next()?.parse().ok());
    on_cpu.unwrap_or_else(|| epoch.elapsed().as_nanos() as u64)
}

struct Start {
    epoch: Clock,
    cpu_time: u64,
}

impl Start {
    fn now() -> Self {
        let epoch = Clock::now();
        Self { epoch, cpu_time: cpu_time(epoch) }
    }

    fn per_request(&self) -> f64 {
        (cpu_time(self.epoch) - self.cpu_time) as f64 / f64::from(REQUESTS)
    }
}

fn device(model: &Model, (_, op, sector): &Workload, depth: u32) -> f64 {
    let mut device = ModelDevice::<LengthOnly>::new(model, 1);
    let (mut random, capacity) = (Xoshiro256PlusPlus::seed_from_u64(1), model.capacity());
    let (memory, mut now, mut free) =
        ([LengthOnly::new(4096)], Instant::ZERO, (0..depth).collect::<Vec<_>>());
    let (mut submitted, mut completed, start) = (0, 0, Start::now());
    while completed < REQUESTS {
        while let Some(index) = free.pop() {
            let extent = Extent::new(Sector(sector(submitted, random.next_u64() >> 1, capacity)), 8);
            let extent = extent.expect("within the address space");
            let io = Io::new(Tag::from_bits(index), op(submitted), extent, &memory);
            device.submit(&io, now).expect("the device has room");
            submitted += 1;
        }
        device.commit(now);
        now = now.max(device.poll_timeout().expect("requests are in flight"));
        while let Some(done) = device.poll_completion(now) {
            free.push(done.tag.to_bits());
            completed += 1;
        }
    }
    start.per_request()
}

fn queued(model: &Model, (_, op, sector): &Workload, depth: u32) -> f64 {
    let elevator = "deadline".parse().expect("an elevator");
    let config = QueueConfig { elevator, ..QueueConfig::default() };
    let mut disk = QueuedDevice::new(ModelDevice::<LengthOnly>::new(model, 1), &config);
    let (mut random, capacity) = (Xoshiro256PlusPlus::seed_from_u64(1), model.capacity());
    let (mut now, mut submitted, mut completed, mut in_flight) = (Instant::ZERO, 0, 0, 0);
    let start = Start::now();
    while completed < REQUESTS {
        while in_flight < depth {
            let extent = Extent::new(Sector(sector(submitted, random.next_u64() >> 1, capacity)), 8);
            let extent = extent.expect("within the address space");
            let memory = LengthOnly::new(4096);
            let bio = match op(submitted) {
                Op::Write => Bio::write(extent, memory, 0),
                _ => Bio::read(extent, memory, 0),
            };
            disk.submit_bio(bio, now).expect("the queue has room");
            (submitted, in_flight) = (submitted + 1, in_flight + 1);
        }
        disk.unplug(now);
        disk.dispatch(now);
        disk.commit(now);
        now = now.max(disk.poll_timeout().expect("requests are in flight"));
        disk.collect(now);
        while disk.poll_completion().is_some() {
            (completed, in_flight) = (completed + 1, in_flight - 1);
        }
    }
    start.per_request()
}
