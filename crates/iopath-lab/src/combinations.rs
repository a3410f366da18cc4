//! Measures several workloads side by side: the combinations of the lists on a command line. The repetitions of all
//! combinations alternate, so a drift of the machine affects all of them. Does not measure a repetition itself: see
//! `iopath-bench`. `marks.rs` of `iopath-report` marks the best and the worst.

use std::rc::Rc;

use iopath_bench::error::BenchError;
use iopath_bench::model::is_model;
use iopath_bench::options::{check_one_of_several, flag_of};
use iopath_bench::peers::Peers;
use iopath_bench::progress::{Progress, Stage};
use iopath_bench::refusal::Scope;
use iopath_bench::run::{IDLE_SAMPLE, Lab, Series};
use iopath_bench::runner::Session;
use iopath_bench::signals::Interruption;
use iopath_bench::target::Target;
use iopath_bench::workload::Workload;
use iopath_report::result::{Report, Skipped};
use iopath_report::size::format_size;

use crate::campaign::target::SharedTarget;
use crate::campaign::{OnlyAdvance, order};
use crate::hosts::Team;

/// Measures workloads on one target, one repetition of each per round. The order within a round is random, from the
/// seed of the first workload. Target, size, repetitions and permissions are those of the first workload. In virtual
/// time, the order has no effect, and the workloads run one after another.
///
/// A workload that the path or the target refuses is skipped; [`Report::skipped`] has its name and the reason.
///
/// # Errors
/// [`BenchError`]: all workloads are refused, the target cannot be used at all, or a transfer failed.
///
/// # Panics
/// Without a workload.
pub fn report_all(workloads: &[Workload], progress: &mut dyn Progress) -> Result<Report, BenchError> {
    report_all_with(workloads, None, progress)
}

/// As [`report_all`], on all ranks of a team: a workload that one rank refuses is skipped on all of them.
///
/// # Errors
/// As for [`report_all`].
///
/// # Panics
/// As [`report_all`].
pub fn report_all_with(
    workloads: &[Workload],
    team: Option<&Rc<Team>>,
    progress: &mut dyn Progress,
) -> Result<Report, BenchError> {
    let first = workloads.first().expect("there is a workload at least");
    workloads.iter().try_for_each(check_one_of_several)?;
    let mut skips = Skips { workloads, skipped: Vec::new(), first: None };
    if first.target.as_deref().is_some_and(is_model) {
        return on_models(skips, progress);
    }
    let mut checked = Vec::new();
    for (number, workload) in workloads.iter().enumerate() {
        let check = workload.check().and_then(|()| workload.check_on_storage());
        if skips.unless_refused(number, check.map_err(BenchError::from))?.is_some() {
            checked.push((number, workload));
        }
    }
    let shared = SharedTarget::prepare(&checked, progress, |number, error| skips.add(number, error))?;
    let mut series: Vec<Option<Series>> = workloads.iter().map(|_| None).collect();
    for (number, workload) in checked {
        if !skips.has(number) {
            series[number] = skips.unless_refused(number, Series::new(workload, shared.of(workload)))?;
        }
    }
    if let Some(team) = team {
        skips.agree(team)?;
        for (number, one) in series.iter_mut().enumerate() {
            *one = one.take().filter(|_| !skips.has(number));
        }
    }
    if series.iter().all(Option::is_none) {
        return skips.report(Report::new(None, None, Vec::new()));
    }
    let lab = Lab::new(IDLE_SAMPLE, progress);
    let failure = measure(&mut series, &mut skips, team, progress)?;
    let runs: Vec<_> = series
        .iter()
        .flatten()
        .filter(|series| !series.is_empty())
        .map(|series| lab.summarize(series))
        .collect();
    let facts = shared.target.as_ref().and_then(Target::facts);
    let more_targets = shared.target.as_ref().map_or_else(Vec::new, Target::further_facts);
    let failure = failure.map(|error| error.to_string());
    skips.report(Report { more_targets, failure, ..Report::new(lab.host().cloned(), facts, runs) })
}

