//! A whole measurement: prepare the place, repeat, put the repeats together, say what makes them doubtful.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use iopath_log::{LogInfo, LogOptions, LogWriter, Totals};
use iopath_os::target::Residency;

use crate::counters::{DiskCounters, idle_busy_cpus};
use crate::doubt::{self, Circumstances};
use crate::engine::{Measured, measure};
use crate::error::LabError;
use crate::host::memory_available_bytes;
use crate::job::latencies;
use crate::path::{IoPath, OpenSpec, PathRow};
use crate::place::Place;
use crate::progress::{Progress, Stage};
use crate::result::{Cpu, Device, Host, Latency, Repeat, RunResult, Spread};
use crate::stats::Summary;
use crate::workload::{Rw, Workload};

/// How long the idle machine is watched, where the caller does not say. `/proc/stat` counts in 10 ms for each CPU,
/// so this knows the idle rate to 0.02 CPUs for each CPU there is.
pub const IDLE_SAMPLE: Duration = Duration::from_millis(500);

const GIB: f64 = (1u64 << 30) as f64;

/// A machine on which workloads are measured, one after another.
#[derive(Debug, Clone)]
pub struct Lab {
    host: Host,
}

impl Lab {
    /// Looks at the machine, and for `idle_sample` at how busy it is with other things. That is done once, so that
    /// many measurements may follow; what begins on the machine later is not taken off their CPU time.
    pub fn new(idle_sample: Duration, progress: &mut dyn Progress) -> Self {
        progress.stage(&Stage::Idle);
        Self { host: Host::here(idle_busy_cpus(idle_sample).ok()) }
    }

    /// The machine.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Measures a workload at a place. The workload's own `target` and `size_bytes` are not looked at: the place has
    /// both.
    pub fn run(
        &self,
        workload: &Workload,
        place: &Place,
        progress: &mut dyn Progress,
    ) -> Result<RunResult, LabError> {
        self.run_row(workload.check()?, workload, place, progress)
    }

    /// The same on a path that need not be in the table: somebody else's. The workload's own `path` is not looked at.
    pub fn run_row(
        &self,
        row: &PathRow,
        workload: &Workload,
        place: &Place,
        progress: &mut dyn Progress,
    ) -> Result<RunResult, LabError> {
        let mut series = Series::new(row, workload, place)?;
        let log = start_log(workload, place)?;
        let path = series.open(log.as_ref())?;
        if workload.warm {
            series.warm_up(&*path, progress)?;
        }
        for _ in 0..workload.repeat {
            series.measure(&*path, progress)?;
        }
        drop(path);
        let mut result = self.put_together(&series);
        if let Some(log) = log.and_then(Arc::into_inner) {
            result.warnings.extend(missed(&log.finish()?));
        }
        Ok(result)
    }

    /// The result of the repeats measured so far.
    ///
    /// # Panics
    /// If there are none.
    pub(crate) fn put_together(&self, series: &Series) -> RunResult {
        let Series { row, ref workload, place, depth, ref measured } = *series;
        let repeats: Vec<Repeat> =
            measured.iter().map(|(measured, residency)| self.repeat(measured, residency.as_ref())).collect();
        let mut latency_ns = latencies();
        for (measured, _) in measured {
            latency_ns.add(&measured.latency_ns).expect("all histograms have the same bounds");
        }
        let circumstances = Circumstances { workload, row, place, depth, host: &self.host };
        RunResult {
            path: row.name.to_owned(),
            rw: workload.rw.name().to_owned(),
            block_bytes: workload.block_bytes,
            io_depth: depth,
            jobs: workload.jobs,
            warm: workload.warm,
            bytes: repeats.iter().map(|repeat| repeat.bytes).sum(),
            ios: repeats.iter().map(|repeat| repeat.ios).sum(),
            seconds: repeats.iter().map(|repeat| repeat.seconds).sum(),
            bytes_per_second: spread(repeats.iter().map(|repeat| repeat.bytes_per_second)),
            iops: spread(repeats.iter().map(|repeat| repeat.iops)),
            latency_every: workload.latency_every,
            latency_ns: latency(&latency_ns),
            cpu: cpu_sum(&repeats),
            device: device_sum(&repeats),
            cache: repeats
                .iter()
                .map(|repeat| repeat.cache)
                .sum::<Option<_>>()
                .map(|used| workload.cache.facts(used)),
            warnings: doubt::warnings(&circumstances, measured, &repeats),
            repeats,
        }
    }

