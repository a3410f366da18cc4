//! Merges the repetitions of all ranks to one result: sums, exact histograms, starts, ends and fairness, on the clock
//! of rank 0. Does not receive them.

use std::collections::BTreeMap;

use iopath_bench::run::{cpu, cpu_sum, latency, per_second, spread};
use iopath_bench::share::Layout;
use iopath_report::result::{
    Connections, Cpu, DirectionResult, Directions, HostFacts, HostResult, HostsResult, Latencies,
    LatencyDistribution, RankResult, RanksEnd, Repeat, RepeatDirection, RepeatDirections, Report, RunResult,
    ServedBy, TargetFacts, ThreadUse, VerifyResult,
};
use iopath_report::stats::fairness::jain;
use serde::{Deserialize, Serialize};

use super::clock::Offset;
use super::hello::Hello;
use super::slower::verdicts;
use super::wire::{PartFigures, RankRepeat};

/// The faults that a result names.
const FAULTS_MAX: usize = 20;

/// When a repetition ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stop {
    /// Each rank has an end of its own.
    #[default]
    All,
    /// The first rank that ends stops the others: a stonewall.
    First,
}

/// How the ranks measure together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Plan {
    /// When a repetition ends.
    pub stop: Stop,
    /// How they share one target; none if each has its own.
    pub shared: Option<Layout>,
    /// Whether each accesses the share of a rank of another host.
    pub reordered: bool,
}

/// A repetition of all ranks.
#[derive(Debug)]
pub(super) struct Repetition {
    /// Each rank.
    pub(super) ranks: Vec<RankRepeat>,
    /// The clocks of the ranks after it.
    pub(super) offsets: Vec<Offset>,
}

/// The facts of a rank at the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RankEnd {
    pub(super) failure: Option<String>,
    targets: Vec<TargetFacts>,
    runs: Vec<RunEnd>,
}

/// The facts of a run that sums of repetitions lack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct RunEnd {
    warnings: Vec<String>,
    verify: Option<VerifyResult>,
    served_by: Option<ServedBy>,
    threads: Option<ThreadUse>,
    connections: Option<Connections>,
}

impl RankEnd {
    /// Of the results of a rank, and of its failure.
    pub(super) fn of(report: Option<&Report>, failure: Option<String>) -> Self {
        let run = |run: &RunResult| RunEnd {
            warnings: run.warnings.clone(),
            verify: run.verify.clone(),
            served_by: run.served_by,
            threads: run.threads,
            connections: run.connections,
        };
        let targets = |report: &Report| report.target.iter().chain(&report.more_targets).cloned().collect();
        Self {
            failure,
            targets: report.map_or_else(Vec::new, targets),
            runs: report.map_or_else(Vec::new, |report| report.runs.iter().map(run).collect()),
        }
    }
}

/// Everything that rank 0 has received.
pub(super) struct Merge<'a> {
    pub(super) plan: &'a Plan,
    /// The host of each rank.
    pub(super) hosts: &'a [String],
    pub(super) hellos: &'a [Hello],
    pub(super) repetitions: &'a [Repetition],
    /// None if a rank did not come to the end.
    pub(super) ends: Option<&'a [RankEnd]>,
}

