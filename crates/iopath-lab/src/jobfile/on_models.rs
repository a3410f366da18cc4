//! Runs the jobs of a file on models in virtual time: the groups one after another, all clones of a group at the same
//! time. Jobs on storage of this machine are in `jobfile/run.rs`.

use iopath_log::SyncLogWriter;
use iopath_model::VirtualClock;
use iopath_report::result::Report;

use super::error::JobFileError;
use super::job::Job;
use super::members::Member;
use super::places::{Access, Place, Planned, Prepared};
use super::results::{
    GroupMeasured, GroupRun, JobSeries, check_cut_off, end_early, group_result, skips_later_groups,
};
use crate::engine::Transferred;
use crate::error::LabError;
use crate::progress::{Progress, Stage};
use crate::request_log::{over_limit, start_virtual_log};
use crate::run::warm_up;
use crate::signals::Interruption;
use crate::simulated::together::{ModelMeasured, ModelVolume, ModelWorker, Together};
use crate::workload::Workload;

/// Whether the targets are models, all of them.
pub(super) fn are_models(accesses: &[Access], planned: &[Planned]) -> Result<bool, JobFileError> {
    let model = |access: &&Access| Planned::of(planned, &access.place).model().is_some();
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

/// The jobs of a file whose targets are models.
pub(super) struct OnModels<'a> {
    pub(super) jobs: &'a [Job],
    pub(super) members: &'a [Vec<Member>],
    /// The jobs of each group.
    pub(super) sizes: &'a [usize],
    pub(super) prepared: &'a [Prepared],
    pub(super) base: &'a Workload,
}

impl OnModels<'_> {
    /// Measures all groups.
    pub(super) fn run(&self, progress: &mut dyn Progress) -> Result<Report, JobFileError> {
        self.check()?;
        let names: Vec<String> = self.prepared.iter().flat_map(|prepared| prepared.target.names()).collect();
        let log = start_virtual_log(self.base, &names)?;
        let mut targets = self.prepared.iter().filter_map(|prepared| prepared.target.facts());
        let mut report = Report::new(None, targets.next(), Vec::new());
        report.more_targets = targets.collect();
        let (mut clock, mut repetitions, mut warnings) = (VirtualClock::default(), 0, Vec::new());
        let mut rest = self.members;
        for (index, size) in self.sizes.iter().enumerate() {
            let (members, after) = rest.split_at(*size);
            rest = after;
            let group = Group { number: index as u32 + 1, of: self, members, log: log.as_ref() };
            let (number, count) = (group.number, self.sizes.len());
            progress.stage(&Stage::Jobs { names: group.names(), number, count });
            let ran = match group.run(&mut clock, &mut repetitions, progress) {
                Err(error) if !report.runs.is_empty() => GroupRun::without_results(&error),
                ran => ran?,
            };
            report.clock = ran.runs.first().map_or(report.clock, |run| run.clock);
            if let Some(warning) = ran.end(number, count) {
                warnings.push(warning);
            }
            let skip = skips_later_groups(self.jobs, members).filter(|_| (number as usize) < count);
            if ran.add_to(&mut report) {
                break;
            }
            if let Some(skip) = skip {
                warnings.push(skip);
                break;
            }
        }
        match log.map(SyncLogWriter::finish).transpose() {
            Ok(totals) => warnings.extend(totals.as_ref().and_then(over_limit)),
            // The results do not need the log.
            Err(error) => report.failure = report.failure.or(Some(LabError::from(error).to_string())),
        }
        if let Some(first) = report.runs.first_mut() {
            first.warnings.extend(warnings);
        }
        Ok(report)
    }

    /// Checks that the jobs of a group access each model by the same path.
    fn check(&self) -> Result<(), JobFileError> {
        let mut rest = self.members;
        for size in self.sizes {
            let (members, after) = rest.split_at(*size);
            rest = after;
            for member in members.iter().flatten() {
                let job = &self.jobs[member.job];
                let differs = |other: &&Member| {
                    other.place == member.place && other.workload.path.name != member.workload.path.name
                };
                if let Some(other) = members.iter().flatten().find(differs) {
                    let problem = format!(
                        "it accesses the model by path {}, and job {} of the same group by {}; use one path, or add stonewall",
                        member.workload.path.name, self.jobs[other.job].name, other.workload.path.name
                    );
                    return Err(job.problem(problem));
                }
            }
        }
        Ok(())
    }

    fn prepared(&self, place: &Place) -> &Prepared {
        self.prepared.iter().find(|prepared| prepared.place == *place).expect("each place was prepared")
    }
}

