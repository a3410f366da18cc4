//! `merge`: the limits of the elevator refuse merges, and this reduces the throughput of a disk. The setup is in
//! `elevator_limits.rs`.

use std::time::Duration;

use iopath_report::Rw;
use iopath_report::experiment::{Direction, Report, Row, Settings};
use iopath_report::result::RunResult;

use super::elevator_limits::{
    DEPTH, GOOD, LIFTED, LIMITS, Limits, Mixed, OTHERS, parameters, run as run_mixed, run_on,
};
use super::error::ExperimentError;
use super::on_target::TargetRun;
use super::published::published;
use super::row::{Experiment, OnTarget};
use iopath_bench::paths::find_path;
use iopath_bench::workload::{BlockSize, Depth, DeviceDepth, End, Jobs, ReadShare, Workload};

pub(super) static ROW: Experiment = Experiment {
    id: "merge",
    title: "limits of the elevator that refuse to merge",
    published: "With the latency, starvation and write-bomb limits of the elevator, which refuse merges, a disk transfers \
                26 MB/s; with the limits lifted, 34 MB/s. The settings 8192, 131072, 128, 2 keep most of the gain and the \
                interactive feel (Linux 2.3.99 and 2.4 elevator, 2000).",
    parameters: &parameters([
        (128, "Linux 2.3.99 (ELEVATOR_DEFAULTS)"),
        (8192, "Linux 2.3.99 (ELEVATOR_DEFAULTS)"),
        (4, "Linux 2.3.99 (ELEVATOR_DEFAULTS)"),
        (0, "Linux 2.3.99: the limit applies to any pending read"),
    ]),
    run,
    on_target: Some(OnTarget::Writes(on_target)),
};

fn run(settings: &Settings) -> Result<Report, ExperimentError> {
    let classic = Limits::of(settings);
    let chosen = run_mixed(settings, classic)?;
    if LIMITS.iter().any(|name| settings.is_set(name)) {
        let (rows, evidence) = (rows(&classic.to_string(), &chosen, None), evidence(&chosen)?);
        return Ok(Report { rows, evidence, ..Report::default() });
    }
    let (good, lifted) = (run_mixed(settings, GOOD)?, run_mixed(settings, LIFTED)?);
    let rate = |limits| published("elevator").find(&[("limits", limits)]).map(|row| row.number("mb_per_s"));
    let mut all = rows(&classic.to_string(), &chosen, rate("classic"));
    all.extend(rows("limits lifted", &lifted, rate("lifted")));
    for row in all.iter_mut().filter(|row| row.what == "throughput, limits lifted") {
        row.calibrated = true;
    }
    all.extend(rows(&GOOD.to_string(), &good, None));
    for other in &OTHERS {
        for (name, limits) in [(classic.to_string(), classic), ("limits lifted".to_owned(), LIFTED)] {
            let rate = run_on(other, settings, limits)?.mb_per_s();
            all.push(Row::unpublished(format!("{}: {name}", other.name), "MB/s", rate));
        }
    }
    let directions = directions(&chosen, &good, &lifted);
    Ok(Report { rows: all, directions, evidence: evidence(&chosen)?, notes: vec![NOTE.to_owned()] })
}

/// The bytes of the scratch file, and the time of each measurement.
const TARGET_BYTES: u64 = 256 << 20;
const TARGET_TIME: Duration = Duration::from_secs(3);

/// Runs a sequential stream of many writes and few reads, which wait in the queue together. A run has only one
/// workload, so the reads are part of the stream.
fn on_target(target: &mut TargetRun<'_>) -> Result<Report, ExperimentError> {
    let settings = target.settings();
    let scratch = target.scratch(TARGET_BYTES, settings.count("seed"))?;
    let mut measure = |limits: Limits| {
        let workload = Workload {
            path: find_path("iopath-direct")?,
            rw: Rw::Rw,
            read_share: ReadShare::constant(5),
            block_size: BlockSize::new(settings.count("bs_bytes"))?,
            depth: Depth::new(settings.count("write_depth"))?,
            jobs: Jobs::new(settings.count("writers"))?,
            end: End::Time(TARGET_TIME),
            elevator: Some(limits.elevator()),
            device_depth: Some(DeviceDepth::new(settings.count(DEPTH))?),
            ..Workload::default()
        };
        target.measure(&workload, &scratch)
    };
    let chosen = Limits::of(settings);
    let (classic, good, lifted) = (measure(chosen)?, measure(GOOD)?, measure(LIFTED)?);
    let rate = |run: &RunResult| run.bytes_per_second.mean / 1e6;
    let mut report = Report::default();
    for (name, run) in
        [(chosen.to_string(), &classic), ("limits lifted".to_owned(), &lifted), (GOOD.to_string(), &good)]
    {
        report.rows.push(Row::unpublished(format!("throughput, {name}"), "MB/s", rate(run)));
        if let Some(bytes) = run.device.and_then(|device| device.mean_io_bytes()) {
            report.rows.push(Row::unpublished(format!("mean request, {name}"), "KiB", bytes / 1024.0));
        }
    }
    report.notes.push(TARGET_NOTE.to_owned());
    Ok(report)
}