/// The rounds of all series that are not skipped.
fn measure(
    series: &mut [Option<Series>],
    skips: &mut Skips,
    team: Option<&Rc<Team>>,
    progress: &mut dyn Progress,
) -> Result<Option<BenchError>, BenchError> {
    let first = &skips.workloads[0];
    let rounds = first.repetitions.get();
    let peers = team.map(|team| -> &dyn Peers { &**team });
    for round in 1..=rounds {
        for number in order(first.seed, round, skips.workloads.len()) {
            let Some(one) = &mut series[number] else { continue };
            let name = skips.name(number);
            progress.stage(&Stage::Combination { name, number: round, count: rounds });
            let has_begun = !one.is_empty();
            let mut session = Session::default().with_peers(peers);
            if let Some(team) = team {
                team.begin_series(number);
            }
            let measured = one.turn(1, &mut session, &mut OnlyAdvance(progress));
            let measured = measured.map_err(|error| match team {
                Some(team) if !has_begun => team.refuse(error),
                _ => error,
            });
            if team.is_some() {
                // Results have the repetitions that are complete on all ranks.
                one.drop_cut_off();
            }
            let is_measured = series.iter().flatten().any(|one| !one.is_empty());
            // What a combination has measured is never skipped.
            let outcome = if has_begun { measured.map(Some) } else { skips.unless_refused(number, measured) };
            match outcome {
                Ok(Some(())) => {}
                Ok(None) => series[number] = None,
                Err(error) => {
                    let failure = error.into_failure(is_measured)?;
                    series.iter_mut().flatten().for_each(|one| one.has_failed = failure.is_some());
                    return Ok(failure);
                }
            }
        }
    }
    Ok(None)
}

/// Measures the workloads in virtual time, one after another.
fn on_models(mut skips: Skips, progress: &mut dyn Progress) -> Result<Report, BenchError> {
    let (mut runs, mut facts, mut failure) = (Vec::new(), None, None);
    let count = skips.workloads.len();
    for (number, workload) in skips.workloads.iter().enumerate() {
        progress.stage(&Stage::Combination {
            name: skips.name(number),
            number: number as u32 + 1,
            count: count as u32,
        });
        let ran = Target::prepare(workload, progress).and_then(|target| {
            let result =
                Lab::in_virtual_time().run_until_signal(workload, &target, &mut OnlyAdvance(progress))?;
            Ok((result, target.facts(), target.further_facts()))
        });
        match skips.unless_refused(number, ran) {
            Ok(Some((result, first, further))) => {
                runs.push(result);
                facts = facts.or(Some((first, further)));
            }
            Ok(None) => {}
            Err(error) => {
                failure = error.into_failure(!runs.is_empty())?.map(|error| error.to_string());
                break;
            }
        }
        if Interruption::is_requested() && !runs.is_empty() {
            break;
        }
    }
    let (first, more_targets) = facts.unwrap_or_default();
    skips.report(Report { more_targets, failure, ..Report::new(None, first, runs) })
}

/// The combinations that cannot run.
struct Skips<'a> {
    workloads: &'a [Workload],
    /// With the number of the combination.
    skipped: Vec<(usize, Skipped)>,
    /// The error of the first of them.
    first: Option<BenchError>,
}

