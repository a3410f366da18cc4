//! Warnings about a measurement: memory served it, the machine was busy, repetitions differ. Does not change the
//! figures.

use iopath_report::result::{CacheUse, Connections, Repeat};
use iopath_report::stats::Summary;

use crate::conditions::{Conditions, Repeated};
use crate::served::Served;
use crate::target::Target;
use crate::workload::Workload;

/// A warning is issued above this coefficient of variation of the repetitions.
pub const CV_MAX: f64 = 0.10;

/// A warning is issued if other programs use more than this share of the CPUs.
const IDLE_BUSY_MAX: f64 = 0.05;

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
    warnings.extend(compressed(conditions));
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

fn unwritten(conditions: &Conditions) -> Option<String> {
    let mut offsets = conditions.target.each().filter_map(Target::unwritten);
    let offset = offsets.next().filter(|_| conditions.workload.rw.reads())?;
    Some(format!(
        "the file has a hole or an unwritten extent at offset {offset}: reads of it do not access the disk"
    ))
}

/// A user's file may have compressible content; a scratch file does not.
fn compressed(conditions: &Conditions) -> Option<String> {
    let filesystem =
        conditions.target.info()?.filesystem.as_ref().filter(|_| !conditions.target.is_scratch())?;
    filesystem.compresses().then(|| {
        format!("{} compresses: the disk transfers fewer bytes than the run counts", filesystem.name)
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
    let consequence = if workload.think.is_zero() {
        "latencies include the time that transfers waited for their start, and grow with the length of the run"
    } else {
        "the think time is too long for it, or the target is too slow"
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
    use iopath_report::result::Latency;

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
