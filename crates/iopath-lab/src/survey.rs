//! A survey recommends path, block size and depth for a target, and reports the CPU cost and anomalies. It measures
//! many short workloads in turns within a given time. `survey/plan.rs` selects the workloads, `survey/schedule.rs`
//! their order,
//! `survey/prepare.rs` opens the target, `survey/modelled.rs` measures a model in virtual time, `survey/findings.rs`
//! interprets the figures, `survey/view.rs` prints them.

pub(crate) mod cell;
mod compare;
mod error;
mod figures;
mod findings;
mod modelled;
mod plan;
mod prepare;
mod schedule;
mod view;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iopath::Volume;

use cell::{Cell, Constraints, HIT_BYTES};
use compare::CpuOf;
use figures::{EngineFacts, Facts, Figures};
use findings::findings;
use iopath_bench::counters::idle_busy_cpus;
use iopath_bench::error::BenchError;
use iopath_bench::export::is_remote;
use iopath_bench::model::is_model;
use iopath_bench::paths::PATHS;
use iopath_bench::progress::{Progress, Stage};
use iopath_bench::refusal::Scope;
use iopath_bench::run::{IDLE_SAMPLE, Lab, Series};
use iopath_bench::runner::Session;
use iopath_bench::signals::Interruption;
use iopath_bench::stripe_name::StripeName;
use iopath_bench::target::{Target, TargetInfo, inspect};
use iopath_report::Rw;
use iopath_report::result::{Host, Report, RunResult};
use plan::Plan;
use prepare::{Prepared, prepare};
use schedule::Schedule;

pub use error::SurveyError;

/// The default time limit of a survey.
pub const DEFAULT_TIME: Duration = Duration::from_secs(90);

/// The minimum time limit.
pub const TIME_MIN: Duration = Duration::from_secs(2);

/// Turns end within this share of the time. The rest is a reserve for transfers in flight and for stalls.
const BEGIN_SHARE: f64 = 0.95;

/// The duration of the sample of the idle load before each round.
const ROUND_IDLE_SAMPLE: Duration = Duration::from_millis(200);

/// The options of a survey.
#[derive(Debug, Clone)]
pub struct SurveyOptions {
    /// A directory (for a temporary scratch file), a file, a block device or a model (`model:NAME`).
    pub target: PathBuf,
    /// The time limit.
    pub time: Duration,
    /// Whether a user's file or device may be overwritten.
    pub overwrite: bool,
    /// Whether to measure and explain the tool itself: the queue without a device, the engine, iopath against the
    /// kernel.
    pub all: bool,
    /// Whether the text has the reasons of each finding.
    pub explain: bool,
}

/// The results of a survey.
#[derive(Debug)]
pub struct Survey {
    /// The figures and findings, for other programs.
    pub report: Report,
    /// The maximum repetitions of a cell, and the time of each.
    rounds: u32,
    slice: Duration,
    cpu_of: CpuOf,
    took: Duration,
    explains: bool,
}

/// Surveys a target. The time limit starts with the call; storage that hangs can exceed it.
pub fn survey(options: &SurveyOptions, progress: &mut dyn Progress) -> Result<Survey, SurveyError> {
    let clock = Instant::now();
    let progress = &mut Overall { inner: progress, clock, time: options.time };
    if is_model(&options.target) {
        return modelled::survey(options, clock, progress);
    }
    refuse_stripe(&options.target)?;
    let info = if is_remote(&options.target) { None } else { Some(inspect(&options.target)?) };
    let lab = Lab::new(IDLE_SAMPLE.min(options.time / 10), progress);
    let Prepared { target, speed, random_write_speed } = prepare(info, options, &lab, progress)?;
    let mut facts = Facts { has_tool: options.all, ..facts_of(&target, lab.host()) };
    let deadline = options.time.mul_f64(BEGIN_SHARE);
    let constraints = Constraints {
        time: deadline.saturating_sub(clock.elapsed()),
        speed,
        random_write_speed,
        size_bytes: target.size_bytes(),
        writes: options.overwrite || target.is_scratch(),
        direct_align_bytes: target.direct_align_bytes().ok(),
        is_remote: target.remote().is_some(),
        is_cached_beneath: target.storage().cached_files().next().is_some(),
        has_tool: options.all,
    };
    let none = Target::none(target.size_bytes());
    let part = target.first(HIT_BYTES);
    let mut turns = Turns::new(&constraints, &target, &part, &none)?;
    let failure = turns.measure(clock, deadline, &mut facts, progress)?;
    let Turns { plan, mut series, mut left_out, .. } = turns;
    if failure.is_some() {
        for one in &mut series {
            one.has_failed = true;
        }
    }
    let measured = plan.cells.iter().zip(&series).filter(|(_, series)| !series.is_empty());
    let runs = measured.map(|(cell, series)| (cell, lab.summarize(series)));
    // A write of a durable cell without a flush within its slice is not a durable write.
    let mut runs: Vec<RunResult> =
        runs.filter(|(cell, run)| cell.is_durable == run.flushes.is_some()).map(|(_, run)| run).collect();
    left_out.extend(unmeasured(&plan.cells, &series, &left_out, end(failure.as_ref(), clock.elapsed())));
    if let Err(error) = target.direct_align_bytes() {
        left_out.push(format!("direct I/O: {error}"));
    }
    runs.sort_by_key(order);
    let findings = findings(&Figures { runs: &runs, facts: &facts });
    let report = Report::new(lab.host().cloned(), target.facts(), runs);
    let failure = failure.map(|error| error.to_string());
    let report = Report { left_out, findings, failure, ..report };
    let (rounds, slice, cpu_of) = (plan.rounds, plan.slice, facts.cpu_of());
    Ok(Survey { report, rounds, slice, cpu_of, took: clock.elapsed(), explains: options.explain })
}