/// Jobs that run at the same time.
struct Group<'a> {
    /// From 1.
    number: u32,
    of: &'a OnModels<'a>,
    /// The members of each job of the group.
    members: &'a [Vec<Member>],
    log: Option<&'a SyncLogWriter>,
}

impl<'a> Group<'a> {
    fn all(&self) -> impl Iterator<Item = &'a Member> + Clone {
        self.members.iter().flatten()
    }

    fn names(&self) -> Vec<String> {
        self.members.iter().map(|members| self.of.jobs[members[0].job].name.clone()).collect()
    }

    /// The places of the group, each once.
    fn places(&self) -> Vec<&'a Place> {
        let mut places: Vec<&Place> = Vec::new();
        for member in self.all() {
            if !places.contains(&&member.place) {
                places.push(&member.place);
            }
        }
        places
    }

    fn volume(&self, place: &Place) -> Option<ModelVolume<'a>> {
        let of = self.of;
        let here = || self.all().filter(|member| member.place == *place);
        Some(ModelVolume {
            model: of.prepared(place).target.model()?,
            workload: &here().next()?.workload,
            jobs: here().count() as u32,
            depth: here().map(|member| member.workload.depth_in_flight()).max()?,
            is_warm: here().any(|member| member.workload.warm),
        })
    }

    fn run(
        &self,
        clock: &mut VirtualClock,
        repetitions: &mut u32,
        progress: &mut dyn Progress,
    ) -> Result<GroupRun, JobFileError> {
        let (of, is_alone) = (self.of, self.members.len() == 1);
        let mut series = Vec::with_capacity(self.members.len());
        for members in self.members {
            let target_of = |place: &Place| &of.prepared(place).target;
            series.push(JobSeries::new(of.jobs, members, target_of, is_alone)?);
        }
        let places = self.places();
        let volumes = places.iter().filter_map(|place| self.volume(place)).collect();
        let mut together = Together::new(volumes, of.base.seed, self.log, Interruption::flag());
        let volume_of = |place: &Place| places.iter().position(|known| *known == place).unwrap_or(0);
        for member in self.all().filter(|member| member.workload.warm) {
            let warm_up = warm_up(&member.workload, &of.prepared(&member.place).target);
            progress.stage(&Stage::WarmUp);
            together.warm_up(volume_of(&member.place), &warm_up, clock, progress)?;
        }
        let worker = |member: &'a Member| ModelWorker {
            volume: volume_of(&member.place),
            workload: &member.workload,
            end_bytes: member.end_bytes,
            start: member.start,
            ends_all: member.ends_all,
            clones: member.job,
        };
        let workers: Vec<ModelWorker> = self.all().map(worker).collect();
        let (mut measured, mut failure) = (Vec::new(), None);
        let count = of.base.repetitions.get();
        for number in 1..=count {
            progress.stage(&Stage::Repeat { number, count });
            *repetitions += 1;
            if let Some(log) = self.log {
                log.begin_repeat(*repetitions, clock.now());
            }
            let ran = together.measure(&workers, number, clock, progress);
            match ran.and_then(|ran| check_cut_off(ran.is_cut_off, number, &ran.jobs).map(|()| ran)) {
                Ok(ran) => {
                    measured.push(Self::push(&mut series, self.members, &ran));
                    if ran.is_cut_off {
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
        let runs = series.into_iter().map(|series| series.result(None, self.number)).collect();
        let group = group_result(self.number, self.names(), &measured, None);
        Ok(GroupRun { runs, group: Some(group), failure })
    }

    /// Adds a repetition to the results of each job. Returns that of the group.
    fn push(series: &mut [JobSeries], members: &[Vec<Member>], ran: &ModelMeasured) -> GroupMeasured {
        let transferred = Transferred { device: Some(ran.device), ..Transferred::default() };
        let group =
            GroupMeasured::new(&ran.jobs, None, transferred, None, Vec::new()).cut_off(ran.is_cut_off);
        let mut rest = &ran.jobs[..];
        for (series, members) in series.iter_mut().zip(members) {
            let (clones, after) = rest.split_at(members.len());
            rest = after;
            let steady = ran.steady.iter().find(|(clones, _)| *clones == members[0].job);
            series.push(clones, None, steady.map(|(_, outcome)| *outcome), &group, None, Vec::new());
        }
        group
    }
}
