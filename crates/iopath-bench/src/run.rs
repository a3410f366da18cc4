//! A whole measurement: repeats a workload on a target and summarizes the repetitions. One repetition is in
//! `engine.rs`.

mod series;

use std::num::NonZeroU64;
use std::rc::Rc;
use std::time::Duration;

use crate::conditions::Conditions;
use crate::control_result;
use crate::counters::idle_busy_cpus;
use crate::engine::{CpuSeconds, Measured, all_verified};
use crate::error::BenchError;
use crate::host::this_machine;
use crate::job::tally::Parts;
use crate::model_host::ModelHost;
use crate::options::{Ran, workload_facts};
use crate::parallel;
use crate::peers::Peers;
use crate::progress::{Progress, Stage};
use crate::rates::{device, directions, repeat_direction, submissions};
pub use crate::rates::{latency, per_second, spread};
use crate::request_log::RequestLog;
use crate::runner::Session;
use crate::served::served;
use crate::shape::of_both;
use crate::signals::Interruption;
use crate::steady_detector;
use crate::storage::Resident;
use crate::target::Target;
use crate::warnings;
use crate::workload::{LatencyFrom, Workload};
use iopath_report::result::{
    Clock, Cpu, Device, DiskUse, FlushResult, Host, Latencies, LatencyDistribution, ModelHostFacts, Repeat,
    RepeatDirections, RunResult,
};
pub use series::{Part, Series, checked};

/// The default duration of the sample of the idle machine. `/proc/stat` counts in ticks of 10 ms per CPU, so the sample
/// has a resolution of 0.02 CPUs per CPU.
pub const IDLE_SAMPLE: Duration = Duration::from_millis(500);

const GIB: f64 = (1u64 << 30) as f64;

/// A machine on which workloads are measured, one after another.
#[derive(Debug, Clone)]
pub struct Lab {
    host: Option<Host>,
    /// Other processes that measure at the same time.
    peers: Option<Rc<dyn Peers>>,
}

impl Lab {
    /// Inspects the machine, and samples the CPU time of other programs for `idle_sample`. The sample covers all
    /// measurements: CPU time of programs that start later counts as CPU cost.
    pub fn new(idle_sample: Duration, progress: &mut dyn Progress) -> Self {
        progress.stage(&Stage::Idle);
        Self { host: Some(this_machine(idle_busy_cpus(idle_sample).ok())), peers: None }
    }

    /// The lab for a target: in virtual time for a model. No part of its results is then of this machine.
    pub(crate) fn for_target(target: &Target, progress: &mut dyn Progress) -> Self {
        if target.model().is_some() { Self::in_virtual_time() } else { Self::new(IDLE_SAMPLE, progress) }
    }

    /// The lab for models.
    pub fn in_virtual_time() -> Self {
        Self { host: None, peers: None }
    }

    /// The same lab, at the same time as other processes.
    #[must_use]
    pub fn with_peers(self, peers: Option<Rc<dyn Peers>>) -> Self {
        Self { peers, ..self }
    }

    /// The machine; none in virtual time.
    pub fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    /// Measures a workload on a target. `target` and `size_bytes` of the workload are not used: the target has both.
    ///
    /// # Errors
    /// [`BenchError`]: the workload is refused, a transfer failed, or a signal ended a repetition.
    pub fn run(
        &self,
        workload: &Workload,
        target: &Target,
        progress: &mut dyn Progress,
    ) -> Result<RunResult, BenchError> {
        let result = self.run_until_signal(workload, target, progress)?;
        // A part of the repetitions is of no use to the caller.
        if result.partial { Err(BenchError::Interrupted) } else { Ok(result) }
    }

    /// As [`Lab::run`], but a signal leaves what was measured until then.
    pub fn run_until_signal(
        &self,
        workload: &Workload,
        target: &Target,
        progress: &mut dyn Progress,
    ) -> Result<RunResult, BenchError> {
        let (result, failure) = self.run_until_failure(workload, target, progress)?;
        failure.map_or(Ok(result), Err)
    }

    /// As [`Lab::run_until_signal`], but a failure after a complete repetition is returned with the repetitions before
    /// it.
    pub(crate) fn run_until_failure(
        &self,
        workload: &Workload,
        target: &Target,
        progress: &mut dyn Progress,
    ) -> Result<(RunResult, Option<BenchError>), BenchError> {
        let mut series = Series::new(workload, target)?;
        let log = RequestLog::start(workload, &target.names(), target.model().is_some())?;
        let ran = series.run(&mut Session::new(log.as_ref()).with_peers(self.peers.as_deref()), progress);
        let finished = log.map(RequestLog::finish).transpose();
        let mut failure = ran?;
        let mut result = self.summarize(&series);
        match finished {
            Ok(warning) => result.warnings.extend(warning.flatten()),
            // The results do not need the log.
            Err(error) => failure = failure.or(Some(error)),
        }
        Ok((result, failure))
    }

    /// The result of the repetitions of one workload measured so far.
    ///
    /// # Panics
    /// If no repetition was measured.
    pub fn summarize(&self, series: &Series) -> RunResult {
        self.summarize_part(series, 0)
    }

