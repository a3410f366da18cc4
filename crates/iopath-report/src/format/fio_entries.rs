//! The entries of the formats of fio: a job each, or the jobs of a group together, with the sums of all of them. Does
//! not format them.

use std::borrow::Cow;

use crate::Rw;
use crate::result::{
    FioOutput, GroupResult, Latencies, Latency, LatencyDistribution, Report, RunResult, Submissions,
    WorkloadFacts,
};

/// A job, or the jobs of a group.
pub(super) struct Entry<'a> {
    /// The first job, whose name and output the entry has.
    pub(super) first: &'a RunResult,
    /// The last job, whose options the entry has, as in fio.
    pub(super) last: &'a RunResult,
    pub(super) output: FioOutput,
    /// The number of the group in the output, from 0.
    pub(super) group: u64,
    /// The threads of all jobs.
    pub(super) jobs: u32,
    /// The time of the longest job.
    pub(super) seconds: f64,
    /// The times of all threads.
    pub(super) thread_seconds: f64,
    /// Reads, writes and trims.
    pub(super) parts: [Part; 3],
    /// All of them.
    pub(super) all: Part,
    pub(super) flushes: Option<Times>,
    /// In user and in kernel mode, in seconds.
    pub(super) cpu: [f64; 2],
    pub(super) context_switches: Option<u64>,
    pub(super) warnings: Vec<String>,
}

/// Transfers.
#[derive(Clone, Default)]
pub(super) struct Part {
    pub(super) bytes: u64,
    pub(super) ios: u64,
    /// The time of the longest job with such transfers.
    pub(super) seconds: f64,
    /// Bytes and transfers per second of each repetition, and its seconds.
    repeats: Vec<([f64; 2], f64)>,
    pub(super) times: Times,
    /// The submissions, and the latencies from their ends on; none if they were not measured.
    pub(super) submissions: Option<[Times; 2]>,
}

/// Latencies.
#[derive(Clone, Default)]
pub(super) struct Times {
    pub(super) count: u64,
    pub(super) min: u64,
    pub(super) max: u64,
    pub(super) mean: f64,
    pub(super) distribution: Option<LatencyDistribution>,
}

/// The entries of a report, in the order of its jobs.
pub(super) fn entries(report: &Report) -> Vec<Entry<'_>> {
    let mut entries: Vec<Entry> = Vec::new();
    let (mut group, mut before) = (0, None);
    let mut warnings = Vec::new();
    for run in &report.runs {
        let output = run.job.as_ref().map(|job| job.output.clone()).unwrap_or_default();
        let of_run = run.job.as_ref().map(|job| job.group);
        group += u64::from(before.is_some_and(|before| before != of_run || output.begins_group));
        before = Some(of_run);
        if output.is_left_out {
            warnings.extend(run.warnings.iter().cloned());
            continue;
        }
        let is_grouped = output.is_grouped;
        let entry = Entry::of(run, output, group);
        match entries.last_mut().filter(|last| last.group == group && last.output.is_grouped && is_grouped) {
            Some(last) => last.add(entry),
            None => entries.push(entry),
        }
    }
    for entry in &mut entries {
        entry.count_cpu(&report.groups);
    }
    // The warnings of the whole report are with its first job, which may be left out.
    if let Some(first) = entries.first_mut() {
        first.warnings.splice(0..0, warnings);
    }
    entries
}

impl<'a> Entry<'a> {
    fn of(run: &'a RunResult, output: FioOutput, group: u64) -> Self {
        let threads = run.threads;
        let seconds = |cpu: Option<[f64; 2]>| cpu.unwrap_or_default();
        Self {
            first: run,
            last: run,
            output,
            group,
            jobs: run.jobs,
            seconds: run.seconds,
            thread_seconds: run.seconds * f64::from(run.jobs),
            parts: parts(run),
            all: Part::all(run),
            flushes: run
                .flushes
                .as_ref()
                .map(|flushes| Times::of(&flushes.latency_ns, flushes.distribution.as_ref(), flushes.count)),
            cpu: seconds(threads.map(|threads| [threads.user_seconds, threads.system_seconds])),
            context_switches: threads.map(|threads| threads.context_switches),
            warnings: run.warnings.clone(),
        }
    }

    /// Adds another job of the group.
    fn add(&mut self, other: Self) {
        self.last = other.last;
        self.jobs += other.jobs;
        self.seconds = self.seconds.max(other.seconds);
        self.thread_seconds += other.thread_seconds;
        self.parts.iter_mut().zip(&other.parts).for_each(|(sum, part)| sum.add(part));
        self.all.add(&other.all);
        match (&mut self.flushes, other.flushes) {
            (Some(sum), Some(flushes)) => sum.add(&flushes),
            (sum, flushes) => *sum = sum.take().or(flushes),
        }
        self.cpu = [0, 1].map(|index| self.cpu[index] + other.cpu[index]);
        self.context_switches =
            self.context_switches.zip(other.context_switches).map(|(one, other)| one + other);
        self.warnings.extend(other.warnings);
    }

