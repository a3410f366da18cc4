//! Warnings about a measurement: memory served it, a layer changes its bytes, the CPU limits it, the machine was busy,
//! repetitions differ. Does not change the figures.

use iopath_report::result::{CacheUse, Connections, Repeat, ThreadUse};
use iopath_report::stats::Summary;

use crate::conditions::{Conditions, Repeated};
use crate::engine::Measured;
use crate::served::Served;
use crate::target::Target;
use crate::workload::{LatencyFrom, Workload};

/// A warning is issued above this coefficient of variation of the repetitions.
pub const CV_MAX: f64 = 0.10;

/// A warning is issued if other programs use more than this share of the CPUs.
const IDLE_BUSY_MAX: f64 = 0.05;

/// A warning is issued if the threads of the jobs, or all CPUs, are busy for this share of the time.
const CPU_SHARE_MIN: f64 = 0.9;

/// A warning is issued if the flush after the measurement takes more than this share of it.
const FLUSH_MIN: f64 = 0.05;

/// A warning is issued below this share of the rate that a run was to keep.
const RATE_MIN: f64 = 0.98;

/// All warnings about a measurement.
pub(crate) fn warnings(
    conditions: &Conditions,
    served: Option<&Served>,
    repeated: &[Repeated],
    repeats: &[Repeat],
) -> Vec<String> {
    let mut warnings: Vec<String> =
        repeated.first().map_or_else(Vec::new, |repeat| repeat.measured.warnings.clone());
    warnings.extend(depth(conditions));
    warnings.extend(lost(conditions, repeated));
    warnings.extend(served.into_iter().flat_map(|served| served.reasons.iter().cloned()));
    warnings.extend(not_warm(conditions, repeated));
    warnings.extend(unwritten(conditions));
    warnings.extend(flushed_later(repeated));
    warnings.extend(transformed(conditions));
    warnings.extend(cpu_limit(conditions, repeated, repeats));
    warnings.extend(busy(conditions));
    warnings.extend(variation(repeats));
    warnings.extend(below_rate(conditions, repeats));
    warnings
}

fn depth(conditions: &Conditions) -> Option<String> {
    let wanted = conditions.workload.depth.get();
    (conditions.workload.depth_in_flight() < wanted).then(|| {
        format!(
            "path {} is synchronous: depth 1 was measured, not {wanted}; use more jobs to keep more transfers in flight",
            conditions.workload.path.name
        )
    })
}

/// Connections that were lost, of each export.
fn lost(conditions: &Conditions, repeated: &[Repeated]) -> Vec<String> {
    let several = conditions.target.count() > 1;
    let of_target = |(index, target): (usize, &Target)| {
        let of_repeat = |repeat: &Repeated| match repeat.measured.targets.get(index) {
            Some(of_target) if several => of_target.connections,
            _ => repeat.measured.connections,
        };
        let Connections { lost, reconnected } = repeated.iter().map(of_repeat).sum::<Option<_>>()?;
        let reason = target.remote()?.failure()?;
        (lost > 0).then(|| {
            format!(
                "connections to {} were lost {lost} times and made anew {reconnected} times: the figures include these \
                 times; the last reason: {reason}",
                target.file().unwrap_or("a server".as_ref()).display()
            )
        })
    };
    conditions.target.each().enumerate().filter_map(of_target).collect()
}

/// Misses in a warm run.
fn not_warm(conditions: &Conditions, repeated: &[Repeated]) -> Option<String> {
    let used: CacheUse = repeated.iter().map(|repeat| repeat.measured.cache).sum::<Option<_>>()?;
    let (missed, all) = (used.misses + used.joins, used.hits + used.misses + used.joins);
    (conditions.workload.warm && missed > 0)
        .then(|| format!("not warm: {missed} of {all} pages were not in the cache; use a larger --cache"))
}

/// A flush that followed the measurement, and took long.
fn flushed_later(repeated: &[Repeated]) -> Option<String> {
    let sum = |of: fn(&Measured) -> f64| repeated.iter().map(|repeat| of(&repeat.measured)).sum::<f64>();
    let (flushes, seconds) = (sum(|measured| measured.final_flush_seconds), sum(|measured| measured.seconds));
    (flushes > FLUSH_MIN * seconds).then(|| {
        format!(
            "writes were left in caches: the flush after the measurement took {flushes:.2} s, and the figures are without \
             it, as in fio; end_fsync=1 includes it"
        )
    })
}