    /// The result of one of several workloads that ran at the same time. Counters of the system show it only if it was
    /// alone.
    pub fn summarize_part(&self, series: &Series, part: usize) -> RunResult {
        let has_counters = series.parts.len() == 1;
        summarize(&series.parts[part], has_counters, series.has_failed, self.host())
    }
}

/// The result of the repetitions of a workload, on this machine or in virtual time.
fn summarize(part: &Part, has_counters: bool, has_failed: bool, host: Option<&Host>) -> RunResult {
    let Part { ref workload, target, ref measured, engine, .. } = *part;
    let mut repeats: Vec<Repeat> =
        measured.iter().map(|repeated| repeat(&repeated.measured, repeated.resident, host)).collect();
    let directions = directions(measured.iter().map(|repeated| &repeated.measured));
    if directions.is_none() {
        for repeat in &mut repeats {
            repeat.directions = None;
        }
    }
    let all = |of: fn(&Measured) -> &Latencies| -> Latencies {
        measured.iter().map(|repeated| of(&repeated.measured)).sum()
    };
    let latency_ns = all(|measured| &measured.latency_ns);
    let flush_ns = all(|measured| &measured.flush_ns);
    let other_ns = all(|measured| &measured.other_ns);
    let other = |from| (workload.latency_from == from && !other_ns.is_empty()).then(|| latency(&other_ns));
    let parts: Parts = measured.iter().map(|repeated| &repeated.measured.parts).sum();
    let conditions = Conditions { workload, target, host };
    let verified = all_verified(measured.iter().map(|repeated| repeated.measured.verified.as_ref()));
    let (verify, faults) = verified.map(|verified| verified.result()).unzip();
    let complete = measured.iter().filter(|repeated| !repeated.measured.is_cut_off).count() as u32;
    let planned = workload.repetitions.get();
    let is_partial = complete < planned && (has_failed || Interruption::is_requested());
    let cause = if has_failed { "failed" } else { "interrupted" };
    // The only repetition, if none is complete.
    let part =
        measured.iter().find(|repeated| repeated.measured.is_cut_off).map_or_else(String::new, |part| {
            format!("; the figures are of the first {:.3} s of one", part.measured.seconds)
        });
    let ended_early =
        is_partial.then(|| format!("{cause}: {complete} of {planned} repetitions are complete{part}"));
    let outcomes: Vec<_> = measured.iter().filter_map(|repeated| repeated.measured.steady).collect();
    let steady = steady_detector::result(workload, &outcomes);
    let not_steady = steady.as_ref().and_then(steady_detector::warning);
    let controls = control_result::of(measured.iter().flat_map(|repeated| &repeated.measured.controlled));
    let served = if has_counters { served(&conditions, measured) } else { None };
    RunResult {
        job: None,
        path: workload.path.name.to_owned(),
        clock: if host.is_some() { Clock::Real } else { Clock::Virtual },
        rw: workload.rw.name().to_owned(),
        block_bytes: workload.block_size.bytes(),
        block_sizes: workload.shape.sizes.as_ref().map(of_both),
        io_depth: workload.depth_in_flight(),
        jobs: workload.jobs.get(),
        think_ns: (!workload.think.is_zero())
            .then(|| u64::try_from(workload.think.as_nanos()).unwrap_or(u64::MAX)),
        rate_iops: workload.rate_iops(),
        workload: Some(workload_facts(&Ran {
            workload,
            end_bytes: workload.size_bytes.unwrap_or(target.size_bytes_of_each()),
            engine,
        })),
        warm: workload.warm,
        served_by: served.as_ref().map(|served| served.by),
        bytes: repeats.iter().map(|repeat| repeat.bytes).sum(),
        ios: repeats.iter().map(|repeat| repeat.ios).sum(),
        seconds: repeats.iter().map(|repeat| repeat.seconds).sum(),
        bytes_per_second: spread(repeats.iter().map(|repeat| repeat.bytes_per_second)),
        iops: spread(repeats.iter().map(|repeat| repeat.iops)),
        latency_every: workload.latency_sampling.get(),
        latency_ns: latency(&latency_ns),
        latency_distribution: Some(LatencyDistribution::of(&latency_ns)),
        directions,
        flushes: (!flush_ns.is_empty()).then(|| FlushResult {
            every: workload.flush_every.map_or(0, NonZeroU64::get),
            count: flush_ns.count(),
            latency_ns: latency(&flush_ns),
            distribution: Some(LatencyDistribution::of(&flush_ns)),
        }),
        verify,
        steady_state: steady,
        latency_target: controls.latency_target,
        submissions: submissions(&parts),
        closed_loop_ns: other(LatencyFrom::Due),
        due_ns: other(LatencyFrom::Submission),
        cpu: cpu_sum(&repeats),
        threads: measured.iter().map(|repeated| repeated.measured.threads).sum(),
        model_host: workload.host.as_ref().filter(|_| has_counters).map(|host| model_host(host, &repeats)),
        device: device_sum(&repeats),
        cache: repeats
            .iter()
            .map(|repeat| repeat.cache)
            .sum::<Option<_>>()
            .map(|used| workload.cache.facts(used)),
        connections: measured.iter().map(|repeated| repeated.measured.connections).sum(),
        targets: parallel::targets(target, measured),
        targets_end: parallel::ends(target, measured),
        hosts: None,
        partial: is_partial,
        warnings: ended_early
            .into_iter()
            .chain(faults.into_iter().flatten())
            .chain(not_steady)
            .chain(controls.warnings)
            .chain(warnings::warnings(&conditions, served.as_ref(), measured, &repeats))
            .collect(),
        repeats,
    }
}

