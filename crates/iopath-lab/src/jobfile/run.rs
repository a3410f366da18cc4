//! Runs the jobs of a file: the groups one after another, all clones of a group at the same time. The measurement of a
//! repetition is in `engine.rs`, the results of jobs and groups are in `jobfile/results.rs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use iopath_log::LogWriter;
use iopath_report::result::Report;

use super::JobFile;
use super::error::JobFileError;
use super::job::Job;
use super::members::{Member, path};
use super::on_models::{OnModels, are_models};
use super::places::{Access, Place, Planned, Prepared, plan, prepare};
use super::results::{
    GroupMeasured, GroupRun, JobSeries, check_cut_off, end_early, group_result, skips_later_groups,
};
use super::verified::{self, PlaceRecord};
use crate::engine::{Together, Transferred, Worker, all_verified, connections_of, measure_together};
use crate::error::LabError;
use crate::host::memory_available_bytes;
use crate::options::{Amount, IoEngine};
use crate::path::{IoPath, OpenSpec, PathRow};
use crate::progress::{Progress, Stage};
use crate::refusal::WorkloadError;
use crate::request_log::{missed, start_log};
use crate::run::{IDLE_SAMPLE, Lab, read_back_after};
use crate::storage;
use crate::target::Target;
use crate::verify::Verified;
use crate::workload::{DeviceDepth, Repetitions, Workload};

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
    /// Repetitions, page cache, elevator, I/O engine and permission to overwrite, for all jobs.
    pub base: Workload,
}

impl Default for RunSettings {
    /// No changes, and one repetition, as fio has.
    fn default() -> Self {
        let base = Workload { repetitions: Repetitions::constant(1), ..Workload::default() };
        Self { target: None, size_bytes: None, runtime: None, path: None, base }
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
        }
        let (accesses, mut warnings) = accesses(&jobs)?;
        let flat: Vec<Access> = accesses.iter().flatten().cloned().collect();
        let base = &settings.base;
        let planned = plan(&flat, base.overwrite, progress)?;
        // A file that cannot be run is refused before a scratch file is filled, which can take minutes.
        let members = members(&accesses, &planned, base)?;
        let sizes: Vec<usize> = self.groups().iter().map(|group| group.len()).collect();
        if are_models(&flat, &planned)? {
            let prepared = prepare(planned, base.seed, progress)?;
            let virtually =
                OnModels { jobs: &jobs, members: &members, sizes: &sizes, prepared: &prepared, base };
            return virtually.run(progress);
        }
        check_memory(&members)?;
        let records = verified::records(&jobs, &members, &sizes)?;
        probe(&members, &planned, base.seed)?;
        let prepared = prepare(planned, base.seed, progress)?;
        let lab = Lab::new(IDLE_SAMPLE, progress);
        let mut report = Report::new(
            Some(lab.host().clone()),
            prepared.first().and_then(|first| first.target.facts()),
            Vec::new(),
        );
        report.more_targets =
            prepared.iter().skip(1).filter_map(|prepared| prepared.target.facts()).collect();
        let names: Vec<String> = prepared.iter().flat_map(|prepared| prepared.target.names()).collect();
        let log = start_log(base, &names)?;
        let (mut rest, mut repetitions) = (&members[..], 0);
        for (index, size) in sizes.iter().enumerate() {
            let (group, after) = rest.split_at(*size);
            rest = after;
            let number = index as u32 + 1;
            let group = Group {
                number,
                jobs: &jobs,
                members: group,
                prepared: &prepared,
                records: &records,
                log: log.as_ref(),
            };
            progress.stage(&Stage::Jobs { names: group.names(), number: group.number, count: sizes.len() });
            let ran = match group.run(&lab, &mut repetitions, progress) {
                Err(error) if !report.runs.is_empty() => GroupRun::without_results(&error),
                ran => ran?,
            };
            if let Some(warning) = ran.end(number, sizes.len()) {
                warnings.push(warning);
            }
            let skip = skips_later_groups(&jobs, group.members).filter(|_| (number as usize) < sizes.len());
            if ran.add_to(&mut report) {
                break;
            }
            if let Some(skip) = skip {
                warnings.push(skip);
                break;
            }
        }
        if let Some(log) = log.and_then(Arc::into_inner) {
            match log.finish() {
                Ok(totals) => warnings.extend(missed(&totals)),
                // The results do not need the log.
                Err(error) => report.failure = report.failure.or(Some(LabError::from(error).to_string())),
            }
        }
        if let Some(first) = report.runs.first_mut() {
            first.warnings.extend(warnings);
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
        let of_job = |job: &Job| {
            let directory = job.directories.first().map(PathBuf::from).unwrap_or_default();
            job.files.iter().map(|file| directory.join(file)).collect::<Vec<_>>()
        };
        jobs.iter().flat_map(of_job).collect()
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
        job.runtime = self.runtime.or(job.runtime);
        if let Some(row) = self.path {
            job.engine = IoEngine::Path(row);
        }
    }
}

