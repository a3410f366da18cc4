//! Runs the groups of jobs of a file one after another, on this machine or on models. `group.rs` has the jobs
//! of one group, `results.rs` the results of jobs and groups.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use super::JobFile;
use super::error::JobFileError;
use super::group::JobGroup;
use super::job::Job;
use super::kept::KeptFiles;
use super::members::{Member, path};
use super::place::{Access, Place};
use super::places::{Plans, plan, prepare};
use super::results::{GroupRun, skips_later_groups};
use super::schedulers;
use super::several;
use super::verified;
use iopath_bench::error::BenchError;
use iopath_bench::host::memory_available_bytes;
use iopath_bench::kept_file::is_kept;
use iopath_bench::options::{Amount, IoEngine};
use iopath_bench::path::PathRow;
use iopath_bench::peers::Peers;
use iopath_bench::progress::{Progress, Stage};
use iopath_bench::refusal::WorkloadError;
use iopath_bench::request_log::RequestLog;
use iopath_bench::run::{IDLE_SAMPLE, Lab};
use iopath_bench::runner::Session;
use iopath_bench::target::Target;
use iopath_bench::workload::{Repetitions, Workload};
use iopath_report::result::{Clock, Report};

/// Changes to all jobs of a file, and the settings that a job file has not.
#[derive(Debug, Clone)]
pub struct RunSettings {
    /// Replaces `filename` by a file, device or model; or the directories of files by another one.
    pub target: Option<PathBuf>,
    /// Replaces `size`, in bytes.
    pub size_bytes: Option<u64>,
    /// Replaces `runtime`.
    pub runtime: Option<Duration>,
    /// Replaces `ioengine` and `direct`.
    pub path: Option<&'static PathRow>,
    /// Whether files that are created have the names of fio and stay, as in fio. If not, they are scratch files.
    pub keeps_files: bool,
    /// Whether no file is created, replaced, marked or removed.
    pub is_readonly: bool,
    /// Other processes that measure at the same time.
    pub peers: Option<Rc<dyn Peers>>,
    /// Repetitions, page cache, elevator, I/O engine and permission to overwrite, for all jobs.
    pub base: Workload,
}

impl Default for RunSettings {
    /// No changes, and one repetition, as fio has.
    fn default() -> Self {
        let base = Workload { repetitions: Repetitions::constant(1), ..Workload::default() };
        Self {
            target: None,
            size_bytes: None,
            runtime: None,
            path: None,
            keeps_files: false,
            is_readonly: false,
            peers: None,
            base,
        }
    }
}