/// Refuses a target that consists of others on this machine.
fn refuse_stripe(target: &Path) -> Result<(), SurveyError> {
    if StripeName::parts(target).is_some() && !target.exists() && !is_remote(target) {
        return Err(SurveyError::Stripe { target: target.to_owned() });
    }
    Ok(())
}

/// The cells of a plan with their measurements.
struct Turns<'a> {
    plan: Plan,
    /// One for each cell.
    series: Vec<Series<'a>>,
    costs: Vec<Duration>,
    left_out: Vec<String>,
}

impl<'a> Turns<'a> {
    fn new(
        constraints: &Constraints,
        target: &'a Target,
        part: &'a Target,
        none: &'a Target,
    ) -> Result<Self, BenchError> {
        let plan = Plan::new(constraints);
        let new = |cell: &Cell| {
            let workload = cell.workload(constraints, plan.slice)?;
            let target = match cell.hit {
                Some(_) => part,
                None if workload.path.capabilities.needs_target => target,
                None => none,
            };
            Series::new(&workload, target)
        };
        let series = plan.cells.iter().map(new).collect::<Result<_, BenchError>>()?;
        let (costs, left_out) = (plan.costs(constraints.speed), plan.left_out.clone());
        Ok(Self { plan, series, costs, left_out })
    }

    /// Measures in turns until the deadline, a signal or a failure. Measures the load by other programs before each
    /// round. Returns the failure, if there are measurements before it.
    fn measure(
        &mut self,
        clock: Instant,
        deadline: Duration,
        facts: &mut Facts,
        progress: &mut dyn Progress,
    ) -> Result<Option<BenchError>, BenchError> {
        let mut schedule = Schedule::new(&self.costs, self.plan.rounds, deadline);
        let mut round = 0;
        let mut refused = None;
        while let Some(turn) = schedule.poll_turn(clock.elapsed()) {
            if turn.round > round {
                round = turn.round;
                facts.busy_cpus = max_load(facts.busy_cpus, idle_busy_cpus(ROUND_IDLE_SAMPLE).ok());
            }
            let cell = self.plan.cells[turn.cell];
            let left = schedule.left(clock.elapsed());
            let (workload, rounds) = (cell.to_string(), self.plan.rounds);
            progress.stage(&Stage::Turn { workload, round, rounds, left });
            let begun = Instant::now();
            let series = &mut self.series[turn.cell];
            let measured = series.turn(1, &mut Session::default(), progress);
            if self.series.iter().zip(0..).any(|(series, cell)| cell != turn.cell && !series.is_empty()) {
                // Advice needs complete repetitions. The part of the first one is shown, as it is all there is.
                self.series[turn.cell].drop_cut_off();
            }
            match measured {
                Ok(()) => schedule.handle_measured(turn, begun.elapsed()),
                Err(error) if error.scope() == Scope::Workload => {
                    self.left_out.push(format!("{}: {error}", cell.path));
                    let same =
                        self.plan.cells.iter().enumerate().filter(|(_, other)| other.path == cell.path);
                    same.for_each(|(index, _)| schedule.handle_refused(index));
                    refused.get_or_insert(error);
                }
                Err(error) => return error.into_failure(!self.series.iter().all(Series::is_empty)),
            }
            progress.advance(0.0);
        }
        match refused {
            Some(error) if self.series.iter().all(Series::is_empty) => Err(error),
            _ => Ok(None),
        }
    }
}