    /// The CPU time of the process, where it is that of the entry: it includes the threads of a path.
    fn count_cpu(&mut self, groups: &[GroupResult]) {
        let number = self.first.job.as_ref().map(|job| job.group);
        let group = groups.iter().find(|group| Some(group.number) == number);
        let is_whole = |group: &&GroupResult| group.ios == self.all.ios && group.bytes == self.all.bytes;
        let cpu = self.first.cpu.or_else(|| group.filter(is_whole)?.cpu);
        if let Some(cpu) = cpu {
            self.cpu = [cpu.user_seconds, cpu.system_seconds];
        }
    }
}

impl Part {
    /// All transfers of a run.
    fn all(run: &RunResult) -> Self {
        let repeats =
            run.repeats.iter().map(|repeat| ([repeat.bytes_per_second, repeat.iops], repeat.seconds));
        Self {
            bytes: run.bytes,
            ios: run.ios,
            seconds: run.seconds,
            repeats: repeats.collect(),
            times: Times::of(&run.latency_ns, run.latency_distribution.as_ref(), run.ios),
            submissions: run.submissions.as_deref().map(Times::of_submissions),
        }
    }

    fn add(&mut self, other: &Self) {
        if other.ios == 0 {
            return;
        }
        if self.ios == 0 {
            *self = other.clone();
            return;
        }
        self.seconds = self.seconds.max(other.seconds);
        self.bytes += other.bytes;
        self.ios += other.ios;
        // As in fio, the rates are those of the longest time.
        for ((rates, seconds), (others, other_seconds)) in self.repeats.iter_mut().zip(&other.repeats) {
            let longest = seconds.max(*other_seconds);
            let share = |seconds: f64| if longest > 0.0 { seconds / longest } else { 0.0 };
            *rates = [0, 1].map(|one| rates[one] * share(*seconds) + others[one] * share(*other_seconds));
            *seconds = longest;
        }
        // As in fio, jobs without submissions of their own add none, and count in full among the completions.
        if self.submissions.is_some() || other.submissions.is_some() {
            let of = |part: &Self| {
                part.submissions.clone().unwrap_or_else(|| [Times::default(), part.times.clone()])
            };
            let [mut sums, others] = [of(self), of(other)];
            sums.iter_mut().zip(&others).for_each(|(sum, times)| sum.add(times));
            self.submissions = Some(sums);
        }
        self.times.add(&other.times);
    }

    /// The submissions, and the latencies without them.
    pub(super) fn of_completions(&self) -> [Cow<'_, Times>; 2] {
        match &self.submissions {
            Some([submissions, completions]) => [Cow::Borrowed(submissions), Cow::Borrowed(completions)],
            None => [Cow::Owned(Times::default()), Cow::Borrowed(&self.times)],
        }
    }

    /// Bytes and transfers per second of each repetition.
    pub(super) fn rates(&self) -> impl Iterator<Item = [f64; 2]> {
        self.repeats.iter().filter(|_| self.ios > 0).map(|(rates, _)| *rates)
    }
}

impl Times {
    fn of_submissions(submissions: &Submissions) -> [Self; 2] {
        let Submissions { submission_ns, submission_distribution, completion_ns, completion_distribution } =
            submissions;
        [(submission_ns, submission_distribution), (completion_ns, completion_distribution)]
            .map(|(latency, distribution)| Self::of(latency, Some(distribution), distribution.count))
    }

    fn of(latency: &Latency, distribution: Option<&LatencyDistribution>, ios: u64) -> Self {
        Self {
            count: distribution.map_or(ios, |distribution| distribution.count),
            min: latency.min,
            max: latency.max,
            mean: latency.mean,
            distribution: distribution.cloned(),
        }
    }

    fn add(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let all = [&*self, other].map(|times| times.distribution.as_ref());
        let sum: Latencies = all.into_iter().flatten().map(|distribution| &distribution.latencies).sum();
        let count = self.count + other.count;
        self.mean = (self.mean * self.count as f64 + other.mean * other.count as f64) / count as f64;
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count = count;
        self.distribution = Some(LatencyDistribution::of(&sum));
    }
}

/// Reads, writes and trims of a run.
fn parts(run: &RunResult) -> [Part; 3] {
    let Some(both) = &run.directions else {
        let mut parts: [Part; 3] = Default::default();
        parts[direction(run)] = Part::all(run);
        return parts;
    };
    let all = [Some(&both.read), Some(&both.write), both.trim.as_ref()];
    std::array::from_fn(|index| {
        let Some(part) = all[index] else { return Part::default() };
        let repeats = run.repeats.iter().filter_map(|repeat| {
            let both = repeat.directions?;
            let part = [Some(both.read), Some(both.write), both.trim][index]?;
            Some(([part.bytes_per_second, part.iops], repeat.seconds))
        });
        Part {
            bytes: part.bytes,
            ios: part.ios,
            seconds: run.seconds,
            repeats: repeats.collect(),
            times: Times::of(&part.latency_ns, part.latency_distribution.as_ref(), part.ios),
            submissions: part.submissions.as_deref().map(Times::of_submissions),
        }
    })
}

/// The number of the only direction of a run.
fn direction(run: &RunResult) -> usize {
    let has_no_reads = run.workload.as_ref().is_some_and(WorkloadFacts::has_no_reads);
    match run.rw.parse::<Rw>() {
        Ok(rw) if rw.trims() => 2,
        Ok(rw) if rw.reads() && !has_no_reads => 0,
        _ => 1,
    }
}
