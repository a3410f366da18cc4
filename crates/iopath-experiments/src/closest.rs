//! `closest`: compares nearest-first order with an ascending sort, and the CPU time of a request in each elevator.

use std::hint::black_box;
use std::time::Instant as RealTime;

use iopath_core::elevator::ElevatorSpec;
use iopath_core::log::Event;
use iopath_core::{Bio, Extent, Instant, LengthOnly, Limits, QueueConfig, RequestQueue, Sector};
use iopath_log::Filter;
use iopath_model::{Model, ModelDevice};
use iopath_report::Rw;
use iopath_report::experiment::{Direction, Parameter, Report, Row, Settings};
use iopath_report::random;
use iopath_report::size::format_size;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::RngCore;

use super::error::ExperimentError;
use super::row::Experiment;
use iopath_bench::simulated::machine::{Machine, Outcome, Top, VolumeSetup};
use iopath_bench::workload::{BlockSize, Depth, End, Workload};

pub(super) static ROW: Experiment = Experiment {
    id: "closest",
    title: "nearest-first order gains little over an ascending sort",
    published: "An elevator that dispatches the request nearest to the head gains little throughput over the ascending \
                sort, and costs more time per insert (elevators of Linux 2.4, 2000).",
    parameters: &[
        Parameter::count(
            "queued",
            "requests",
            128,
            (2, 4096),
            "request queue of Linux 2.4 (2000): 128 requests in each direction",
        ),
        Parameter::count("bs_bytes", "bytes", 4096, (512, 1 << 20), "assumed: a block of the filesystem"),
        Parameter::count(
            "ios",
            "transfers",
            20_000,
            (1_000, 1_000_000),
            "assumed: long enough for a steady state",
        ),
        Parameter::choice(
            "model",
            &["ide-2001", "fc15k-2002", "sata-2006"],
            "preset; the source names no disk",
        ),
        Parameter::number("little_percent", "%", 15.0, (0.0, 1_000.0), "assumed: the source says `little`"),
        Parameter::count("seed", "", 1, (0, u64::MAX), "any value"),
    ],
    run,
    on_target: None,
};

fn run(settings: &Settings) -> Result<Report, ExperimentError> {
    let [none, ascend, closest] = ["none", "ascend", "closest"].map(|elevator| outcome(settings, elevator));
    let (none, ascend, closest) = (none?, ascend?, closest?);
    let gain = |from: &Outcome, to: &Outcome| (to.bytes_per_second() / from.bytes_per_second() - 1.0) * 100.0;
    let (by_sort, by_nearest) = (gain(&none, &ascend), gain(&ascend, &closest));
    let cost = cost(settings);
    let little = settings.number("little_percent");
    let iops = |outcome: &Outcome| outcome.bytes_per_second() / settings.number("bs_bytes");
    Ok(Report {
        rows: vec![
            Row::unpublished("random reads, first come, first served", "IOPS", iops(&none)),
            Row::unpublished("random reads, ascending sort", "IOPS", iops(&ascend)),
            Row::unpublished("random reads, nearest first", "IOPS", iops(&closest)),
            Row::unpublished("gain of the ascending sort over first come, first served", "%", by_sort),
            Row::unpublished("gain of nearest first over the ascending sort", "%", by_nearest),
            Row::unpublished(
                "time to insert and dispatch, nearest first : ascending sort (CPU of this machine)",
                "ratio",
                cost,
            ),
        ],
        directions: vec![
            Direction::new(
                format!("nearest first gains at most {little}% over the ascending sort"),
                by_nearest <= little,
            ),
            Direction::new(
                "the gain of the ascending sort is larger than the further gain of nearest first",
                by_sort > by_nearest,
            ),
            Direction::new("nearest first costs more time for each request", cost > 1.0),
        ],
        evidence: evidence(&ascend, &closest)?,
        notes: vec![NOTE.to_owned()],
    })
}

const NOTE: &str = "Insertion costs the same in both elevators of this library. The search for the nearest request costs \
     time at dispatch, so the row contains both times.";