const TARGET_NOTE: &str = "On real storage the plug merges the neighbours of a batch before the elevator receives them, \
                           and the plug has no such limits. The effect needs bios that arrive one by one at a busy device. \
                           So it cannot occur here, and differences between these rows are random.";

const NOTE: &str = "The source does not name the workload. The setup is a hypothesis: one sequential stream of writes, and \
                    one reader of random blocks that waits for each of them. Its numbers were chosen after their effect on \
                    the figures was known. The prediction for 26 MB/s stays within 25% with 2 to 8 tagged commands, with \
                    256 to 2048 buffers in flight, and with a command overhead of up to 0.5 ms. With two readers it does \
                    not. With 128 buffers, the limits have no effect. The source names no disk either. The last rows have \
                    the same workload on other disks and drivers of that time. The IDE disk has the rate of its data \
                    sheet.";

fn rows(name: &str, mixed: &Mixed, published: Option<f64>) -> Vec<Row> {
    let what = |figure: &str| format!("{figure}, {name}");
    let throughput = match published {
        Some(published) => Row::predicted(what("throughput"), "MB/s", published, mixed.mb_per_s()),
        None => Row::unpublished(what("throughput"), "MB/s", mixed.mb_per_s()),
    };
    vec![
        throughput,
        Row::unpublished(what("mean request"), "KiB", mixed.request_kib()),
        Row::unpublished(what("mean wait of reads"), "ms", mixed.read_mean_ms()),
    ]
}

fn directions(classic: &Mixed, good: &Mixed, lifted: &Mixed) -> Vec<Direction> {
    let kept = (good.mb_per_s() - classic.mb_per_s()) / (lifted.mb_per_s() - classic.mb_per_s());
    vec![
        Direction::new(
            "with the limits lifted the disk transfers more",
            lifted.mb_per_s() > classic.mb_per_s(),
        ),
        Direction::new("8192, 131072, 128, 2 keep more than half of the gain", kept > 0.5),
        Direction::new(
            "8192, 131072, 128, 2 keep the interactive feel: reads wait less than with the limits lifted",
            good.read_mean_ms() < lifted.read_mean_ms(),
        ),
    ]
}

fn evidence(mixed: &Mixed) -> Result<Vec<String>, ExperimentError> {
    mixed.refusals(&["starvation bound", "latency bound"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_report::experiment::Verdict;

    fn report(set: &[&str]) -> Report {
        let set: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
        run(&Settings::new(ROW.parameters, &set).unwrap()).unwrap()
    }

    #[test]
    fn the_effect_is_reproduced_by_refusals_of_the_elevator() {
        let report = report(&["seconds=5"]);
        assert_eq!(report.verdict(), Some(Verdict::Reproduced), "{report:#?}");
        assert_eq!(report.evidence.len(), 2, "{:?}", report.evidence);
    }

    #[test]
    fn a_setting_has_rows_of_its_own_and_no_verdict() {
        let report = report(&["seconds=2", "read_latency=8192"]);
        assert!(report.rows[0].what.ends_with("limits 8192, 8192, 4, 0"), "{:?}", report.rows);
        assert!(report.rows.iter().all(|row| row.published.is_none()));
        assert_eq!(report.verdict(), None);
    }

    #[test]
    fn without_reads_no_limit_has_an_effect() {
        let report = report(&["seconds=2", "readers=0"]);
        assert!((report.rows[0].ours / report.rows[3].ours - 1.0).abs() < 0.01, "{:?}", report.rows);
    }
}
