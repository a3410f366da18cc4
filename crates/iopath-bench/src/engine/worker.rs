//! A job of a repetition, and the progress of all of them. The same in real and in virtual time.

use std::sync::Arc;
use std::time::Duration;

use crate::job::Start;
use crate::plan::Plan;
use crate::workload::Workload;
use iopath_report::random;

/// One job of a workload, on a volume.
#[derive(Debug, Clone)]
pub struct Worker {
    /// The number of its volume.
    pub volume: usize,
    /// The number of its workload: the jobs of a workload are steady together, and have one result.
    pub part: usize,
    /// The workload of the job.
    pub workload: Arc<Workload>,
    /// The number of the job in its workload.
    pub job: u32,
    /// The end of the range that the workload accesses.
    pub end_bytes: u64,
    /// When the job starts, and when its measurement begins.
    pub start: Start,
    /// Whether the end of the job ends all jobs.
    pub ends_all: bool,
    /// Whether a job on a cached path ends when its disk is idle, if the group has several volumes: readahead may
    /// continue after the last transfer, and the ends of several targets of one workload are compared.
    pub ends_idle: bool,
}

impl Worker {
    /// The jobs of one workload on each of several volumes, which have these ends. Each volume has random numbers of
    /// its own.
    pub fn on_each(workload: &Workload, ends: impl IntoIterator<Item = u64>) -> Vec<Self> {
        let mut workers = Vec::new();
        for (volume, end_bytes) in ends.into_iter().enumerate() {
            let seed = random::of_target(workload.seed, volume);
            let workload = Arc::new(Workload { seed, ..workload.clone() });
            workers.extend(Self::of(&workload, volume, end_bytes));
        }
        workers
    }

    /// The jobs of a workload on one volume.
    pub(crate) fn of(
        workload: &Arc<Workload>,
        volume: usize,
        end_bytes: u64,
    ) -> impl Iterator<Item = Self> + use<> {
        let first = Self {
            volume,
            part: 0,
            workload: Arc::clone(workload),
            job: 0,
            end_bytes,
            start: Start::default(),
            ends_all: false,
            ends_idle: true,
        };
        (0..workload.jobs.get()).map(move |job| Self { job, ..first.clone() })
    }

    /// The number that selects its transfers in repetition `number`: a warm run repeats the transfers of its warm-up.
    pub(crate) fn repetition(&self, number: u32) -> u32 {
        if self.workload.warm { 0 } else { number }
    }

    pub(crate) fn plan(&self, number: u32) -> Plan {
        Plan::new(&self.workload, self.end_bytes, self.repetition(number), self.job)
    }

    /// The time limit, in nanoseconds.
    pub(crate) fn runtime_ns(&self) -> Option<u64> {
        self.workload.end.time().and_then(|time| u64::try_from(time.as_nanos()).ok())
    }

    pub(super) fn seed(&self) -> u64 {
        self.workload.seed.wrapping_add(self.job.into())
    }

    /// Whether the blocks that it writes are read back after each repetition.
    pub(crate) fn reads_back(&self) -> bool {
        self.workload.rw.writes() && self.workload.verify.is_some_and(|verify| verify.after)
    }

    /// The time after which the job ends, from the common start.
    fn time(&self) -> Option<Duration> {
        Some(self.start.delay + self.start.ramp + self.workload.end.time()?)
    }

    /// About the bytes that the job moves.
    fn bytes(&self) -> u64 {
        self.workload.end.bytes().unwrap_or(self.end_bytes) / u64::from(self.workload.jobs)
    }
}

/// The progress of a repetition, from 0 to 1.
pub fn done(workers: &[Worker], elapsed: Duration, moved_bytes: u64) -> f64 {
    let times: Option<Vec<Duration>> = workers.iter().map(Worker::time).collect();
    let done = if let Some(last) = times.and_then(|times| times.into_iter().max()) {
        elapsed.as_nanos() as f64 / last.as_nanos() as f64
    } else {
        moved_bytes as f64 / workers.iter().map(Worker::bytes).sum::<u64>().max(1) as f64
    };
    done.min(1.0)
}