fn unwritten(conditions: &Conditions) -> Option<String> {
    let mut offsets = conditions.target.each().filter_map(Target::unwritten);
    let offset = offsets.next().filter(|_| conditions.workload.rw.reads())?;
    Some(format!(
        "the file has a hole or an unwritten extent at offset {offset}: reads of it do not access the disk"
    ))
}

/// Layers that encrypt, compress or deduplicate. A user's file may have compressible content; a scratch file does not.
fn transformed(conditions: &Conditions) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for target in conditions.target.each() {
        for transform in target.storage().transforms() {
            let text = transform.to_string();
            if !(transform.depends_on_content() && target.is_scratch() || found.contains(&text)) {
                found.push(text);
            }
        }
    }
    found
}

/// Whether the generator or the machine, and not the storage, limits the rate. Of workloads that wait for nothing else:
/// a rate or a think time leaves the CPU idle, and polling keeps it busy.
fn cpu_limit(conditions: &Conditions, repeated: &[Repeated], repeats: &[Repeat]) -> Option<String> {
    let host = conditions.host?;
    let workload = conditions.workload;
    let is_of_storage = conditions.path().needs_target && !workload.warm;
    if !is_of_storage || workload.is_paced() || workload.polling.completions {
        return None;
    }
    let threads = f64::from(workload.jobs.get()) * conditions.target.count() as f64;
    let seconds: f64 = repeated.iter().map(|repeat| repeat.measured.seconds).sum();
    let used = |use_: Option<ThreadUse>| use_.map(|used| used.user_seconds + used.system_seconds);
    let of_threads: Option<f64> = repeated.iter().map(|repeat| used(repeat.measured.threads)).sum();
    let share = of_threads.map(|used| used / (seconds * threads)).filter(|share| share.is_finite());
    if let Some(share) = share.filter(|share| *share >= CPU_SHARE_MIN) {
        return Some(format!(
            "the CPU, not the storage, is the limit: the threads of the jobs were busy for {:.0}% of the time; use more \
             jobs (--numjobs), larger blocks, or a path that costs less",
            share.min(1.0) * 100.0
        ));
    }
    let machine: Option<f64> = repeats.iter().map(|repeat| repeat.cpu.map(|cpu| cpu.machine_seconds)).sum();
    let busy = machine? / repeats.iter().map(|repeat| repeat.seconds).sum::<f64>();
    let cores = f64::from(host.cores);
    (busy >= CPU_SHARE_MIN * cores).then(|| {
        format!(
            "the CPU may be the limit: during the run, the machine used {busy:.2} of its {cores} CPUs, kernel threads and \
             interrupts included"
        )
    })
}

fn busy(conditions: &Conditions) -> Option<String> {
    let host = conditions.host?;
    let (busy, cores) = (host.idle_busy_cpus?, host.cores);
    (busy > IDLE_BUSY_MAX * f64::from(cores)).then(|| {
        format!("the machine was busy before the run: other programs used {busy:.2} of {cores} CPUs")
    })
}

/// A rate that was not kept: the latencies then grow with the length of the run.
fn below_rate(conditions: &Conditions, repeats: &[Repeat]) -> Option<String> {
    let workload @ Workload { jobs, .. } = conditions.workload;
    let targets = conditions.target.count() as f64;
    let wanted = workload.rate_iops()? * f64::from(jobs.get()) * targets;
    let (ios, seconds) =
        repeats.iter().fold((0, 0.0), |(ios, seconds), repeat| (ios + repeat.ios, seconds + repeat.seconds));
    let reached = ios as f64 / seconds;
    let consequence = match (workload.think.is_zero(), workload.latency_from) {
        (false, _) => "the think time is too long for it, or the target is too slow",
        (true, LatencyFrom::Due) => {
            "latencies include the time that transfers waited for their start, and grow with the length of the run"
        }
        (true, LatencyFrom::Submission) => {
            "latencies lack the time that transfers waited for their start, as in fio; latency_from=due includes it"
        }
    };
    (reached < wanted * RATE_MIN).then(|| {
        format!("the rate was not kept: {reached:.0} of {wanted:.0} transfers a second; {consequence}")
    })
}

