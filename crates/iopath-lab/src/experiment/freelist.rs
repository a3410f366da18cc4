//! `freelist`: the allocation of requests. With a table that all queues share, writes of one disk get two thirds of 256
//! slots, and each search scans the table; with a list for each queue, the disk has all slots, and an allocation takes
//! one step.

mod slots;

use std::collections::HashMap;

use iopath_core::Op;
use iopath_core::log::{Event, Subject};
use iopath_log::Filter;
use iopath_model::{Host, HostModel, Model, ModelDevice};

use super::{Direction, Experiment, Parameter, Report, Row, Settings};
use crate::error::LabError;
use crate::simulated::machine::{Machine, MachineLog, Outcome, Top, VolumeSetup};
use crate::workload::{BlockSize, End, Jobs, Rw, Workload};
use slots::{FreeList, ScannedTable, Slots};

pub(super) static ROW: Experiment = Experiment {
    id: "freelist",
    title: "a free list of requests for each queue",
    published: "J. Axboe and A. Morton, queueing changes for Linux 2.4, linux-kernel, 2001: chiefly a request free list \
        and a lock for each queue instead of a scan of 256 slots that all queues share. Throughput of one disk rises by \
        14%.",
    parameters: PARAMETERS,
    run,
    on_target: None,
};

const PARAMETERS: &[Parameter] = &[
    Parameter::count("slots", "", 256, (3, 65536), "the source: 256 slots"),
    Parameter::count("callers", "", 256, (1, 4096), "assumed: the source does not state the workload"),
    Parameter::count("write_kib", "KiB", 4, (4, 1024), "assumed: the source does not state the workload"),
    Parameter::count("total_mib", "MiB", 16, (1, 1024), "assumed: the amount has no effect on the rates"),
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

fn run(settings: &Settings) -> Result<Report, LabError> {
    let slots = settings.count("slots") as usize;
    let scanned = measure(settings, ScannedTable::for_writes(slots), &mut ScannedTable::new(slots))?;
    let listed = measure(settings, slots, &mut FreeList::new(slots))?;
    let ratio = listed.mb_per_s / scanned.mb_per_s;
    let what = "throughput of one disk, list : scanned table";
    let ratio_row = if settings.is_any_set() {
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
    let mut evidence = Vec::new();
    for log in [&scanned.log, &listed.log].into_iter().flatten() {
        evidence.append(&mut log.lines(&Filter::default(), 1, &mut |line| line.contains(" slot-wait "))?);
    }
    Ok(Report {
        rows,
        directions: vec![
            Direction::new("the list is faster than the scanned table", ratio > 1.0),
            Direction::new(
                "the gain is between half and twice the published gain",
                (GAIN / 2.0..=GAIN * 2.0).contains(&(ratio - 1.0)),
            ),
        ],
        evidence,
        notes: vec![
            "The gain of the model comes from the depth: a free list gives the writes of a disk all slots instead of two \
             thirds, and the elevator sorts more requests. The scan does not slow the modelled run: its CPU time (0.06%) is \
             computed from the allocations after the run, and the disk is the bottleneck."
                .to_owned(),
            "Missing: the source states neither the workload nor the processors. The model has no lock that several \
             processors wait for, and it wakes the callers that wait for a slot in their order."
                .to_owned(),
        ],
    })
}

/// Runs the workload with `requests_max` request slots, and its allocations through `allocator`.
fn measure(
    settings: &Settings,
    requests_max: usize,
    allocator: &mut dyn Slots,
) -> Result<Measured, LabError> {
    let volume = VolumeSetup {
        device: Box::new(ModelDevice::new(&Model::preset("ide-2001")?, 1)),
        elevator: "ascend".parse().expect("the elevator is a row of the table"),
        device_depth: None,
        requests_max: u32::try_from(requests_max).ok(),
        top: Top::Direct { bio_bytes_max: None, serial: false },
        workloads: vec![Workload {
            rw: Rw::RandWrite,
            block_size: BlockSize::new(settings.count("write_kib") << 10)?,
            jobs: Jobs::new(settings.count("callers"))?,
            end: End::Bytes(settings.count("total_mib") << 20),
            ..Workload::default()
        }],
    };
    let host = Host::new(&HostModel::preset("p3-2002")?);
    let mut outcome = Machine { host: Some(host), volumes: vec![volume] }.run(1, true)?;
    let log = outcome.log.take();
    let (requests, waits) = match &log {
        Some(log) => allocate(log, allocator)?,
        None => (0, 0),
    };
    let Outcome { seconds, .. } = outcome;
    let cpu_seconds = allocator.steps() as f64 * settings.number("step_ns") / 1e9;
    Ok(Measured {
        mb_per_s: outcome.bytes_per_second() / 1e6,
        steps_per_request: allocator.steps() as f64 / requests as f64,
        cpu_percent: cpu_seconds / seconds * 100.0,
        waits_percent: waits as f64 / requests as f64 * 100.0,
        log,
    })
}

/// Passes the allocations of a run through an allocator, in order. Returns the requests, and the bios that had to wait.
fn allocate(log: &MachineLog, allocator: &mut dyn Slots) -> Result<(u64, u64), LabError> {
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
            // A search that fails.
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
    use crate::experiment::Verdict;

    #[test]
    fn the_list_gives_more_depth_and_takes_one_step() {
        let report = run(&Settings::new(PARAMETERS, &[]).unwrap()).unwrap();
        assert_eq!(report.verdict(), Some(Verdict::Partly), "{report:?}");
        let ours = |what: &str| report.rows.iter().find(|row| row.what == what).unwrap().ours;
        assert!(ours("slots examined per request, scanned table") > 100.0);
        assert!((ours("slots examined per request, free list") - 1.0).abs() < 1e-9);
        assert!(report.directions[0].holds);
    }

    #[test]
    fn with_fewer_callers_than_slots_both_are_equal() {
        let set = ["callers=100".to_owned(), "total_mib=4".to_owned()];
        let report = run(&Settings::new(PARAMETERS, &set).unwrap()).unwrap();
        assert!((report.rows[0].ours - 1.0).abs() < 1e-9, "{report:?}");
    }
}
