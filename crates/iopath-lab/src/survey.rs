//! A survey: which path, block size and depth suit a target, at what price, and what is odd about it. Measures many
//! short workloads in turns within a given time. What is measured is in `survey/plan.rs`, whose turn it is in
//! `survey/schedule.rs`, what the figures mean in `survey/findings.rs`; how they look in `survey/view.rs`.

mod compare;
mod findings;
#[cfg(test)]
mod made_up;
mod plan;
mod schedule;
mod view;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iopath::Volume;
use iopath_os::target::{Backing, Disk, Kind};

use crate::counters::idle_busy_cpus;
use crate::error::LabError;
use crate::paths::{PATHS, find_path};
use crate::progress::{Progress, Silent, Stage};
use crate::result::{Report, RunResult, TargetFacts};
use crate::run::{IDLE_SAMPLE, Lab, Series};
use crate::target::{Target, TargetInfo, inspect};
use crate::workload::{BlockSize, End, Repetitions, Rw, Workload};
use compare::CpuOf;
use findings::{EngineFacts, Facts, Figures};
use plan::{Cell, HIT_BYTES, Plan, Terms};
use schedule::Schedule;

/// How long a survey takes at most, where the caller does not say.
pub const DEFAULT_TIME: Duration = Duration::from_secs(90);

/// The least time in which something can be learnt.
pub const TIME_MIN: Duration = Duration::from_secs(2);

/// The share of the time after which nothing is begun: what is in flight has to end, and a stall has to fit in.
const BEGIN_SHARE: f64 = 0.95;

/// The share of the time that making the scratch file may take, at the speed seen of a small one.
const SCRATCH_SHARE: f64 = 0.08;

/// Sizes of scratch files: the small one, and what the real one lies between.
const PROBE_BYTES: u64 = 16 << 20;
const SCRATCH_BYTES_MIN: u64 = 32 << 20;
const SCRATCH_BYTES_MAX: u64 = 1 << 30;

/// A scratch file takes no more than this part of what is free, if that is enough for the least one.
const FREE_PART: u64 = 4;

/// A target has to have as much as this: a few blocks of the smallest size.
const TARGET_BYTES_MIN: u64 = 64 << 10;

/// How long a target that is not ours is read to see its speed.
const PROBE_TIME: Duration = Duration::from_millis(100);

/// How long the idle machine is watched before each round.
const ROUND_IDLE_SAMPLE: Duration = Duration::from_millis(200);

/// What to survey.
#[derive(Debug, Clone)]
pub struct SurveyOptions {
    /// A directory (a scratch file is made there and removed), a file or a block device.
    pub target: PathBuf,
    /// How long it may take in all.
    pub time: Duration,
    /// Whether a file or device that is not a scratch file of ours may be written to.
    pub overwrite: bool,
}

/// What a survey measured and found.
#[derive(Debug)]
pub struct Survey {
    /// In the form for other programs.
    pub report: Report,
    /// What a survey measures and this one did not, and why.
    pub left_out: Vec<String>,
    /// How often each cell was measured at most, and how long each time.
    rounds: u32,
    slice: Duration,
    cpu_of: CpuOf,
    took: Duration,
}

/// Surveys a target. The time is that of the caller's clock from now on; storage that hangs can still exceed it.
pub fn survey(options: &SurveyOptions, progress: &mut dyn Progress) -> Result<Survey, LabError> {
    let clock = Instant::now();
    let progress = &mut Overall { inner: progress, clock, time: options.time };
    let target = inspect(&options.target)?;
    let lab = Lab::new(IDLE_SAMPLE.min(options.time / 10), progress);
    let (place, speed) = prepare(target, options, &lab, progress)?;
    let mut facts = facts_of(&place, &lab);
    let deadline = options.time.mul_f64(BEGIN_SHARE);
    let terms = Terms {
        time: deadline.saturating_sub(clock.elapsed()),
        speed,
        size_bytes: place.size_bytes(),
        writes: options.overwrite || place.is_scratch(),
        direct_align_bytes: place.direct_align_bytes().ok(),
    };
    let nowhere = Target::none(place.size_bytes());
    let part = place.first(HIT_BYTES);
    let mut turns = Turns::new(&terms, &place, &part, &nowhere)?;
    turns.take(clock, deadline, &mut facts, progress)?;
    let Turns { plan, series, mut left_out, .. } = turns;
    let mut runs: Vec<RunResult> =
        series.iter().filter(|series| !series.is_empty()).map(|series| lab.summarize(series)).collect();
    left_out.extend(unmeasured(&plan.cells, &series, &left_out));
    if let Err(error) = place.direct_align_bytes() {
        left_out.push(format!("direct I/O: {error}"));
    }
    runs.sort_by_key(order);
    let findings = Figures { runs: &runs, facts: &facts }.findings();
    let report = Report { findings, ..Report::new(lab.host().clone(), TargetFacts::of(&place), runs) };
    let (rounds, slice, cpu_of) = (plan.rounds, plan.slice, facts.cpu_of());
    Ok(Survey { report, left_out, rounds, slice, cpu_of, took: clock.elapsed() })
}