    fn repeat(&self, measured: &Measured, residency: Option<&Residency>) -> Repeat {
        let (bytes, ios, seconds) = (measured.bytes(), measured.ios, measured.seconds);
        let idle_seconds = self.host.idle_busy_cpus.unwrap_or(0.0) * seconds;
        let machine_seconds =
            measured.machine_busy_seconds.map_or(0.0, |busy| (busy - idle_seconds).max(0.0));
        Repeat {
            bytes,
            ios,
            seconds,
            first_ended_seconds: measured.first_ended_seconds,
            bytes_per_second: bytes as f64 / seconds,
            iops: ios as f64 / seconds,
            latency_ns: latency(&measured.latency_ns),
            cpu: cpu(measured.user_seconds, measured.system_seconds, machine_seconds, bytes, ios),
            device: measured.device.map(device),
            cache: measured.cache,
            cached_before_bytes: residency.map(|residency| residency.resident * residency.page_bytes),
        }
    }
}

/// The repeats of one workload, as many as there are so far. Others may be measured in between.
pub(crate) struct Series<'a> {
    row: &'a PathRow,
    workload: Workload,
    place: &'a Place,
    depth: u32,
    measured: Vec<(Measured, Option<Residency>)>,
}

impl<'a> Series<'a> {
    /// Checks that the workload can be measured at the place.
    pub(crate) fn new(row: &'a PathRow, workload: &Workload, place: &'a Place) -> Result<Self, LabError> {
        workload.check_for(row)?;
        workload.check_size(place.size_bytes())?;
        place.check_alignment(workload, row)?;
        let depth = if row.synchronous { 1 } else { workload.io_depth };
        workload.check_warm(row, place.size_bytes())?;
        let cache_bytes = if row.cached { workload.cache.cache_bytes() } else { 0 };
        check_memory(workload, depth, cache_bytes, memory_available_bytes())?;
        Ok(Self { row, workload: workload.clone(), place, depth, measured: Vec::new() })
    }

    /// Opens the path; it serves any number of repeats.
    pub(crate) fn open(&self, log: Option<&Arc<LogWriter>>) -> Result<Box<dyn IoPath>, LabError> {
        (self.row.open)(&OpenSpec {
            place: self.place,
            depth: self.depth,
            writes: self.workload.rw.writes(),
            size_bytes: self.place.size_bytes(),
            elevator: self.workload.elevator.as_deref(),
            engine: self.workload.engine.as_deref(),
            cache: &self.workload.cache,
            log,
        })
    }

    /// Reads what a warm workload will touch, unmeasured.
    pub(crate) fn warm_up(&self, path: &dyn IoPath, progress: &mut dyn Progress) -> Result<(), LabError> {
        progress.stage(&Stage::WarmUp);
        let workload = warm_up(&self.workload, self.row, self.place);
        measure(path, &workload, self.place, self.depth, 0, progress).map(drop)
    }

    /// Whether it is to be warm.
    pub(crate) fn is_warm(&self) -> bool {
        self.workload.warm
    }

    /// One more repeat, cold unless the workload is to be warm.
    pub(crate) fn measure(&mut self, path: &dyn IoPath, progress: &mut dyn Progress) -> Result<(), LabError> {
        let Self { workload, place, depth, .. } = &*self;
        let number = self.measured.len() as u32 + 1;
        let residency = if workload.warm {
            None
        } else {
            path.forget()?;
            drop_cached(place, progress)?
        };
        progress.stage(&Stage::Repeat { number, count: workload.repeat });
        // A warm run repeats the very transfers that warmed up.
        let repeat = if workload.warm { 0 } else { number };
        let measured = measure(path, workload, place, *depth, repeat, progress)?;
        self.measured.push((measured, residency));
        Ok(())
    }

    /// Whether there is nothing yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.measured.is_empty()
    }
}

/// What runs once before a warm measurement: the range is read, so that what follows finds it cached. Where nothing is
/// cached, or there is more of it than memory, the workload itself, for what caches there are below.
fn warm_up(workload: &Workload, row: &PathRow, place: &Place) -> Workload {
    let is_in_memory = memory_available_bytes().is_none_or(|available| place.size_bytes() < available);
    if row.direct || !row.needs_target || !is_in_memory {
        return workload.clone();
    }
    Workload { rw: Rw::Read, jobs: 1, runtime: None, io_bytes: None, ..workload.clone() }
}

/// Begins the request log that the workload asks for.
fn start_log(workload: &Workload, place: &Place) -> Result<Option<Arc<LogWriter>>, LabError> {
    let Some(path) = &workload.log else { return Ok(None) };
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let info = LogInfo {
        elevator: workload.elevator.clone().unwrap_or_else(|| "none".to_owned()),
        target: place.file().map_or_else(|| "null".to_owned(), |file| file.display().to_string()),
        start_ns: iopath_os::now().as_nanos(),
        started_unix_ns: since_1970.as_nanos() as u64,
        ..LogInfo::default()
    };
    let defaults = LogOptions::default();
    let limit_bytes = workload.log_limit_bytes.unwrap_or(defaults.limit_bytes);
    Ok(Some(Arc::new(LogWriter::create(path, &info, &LogOptions { limit_bytes, ..defaults })?)))
}

