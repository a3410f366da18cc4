//! Merges the repetitions of all ranks to one result: sums, exact histograms, starts, ends and fairness, on the clock
//! of rank 0. Does not receive them.
//!
//! | file | content |
//! |---|---|
//! | `repetition.rs` | a repetition on one clock: starts, ends and fairness |
//! | `figures.rs` | the figures of a rank, of a host and of the directions |
//! | `rank_end.rs` | the facts of the ranks at the end, and those of all together |

mod figures;
mod rank_end;
mod repetition;

use std::collections::BTreeMap;

use iopath_bench::run::{cpu, cpu_sum, latency, per_second, spread};
use iopath_report::result::{
    Cpu, HostFacts, HostsResult, Latencies, LatencyDistribution, Repeat, Report, RunResult, TargetFacts,
};

use super::hello::Hello;
use super::plan::{Plan, Stop};
use super::slower::verdicts;
use figures::{directions, host_result, rank_result};
pub(super) use rank_end::RankEnd;
use rank_end::{served_by, verified, warnings};
pub(super) use repetition::Repetition;
use repetition::{Times, ends};

/// Everything that rank 0 has received.
pub(super) struct Merge<'a> {
    pub(super) plan: Plan,
    /// The host of each rank.
    pub(super) hosts: &'a [String],
    pub(super) hellos: &'a [Hello],
    /// Those of one series stand together.
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

    /// The repetitions of each workload, or of each group of jobs: the first of a group has number 1.
    fn groups(&self) -> Vec<&[Repetition]> {
        let is_one = |one: &Repetition, next: &Repetition| one.series == next.series && next.number() > 1;
        self.repetitions.chunk_by(is_one).collect()
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

    /// The hosts, with the targets of their ranks if all came to the end.
    pub(super) fn host_facts(&self) -> Vec<HostFacts> {
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

    /// The hosts have different kernels.
    fn other_kernels(&self) -> Option<String> {
        let first = &self.hellos.first()?.machine.kernel;
        let other = self.hellos.iter().find(|hello| hello.machine.kernel != *first)?;
        let [here, there] = [&self.hellos[0], other].map(|hello| &hello.host);
        let kernel = &other.machine.kernel;
        Some(format!("the hosts have different kernels: {first} on {here}, {kernel} on {there}"))
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
            warnings: self
                .ends
                .map_or_else(|| base.warnings.clone(), |ends| warnings(ends, index, self.hosts))
                .into_iter()
                .chain(self.other_kernels())
                .collect(),
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