/// The place to measure at, and the bytes a second that it showed.
fn prepare(
    target: TargetInfo,
    options: &SurveyOptions,
    lab: &Lab,
    progress: &mut dyn Progress,
) -> Result<(Target, f64), LabError> {
    if target.kind == Kind::Directory {
        return scratch(&target, options.time, progress);
    }
    if target.size_bytes < TARGET_BYTES_MIN {
        let (has, needed) = (target.size_bytes, TARGET_BYTES_MIN);
        return Err(LabError::TooSmallToSurvey { target: target.path, has, needed });
    }
    let rw = if options.overwrite { Rw::Write } else { Rw::Read };
    let (target, overwrite) = (Some(options.target.clone()), options.overwrite);
    let workload = Workload { target, rw, overwrite, ..Workload::default() };
    let place = Target::prepare(&workload, progress)?;
    let speed = read_speed(&place, lab)?;
    Ok((place, speed))
}

/// A scratch file of a size that the directory's speed and space allow.
fn scratch(
    directory: &TargetInfo,
    time: Duration,
    progress: &mut dyn Progress,
) -> Result<(Target, f64), LabError> {
    let timed = |bytes: u64, progress: &mut dyn Progress| {
        let begun = Instant::now();
        let place = Target::scratch(&directory.path, bytes, 1, progress)?;
        Ok::<_, LabError>((place, bytes as f64 / begun.elapsed().as_secs_f64()))
    };
    let (_, speed) = timed(PROBE_BYTES, &mut Silent)?;
    let free = directory.filesystem.as_ref().and_then(|filesystem| filesystem.available_bytes);
    timed(scratch_bytes(speed, time, free), progress)
}

/// How large the scratch file is to be, whole MiB.
fn scratch_bytes(speed: f64, time: Duration, free: Option<u64>) -> u64 {
    let fits_time = (speed * time.as_secs_f64() * SCRATCH_SHARE) as u64;
    let fits_space = free.map_or(u64::MAX, |free| free / FREE_PART);
    let bytes = fits_time.min(fits_space).clamp(SCRATCH_BYTES_MIN, SCRATCH_BYTES_MAX);
    bytes - bytes % (1 << 20)
}

/// How fast a target that is not ours is read in large blocks.
fn read_speed(place: &Target, lab: &Lab) -> Result<f64, LabError> {
    let path = if place.direct_align_bytes().is_ok() { "kernel-direct" } else { "kernel-buffered" };
    let block_bytes = if place.size_bytes() >= 1 << 20 { 1 << 20 } else { 16 << 10 };
    let workload = Workload {
        path: find_path(path)?,
        block_size: BlockSize::constant(block_bytes),
        end: End::Time(PROBE_TIME),
        repetitions: Repetitions::constant(1),
        ..Workload::default()
    };
    Ok(lab.run(&workload, place, &mut Silent)?.bytes_per_second.mean)
}

/// The cells of a plan and what was measured of each.
struct Turns<'a> {
    plan: Plan,
    /// One for each cell.
    series: Vec<Series<'a>>,
    costs: Vec<Duration>,
    left_out: Vec<String>,
}

impl<'a> Turns<'a> {
    fn new(
        terms: &Terms,
        place: &'a Target,
        part: &'a Target,
        nowhere: &'a Target,
    ) -> Result<Self, LabError> {
        let plan = Plan::new(terms);
        let new = |cell: &Cell| {
            let workload = cell.workload(terms, plan.slice)?;
            let place = match cell.hit {
                Some(_) => part,
                None if workload.path.capabilities.needs_target => place,
                None => nowhere,
            };
            Series::new(&workload, place)
        };
        let series = plan.cells.iter().map(new).collect::<Result<_, LabError>>()?;
        let (costs, left_out) = (plan.costs(terms.speed), plan.left_out.clone());
        Ok(Self { plan, series, costs, left_out })
    }

    /// Measures in turns until the time has completed, and before each round how busy the machine is with other things.
    fn take(
        &mut self,
        clock: Instant,
        deadline: Duration,
        facts: &mut Facts,
        progress: &mut dyn Progress,
    ) -> Result<(), LabError> {
        let mut schedule = Schedule::new(&self.costs, self.plan.rounds, deadline);
        let mut round = 0;
        while let Some(turn) = schedule.poll_turn(clock.elapsed()) {
            if turn.round > round {
                round = turn.round;
                facts.busy_cpus = busier(facts.busy_cpus, idle_busy_cpus(ROUND_IDLE_SAMPLE).ok());
            }
            let cell = self.plan.cells[turn.cell];
            let left = schedule.left(clock.elapsed());
            let (what, rounds) = (cell.to_string(), self.plan.rounds);
            progress.stage(&Stage::Turn { what, round, rounds, left });
            let begun = Instant::now();
            let series = &mut self.series[turn.cell];
            let measured = series.open(None).and_then(|path| {
                if series.is_warm() {
                    series.warm_up(&*path, progress)?;
                }
                series.measure(&*path, progress)
            });
            match measured {
                Ok(()) => schedule.handle_measured(turn, begun.elapsed()),
                Err(error) if is_refusal(&error) => {
                    self.left_out.push(format!("{}: {error}", cell.path));
                    let same =
                        self.plan.cells.iter().enumerate().filter(|(_, other)| other.path == cell.path);
                    same.for_each(|(index, _)| schedule.handle_refused(index));
                }
                Err(error) => return Err(error),
            }
            progress.advance(0.0);
        }
        Ok(())
    }
}