fn variation(repeats: &[Repeat]) -> Option<String> {
    let rates: Vec<f64> = repeats.iter().map(|repeat| repeat.bytes_per_second).collect();
    let cv = Summary::of(&rates)?.cv()?;
    (cv > CV_MAX).then(|| {
        format!(
            "CV of the repetitions is {:.0}%: use a longer --runtime or more repetitions (--repeat)",
            cv * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::fixtures::{MIB, host, repeated};
    use crate::paths::find_path;
    use crate::served::served;
    use crate::workload::{Depth, Workload};
    use iopath_report::result::{Cpu, Latency};

    fn repeat(bytes_per_second: f64) -> Repeat {
        let latency_ns = Latency { min: 0, mean: 0.0, p50: 0, p90: 0, p99: 0, p999: 0, max: 0 };
        Repeat {
            bytes: 1,
            ios: 1,
            seconds: 1.0,
            first_ended_seconds: 1.0,
            bytes_per_second,
            iops: 1.0,
            latency_ns,
            directions: None,
            course: None,
            cut_off: false,
            cpu: None,
            device: None,
            cache: None,
            cached_before_bytes: None,
            storage_read_bytes: None,
            storage_written_bytes: None,
        }
    }

    /// The warnings about sequential reads of 100 MiB at a depth of 4.
    fn warned(path: &str, idle: f64, read_by_storage: u64, rates: [f64; 2]) -> Vec<String> {
        let (path, depth) = (find_path(path).unwrap(), Depth::new(4_u32).unwrap());
        let workload = Workload { path, depth, ..Workload::default() };
        let (target, host) = (Target::none(100 * MIB), host(idle));
        let conditions = Conditions { workload: &workload, target: &target, host: Some(&host) };
        let repeated = [repeated([100 * MIB, 0], Some([read_by_storage, 0]))];
        warnings(&conditions, served(&conditions, &repeated).as_ref(), &repeated, &rates.map(repeat))
    }

    #[test]
    fn a_good_measurement_has_no_warning() {
        assert_eq!(warned("kernel-uring", 0.05, 99 * MIB, [100.0, 105.0]), Vec::<String>::new());
    }

    #[test]
    fn threads_that_are_always_busy_and_a_machine_without_idle_time_are_named() {
        let warned = |thread_seconds: f64, machine_seconds: f64, think: bool| {
            let mut workload = Workload { path: find_path("kernel-uring").unwrap(), ..Workload::default() };
            if think {
                workload.think = std::time::Duration::from_millis(1);
            }
            let (target, host) = (Target::none(100 * MIB), host(0.0));
            let conditions = Conditions { workload: &workload, target: &target, host: Some(&host) };
            let mut repeated = [repeated([100 * MIB, 0], Some([100 * MIB, 0]))];
            let half = thread_seconds / 2.0;
            repeated[0].measured.threads =
                Some(ThreadUse { user_seconds: half, system_seconds: half, context_switches: 1 });
            let cpu = Cpu {
                user_seconds: half,
                system_seconds: half,
                machine_seconds,
                seconds_per_gib: 1.0,
                microseconds_per_io: 1.0,
            };
            cpu_limit(&conditions, &repeated, &[Repeat { cpu: Some(cpu), ..repeat(100.0) }])
        };
        assert_eq!(warned(0.5, 1.2, false), None);
        let text = warned(0.97, 1.2, false).unwrap();
        assert!(text.contains("the CPU, not the storage, is the limit") && text.contains("97%"), "{text}");
        let text = warned(0.5, 1.9, false).unwrap();
        assert!(text.contains("the machine used 1.90 of its 2 CPUs"), "{text}");
        assert_eq!(warned(0.97, 1.9, true), None, "a think time leaves no limit to find");
    }

    #[test]
    fn a_synchronous_path_memory_a_busy_machine_and_variation_cause_warnings() {
        assert_eq!(
            warned("kernel-direct", 0.5, 25 * MIB, [100.0, 150.0]),
            [
                "path kernel-direct is synchronous: depth 1 was measured, not 4; use more jobs to keep more transfers in \
                 flight",
                "storage read 25 MiB of the 100 MiB that a cold run needs: memory (a cache, a hole, compression) served \
                 the rest",
                "the machine was busy before the run: other programs used 0.50 of 2 CPUs",
                "CV of the repetitions is 28%: use a longer --runtime or more repetitions (--repeat)",
            ]
        );
    }
}
