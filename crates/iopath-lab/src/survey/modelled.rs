//! A survey of a modelled disk, in virtual time: the same tables and findings without paths of the kernel, page caches
//! and CPU cost. The result is the same on every machine, unless the time limit ends it.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use super::cell::{Cell, MIXED_READS};
use super::compare::CpuOf;
use super::figures::{Facts, Figures};
use super::findings::findings;
use super::plan::Plan;
use super::{BEGIN_SHARE, Survey, SurveyError, SurveyOptions, order};
use iopath_bench::error::BenchError;
use iopath_bench::paths::find_path;
use iopath_bench::progress::{Progress, Stage};
use iopath_bench::refusal::Scope;
use iopath_bench::run::Lab;
use iopath_bench::target::Target;
use iopath_bench::workload::{BlockSize, Depth, End, ReadShare, Repetitions, Workload};
use iopath_report::result::Report;

/// The repetitions of each cell, and the virtual time of each.
const REPETITIONS: u32 = 3;
const SLICE: Duration = Duration::from_secs(2);

/// The maximum number of transfers of a repetition: it bounds the real time of fast models.
const TRANSFERS_MAX: u64 = 20_000;

/// The parts of a survey that a model does not have.
const LEFT_OUT: &str = "paths of the kernel, page caches: a model has only iopath's queue";

/// Surveys a model.
pub(super) fn survey(
    options: &SurveyOptions,
    clock: Instant,
    progress: &mut dyn Progress,
) -> Result<Survey, SurveyError> {
    let any = Workload {
        path: find_path("iopath-direct")?,
        target: Some(options.target.clone()),
        ..Workload::default()
    };
    let target = Target::prepare(&any, progress)?;
    let (cells, mut left_out) = Plan::of_model(target.size_bytes(), target.direct_align_bytes()?);
    let deadline = options.time.mul_f64(BEGIN_SHARE);
    let (mut runs, mut failure, mut refused) = (Vec::new(), None, None);
    for (number, cell) in (1..).zip(&cells) {
        if clock.elapsed() > deadline {
            let missed = cells.len() - runs.len();
            left_out.push(format!(
                "{missed} of {} measurements: not enough time; use a longer --time",
                cells.len()
            ));
            break;
        }
        progress.stage(&Stage::Combination { name: cell.to_string(), number, count: cells.len() as u32 });
        match Lab::in_virtual_time().run_until_signal(&workload(*cell)?, &target, progress) {
            Ok(run) if !runs.is_empty() && run.repeats.iter().any(|repeat| repeat.cut_off) => {}
            Ok(run) => runs.push(run),
            Err(error) if error.scope() == Scope::Workload => {
                left_out.push(format!("{cell}: {error}"));
                refused.get_or_insert(error);
            }
            Err(error) => failure = error.into_failure(!runs.is_empty())?,
        }
        if let Some(end) = super::end(failure.as_ref(), clock.elapsed()) {
            left_out.push(format!("{} of {} measurements: {end}", cells.len() - runs.len(), cells.len()));
            break;
        }
        progress.advance(0.0);
    }
    if let Some(error) = refused.filter(|_| runs.is_empty()) {
        return Err(error.into());
    }
    runs.sort_by_key(order);
    let facts = Facts { is_model: true, ..Facts::default() };
    let findings = findings(&Figures { runs: &runs, facts: &facts });
    left_out.push(LEFT_OUT.to_owned());
    let failure = failure.map(|error| error.to_string());
    let report = Report { left_out, findings, failure, ..Report::new(None, target.facts(), runs) };
    Ok(Survey {
        report,
        rounds: REPETITIONS,
        slice: SLICE,
        cpu_of: CpuOf::Unknown,
        took: clock.elapsed(),
        explains: options.explain,
    })
}

fn workload(cell: Cell) -> Result<Workload, BenchError> {
    let bytes = TRANSFERS_MAX * u64::from(cell.block_bytes);
    Ok(Workload {
        path: find_path(cell.path)?,
        rw: cell.rw,
        block_size: BlockSize::new(cell.block_bytes)?,
        depth: Depth::new(cell.io_depth)?,
        read_share: ReadShare::new(MIXED_READS)?,
        flush_every: NonZeroU64::new(u64::from(cell.is_durable)),
        repetitions: Repetitions::constant(REPETITIONS),
        end: End::TimeOrBytes(SLICE, bytes),
        ..Workload::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_bench::progress::Silent;
    use iopath_report::format::{Document, View};
    use iopath_report::result::{Clock, Confidence};

    fn surveyed(target: &str) -> Survey {
        let time = Duration::from_secs(600);
        let options =
            SurveyOptions { target: target.into(), time, overwrite: false, all: false, explain: false };
        survey(&options, Instant::now(), &mut Silent).unwrap()
    }

    #[test]
    fn a_model_has_the_findings_of_a_disk_and_the_same_result_each_time() {
        let first = surveyed("model:hdd-20tb");
        assert_eq!(first.report.clock, Clock::Virtual);
        let ids: Vec<&str> = first.report.findings.iter().map(|finding| finding.id.as_str()).collect();
        for id in
            ["sequential-read", "sequential-write", "random-read", "random-write", "durable-write", "mixed"]
        {
            assert!(ids.contains(&id), "{id}: {ids:?}");
        }
        assert!(first.report.findings.iter().all(|finding| finding.confidence != Some(Confidence::High)));
        let text = first.text(View::plain(None));
        assert!(text.contains("Left out: paths of the kernel") && !text.contains("CPU"), "{text}");
        assert_eq!(first.report, surveyed("model:hdd-20tb").report);
    }

    #[test]
    fn a_failure_leaves_the_results_before_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("faulty.toml");
        let text = "kind = \"faulty\"\nerror_one_in = 10000\ndevice.base = \"hdd-20tb\"\n";
        std::fs::write(&file, text).unwrap();
        let report = surveyed(&format!("model:{}", file.display())).report;
        assert!(report.failure.is_some() && !report.runs.is_empty(), "{:?}", report.left_out);
        assert!(report.left_out.iter().any(|left| left.contains("failed after")), "{:?}", report.left_out);
    }
}