/// The larger of two loads; none if one is not known.
fn max_load(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.zip(other).map(|(one, other)| one.max(other))
}

/// The end of a survey before its time; none for a complete one.
fn end(failure: Option<&BenchError>, elapsed: Duration) -> Option<String> {
    let cause = match failure {
        Some(_) => "failed",
        None if Interruption::is_requested() => "interrupted",
        None => return None,
    };
    Some(format!("{cause} after {} s", elapsed.as_secs()))
}

/// Cells of the plan that were not measured: for lack of time, or because of an early end.
fn unmeasured(
    cells: &[Cell],
    series: &[Series],
    left_out: &[String],
    early_end: Option<String>,
) -> Option<String> {
    let refused = |cell: &Cell| left_out.iter().any(|left| left.starts_with(&format!("{}: ", cell.path)));
    let missed =
        cells.iter().zip(series).filter(|(cell, series)| series.is_empty() && !refused(cell)).count();
    match early_end {
        Some(end) if missed == 0 => Some(format!("further repetitions: {end}")),
        Some(end) => Some(format!("{missed} of {} measurements: {end}", cells.len())),
        None if missed == 0 => None,
        None => Some(format!(
            "{missed} of {} measurements: not enough time, because the storage became slower; use a longer --time",
            cells.len()
        )),
    }
}

fn facts_of(target: &Target, host: Option<&Host>) -> Facts {
    let info = target.info();
    let filesystem = info.and_then(|info| info.filesystem.as_ref());
    let compressing = filesystem.filter(|filesystem| filesystem.compresses() && !target.is_scratch());
    Facts {
        is_model: false,
        has_tool: false,
        disk: target.facts().and_then(|facts| facts.disk),
        no_disk: info.and_then(no_disk),
        cached_files: target.storage().cached_files().map(Path::to_owned).collect(),
        unwritten: target.unwritten(),
        compressing: compressing.map(|filesystem| filesystem.name.clone()),
        transforms: target
            .storage()
            .transforms()
            .iter()
            .filter(|one| !(one.depends_on_content() && target.is_scratch()))
            .map(ToString::to_string)
            .collect(),
        engine: match target.remote() {
            Some(_) => Some(EngineFacts { name: "remote".to_owned(), fallback: None }),
            None => target.file().and_then(engine_facts),
        },
        cores: host.map_or(0, |host| host.cores),
        memory_bytes: host.map_or(0, |host| host.memory_bytes),
        busy_cpus: host.and_then(|host| host.idle_busy_cpus),
    }
}

/// The reason why no single disk is known; none if a disk is known.
fn no_disk(target: &TargetInfo) -> Option<String> {
    target.backing.known_disk().err().map(str::to_owned)
}

/// None if the target cannot be opened as a volume.
fn engine_facts(file: &Path) -> Option<EngineFacts> {
    let volume = Volume::open(file, &iopath::Options::new()).ok()?;
    let facts = volume.facts();
    let fallback = facts.fallback.as_ref().map(ToString::to_string);
    Some(EngineFacts { name: facts.engine.to_owned(), fallback })
}

/// The key by which the report orders runs, as the tables do.
fn order(run: &RunResult) -> (bool, usize, u32, u32, usize) {
    let rw = Rw::ALL.iter().position(|rw| rw.name() == run.rw).unwrap_or(usize::MAX);
    let path = PATHS.iter().position(|row| row.name == run.path).unwrap_or(usize::MAX);
    (run.warm, rw, run.block_bytes, run.io_depth, path)
}

/// Reports the progress of the whole survey: turns, without the stages of each turn, and the elapsed share of the time.
struct Overall<'a> {
    inner: &'a mut dyn Progress,
    clock: Instant,
    time: Duration,
}

impl Progress for Overall<'_> {
    fn stage(&mut self, stage: &Stage) {
        if !matches!(stage, Stage::DropCache | Stage::WarmUp | Stage::Repeat { .. }) {
            self.inner.stage(stage);
        }
    }

    fn advance(&mut self, _done: f64) {
        self.inner.advance(self.clock.elapsed().as_secs_f64() / self.time.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_known_only_if_each_sample_is_known() {
        assert_eq!(max_load(Some(0.1), Some(0.2)), Some(0.2));
        assert_eq!(max_load(Some(0.1), None), None);
    }

    #[test]
    fn a_stripe_is_refused_by_name() {
        let error = refuse_stripe(Path::new("stripe:128k:a,b")).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("stripe:128k:a,b"), "{error}");
        for target in ["stripes", "nbd://host/export", "nbd+unix:///?socket=/run/nbd"] {
            refuse_stripe(Path::new(target)).unwrap();
        }
    }
}