impl JobFile {
    /// Measures the jobs: a result for each job and for each group of jobs.
    ///
    /// # Errors
    /// [`JobFileError`]: keys that are not valid together, a target that does not suit, or a failed transfer.
    pub fn run(&self, settings: &RunSettings, progress: &mut dyn Progress) -> Result<Report, JobFileError> {
        let mut jobs = self.jobs.clone();
        for job in &mut jobs {
            settings.change(job);
            several::open_directories(job)?;
        }
        let (accesses, mut warnings) = accesses(&jobs, settings.keeps_files)?;
        warnings.extend(jobs.iter().flat_map(without_effect));
        let flat: Vec<Access> = accesses.iter().flatten().cloned().collect();
        let base = &settings.base;
        settings.check_readonly(flat.iter().filter(|access| access.place.is_new()))?;
        let planned = plan(&flat, base, progress)?;
        let is_new = |access: &&Access| planned.of(&access.place).is_new();
        settings.check_readonly(flat.iter().filter(is_new))?;
        // A file that cannot be run is refused before a scratch file is filled, which can take minutes.
        let mut members = members(&accesses, &planned, base)?;
        join_series(&mut members);
        warnings.extend(members.iter().flatten().filter_map(|member| shortened(&jobs[member.job], member)));
        let sizes: Vec<usize> = self.groups().iter().map(|group| group.len()).collect();
        let is_virtual = are_models(&flat, &planned)?;
        let groups = groups(&members, &sizes);
        if is_virtual {
            groups.iter().try_for_each(|group| check_paths(&jobs, group))?;
        } else {
            check_memory(&jobs, &members)?;
        }
        check_series(&jobs, &members)?;
        let records = verified::records(&jobs, &members, &sizes)?;
        probe(&members, &planned, base.seed)?;
        let prepared = prepare(planned, base.seed, settings.keeps_files, progress)?;
        let keeps = settings.keeps_files && !settings.is_readonly;
        let mut kept = KeptFiles::of(&prepared, &flat, keeps)?;
        warnings.extend(kept.warnings());
        let schedulers = schedulers::set(&flat, &prepared)?;
        let lab = if is_virtual { Lab::in_virtual_time() } else { Lab::new(IDLE_SAMPLE, progress) };
        let mut targets = prepared.iter().map(|prepared| prepared.target.facts());
        let first = targets.next().flatten();
        let clock = if is_virtual { Clock::Virtual } else { Clock::Real };
        let more_targets = targets.flatten().collect();
        let mut report =
            Report { clock, more_targets, ..Report::new(lab.host().cloned(), first, Vec::new()) };
        let names: Vec<String> = prepared.iter().flat_map(|prepared| prepared.target.names()).collect();
        let log = RequestLog::start(base, &names, is_virtual)?;
        let mut session = Session::new(log.as_ref()).with_peers(settings.peers.as_deref());
        for (index, members) in groups.iter().enumerate() {
            if only_creates(&jobs, members)? {
                continue;
            }
            let (number, count) = (index as u32 + 1, groups.len());
            let group = JobGroup { number, jobs: &jobs, members, prepared: &prepared, records: &records };
            progress.stage(&Stage::Jobs { names: group.names(), number, count });
            let mut writers = members.iter().flatten().filter(|member| member.workload.rw.writes());
            let may_write =
                writers.try_for_each(|member| kept.handle_writes(&member.place, &jobs[member.job]));
            let ran = match may_write.and_then(|()| group.run(&lab, base.seed, &mut session, progress)) {
                Err(error) if !report.runs.is_empty() => GroupRun::without_results(&error),
                ran => ran?,
            };
            warnings.extend(ran.end(number, count));
            if ran.add_to(&mut report) {
                break;
            }
            if let Some(skip) = skips_later_groups(&jobs, members).filter(|_| index + 1 < count) {
                warnings.push(skip);
                break;
            }
        }
        warnings.extend(schedulers.restore());
        match log.map(RequestLog::finish).transpose() {
            Ok(warning) => warnings.extend(warning.flatten()),
            // The results do not need the log.
            Err(error) => report.failure = report.failure.or(Some(error.to_string())),
        }
        match report.runs.first_mut() {
            Some(first) => first.warnings.extend(warnings),
            None => report.warnings = warnings,
        }
        Ok(report)
    }
}

impl RunSettings {
    /// The files and devices that the jobs of a file name.
    pub fn named_files(&self, file: &JobFile) -> Vec<PathBuf> {
        let mut jobs = file.jobs.clone();
        for job in &mut jobs {
            self.change(job);
        }
        let of_job = |job: &Job| job.files.iter().map(|file| job.file(file, 0)).collect::<Vec<_>>();
        jobs.iter().flat_map(of_job).collect()
    }

    /// Refuses to run read-only if a place needs a new file.
    fn check_readonly<'a>(&self, mut new: impl Iterator<Item = &'a Access<'a>>) -> Result<(), JobFileError> {
        match new.next().filter(|_| self.is_readonly) {
            None => Ok(()),
            Some(Access { job, .. }) => Err(job.problem(
                "its file does not exist or is too small, and --readonly creates none; name a file that exists, or remove \
                 --readonly",
            )),
        }
    }

    fn change(&self, job: &mut Job) {
        if let Some(target) = &self.target {
            let name = target.display().to_string();
            if target.is_dir() {
                job.directories = vec![name];
                // A file in another directory would not be in this one.
                for file in &mut job.files {
                    if let Some(last) = PathBuf::from(&*file).file_name() {
                        *file = last.display().to_string();
                    }
                }
            } else {
                (job.files, job.directories) = (vec![name], Vec::new());
            }
        }
        if let Some(size_bytes) = self.size_bytes {
            job.size = Some(Amount::Bytes(size_bytes));
            (job.io_size, job.file_bytes) = (None, None);
        }
        // The files of a job are one range.
        job.file_bytes = job.file_bytes.map(|bytes| bytes.saturating_mul(job.several().unwrap_or(1)));
        job.runtime = self.runtime.or(job.runtime);
        if let Some(row) = self.path {
            job.engine = IoEngine::Path(row);
        }
    }
}