/// The accesses of each job, one for each clone, and warnings about paths.
fn accesses(jobs: &[Job]) -> Result<(Vec<Vec<Access<'_>>>, Vec<String>), JobFileError> {
    let (mut all, mut warnings) = (Vec::new(), Vec::new());
    for (number, job) in jobs.iter().enumerate() {
        let (path, warning) = path(job)?;
        warnings.extend(warning);
        let access = |clone| Ok(Access { job, path, clone, place: Place::of(job, path, number, clone)? });
        all.push((0..job.clones()).map(access).collect::<Result<_, JobFileError>>()?);
    }
    Ok((all, warnings))
}

/// The members of each job.
fn members(
    accesses: &[Vec<Access>],
    planned: &[Planned],
    base: &Workload,
) -> Result<Vec<Vec<Member>>, JobFileError> {
    let of_job = |(number, clones): (usize, &Vec<Access>)| {
        let member = |access: &Access| {
            let planned = Planned::of(planned, &access.place);
            Member::of(access, number, planned.size_bytes, planned.model(), base)
        };
        clones.iter().map(member).collect()
    };
    accesses.iter().enumerate().map(of_job).collect()
}

fn prepared_for<'a>(prepared: &'a [Prepared], place: &Place) -> &'a Prepared {
    prepared.iter().find(|prepared| prepared.place == *place).expect("each place was prepared")
}

/// Checks the alignment of the members of scratch files, with a small file in each directory.
fn probe(members: &[Vec<Member>], planned: &[Planned], seed: u64) -> Result<(), JobFileError> {
    let mut probes: Vec<(&Path, Target)> = Vec::new();
    let is_direct = |member: &&Member| member.workload.path.capabilities.needs_direct_io();
    for member in members.iter().flatten().filter(is_direct) {
        let Some(directory) = Planned::of(planned, &member.place).scratch_directory() else { continue };
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
fn check_memory(members: &[Vec<Member>]) -> Result<(), JobFileError> {
    let of_member = |Member { workload, .. }: &Member| {
        u64::from(workload.block_size).saturating_mul(workload.depth_in_flight().into())
    };
    let needed = members.iter().flatten().map(of_member).fold(0, u64::saturating_add);
    match memory_available_bytes() {
        Some(available) if needed > available => {
            Err(LabError::from(WorkloadError::Buffers { needed, available }).into())
        }
        _ => Ok(()),
    }
}

/// The bytes of each target without a job with `pre_read` that are still in the page cache.
type Resident<'a> = Vec<(&'a Place, Option<storage::Resident>)>;

/// Jobs that run at the same time.
struct Group<'a> {
    /// From 1.
    number: u32,
    /// All jobs of the file.
    jobs: &'a [Job],
    /// The members of each job of the group.
    members: &'a [Vec<Member>],
    prepared: &'a [Prepared],
    /// The expected content of the targets of jobs that verify.
    records: &'a [PlaceRecord],
    /// The request log of the whole file.
    log: Option<&'a Arc<LogWriter>>,
}

/// An open path, and the members that share it: the same path to the same target.
struct Opened<'a> {
    place: &'a Place,
    row: &'static PathRow,
    path: Box<dyn IoPath>,
}