fn model_host(host: &ModelHost, repeats: &[Repeat]) -> ModelHostFacts {
    let cpus = host.model().cpus();
    let busy: f64 = repeats.iter().filter_map(|repeat| Some(repeat.cpu?.machine_seconds)).sum();
    let all: f64 = repeats.iter().map(|repeat| repeat.seconds * f64::from(cpus)).sum();
    let idle = if all > 0.0 { (1.0 - busy / all).max(0.0) } else { 1.0 };
    ModelHostFacts { name: host.name().to_owned(), cpus, idle }
}

/// The result of one repetition. `resident`: the bytes in page caches when it began.
pub fn repeat(measured: &Measured, resident: Option<Resident>, host: Option<&Host>) -> Repeat {
    let (bytes, ios, seconds) = (measured.bytes(), measured.ios, measured.seconds);
    let idle_seconds = host.and_then(|host| host.idle_busy_cpus).unwrap_or(0.0) * seconds;
    let cost = |CpuSeconds { user, system, machine_busy }| {
        let machine = machine_busy.map_or(0.0, |busy: f64| (busy - idle_seconds).max(0.0));
        cpu(user, system, machine, bytes, ios)
    };
    Repeat {
        bytes,
        ios,
        seconds,
        first_ended_seconds: measured.first_ended_seconds,
        bytes_per_second: per_second(bytes, seconds),
        iops: per_second(ios, seconds),
        latency_ns: latency(&measured.latency_ns),
        directions: measured.directions.as_ref().map(|[read, write, trim]| RepeatDirections {
            read: repeat_direction(read, seconds),
            write: repeat_direction(write, seconds),
            trim: (trim.ios > 0).then(|| repeat_direction(trim, seconds)),
        }),
        course: measured.course.clone(),
        cut_off: measured.is_cut_off,
        cpu: measured.cpu.map(cost),
        device: measured.device.map(device),
        cache: measured.cache,
        cached_before_bytes: resident.map(Resident::all),
        storage_read_bytes: measured.storage.map(|storage| storage.read),
        storage_written_bytes: measured.storage.map(|storage| storage.written),
    }
}

/// The CPU cost of this much time of the process and of the machine.
pub fn cpu(user_seconds: f64, system_seconds: f64, machine_seconds: f64, bytes: u64, ios: u64) -> Cpu {
    let seconds = machine_seconds.max(user_seconds + system_seconds);
    let per = |count: f64| if count > 0.0 { seconds / count } else { 0.0 };
    Cpu {
        user_seconds,
        system_seconds,
        machine_seconds,
        seconds_per_gib: per(bytes as f64 / GIB),
        microseconds_per_io: per(ios as f64) * 1e6,
    }
}

/// The CPU time of all repetitions; none if one of them lacks it.
pub fn cpu_sum(repeats: &[Repeat]) -> Option<Cpu> {
    let costs: Vec<&Cpu> = repeats.iter().map(|repeat| repeat.cpu.as_ref()).collect::<Option<_>>()?;
    let sum = |part: fn(&Cpu) -> f64| costs.iter().map(|cost| part(cost)).sum();
    Some(cpu(
        sum(|cpu| cpu.user_seconds),
        sum(|cpu| cpu.system_seconds),
        sum(|cpu| cpu.machine_seconds),
        repeats.iter().map(|repeat| repeat.bytes).sum(),
        repeats.iter().map(|repeat| repeat.ios).sum(),
    ))
}

/// The use of each disk in all repetitions.
pub fn disk_uses(measured: &[Measured]) -> Vec<DiskUse> {
    let mut uses: Vec<DiskUse> = Vec::new();
    for one in measured {
        for (name, counters) in &one.disks {
            let (name, seconds) = (name.clone(), one.counted_seconds);
            DiskUse { name, device: device(*counters), seconds }.add_to(&mut uses);
        }
    }
    uses
}

/// The transfers of the device in all repetitions; none if one of them lacks them.
pub fn device_sum(repeats: &[Repeat]) -> Option<Device> {
    repeats.iter().map(|repeat| repeat.device).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "these numbers are exact in binary")]
    fn cpu_cost_is_the_greater_of_machine_and_process() {
        let gib = 1 << 30;
        assert_eq!(cpu(1.0, 2.0, 4.0, 2 * gib, 1_000_000).seconds_per_gib, 2.0);
        assert_eq!(cpu(1.0, 2.0, 0.5, 2 * gib, 1_000_000).microseconds_per_io, 3.0);
        assert_eq!(cpu(1.0, 2.0, 4.0, 0, 0).seconds_per_gib, 0.0);
    }
}