/// The accesses of each job, one for each clone, and warnings about paths.
fn accesses(jobs: &[Job], keeps_files: bool) -> Result<(Vec<Vec<Access<'_>>>, Vec<String>), JobFileError> {
    let (mut all, mut warnings) = (Vec::new(), Vec::new());
    for (number, job) in jobs.iter().enumerate() {
        job.check_ranges()?;
        let (path, warning) = path(job)?;
        warnings.extend(warning);
        let access = |clone| {
            let place = Place::of(job, path, [number as u64, clone], keeps_files)?;
            Ok(Access { job, path, clone, place })
        };
        all.push((0..job.clones()).map(access).collect::<Result<_, JobFileError>>()?);
    }
    Ok((all, warnings))
}

/// The members of each job.
fn members(
    accesses: &[Vec<Access>],
    planned: &Plans,
    base: &Workload,
) -> Result<Vec<Vec<Member>>, JobFileError> {
    let of_job = |(number, clones): (usize, &Vec<Access>)| {
        let member = |access: &Access| {
            let planned = planned.of(&access.place);
            Member::of(access, number, planned.size_bytes, planned.is_device(), planned.model(), base)
        };
        clones.iter().map(member).collect()
    };
    accesses.iter().enumerate().map(of_job).collect()
}

/// Whether the jobs of a group only create their files.
fn only_creates(jobs: &[Job], group: &[Vec<Member>]) -> Result<bool, JobFileError> {
    let job = |members: &Vec<Member>| &jobs[members[0].job];
    match group.iter().map(job).find(|job| job.create_only) {
        None => Ok(false),
        Some(_) if group.iter().map(job).all(|job| job.create_only) => Ok(true),
        Some(one) => Err(one.problem(
            "create_only is set, and a job of the same group runs; add it to all jobs of the group, or use stonewall",
        )),
    }
}

/// Warnings for keys that need another one, as in fio.
fn without_effect(job: &Job) -> impl Iterator<Item = String> {
    let is_off = |window: Option<Duration>| window.is_none_or(|window| window.is_zero());
    let keys = [
        (job.time_based && job.runtime.is_none(), "time_based has no effect without a runtime"),
        (
            job.steady.is_some() && is_off(job.steady_window),
            "steadystate has no effect without a window (steadystate_duration)",
        ),
        (
            job.controls.histogram_log.is_some() && job.controls.histogram_interval.is_zero(),
            "write_hist_log has no lines without the time of a histogram (log_hist_msec)",
        ),
    ];
    keys.into_iter()
        .filter(|(is_so, _)| *is_so)
        .map(|(_, what)| format!("{}: job `{}`: {what}", job.at, job.name))
}

/// A warning for a size beyond the end of a device.
fn shortened(job: &Job, member: &Member) -> Option<String> {
    let Some(Amount::Bytes(size)) = job.size.filter(|_| job.file_bytes.is_none()) else { return None };
    let range_bytes = member.end_bytes - member.workload.start_bytes;
    (size - size % job.min_bytes() > range_bytes).then(|| {
        format!(
            "{}: job `{}`: the device ends {range_bytes} bytes after the offset, so size={size} is {range_bytes}",
            job.at, job.name
        )
    })
}

/// Series with one file for several jobs and clones: the first begins the file, and the others add to it.
fn join_series(members: &mut [Vec<Member>]) {
    let mut known = HashSet::new();
    for member in members.iter_mut().flatten() {
        let Some(series) = member.workload.controls.series.as_mut().filter(|one| one.joined.is_some()) else {
            continue;
        };
        // A file without a number in its name.
        let files: Vec<PathBuf> = series.files(0).into_iter().flatten().collect();
        series.joined = Some(files.iter().any(|file| known.contains(file)));
        known.extend(files);
    }
}

