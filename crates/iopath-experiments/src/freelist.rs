//! `freelist`: the allocation of requests. If all queues share a table, writes of one disk get two thirds of 256 slots,
//! and each search scans the table. If each queue has a list, writes get two thirds of 512 slots, and an allocation
//! takes one step.

mod slots;

use std::collections::HashMap;

use iopath_core::Op;
use iopath_core::log::{Event, Subject};
use iopath_log::Filter;
use iopath_model::{Host, HostModel, Model, ModelDevice};
use iopath_report::Rw;
use iopath_report::experiment::{Direction, Parameter, Report, Row, Settings};

use super::error::ExperimentError;
use super::row::Experiment;
use iopath_bench::simulated::machine::{Machine, MachineLog, Top, VolumeSetup};
use iopath_bench::workload::{BlockSize, Depth, End, Jobs, Workload};
use slots::{FreeList, ScannedTable, Slots, for_writes};

pub(super) static ROW: Experiment = Experiment {
    id: "freelist",
    title: "a free list of requests for each queue",
    published: "J. Axboe, queueing changes for Linux 2.4, 2000 (merged in 2.4.0-test2-pre11): mainly a request free list \
         and a lock for each queue, instead of a scan of 256 slots that all queues share. Throughput of one disk rises by \
         14%.",
    parameters: PARAMETERS,
    run,
    on_target: None,
};

const PARAMETERS: &[Parameter] = &[
    Parameter::count(
        "slots",
        "",
        256,
        (3, 65536),
        "the source; Linux 2.4.0-test2-pre3, include/linux/blk.h: NR_REQUEST, writes may use two thirds",
    ),
    Parameter::count(
        "list_slots",
        "",
        512,
        (3, 65536),
        "Linux 2.4.0-test2-pre11, include/linux/blkdev.h: QUEUE_NR_REQUESTS and QUEUE_WRITES_MAX, two thirds",
    ),
    Parameter::count(
        "streams",
        "",
        48,
        (0, 4096),
        "assumed: `dbench 48`, with which J. Axboe and others tested this queue (linux-kernel, January 2001); 0 is random",
    ),
    Parameter::count(
        "dirty_mib",
        "MiB",
        100,
        (1, 4096),
        "assumed: 40% (Linux 2.4.0-test2, fs/buffer.c: bdf_prm.nfract) of the 255 MB of a machine of these tests",
    ),
    Parameter::count("write_kib", "KiB", 4, (1, 1024), "assumed: a block of the filesystem"),
    Parameter::count(
        "total_mib",
        "MiB",
        512,
        (1, 65536),
        "assumed: the amount has little effect on the rates",
    ),
    Parameter::number(
        "step_ns",
        "ns",
        20.0,
        (0.0, 1e6),
        "assumed: a slot outside of the first cache of the CPU",
    ),
];

/// The published gain.
const GAIN: f64 = 0.14;

/// The workload and the disk.
#[derive(Debug, Clone, Copy)]
struct Setup {
    /// Sequential writers; zero is one random writer.
    streams: u64,
    /// Data in write-back.
    dirty_kib: u64,
    write_kib: u64,
    total_mib: u64,
    disk: &'static str,
}

impl Setup {
    fn of(settings: &Settings) -> Self {
        Self {
            streams: settings.count("streams"),
            dirty_kib: settings.count("dirty_mib") << 10,
            write_kib: settings.count("write_kib"),
            total_mib: settings.count("total_mib"),
            disk: "ide-2001",
        }
    }