impl Merge<'_> {
    /// The results of all ranks, from those of rank 0. None without a complete repetition, and if the bytes of a rank
    /// are no histogram.
    pub(super) fn report(&self, base: Report) -> Option<Report> {
        let mut runs = Vec::with_capacity(base.runs.len());
        let groups = self.groups();
        let parts = groups.iter().flat_map(|group| (0..group[0].parts()).map(move |part| (group, part)));
        for (index, (run, (group, part))) in base.runs.iter().zip(parts).enumerate() {
            runs.push(self.run(run, group, part, index)?);
        }
        (!runs.is_empty()).then(|| Report { runs, hosts: self.host_facts(), groups: Vec::new(), ..base })
    }

    /// The repetitions of each group of jobs: the first of a group has number 1.
    fn groups(&self) -> Vec<&[Repetition]> {
        self.repetitions.chunk_by(|_, next| next.number() > 1).collect()
    }

    /// The hosts in the order of their first ranks, with their ranks.
    fn ranks_by_host(&self) -> Vec<(&str, Vec<usize>)> {
        let mut hosts: Vec<(&str, Vec<usize>)> = Vec::new();
        let mut known = BTreeMap::new();
        for (rank, host) in self.hosts.iter().enumerate() {
            let index = *known.entry(host.as_str()).or_insert(hosts.len());
            if index == hosts.len() {
                hosts.push((host, Vec::new()));
            }
            hosts[index].1.push(rank);
        }
        hosts
    }

    fn host_facts(&self) -> Vec<HostFacts> {
        let facts = |(name, ranks): (&str, Vec<usize>)| {
            let mut targets: Vec<TargetFacts> = Vec::new();
            for target in ranks.iter().flat_map(|rank| self.ends.map_or(&[][..], |ends| &ends[*rank].targets))
            {
                if !targets.contains(target) {
                    targets.push(target.clone());
                }
            }
            let machine = self.hellos[ranks[0]].machine.clone();
            let ranks = ranks.into_iter().map(|rank| rank as u32).collect();
            HostFacts { name: name.to_owned(), ranks, machine, targets }
        };
        self.ranks_by_host().into_iter().map(facts).collect()
    }

    /// A run of all ranks.
    fn run(&self, base: &RunResult, group: &[Repetition], part: usize, index: usize) -> Option<RunResult> {
        let by_host = self.ranks_by_host();
        let times: Vec<Times> = group.iter().map(|one| Times::of(one, part)).collect();
        let mut of_repeats = vec![Latencies::default(); group.len()];
        let (mut hosts, mut ranks) = (Vec::new(), Vec::new());
        for (name, numbers) in &by_host {
            let mut of_host = Latencies::default();
            for (local, rank) in numbers.iter().enumerate() {
                let mut of_rank = Latencies::default();
                for (repetition, of_repeat) in group.iter().zip(&mut of_repeats) {
                    let bytes = repetition.ranks[*rank].histogram(part, 0)?;
                    of_rank.add_bytes(bytes)?;
                    of_repeat.add_bytes(bytes)?;
                }
                of_host.add(&of_rank);
                ranks.push(rank_result(*rank, name, local, group, part, &of_rank));
            }
            hosts.push(host_result(name, numbers, group, part, &of_host));
        }
        // Per rank, so that hosts with different numbers of ranks compare.
        let rates: Vec<Vec<f64>> = by_host
            .iter()
            .map(|(_, numbers)| {
                let rate = |repetition: &Repetition| {
                    let of_ranks = numbers.iter().map(|rank| repetition.rate(*rank, part));
                    of_ranks.sum::<f64>() / numbers.len() as f64
                };
                group.iter().map(rate).collect()
            })
            .collect();
        for (host, verdict) in hosts.iter_mut().zip(verdicts(&rates)) {
            host.relative_to_others = verdict.map(|verdict| verdict.ratio);
            host.is_slower = verdict.is_some_and(|verdict| verdict.is_slower);
        }
        ranks.sort_by_key(|rank| rank.rank);
        let worst_host = hosts.iter().max_by_key(|host| host.latency_ns.p99).map(|host| host.host.clone())?;
        let ends = ends(&times, &rates, group, part);
        let mut repeats: Vec<Repeat> = group
            .iter()
            .zip(&times)
            .zip(&of_repeats)
            .map(|((repetition, times), latencies)| self.repeat(repetition, part, times, latencies))
            .collect();
        let (directions, of_each) = directions(group, part, &times)?;
        for (repeat, directions) in repeats.iter_mut().zip(of_each) {
            repeat.directions = Some(directions);
        }
        let all: Latencies = of_repeats.iter().sum();
        let result = HostsResult {
            stop: if self.plan.stop == Stop::First { "first" } else { "all" }.to_owned(),
            shared: self.plan.shared.map(|layout| layout.name().to_owned()),
            reordered: self.plan.reordered,
            worst_host,
            ends,
            hosts,
            ranks,
        };
        let of_ends =
            || self.ends.iter().flat_map(|ends| ends.iter()).filter_map(move |end| end.runs.get(index));
        Some(RunResult {
            bytes: repeats.iter().map(|repeat| repeat.bytes).sum(),
            ios: repeats.iter().map(|repeat| repeat.ios).sum(),
            seconds: repeats.iter().map(|repeat| repeat.seconds).sum(),
            bytes_per_second: spread(repeats.iter().map(|repeat| repeat.bytes_per_second)),
            iops: spread(repeats.iter().map(|repeat| repeat.iops)),
            latency_ns: latency(&all),
            latency_distribution: Some(LatencyDistribution::of(&all)),
            directions,
            cpu: cpu_sum(&repeats),
            served_by: served_by(base.served_by, of_ends().map(|end| end.served_by)),
            verify: verified(base, of_ends()),
            threads: of_ends().map(|end| end.threads).sum::<Option<_>>(),
            connections: of_ends().map(|end| end.connections).sum::<Option<_>>(),
            warnings: self.warnings(base, index),
            hosts: Some(Box::new(result)),
            // Figures of one rank or machine.
            closed_loop_ns: None,
            due_ns: None,
            submissions: None,
            flushes: None,
            steady_state: None,
            latency_target: None,
            device: None,
            cache: None,
            targets: Vec::new(),
            targets_end: None,
            repeats,
            ..base.clone()
        })
    }

    /// The warnings of all ranks, each once, with the ranks that have it.
    fn warnings(&self, base: &RunResult, index: usize) -> Vec<String> {
        let Some(ends) = self.ends else { return base.warnings.clone() };
        // Ranks have the same warning with figures of their own.
        let without_figures =
            |text: &str| text.replace(|letter: char| letter.is_ascii_digit() || letter == '.', "");
        let mut warnings: Vec<(String, &String, Vec<usize>)> = Vec::new();
        for (rank, end) in ends.iter().enumerate() {
            for warning in end.runs.get(index).iter().flat_map(|run| &run.warnings) {
                let kind = without_figures(warning);
                match warnings.iter_mut().find(|(known, ..)| *known == kind) {
                    Some((.., ranks)) => ranks.push(rank),
                    None => warnings.push((kind, warning, vec![rank])),
                }
            }
        }
        let name = |(_, warning, ranks): (String, &String, Vec<usize>)| {
            let (first, more) = (ranks[0], ranks.len() - 1);
            let others = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("rank {first} on host {}{others}: {warning}", self.hosts[first])
        };
        let kernels = self
            .ranks_by_host()
            .into_iter()
            .map(|(host, ranks)| (host, &self.hellos[ranks[0]].machine.kernel));
        let kernels: Vec<_> = kernels.collect();
        let other = kernels.iter().find(|(_, kernel)| *kernel != kernels[0].1).map(|(host, kernel)| {
            format!(
                "the hosts have different kernels: {} on {}, {kernel} on {host}",
                kernels[0].1, kernels[0].0
            )
        });
        warnings.into_iter().map(name).chain(other).collect()
    }

    /// A repetition of all ranks.
    fn repeat(&self, repetition: &Repetition, part: usize, times: &Times, latencies: &Latencies) -> Repeat {
        let [bytes, ios] = repetition.transfers(0..repetition.ranks.len(), part, 0);
        let seconds = times.seconds();
        Repeat {
            bytes,
            ios,
            seconds,
            first_ended_seconds: times.first_done - times.first_start,
            bytes_per_second: per_second(bytes, seconds),
            iops: per_second(ios, seconds),
            latency_ns: latency(latencies),
            directions: None,
            course: None,
            cut_off: false,
            cpu: self.cpu(repetition, bytes, ios),
            device: None,
            cache: None,
            cached_before_bytes: None,
            storage_read_bytes: None,
            storage_written_bytes: None,
        }
    }

    /// The CPU time of all processes, and of all machines: the ranks of a host see the same machine.
    fn cpu(&self, repetition: &Repetition, bytes: u64, ios: u64) -> Option<Cpu> {
        let (mut user, mut system, mut machines) = (0.0, 0.0, 0.0);
        for (_, ranks) in self.ranks_by_host() {
            let mut machine = 0.0f64;
            for rank in ranks {
                let [of_user, of_system, of_machine] = repetition.ranks[rank].figures.cpu?;
                user += of_user;
                system += of_system;
                machine = machine.max(of_machine);
            }
            machines += machine;
        }
        Some(cpu(user, system, machines, bytes, ios))
    }
}