/// Refuses to replace a file of the user by a series over time.
fn check_series(jobs: &[Job], members: &[Vec<Member>]) -> Result<(), JobFileError> {
    for (number, member) in (1..).zip(members.iter().flatten()) {
        let Some(series) = member.workload.controls.series.as_ref().filter(|series| !series.overwrite) else {
            continue;
        };
        let is_users = |file: &PathBuf| file.symlink_metadata().is_ok() && !is_kept(file);
        if let Some(file) = series.files(number).into_iter().flatten().find(is_users) {
            return Err(jobs[member.job].problem(format!(
                "{} exists and was not written by iopath; use another name (write_bw_log, write_lat_log, write_iops_log, write_hist_log), or \
                 replace it with --overwrite (of `iopath fio`: --allow-overwrite)",
                file.display()
            )));
        }
    }
    Ok(())
}

/// The members of the jobs of each group, which have these numbers of jobs.
fn groups<'a>(members: &'a [Vec<Member>], sizes: &[usize]) -> Vec<&'a [Vec<Member>]> {
    let mut rest = members;
    let group = |size: &usize| {
        let (group, after) = rest.split_at(*size);
        rest = after;
        group
    };
    sizes.iter().map(group).collect()
}

/// Whether the targets are models, all of them.
fn are_models(accesses: &[Access], planned: &Plans) -> Result<bool, JobFileError> {
    let model = |access: &&Access| planned.of(&access.place).model().is_some();
    let real = accesses.iter().find(|access| !model(access));
    match (accesses.iter().any(|access| model(&access)), real) {
        (false, _) => Ok(false),
        (true, None) => Ok(true),
        (true, Some(access)) => Err(access.job.problem(
            "jobs of a file are all on models (filename=model\\:NAME), or all on this machine: virtual time has no real \
             devices",
        )),
    }
}

/// Checks that the jobs of a group access each model by the same path.
fn check_paths(jobs: &[Job], group: &[Vec<Member>]) -> Result<(), JobFileError> {
    for member in group.iter().flatten() {
        let path = member.workload.path.name;
        let differs = |other: &&Member| other.place == member.place && other.workload.path.name != path;
        if let Some(other) = group.iter().flatten().find(differs) {
            return Err(jobs[member.job].problem(format!(
                "it accesses the model by path {path}, and job {} of the same group by {}; use one path, or add stonewall",
                jobs[other.job].name, other.workload.path.name
            )));
        }
    }
    Ok(())
}

/// Checks the alignment of the members of scratch files, with a small file in each directory.
fn probe(members: &[Vec<Member>], planned: &Plans, seed: u64) -> Result<(), JobFileError> {
    let mut probes: Vec<(&Path, Target)> = Vec::new();
    let is_direct = |member: &&Member| member.workload.path.capabilities.needs_direct_io();
    for member in members.iter().flatten().filter(is_direct) {
        let Some(directory) = planned.of(&member.place).scratch_directory() else { continue };
        if probes.iter().all(|(known, _)| *known != directory) {
            probes.push((directory, Target::probe(directory, seed)?));
        }
        for (_, probe) in probes.iter().filter(|(known, _)| *known == directory) {
            probe.check_alignment(&member.workload)?;
        }
    }
    Ok(())
}

/// Checks that the buffers of all members fit in memory. Jobs of one group alone would need less.
fn check_memory(jobs: &[Job], members: &[Vec<Member>]) -> Result<(), JobFileError> {
    let locked = |member: &Member| member.workload.controls.thread.locked_bytes;
    let all_locked = members.iter().flatten().map(locked).fold(0, u64::saturating_add);
    let locks = |member: &&Member| locked(member) > 0;
    if let Some((member, available)) = members.iter().flatten().find(locks).zip(memory_available_bytes())
        && all_locked > available
    {
        return Err(jobs[member.job].problem(format!(
            "lockmem of all clones is {all_locked} bytes, and {available} bytes of memory are available; use less"
        )));
    }
    let of_member = |Member { workload, .. }: &Member| {
        u64::from(workload.block_size).saturating_mul(workload.depth_in_flight().into())
    };
    let needed = members.iter().flatten().map(of_member).fold(0, u64::saturating_add);
    match memory_available_bytes() {
        Some(available) if needed > available => {
            Err(BenchError::from(WorkloadError::Buffers { needed, available }).into())
        }
        _ => Ok(()),
    }
}
