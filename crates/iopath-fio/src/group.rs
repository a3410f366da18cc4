//! The jobs of a file that run at the same time: their volumes, workers and results. `run/series.rs` and `runner.rs`
//! of `iopath-bench` run them.

use std::sync::Arc;

use super::error::JobFileError;
use super::job::Job;
use super::kept::Prepared;
use super::members::{Member, of_all_clones};
use super::place::Place;
use super::results::{GroupRun, group_result, job_result};
use super::verified::PlaceRecord;
use iopath_bench::engine::Worker;
use iopath_bench::error::BenchError;
use iopath_bench::progress::Progress;
use iopath_bench::run::{Lab, Part, Series, checked};
use iopath_bench::runner::{Group, Session, Volume};
use iopath_bench::target::Target;
use iopath_bench::workload::{SyncWrites, Workload};

/// Jobs that run at the same time.
pub(super) struct JobGroup<'a> {
    /// From 1.
    pub(super) number: u32,
    /// All jobs of the file.
    pub(super) jobs: &'a [Job],
    /// The members of each job of the group.
    pub(super) members: &'a [Vec<Member>],
    pub(super) prepared: &'a [Prepared],
    /// The expected content of the targets of jobs that verify.
    pub(super) records: &'a [PlaceRecord],
}

impl<'a> JobGroup<'a> {
    fn all(&self) -> impl Iterator<Item = &'a Member> + Clone {
        self.members.iter().flatten()
    }

    fn job(&self, members: &[Member]) -> &'a Job {
        &self.jobs[members[0].job]
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.members.iter().map(|members| self.job(members).name.clone()).collect()
    }

    fn target(&self, place: &Place) -> &'a Target {
        let prepared = self.prepared.iter().find(|prepared| prepared.place == *place);
        &prepared.expect("each place was prepared").target
    }

    /// Measures all repetitions. `seed` is that of models.
    pub(super) fn run(
        &self,
        lab: &Lab,
        seed: u64,
        session: &mut Session,
        progress: &mut dyn Progress,
    ) -> Result<GroupRun, JobFileError> {
        let mut parts = Vec::with_capacity(self.members.len());
        let mut workloads = Vec::new();
        for members in self.members {
            let job = self.job(members);
            for member in members {
                let workload = checked(&member.workload, self.target(&member.place));
                workloads.push(Arc::new(workload.map_err(|error| match error {
                    BenchError::Workload(error) => job.refused(&error),
                    other => JobFileError::Bench(other),
                })?));
            }
            let workload = of_all_clones(&workloads[workloads.len() - members.len()], job.clones());
            let workload = workload.map_err(|error| job.refused(&error))?;
            parts.push(Part::new(workload, self.target(&members[0].place)));
        }
        let before = &self.jobs[..self.members[0][0].job];
        let first_job = 1 + before.iter().map(|job| job.clones() as usize).sum::<usize>();
        let mut series = Series::of_jobs(self.group(workloads, seed), parts, first_job);
        let failure = series.run(session, progress)?;
        let result = |(part, members): (usize, &Vec<Member>)| {
            let mut result = job_result(self.job(members), self.number, lab, &series, part);
            result.warnings.extend(self.stays_cached(members));
            result
        };
        let runs = self.members.iter().enumerate().map(result).collect();
        let group = group_result(self.number, self.names(), &series.all, lab.host());
        Ok(GroupRun { runs, group: Some(group), failure: failure.map(|error| error.to_string()) })
    }

    /// Members with the same place and path share a volume. `workloads` are those of the members.
    fn group(&self, workloads: Vec<Arc<Workload>>, seed: u64) -> Group<'a> {
        let mut group = Group { seed, ..Group::default() };
        // A descriptor has one durability for all its writes.
        let mut known: Vec<(&Place, &str, SyncWrites)> = Vec::new();
        for (member, workload) in self.all().zip(workloads) {
            let Member { place, end_bytes, start, ends_all, job, .. } = member;
            let of_member = (place, workload.path.name, workload.sync);
            let volume = known.iter().position(|volume| *volume == of_member).unwrap_or_else(|| {
                let record = PlaceRecord::of(self.records, place);
                group.volumes.push(Volume { target: self.target(place), record });
                known.push(of_member);
                known.len() - 1
            });
            group.workers.push(Worker {
                volume,
                part: job - self.members[0][0].job,
                workload,
                job: 0,
                end_bytes: *end_bytes,
                start: *start,
                ends_all: *ends_all,
                ends_idle: false,
            });
        }
        group
    }

    /// A warning for a job without `pre_read` whose target stays in the page cache because of another job.
    fn stays_cached(&self, members: &[Member]) -> Option<String> {
        let warming =
            |place: &Place| self.all().find(|member| member.workload.warm && member.place == *place);
        let mut cold = members.iter().filter(|member| !member.workload.warm);
        let warming = cold.find_map(|member| warming(&member.place))?;
        Some(format!(
            "job {} has pre_read, so the caches of its target stay filled for job {} too",
            self.jobs[warming.job].name,
            self.job(members).name
        ))
    }
}