impl RankRepeat {
    /// The histogram of transfers: 0 for all, then reads, writes and trims. Empty if they were not told apart.
    fn histogram(&self, part: usize, kind: usize) -> Option<&[u8]> {
        let part = &self.figures.parts[part];
        if kind >= part.transfers.len() {
            return Some(&[]);
        }
        self.histograms.get(part.histogram + kind).map(Vec::as_slice)
    }
}

impl Repetition {
    fn number(&self) -> u32 {
        self.ranks[0].figures.number
    }

    fn parts(&self) -> usize {
        self.ranks[0].figures.parts.len()
    }

    fn figures(&self, rank: usize, part: usize) -> &PartFigures {
        &self.ranks[rank].figures.parts[part]
    }

    /// Bytes and number of transfers of some ranks.
    fn transfers(&self, ranks: impl IntoIterator<Item = usize>, part: usize, kind: usize) -> [u64; 2] {
        let of_rank = |rank| self.figures(rank, part).transfers.get(kind).copied().unwrap_or_default();
        ranks.into_iter().map(of_rank).fold([0; 2], |sum, one| [sum[0] + one[0], sum[1] + one[1]])
    }

    fn seconds(&self, rank: usize, part: usize) -> f64 {
        let PartFigures { started, ended, .. } = self.figures(rank, part);
        ended - started
    }