    /// Other setups that are possible according to the source.
    fn others(self) -> [(&'static str, Self); 10] {
        let random = Self { streams: 0, dirty_kib: 2048, total_mib: self.total_mib / 16, ..self };
        [
            ("16 streams", Self { streams: 16, ..self }),
            ("32 streams", Self { streams: 32, ..self }),
            ("64 streams", Self { streams: 64, ..self }),
            ("128 streams", Self { streams: 128, ..self }),
            ("50 MiB in write-back", Self { dirty_kib: 50 << 10, ..self }),
            ("75 MiB in write-back", Self { dirty_kib: 75 << 10, ..self }),
            ("200 MiB in write-back", Self { dirty_kib: 200 << 10, ..self }),
            ("disk fc15k-2002", Self { disk: "fc15k-2002", ..self }),
            ("random writes, 2 MiB in write-back", random),
            ("random writes, 4 MiB in write-back", Self { dirty_kib: 4096, ..random }),
        ]
    }

    /// The number of buffers that each stream has in write-back.
    const fn depth(self) -> u64 {
        let streams = if self.streams == 0 { 1 } else { self.streams };
        let depth = self.dirty_kib / self.write_kib / streams;
        if depth == 0 { 1 } else { depth }
    }
}

/// A run with one kind of allocator.
struct Measured {
    mb_per_s: f64,
    /// Slots examined for each request.
    steps_per_request: f64,
    /// The CPU time of these steps, as a share of the elapsed time.
    cpu_percent: f64,
    /// Bios that found no free slot, as a share of all.
    waits_percent: f64,
    log: Option<MachineLog>,
}

fn run(settings: &Settings) -> Result<Report, ExperimentError> {
    let others = Setup::of(settings).others();
    report(settings, if settings.is_any_set() { &[] } else { &others })
}

/// The report, with a row for each of the other setups.
fn report(settings: &Settings, others: &[(&str, Setup)]) -> Result<Report, ExperimentError> {
    let setup = Setup::of(settings);
    let [scanned, listed] = both(settings, setup)?;
    let ratio = listed.mb_per_s / scanned.mb_per_s;
    let what = "throughput of one disk, list : scanned table";
    // The amount of data does not change the setup.
    let is_changed = settings.all().any(|(parameter, _, is_set)| is_set && parameter.name != "total_mib");
    let ratio_row = if is_changed {
        Row::unpublished(what, "×", ratio)
    } else {
        Row::predicted(what, "×", 1.0 + GAIN, ratio)
    };
    let mut rows = vec![ratio_row];
    for (name, of) in [("scanned table", &scanned), ("free list", &listed)] {
        rows.push(Row::unpublished(format!("throughput, {name}"), "MB/s", of.mb_per_s));
        rows.push(Row::unpublished(format!("slots examined per request, {name}"), "", of.steps_per_request));
        rows.push(Row::unpublished(format!("CPU of the search, {name}"), "%", of.cpu_percent));
        rows.push(Row::unpublished(format!("bios that waited for a slot, {name}"), "%", of.waits_percent));
    }
    for (name, other) in others {
        let [scanned, listed] = both(settings, *other)?;
        let ratio = listed.mb_per_s / scanned.mb_per_s;
        rows.push(Row::unpublished(format!("list : scanned table, {name}"), "×", ratio));
    }
    let mut evidence = Vec::new();
    for log in [&scanned.log, &listed.log].into_iter().flatten() {
        evidence.append(&mut log.lines(&Filter::default(), 1, &mut |line| line.contains(" slot-wait "))?);
    }
    let directions = vec![
        Direction::new("the list is faster than the scanned table", ratio > 1.0),
        Direction::new(
            "the gain is between half and twice the published gain",
            (GAIN / 2.0..=GAIN * 2.0).contains(&(ratio - 1.0)),
        ),
    ];
    Ok(Report { rows, directions, evidence, notes: NOTES.map(str::to_owned).to_vec() })
}

const NOTES: [&str; 3] = [
    "The gain comes from the depth. Linux 2.4.0-test2-pre11 replaced a table of 256 slots by a list of 512 slots for each \
     queue. In both, writes may use two thirds of the slots. So the elevator sorts 341 writes instead of 170, and seeks \
     less often between the streams. With 256 slots in the list there is no gain.",
    "The CPU time of each request includes the search: 238 slots, 4.8 µs. The search does not slow the disk. With one \
     disk, a lock for each queue has no effect, and this kernel still uses one lock. Before and after the change, the \
     kernel wakes one waiting caller for each released request, in the order of arrival. The model does the same.",
    "The gain depends on the workload, which the source does not state: 0% to 18% in the setups of the last rows. The \
     ratio of the throughputs is within 25% of 1.14 in all of them. The gain is at least half of the published gain in \
     most of them. Exceptions are 16 streams, 50 or 200 MiB in write-back, and the disk fc15k-2002. The change of the \
     kernel has a further part that is not modelled here: it lifts the limits of the elevator (see `merge`).",
];

/// The runs with both allocators.
fn both(settings: &Settings, setup: Setup) -> Result<[Measured; 2], ExperimentError> {
    let (slots, list_slots) = (settings.count("slots") as usize, settings.count("list_slots") as usize);
    Ok([
        measure(settings, setup, for_writes(slots), &|| Box::new(ScannedTable::new(slots)))?,
        measure(settings, setup, for_writes(list_slots), &|| Box::new(FreeList::new(list_slots)))?,
    ])
}

/// Runs the workload with `requests_max` request slots, and its allocations through an allocator. The first run counts
/// the slots that a search examines. In the second run, each request has the CPU time of this search.
fn measure(
    settings: &Settings,
    setup: Setup,
    requests_max: usize,
    allocator: &dyn Fn() -> Box<dyn Slots>,
) -> Result<Measured, ExperimentError> {
    let step_ns = settings.number("step_ns");
    let mut search_ns = 0.0;
    let mut measured = None;
    for _ in 0..2 {
        let (mut outcome, mut allocator) =
            (machine(setup, requests_max, search_ns)?.run(1, true)?, allocator());
        let log = outcome.log.take();
        let (requests, waits) = match &log {
            Some(log) => allocate(log, &mut *allocator)?,
            None => (0, 0),
        };
        let steps = allocator.steps() as f64;
        search_ns = steps / requests as f64 * step_ns;
        measured = Some(Measured {
            mb_per_s: outcome.bytes_per_second() / 1e6,
            steps_per_request: steps / requests as f64,
            cpu_percent: steps * step_ns / 1e9 / outcome.seconds * 100.0,
            waits_percent: waits as f64 / requests as f64 * 100.0,
            log,
        });
    }
    Ok(measured.expect("two runs"))
}

/// The machine. A request has `search_ns` of CPU time for its allocation.
fn machine(setup: Setup, requests_max: usize, search_ns: f64) -> Result<Machine, ExperimentError> {
    let volume = VolumeSetup {
        device: Box::new(ModelDevice::new(&Model::preset(setup.disk)?, 1)),
        elevator: "ascend".parse().expect("the elevator is a row of the table"),
        device_depth: None,
        requests_max: u32::try_from(requests_max).ok(),
        top: Top::Direct { bio_bytes_max: None, serial: false },
        workloads: vec![Workload {
            rw: if setup.streams == 0 { Rw::RandWrite } else { Rw::Write },
            block_size: BlockSize::new(setup.write_kib << 10)?,
            depth: Depth::new(setup.depth())?,
            jobs: Jobs::new(setup.streams.max(1))?,
            end: End::Bytes(setup.total_mib << 20),
            ..Workload::default()
        }],
    };
    let request_ns = search_ns.round().to_string();
    let host = HostModel::preset_with("p3-2002", &[("request_ns", &request_ns)])?;
    Ok(Machine { host: Some(Host::new(&host)), volumes: vec![volume] })
}

/// Passes the allocations of a run through an allocator, in order. Returns the requests, and the bios that had to wait.
fn allocate(log: &MachineLog, allocator: &mut dyn Slots) -> Result<(u64, u64), ExperimentError> {
    let (mut slots, mut requests, mut waits) = (HashMap::new(), 0, 0);
    log.steps(&mut |step| match (step.event, step.subject) {
        // A request of a flush has no slot of the table.
        (Event::Get, Subject::Request(number)) => {
            requests += 1;
            if let Some(slot) = allocator.take(step.op == Op::Write) {
                slots.insert(number, slot);
            }
        }
        (Event::SlotWait, _) => {
            waits += 1;
            // The search fails.
            if let Some(slot) = allocator.take(step.op == Op::Write) {
                allocator.release(slot);
            }
        }
        (Event::Complete, Subject::Request(number)) => {
            if let Some(slot) = slots.remove(&number) {
                allocator.release(slot);
            }
        }
        _ => {}
    })?;
    Ok((requests, waits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_report::experiment::Verdict;

    #[test]
    fn the_list_gives_more_depth_and_takes_few_steps() {
        let settings = Settings::new(PARAMETERS, &["total_mib=128".to_owned()]).unwrap();
        let report = run(&settings).unwrap();
        assert_eq!(report.verdict(), Some(Verdict::Reproduced), "{report:?}");
        let ours = |what: &str| report.rows.iter().find(|row| row.what == what).unwrap().ours;
        assert!(ours("slots examined per request, scanned table") > 100.0);
        // More than one: a bio that finds the list empty searches again.
        assert!(ours("slots examined per request, free list") < 2.0);
    }

    #[test]
    fn with_fewer_buffers_than_slots_both_are_equal() {
        let set = ["streams=0", "dirty_mib=1", "write_kib=16", "total_mib=4", "step_ns=0"].map(str::to_owned);
        let report = run(&Settings::new(PARAMETERS, &set).unwrap()).unwrap();
        assert!((report.rows[0].ours - 1.0).abs() < 1e-9, "{report:?}");
    }
}