/// What the log lacks is never silent.
fn missed(totals: &Totals) -> Option<String> {
    let Totals { records, missed, .. } = *totals;
    (missed > 0).then(|| {
        format!("the log lacks {missed} records of {}: the disk or CPU did not keep up", records + missed)
    })
}

/// Buffers that do not fit the memory are refused before the kernel has to end some process for them.
fn check_memory(
    workload: &Workload,
    depth: u32,
    cache_bytes: u64,
    available: Option<u64>,
) -> Result<(), LabError> {
    let buffers =
        u64::from(workload.block_bytes).saturating_mul(u64::from(depth)).saturating_mul(workload.jobs.into());
    let needed = buffers.saturating_add(cache_bytes);
    match available {
        Some(available) if needed > available => Err(LabError::Buffers { needed, available }),
        _ => Ok(()),
    }
}

fn drop_cached(place: &Place, progress: &mut dyn Progress) -> Result<Option<Residency>, LabError> {
    if place.file().is_some() {
        progress.stage(&Stage::DropCache);
    }
    place.drop_cached()
}

fn spread(values: impl Iterator<Item = f64>) -> Spread {
    let values: Vec<f64> = values.collect();
    let summary = Summary::of(&values).expect("a workload has one repeat at least");
    Spread { mean: summary.mean, stddev: summary.stddev, ci95: summary.ci95 }
}

fn latency(histogram: &Histogram<u64>) -> Latency {
    Latency {
        min: histogram.min(),
        mean: histogram.mean(),
        p50: histogram.value_at_quantile(0.5),
        p90: histogram.value_at_quantile(0.9),
        p99: histogram.value_at_quantile(0.99),
        p999: histogram.value_at_quantile(0.999),
        max: histogram.max(),
    }
}

fn cpu(user_seconds: f64, system_seconds: f64, machine_seconds: f64, bytes: u64, ios: u64) -> Cpu {
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

fn cpu_sum(repeats: &[Repeat]) -> Cpu {
    let sum = |part: fn(&Cpu) -> f64| repeats.iter().map(|repeat| part(&repeat.cpu)).sum();
    cpu(
        sum(|cpu| cpu.user_seconds),
        sum(|cpu| cpu.system_seconds),
        sum(|cpu| cpu.machine_seconds),
        repeats.iter().map(|repeat| repeat.bytes).sum(),
        repeats.iter().map(|repeat| repeat.ios).sum(),
    )
}

fn device(counters: DiskCounters) -> Device {
    let DiskCounters { reads, read_bytes, writes, written_bytes } = counters;
    Device { reads, read_bytes, writes, written_bytes }
}

fn device_sum(repeats: &[Repeat]) -> Option<Device> {
    repeats.iter().map(|repeat| repeat.device).sum()
}

impl std::iter::Sum for Device {
    fn sum<I: Iterator<Item = Self>>(devices: I) -> Self {
        devices.fold(Self { reads: 0, read_bytes: 0, writes: 0, written_bytes: 0 }, |sum, one| Self {
            reads: sum.reads + one.reads,
            read_bytes: sum.read_bytes + one.read_bytes,
            writes: sum.writes + one.writes,
            written_bytes: sum.written_bytes + one.written_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_that_do_not_fit_are_refused_with_both_sizes() {
        let workload = Workload { block_bytes: 1 << 30, jobs: 3, ..Workload::default() };
        let text = check_memory(&workload, 2, 0, Some(5 << 30)).unwrap_err().to_string();
        assert!(text.starts_with("buffers of 6 GiB") && text.contains("the 5 GiB of memory"), "{text}");
        check_memory(&workload, 2, 0, Some(6 << 30)).unwrap();
        check_memory(&workload, 2, 1 << 30, Some(6 << 30)).unwrap_err();
        check_memory(&workload, 2, 0, None).unwrap();
    }

    #[test]
    #[expect(clippy::float_cmp, reason = "these numbers are exact in binary")]
    fn cpu_price_counts_the_machine_or_the_process_whichever_is_more() {
        let gib = 1 << 30;
        assert_eq!(cpu(1.0, 2.0, 4.0, 2 * gib, 1_000_000).seconds_per_gib, 2.0);
        assert_eq!(cpu(1.0, 2.0, 0.5, 2 * gib, 1_000_000).microseconds_per_io, 3.0);
        assert_eq!(cpu(1.0, 2.0, 4.0, 0, 0).seconds_per_gib, 0.0);
    }
}