    /// The throughput of a rank in its own time.
    fn rate(&self, rank: usize, part: usize) -> f64 {
        per_second(self.transfers([rank], part, 0)[0], self.seconds(rank, part))
    }

    /// The start and the end of some ranks, on the clock of rank 0.
    fn span(&self, ranks: &[usize], part: usize) -> [f64; 2] {
        let at = |rank: usize, time: f64| time - self.offsets[rank].seconds;
        let started = ranks.iter().map(|rank| at(*rank, self.figures(*rank, part).started));
        let ended = ranks.iter().map(|rank| at(*rank, self.figures(*rank, part).ended));
        [started.fold(f64::INFINITY, f64::min), ended.fold(f64::NEG_INFINITY, f64::max)]
    }
}

/// Starts and ends of all ranks in a repetition, on the clock of rank 0.
struct Times {
    first_start: f64,
    last_start: f64,
    first_done: f64,
    last_done: f64,
    /// The error of the time between the first and the last end.
    error: f64,
}

impl Times {
    fn of(repetition: &Repetition, part: usize) -> Self {
        let spans = || {
            repetition.offsets.iter().enumerate().map(|(rank, offset)| {
                let [started, ended] = repetition.span(&[rank], part);
                (started, ended, offset.error)
            })
        };
        let (mut first, mut last) = ((f64::INFINITY, 0.0), (f64::NEG_INFINITY, 0.0));
        for (_, ended, error) in spans() {
            first = if ended < first.0 { (ended, error) } else { first };
            last = if ended > last.0 { (ended, error) } else { last };
        }
        let is_one = repetition.ranks.len() == 1;
        Self {
            first_start: spans().map(|(started, ..)| started).fold(f64::INFINITY, f64::min),
            last_start: spans().map(|(started, ..)| started).fold(f64::NEG_INFINITY, f64::max),
            first_done: first.0,
            last_done: last.0,
            error: if is_one { 0.0 } else { first.1 + last.1 },
        }
    }