impl Skips<'_> {
    fn has(&self, number: usize) -> bool {
        self.skipped.iter().any(|(skipped, _)| *skipped == number)
    }

    /// Skips the combinations that any rank refuses.
    fn agree(&mut self, team: &Team) -> Result<(), BenchError> {
        let own: Vec<(usize, String)> =
            self.skipped.iter().map(|(number, skipped)| (*number, skipped.reason.clone())).collect();
        let all = team.agree(&own)?;
        self.skipped.clear();
        self.first = None;
        for (number, reason) in all {
            self.add(number, BenchError::PeerRefused(reason));
        }
        Ok(())
    }

    fn add(&mut self, number: usize, refusal: BenchError) {
        let skipped = Skipped { workload: self.name(number), reason: refusal.message(flag_of) };
        self.skipped.push((number, skipped));
        self.first.get_or_insert(refusal);
    }

    /// The value; none if the path or the target refuses the combination, which is then skipped.
    fn unless_refused<T>(
        &mut self,
        number: usize,
        result: Result<T, BenchError>,
    ) -> Result<Option<T>, BenchError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.scope() == Scope::Workload => {
                self.add(number, error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The name of a combination: the path, and the values that not all combinations share.
    fn name(&self, number: usize) -> String {
        let (workload, first) = (&self.workloads[number], &self.workloads[0]);
        let mut name = workload.path.name.to_owned();
        let mut add = |differs: &dyn Fn(&Workload) -> bool, text: String| {
            if self.workloads.iter().any(differs) {
                name = format!("{name}, {text}");
            }
        };
        add(&|other| other.rw != first.rw, workload.rw.name().to_owned());
        add(&|other| other.block_size != first.block_size, format_size(workload.block_size.into()));
        add(&|other| other.depth != first.depth, format!("depth {}", workload.depth.get()));
        add(&|other| other.jobs != first.jobs, format!("{} jobs", workload.jobs.get()));
        name
    }

    /// The report with the skipped combinations; the first error if there is no run.
    fn report(mut self, report: Report) -> Result<Report, BenchError> {
        if let Some(error) = self.first.filter(|_| report.runs.is_empty()) {
            return Err(error);
        }
        self.skipped.sort_by_key(|(number, _)| *number);
        let skipped = self.skipped.into_iter().map(|(_, skipped)| skipped).collect();
        Ok(Report { skipped, ..report })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_bench::paths::find_path;
    use iopath_bench::progress::Silent;
    use iopath_bench::workload::{BlockSize, Depth, Repetitions};

    fn on_null(block_bytes: u32, depth: u32) -> Workload {
        Workload {
            path: find_path("null").unwrap(),
            block_size: BlockSize::constant(block_bytes),
            depth: Depth::constant(depth),
            size_bytes: Some(1 << 20),
            repetitions: Repetitions::constant(2),
            ..Workload::default()
        }
    }

    /// Records the stages.
    #[derive(Default)]
    struct Stages(Vec<(String, u32)>);

    impl Progress for Stages {
        fn stage(&mut self, stage: &Stage) {
            if let Stage::Combination { name, number, .. } = stage {
                self.0.push((name.clone(), *number));
            }
        }

        fn advance(&mut self, _done: f64) {}
    }

    #[test]
    fn repetitions_alternate_and_the_results_have_the_order_of_the_workloads() {
        let workloads: Vec<Workload> =
            [(4096, 1), (4096, 8), (8192, 1), (8192, 8)].map(|(block, depth)| on_null(block, depth)).into();
        let mut stages = Stages::default();
        let report = report_all(&workloads, &mut stages).unwrap();
        let runs: Vec<_> =
            report.runs.iter().map(|run| (run.block_bytes, run.io_depth, run.repeats.len())).collect();
        assert_eq!(runs, [(4096, 1, 2), (4096, 8, 2), (8192, 1, 2), (8192, 8, 2)]);
        let rounds: Vec<u32> = stages.0.iter().map(|(_, round)| *round).collect();
        assert_eq!(rounds, [1, 1, 1, 1, 2, 2, 2, 2], "all combinations once, then all again");
        assert!(stages.0.iter().any(|(name, _)| name == "null, 8 KiB, depth 8"), "{:?}", stages.0);
    }

    #[test]
    fn a_combination_that_cannot_run_is_skipped_with_its_name_and_the_reason() {
        let report = report_all(&[on_null(1000, 1), on_null(4096, 1)], &mut Silent).unwrap();
        assert_eq!(report.runs.len(), 1);
        let [Skipped { workload, reason }] = &report.skipped[..] else { panic!("{:?}", report.skipped) };
        assert_eq!(workload, "null, 1000 bytes");
        assert!(reason.contains("1000 is not valid"), "{reason}");
        let error = report_all(&[on_null(1000, 1), on_null(1001, 1)], &mut Silent).unwrap_err();
        assert!(error.to_string().contains("1000 is not valid"), "the first reason: {error}");
    }
}