/// Random reads over the whole disk, with `queued` of them in the queue or at the disk.
fn outcome(settings: &Settings, elevator: &str) -> Result<Outcome, ExperimentError> {
    let model = Model::preset(settings.choice("model"))?;
    let block_bytes = settings.count("bs_bytes");
    let workload = Workload {
        rw: Rw::RandRead,
        block_size: BlockSize::new(block_bytes / 512 * 512)?,
        depth: Depth::new(settings.count("queued"))?,
        end: End::Bytes(settings.count("ios") * block_bytes),
        ..Workload::default()
    };
    let volume = VolumeSetup {
        device: Box::new(ModelDevice::new(&model, settings.count("seed"))),
        elevator: elevator.parse::<ElevatorSpec>().expect("the elevator is a row of the table"),
        device_depth: Some(1),
        requests_max: None,
        top: Top::Direct { bio_bytes_max: None, serial: false },
        workloads: vec![workload],
    };
    Ok(Machine { host: None, volumes: vec![volume] }.run(settings.count("seed"), true)?)
}

/// The first dispatches of each elevator after the queue is full, and a summary of all seeks.
fn evidence(ascend: &Outcome, closest: &Outcome) -> Result<Vec<String>, ExperimentError> {
    let mut lines = Vec::new();
    for (name, outcome) in [("ascend", ascend), ("closest", closest)] {
        let Some(log) = &outcome.log else { continue };
        let filter = Filter { events: vec![Event::Dispatch], ..Filter::default() };
        lines.extend(log.lines(&filter, 3, &mut |_| true)?);
        let seeks = log.report.seeks;
        lines.push(format!(
            "{name}: {} seeks, mean distance {}, {} of them to lower sectors",
            seeks.count,
            format_size(seeks.mean_bytes as u64),
            seeks.backward
        ));
    }
    Ok(lines)
}

/// Rounds of the measurement of CPU time. The fastest round of each elevator counts, because other programs can only
/// add time.
const ROUNDS: u32 = 15;

/// Requests of a round.
const REQUESTS: u32 = 4_000;

/// The CPU time to insert and dispatch a request with `closest`, divided by that with `ascend`, in queues of the same
/// length.
fn cost(settings: &Settings) -> f64 {
    let mut fastest = [f64::MAX; 2];
    for round in 0..ROUNDS {
        for (fastest, elevator) in fastest.iter_mut().zip(["ascend", "closest"]) {
            let mut bench = Bench::new(elevator, settings.count("queued") as u32, round.into());
            let started = RealTime::now();
            (0..REQUESTS).for_each(|_| bench.step());
            *fastest = fastest.min(started.elapsed().as_secs_f64());
        }
    }
    fastest[1] / fastest[0]
}

/// A queue of constant length without a device: each step dispatches a request and inserts another.
struct Bench {
    queue: RequestQueue<LengthOnly>,
    random: Xoshiro256PlusPlus,
}

/// Sectors of the bench.
const CAPACITY: u64 = 1 << 26;

impl Bench {
    fn new(elevator: &str, queued: u32, seed: u64) -> Self {
        let config = QueueConfig {
            bios_max: queued + 1,
            requests_max: queued + 1,
            depth: 1,
            plug_requests_max: 1,
            elevator: elevator.parse().expect("the elevator is a row of the table"),
        };
        let queue = RequestQueue::new(Limits::with_capacity(CAPACITY), &config);
        let mut bench = Self { queue, random: random::generator(seed, [PURPOSE, 0]) };
        (0..queued).for_each(|_| bench.insert());
        bench
    }

    fn insert(&mut self) {
        let sector = Sector(self.random.next_u64() % (CAPACITY / 8) * 8);
        let extent = Extent::new(sector, 8).expect("within the capacity");
        let submitted = self.queue.submit_bio(Bio::read(extent, LengthOnly::new(4096), 0), Instant::ZERO);
        assert!(submitted.is_ok(), "the queue has a free slot");
    }

    fn step(&mut self) {
        let io = self.queue.poll_dispatch(Instant::ZERO).expect("requests are queued");
        let tag = black_box(io.tag);
        self.queue.handle_completion(tag, Ok(()), Instant::ZERO);
        while self.queue.poll_completion().is_some() {}
        self.insert();
    }
}

/// Separates the random numbers of the bench from others of the same seed.
const PURPOSE: u64 = 0xC105;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_first_gains_little_in_virtual_time() {
        let settings = Settings::new(ROW.parameters, &["ios=4000".to_owned()]).unwrap();
        let report = run(&settings).unwrap();
        // The third direction depends on the load of this machine.
        assert!(report.directions[..2].iter().all(|direction| direction.holds), "{report:?}");
    }

    #[test]
    fn virtual_results_are_identical() {
        let settings = Settings::new(ROW.parameters, &["ios=1000".to_owned()]).unwrap();
        let [first, second] = [0, 1].map(|_| outcome(&settings, "closest").unwrap());
        assert_eq!(first.seconds.to_bits(), second.seconds.to_bits());
    }
}