impl<'a> Group<'a> {
    fn all(&self) -> impl Iterator<Item = &'a Member> + Clone {
        self.members.iter().flatten()
    }

    fn job(&self, members: &[Member]) -> &'a Job {
        &self.jobs[members[0].job]
    }

    fn names(&self) -> Vec<String> {
        self.members.iter().map(|members| self.job(members).name.clone()).collect()
    }

    fn target(&self, place: &Place) -> &'a Target {
        &prepared_for(self.prepared, place).target
    }

    fn run(
        &self,
        lab: &Lab,
        repetitions: &mut u32,
        progress: &mut dyn Progress,
    ) -> Result<GroupRun, JobFileError> {
        let is_alone = self.members.len() == 1;
        let mut series = Vec::with_capacity(self.members.len());
        for members in self.members {
            let target_of = |place: &Place| self.target(place);
            series.push(JobSeries::new(self.jobs, members, target_of, is_alone)?);
        }
        let opened = self.open()?;
        let targets = self.targets();
        for member in self.all().filter(|member| member.workload.warm) {
            series[self.index(member)].warm_up(&*Self::path(&opened, member).path, member, progress)?;
        }
        let mut measured = Vec::new();
        let mut failure = None;
        let count = self.members[0][0].workload.repetitions.get();
        for number in 1..=count {
            *repetitions += 1;
            if let Some(log) = self.log {
                log.begin_repeat(*repetitions, iopath_os::now());
            }
            match self.repeat(&opened, &targets, &mut series, [number, count], progress) {
                Ok(group) => {
                    measured.push(group);
                    if measured.iter().any(GroupMeasured::is_cut_off) {
                        break;
                    }
                }
                // The complete repetitions are the result.
                Err(error) if !measured.is_empty() => {
                    failure = end_early(&mut series, &error);
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let result = |(series, members): (JobSeries, &Vec<Member>)| {
            let mut result = series.result(Some(lab), self.number);
            result.warnings.extend(self.stays_cached(members));
            result
        };
        let runs = series.into_iter().zip(self.members).map(result).collect();
        let group = group_result(self.number, self.names(), &measured, Some(lab.host()));
        Ok(GroupRun { runs, group: Some(group), failure })
    }

    /// Measures repetition `number` of `count`, and adds it to the series of the jobs.
    fn repeat(
        &self,
        opened: &[Opened<'a>],
        targets: &[&Target],
        series: &mut [JobSeries],
        [number, count]: [u32; 2],
        progress: &mut dyn Progress,
    ) -> Result<GroupMeasured, LabError> {
        let resident = self.drop_caches(opened, progress)?;
        // The drop of the cache is a stage of its own.
        progress.stage(&Stage::Repeat { number, count });
        let together = measure_together(&self.workers(opened, number), targets, progress)?;
        let Together { jobs, mut verified, steady, cpu, transfers, course, warnings, is_cut_off } = together;
        check_cut_off(is_cut_off, number, &jobs)?;
        if !is_cut_off {
            self.read_back(opened, &mut verified, progress)?;
        }
        let transferred = match &transfers[..] {
            [one] => *one,
            several => Transferred { connections: connections_of(several), ..Transferred::default() },
        };
        let group = GroupMeasured::new(&jobs, Some(cpu), transferred, course, warnings).cut_off(is_cut_off);
        let (mut rest, mut verified) = (&jobs[..], &verified[..]);
        for (series, members) in series.iter_mut().zip(self.members) {
            let (clones, after) = rest.split_at(members.len());
            let (of_job, verified_after) = verified.split_at(members.len());
            verified = verified_after;
            let warnings = self.write_dumps(members, of_job);
            let of_job = all_verified(of_job.iter().map(Option::as_ref));
            let of_clones = steady.iter().find(|(clones, _)| *clones == members[0].job);
            let steady = of_clones.map(|(_, outcome)| *outcome);
            series.push(clones, of_job, steady, &group, Self::resident(&resident, members), warnings);
            rest = after;
        }
        Ok(group)
    }

    /// Reads the blocks back that the jobs have written, one target after another.
    fn read_back(
        &self,
        opened: &[Opened<'a>],
        verified: &mut [Option<Verified>],
        progress: &mut dyn Progress,
    ) -> Result<(), LabError> {
        for PlaceRecord { place, record } in self.records {
            let writes = |member: &&Member| member.place == *place && member.reads_back();
            let Some((number, member)) = self.all().enumerate().find(|(_, member)| writes(member)) else {
                continue;
            };
            let (path, target) = (&*Self::path(opened, member).path, self.target(place));
            let so_far = verified[number].take();
            let after = read_back_after(path, &member.workload, target, record, so_far.as_ref(), progress)?;
            verified[number] = all_verified([so_far.as_ref(), after.as_ref()]);
        }
        Ok(())
    }

    /// Writes the blocks with faults of the members that keep them. Returns a warning for each member whose blocks
    /// cannot be written: the results remain.
    fn write_dumps(&self, members: &[Member], verified: &[Option<Verified>]) -> Vec<String> {
        let write = |(member, verified): (&Member, &Option<Verified>)| {
            let target = self.target(&member.place).file().unwrap_or("target".as_ref());
            let mut dumps = verified.as_ref()?.dumps.iter();
            let (target, source) = dumps.find_map(|dump| dump.write(Path::new(""), target).err())?;
            Some(LabError::Io { action: "write a block with a fault to", target, source }.to_string())
        };
        members.iter().zip(verified).filter_map(write).collect()
    }

    /// Empties the caches of each path and target, unless a job with `pre_read` uses it. Returns the bytes that are
    /// still in the page cache.
    fn drop_caches(&self, opened: &[Opened], progress: &mut dyn Progress) -> Result<Resident<'a>, LabError> {
        for opened in opened {
            if !self.all().any(|member| member.workload.warm && opened.is_of(member)) {
                opened.path.drop_cache()?;
            }
        }
        let mut resident = Vec::new();
        for Prepared { place, target } in self.used() {
            if self.warming(place).is_none() {
                progress.stage(&Stage::DropCache);
                resident.push((place, target.drop_cached()?));
            }
        }
        Ok(resident)
    }

    /// The bytes of the targets of a job that were still in the page cache; none if they stay there on purpose.
    fn resident(resident: &Resident, members: &[Member]) -> Option<storage::Resident> {
        let mut sum = storage::Resident::default();
        for (index, member) in members.iter().enumerate() {
            if members[..index].iter().any(|earlier| earlier.place == member.place) {
                continue;
            }
            let (_, of_place) = resident.iter().find(|(place, _)| **place == member.place)?;
            let of_place = (*of_place)?;
            sum.bytes += of_place.bytes;
            sum.bytes_beneath += of_place.bytes_beneath;
        }
        Some(sum)
    }

    /// The member with `pre_read` that keeps the caches of a target filled.
    fn warming(&self, place: &Place) -> Option<&'a Member> {
        self.all().find(|member| member.workload.warm && member.place == *place)
    }

    /// A warning for a job without `pre_read` whose target stays in the page cache because of another job.
    fn stays_cached(&self, members: &[Member]) -> Option<String> {
        let cold = || members.iter().filter(|member| !member.workload.warm);
        let warming = cold().find_map(|member| self.warming(&member.place))?;
        Some(format!(
            "job {} has pre_read, so the caches of its target stay filled for job {} too",
            self.jobs[warming.job].name,
            self.job(members).name
        ))
    }

    /// The targets of the group with their places, each once.
    fn used(&self) -> impl Iterator<Item = &'a Prepared> {
        self.prepared.iter().filter(|prepared| self.all().any(|member| member.place == prepared.place))
    }

    /// The targets of the group, each once.
    fn targets(&self) -> Vec<&'a Target> {
        self.used().map(|prepared| &prepared.target).collect()
    }

    /// The position of a member's job in the group.
    fn index(&self, member: &Member) -> usize {
        member.job - self.members[0][0].job
    }

    fn open(&self) -> Result<Vec<Opened<'a>>, LabError> {
        let mut opened: Vec<Opened> = Vec::new();
        for member in self.all() {
            let (place, row) = (&member.place, member.workload.path);
            if opened.iter().any(|known| known.is_of(member)) {
                continue;
            }
            let sharing =
                || self.all().filter(|other| other.place == *place && other.workload.path.name == row.name);
            let target = self.target(place);
            let workload = &target.with_pages(&member.workload)?;
            let path = (row.open)(&OpenSpec {
                target: target.file(),
                remote: target.remote(),
                depth: sharing().map(|other| other.workload.depth_in_flight()).max().unwrap_or(1),
                writes: sharing().any(|other| other.workload.rw.writes()),
                size_bytes: target.size_bytes(),
                elevator: workload.elevator.as_ref(),
                device_depth: workload.device_depth.map(DeviceDepth::get),
                engine: workload.engine.unwrap_or_default(),
                cache: &workload.cache,
                log: self.log,
            })?;
            opened.push(Opened { place, row, path });
        }
        Ok(opened)
    }

    fn path<'b>(opened: &'b [Opened<'a>], member: &Member) -> &'b Opened<'a> {
        opened.iter().find(|opened| opened.is_of(member)).expect("each path was opened")
    }

    /// The threads of a repetition, in the order of the members.
    fn workers<'b>(&'b self, opened: &'b [Opened<'a>], number: u32) -> Vec<Worker<'b>> {
        let mut workers: Vec<Worker> = Vec::new();
        for member in self.all() {
            let opened = Self::path(opened, member);
            let jobs = self.all().filter(|other| opened.is_of(other)).count() as u32;
            let job = self.all().take(workers.len()).filter(|other| opened.is_of(other)).count() as u32;
            workers.push(Worker {
                path: &*opened.path,
                workload: &member.workload,
                target: self.target(&member.place),
                job: 0,
                of_path: [job, jobs],
                end_bytes: member.end_bytes,
                // A warm run repeats the transfers of its warm-up.
                repetition: if member.workload.warm { 0 } else { number },
                start: member.start,
                ends_all: member.ends_all,
                clones: member.job,
                record: member.workload.verify.and_then(|_| PlaceRecord::of(self.records, &member.place)),
                accesses: self.log.map(|log| &**log).filter(|_| member.workload.logs_accesses()),
                until_idle: false,
            });
        }
        workers
    }
}

impl Opened<'_> {
    fn is_of(&self, member: &Member) -> bool {
        *self.place == member.place && self.row.name == member.workload.path.name
    }
}