    fn seconds(&self) -> f64 {
        self.last_done - self.first_start
    }
}

/// Starts, ends and fairness: means over the repetitions.
fn ends(times: &[Times], rates: &[Vec<f64>], group: &[Repetition], part: usize) -> RanksEnd {
    let count = times.len() as f64;
    let mean = |of: &dyn Fn(&Times) -> f64| times.iter().map(of).sum::<f64>() / count;
    let skew = |times: &Times| times.last_done - times.first_done;
    let jain_hosts = (0..group.len()).map(|repeat| {
        let of_hosts: Vec<f64> = rates.iter().map(|host| host[repeat]).collect();
        jain(&of_hosts)
    });
    let jain_ranks = group.iter().map(|repetition| {
        let of_ranks: Vec<f64> =
            (0..repetition.ranks.len()).map(|rank| repetition.rate(rank, part)).collect();
        jain(&of_ranks)
    });
    RanksEnd {
        last_start_seconds: mean(&|times| times.last_start - times.first_start),
        first_done_seconds: mean(&|times| times.first_done - times.first_start),
        last_done_seconds: mean(&Times::seconds),
        skew_seconds: mean(&skew),
        skew_ci95: [
            mean(&|times| (skew(times) - times.error).max(0.0)),
            mean(&|times| skew(times) + times.error),
        ],
        jain_hosts: jain_hosts.sum::<f64>() / count,
        jain_ranks: jain_ranks.sum::<f64>() / count,
    }
}

/// The mean offset of some ranks over the repetitions, and the largest error.
fn clock(ranks: &[usize], group: &[Repetition]) -> Offset {
    let offsets = || group.iter().flat_map(|one| ranks.iter().map(|rank| one.offsets[*rank]));
    let count = (group.len() * ranks.len()) as f64;
    Offset {
        seconds: offsets().map(|one| one.seconds).sum::<f64>() / count,
        error: offsets().map(|one| one.error).fold(0.0, f64::max),
    }
}

fn rank_result(
    rank: usize,
    host: &str,
    local_rank: usize,
    group: &[Repetition],
    part: usize,
    latencies: &Latencies,
) -> RankResult {
    let clock = clock(&[rank], group);
    let transfers = |kind: usize| group.iter().map(|one| one.transfers([rank], part, 0)[kind]).sum();
    RankResult {
        rank: rank as u32,
        host: host.to_owned(),
        local_rank: local_rank as u32,
        bytes: transfers(0),
        ios: transfers(1),
        seconds: group.iter().map(|one| one.seconds(rank, part)).sum(),
        bytes_per_second: spread(group.iter().map(|one| one.rate(rank, part))),
        latency_ns: latency(latencies),
        clock_offset_seconds: clock.seconds,
        clock_error_seconds: clock.error,
    }
}

fn host_result(
    host: &str,
    ranks: &[usize],
    group: &[Repetition],
    part: usize,
    latencies: &Latencies,
) -> HostResult {
    let clock = clock(ranks, group);
    let transfers = |one: &Repetition, kind: usize| one.transfers(ranks.iter().copied(), part, 0)[kind];
    // From the start of the host, and not of all: the others may have started earlier.
    let seconds = |one: &Repetition| {
        let [started, ended] = one.span(ranks, part);
        ended - started
    };
    let rate = |kind: usize| spread(group.iter().map(|one| per_second(transfers(one, kind), seconds(one))));
    HostResult {
        host: host.to_owned(),
        ranks: ranks.len() as u32,
        bytes: group.iter().map(|one| transfers(one, 0)).sum(),
        ios: group.iter().map(|one| transfers(one, 1)).sum(),
        seconds: group.iter().map(seconds).sum(),
        bytes_per_second: rate(0),
        iops: rate(1),
        latency_ns: latency(latencies),
        clock_offset_seconds: clock.seconds,
        clock_error_seconds: clock.error,
        relative_to_others: None,
        is_slower: false,
    }
}