/// The greater of two; none if either is not known.
fn busier(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.zip(other).map(|(one, other)| one.max(other))
}

/// Whether a path cannot be had here at all, which is no reason to end the survey.
fn is_refusal(error: &LabError) -> bool {
    matches!(error, LabError::UringRefused { .. } | LabError::Direct(_))
}

/// What there was no time for, beyond what the plan left out.
fn unmeasured(cells: &[Cell], series: &[Series], left_out: &[String]) -> Option<String> {
    let refused = |cell: &Cell| left_out.iter().any(|left| left.starts_with(&format!("{}: ", cell.path)));
    let missed =
        cells.iter().zip(series).filter(|(cell, series)| series.is_empty() && !refused(cell)).count();
    (missed > 0).then(|| {
        format!(
            "{missed} of {} measurements: no time, as the storage is slower than it seemed; give more with --time",
            cells.len()
        )
    })
}

fn facts_of(place: &Target, lab: &Lab) -> Facts {
    let target = place.info();
    let disk = target.and_then(|target| target.backing.disk());
    let filesystem = target.and_then(|target| target.filesystem.as_ref());
    let compressing = filesystem.filter(|filesystem| filesystem.compresses() && !place.is_scratch());
    Facts {
        size_bytes: place.size_bytes(),
        disk: TargetFacts::of(place).and_then(|facts| facts.disk),
        no_disk: target.and_then(no_disk),
        loop_file: disk.and_then(cached_loop_file),
        unwritten: place.unwritten(),
        compressing: compressing.map(|filesystem| filesystem.name.clone()),
        engine: place.file().and_then(engine_facts),
        cores: lab.host().cores,
        memory_bytes: lab.host().memory_bytes,
        busy_cpus: lab.host().idle_busy_cpus,
    }
}

/// Why no disk can be named; none if one can.
fn no_disk(target: &TargetInfo) -> Option<String> {
    match &target.backing {
        Backing::Disk(_) => None,
        Backing::None { reason } => Some(reason.clone()),
    }
}

/// The file behind a loop device, unless the device reads it past the page cache (`losetup --direct-io=on`).
fn cached_loop_file(disk: &Disk) -> Option<PathBuf> {
    let file = disk.loop_backing.clone()?;
    let direct = fs::read_to_string(format!("/sys/block/{}/loop/dio", disk.name));
    direct.map_or(true, |direct| direct.trim() != "1").then_some(file)
}

/// None where the target cannot be opened as a volume.
fn engine_facts(file: &Path) -> Option<EngineFacts> {
    let volume = Volume::open(file, &iopath::Options::new()).ok()?;
    let facts = volume.facts();
    let fallback = facts.fallback.as_ref().map(ToString::to_string);
    Some(EngineFacts { name: facts.engine.to_owned(), fallback })
}

/// The order of runs in the report: as people read the tables.
fn order(run: &RunResult) -> (bool, usize, u32, u32, usize) {
    let rw = Rw::ALL.iter().position(|rw| rw.name() == run.rw).unwrap_or(usize::MAX);
    let path = PATHS.iter().position(|row| row.name == run.path).unwrap_or(usize::MAX);
    (run.warm, rw, run.block_bytes, run.io_depth, path)
}

/// Tells of the survey as a whole: of turns, not of what each is made of, and of the share of the time that has completed.
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

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_scratch_file_fits_time_and_space() {
        let seconds = Duration::from_secs;
        assert_eq!(scratch_bytes(2e9, seconds(90), None), SCRATCH_BYTES_MAX);
        assert_eq!(scratch_bytes(1e7, seconds(90), None), 68 * MIB);
        assert_eq!(scratch_bytes(1e6, seconds(90), None), SCRATCH_BYTES_MIN);
        assert_eq!(scratch_bytes(2e9, seconds(90), Some(400 * MIB)), 100 * MIB);
    }

    #[test]
    fn how_busy_others_are_is_known_only_if_always_known() {
        assert_eq!(busier(Some(0.1), Some(0.2)), Some(0.2));
        assert_eq!(busier(Some(0.1), None), None);
    }

    #[test]
    fn a_volatile_moment_is_not_taken_for_a_refusal() {
        assert!(is_refusal(&LabError::UringRefused { source: std::io::ErrorKind::PermissionDenied.into() }));
        let gone = LabError::Missing { target: "f".into() };
        assert!(!is_refusal(&gone));
    }
}