/// Reads, writes and trims of all repetitions, and of each; none unless all ranks have them apart.
fn directions(
    group: &[Repetition],
    part: usize,
    times: &[Times],
) -> Option<(Option<Directions>, Vec<RepeatDirections>)> {
    let is_apart = |rank: &RankRepeat| rank.figures.parts[part].transfers.len() > 1;
    if !group.iter().all(|repetition| repetition.ranks.iter().all(is_apart)) {
        return Some((None, Vec::new()));
    }
    let mut results = Vec::new();
    let mut of_each: Vec<Vec<RepeatDirection>> = vec![Vec::new(); group.len()];
    for kind in 1..=3 {
        let mut all = Latencies::default();
        for ((repetition, times), of_repeat) in group.iter().zip(times).zip(&mut of_each) {
            let mut latencies = Latencies::default();
            for rank in &repetition.ranks {
                latencies.add_bytes(rank.histogram(part, kind)?)?;
            }
            let [bytes, ios] = repetition.transfers(0..repetition.ranks.len(), part, kind);
            let seconds = times.seconds();
            of_repeat.push(RepeatDirection {
                bytes,
                ios,
                bytes_per_second: per_second(bytes, seconds),
                iops: per_second(ios, seconds),
                latency_ns: latency(&latencies),
            });
            all.add(&latencies);
        }
        let of_kind = || of_each.iter().map(|repeat| &repeat[kind - 1]);
        results.push(DirectionResult {
            bytes: of_kind().map(|one| one.bytes).sum(),
            ios: of_kind().map(|one| one.ios).sum(),
            bytes_per_second: spread(of_kind().map(|one| one.bytes_per_second)),
            iops: spread(of_kind().map(|one| one.iops)),
            latency_ns: latency(&all),
            latency_distribution: Some(LatencyDistribution::of(&all)),
            submissions: None,
        });
    }
    let each = of_each.into_iter().map(|repeat| {
        let [read, write, trim] = [repeat[0], repeat[1], repeat[2]];
        RepeatDirections { read, write, trim: (trim.ios > 0).then_some(trim) }
    });
    let trim = results.pop().filter(|trim| trim.ios > 0);
    let (write, read) = (results.pop()?, results.pop()?);
    Some((Some(Directions { read, write, trim }), each.collect()))
}

/// The medium that served all ranks; unknown if they differ.
fn served_by(own: Option<ServedBy>, all: impl Iterator<Item = Option<ServedBy>>) -> Option<ServedBy> {
    all.fold(own, |common, one| if one == common { common } else { Some(ServedBy::Unknown) })
}

/// The checked blocks of all ranks; of rank 0 alone if the others did not come to the end.
fn verified<'a>(base: &RunResult, ends: impl Iterator<Item = &'a RunEnd>) -> Option<VerifyResult> {
    let mut sum: Option<VerifyResult> = None;
    for one in ends.filter_map(|end| end.verify.as_ref()) {
        let Some(sum) = &mut sum else {
            sum = Some(one.clone());
            continue;
        };
        sum.blocks += one.blocks;
        sum.bytes += one.bytes;
        sum.lost += one.lost;
        sum.stale += one.stale;
        sum.torn += one.torn;
        sum.misdirected += one.misdirected;
        sum.corrupt += one.corrupt;
        sum.unstamped += one.unstamped;
        sum.first.extend(one.first.iter().cloned());
        sum.first.truncate(FAULTS_MAX);
    }
    sum.or_else(|| base.verify.clone())
}
