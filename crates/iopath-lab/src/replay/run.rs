//! One replay from its first pass to its report: checks everything, starts the threads, and waits for them.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use iopath::BatchOptions;
use iopath_bench::Workload;
use iopath_bench::error::BenchError;
use iopath_bench::host::this_machine;
use iopath_bench::progress::{Progress, Stage};
use iopath_bench::request_log::RequestLog;
use iopath_core::Instant;
use iopath_os::now;
use iopath_report::numbers::counted;
use iopath_report::random::of_target;
use iopath_report::replay::{ReplayReport, ReplayTiming, ReplayedDevice, ReplayedEvents, SCHEMA};

use super::ReplayRequest;
use super::contents::Contents;
use super::drive::{Driver, Setup};
use super::error::ReplayError;
use super::feed::{self, Feed};
use super::open::{Opened, check_path, open};
use super::scan::{Scan, Selection, scan, select};
use super::schedule::Schedule;
use super::tally::Tally;
use crate::recorded_times::Stretch;

/// The time from the moment at which all threads are ready to the first I/O.
const LEAD: Duration = Duration::from_millis(1);

/// The interval of the progress.
const INTERVAL: Duration = Duration::from_millis(100);

/// What a thread of a target returns: its figures, and why it ended early.
type Ended = Result<(Tally, Option<String>), BenchError>;

/// Replays a trace.
///
/// # Errors
/// [`ReplayError`]: the trace or a target cannot be used. After the first I/O, a failure is in the report.
pub fn replay(request: &ReplayRequest, progress: &mut dyn Progress) -> Result<ReplayReport, ReplayError> {
    check_path(request.path)?;
    progress.stage(&Stage::ReadTrace { trace: request.trace.clone() });
    let selection = Selection::of(request);
    let Scan { devices, notes, failure } = scan(&request.trace, &selection)?;
    let devices = select(devices, request)?;
    if request.timing == ReplayTiming::Closed && devices.iter().any(|device| device.needs.timed == 0) {
        return Err(ReplayError::NoCompletions { path: request.trace.clone() });
    }
    let mut opened = Vec::with_capacity(devices.len());
    for (number, device) in devices.into_iter().enumerate() {
        opened.push(open(device, number, request, progress)?);
    }
    let log = start_log(request, &opened)?;
    let planned = opened.iter().map(|one| one.device.needs.count()).sum();
    progress.stage(&Stage::Replay { trace: request.trace.clone(), ios: planned });
    let ended = replay_all(request, &selection, &opened, log.as_ref(), planned, progress)?;
    let mut failure = failure.map(|error| format!("{}: {error}", request.trace.display()));
    let mut is_stopped = false;
    let mut replayed = Vec::with_capacity(opened.len());
    for (one, (tally, error)) in opened.iter().zip(ended) {
        is_stopped |= tally.is_stopped;
        failure = failure.or(error);
        replayed.push(report_of(one, &tally, request));
    }
    let mut warnings = notes;
    warnings.extend(warnings_of(request, &replayed, is_stopped));
    // The volumes use the log until they are closed.
    drop(opened);
    match log.map(RequestLog::finish).transpose() {
        Ok(warning) => warnings.extend(warning.flatten()),
        // The results do not need the log.
        Err(error) => failure = failure.or_else(|| Some(error.to_string())),
    }
    Ok(ReplayReport {
        schema: SCHEMA.to_owned(),
        host: this_machine(None),
        trace: request.trace.to_string_lossy().into_owned(),
        events: request.events,
        timing: request.timing,
        speed: request.speed,
        fit: request.fit,
        reads_only: request.reads_only,
        path: request.path.name.to_owned(),
        elevator: request.elevator.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string),
        io_depth: request.depth(),
        seed: request.seed,
        seconds: replayed.iter().map(|device| device.seconds).fold(0.0, f64::max),
        devices: replayed,
        partial: is_stopped || failure.is_some(),
        failure,
        warnings,
    })
}

fn start_log(request: &ReplayRequest, opened: &[Opened]) -> Result<Option<RequestLog>, BenchError> {
    let names: Vec<String> = opened.iter().flat_map(|one| one.target.names()).collect();
    let workload = Workload {
        path: request.path,
        elevator: request.elevator.clone(),
        log: request.log.clone(),
        ..Workload::default()
    };
    RequestLog::start(&workload, &names, false)
}

/// Replays on all targets at the same time. Returns the end of each.
fn replay_all(
    request: &ReplayRequest,
    selection: &Selection,
    opened: &[Opened],
    log: Option<&RequestLog>,
    planned: u64,
    progress: &mut dyn Progress,
) -> Result<Vec<(Tally, Option<String>)>, BenchError> {
    let first_ns = opened.iter().map(|one| one.device.needs.first_ns).min().unwrap_or(0);
    let ended = AtomicU64::new(0);
    thread::scope(|scope| {
        let (ready, are_ready) = channel();
        let mut starts = Vec::with_capacity(opened.len());
        let mut threads = Vec::with_capacity(opened.len());
        for (number, one) in opened.iter().enumerate() {
            let feed = Feed {
                trace: &request.trace,
                selection,
                queue: one.device.queue,
                placement: one.placement,
                first_ns,
                timing: request.timing,
                planned: one.device.needs.count(),
            };
            let (start, starting) = channel();
            starts.push(start);
            let target = OneTarget { request, one, number, log, ended: &ended };
            let ready = ready.clone();
            threads.push(scope.spawn(move || target.run(feed, ready, &starting)));
        }
        drop(ready);
        // A thread that has failed is never ready; the others then end without a start.
        if are_ready.iter().count() == opened.len() {
            let at = Instant::from_nanos(now().as_nanos() + LEAD.as_nanos() as u64);
            for start in &starts {
                // Fails only if the thread has panicked.
                let _ = start.send(at);
            }
        }
        drop(starts);
        while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            thread::sleep(INTERVAL);
            progress.advance(ended.load(Ordering::Relaxed) as f64 / planned.max(1) as f64);
        }
        let join = |thread: thread::ScopedJoinHandle<'_, Ended>| {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}

/// The thread of a target.
struct OneTarget<'a> {
    request: &'a ReplayRequest,
    one: &'a Opened,
    number: usize,
    log: Option<&'a RequestLog>,
    ended: &'a AtomicU64,
}

impl OneTarget<'_> {
    fn run(&self, feed: Feed<'_>, ready: Sender<()>, starting: &Receiver<Instant>) -> Ended {
        let (request, one) = (self.request, self.one);
        let depth = request.depth();
        let options = BatchOptions::new(depth, one.buffer_bytes as usize);
        let mut batch = one.volume.local_batch(&options)?;
        let wait = BenchError::io("wait for", &request.targets[self.number]);
        // Before the first I/O: then the batch keeps its queue.
        drop(batch.completion_fd().map_err(wait)?);
        if let Some(log) = self.log.and_then(RequestLog::in_real_time) {
            batch.start_log(Box::new(log.add_queue()));
        }
        let seed = of_target(request.seed, self.number);
        let (sender, receiver) = feed::channel();
        let mut driver = Driver::new(Setup {
            batch,
            depth,
            schedule: Schedule::new(request.timing, Stretch::of_speed(request.speed)),
            timing: request.timing,
            feed: receiver,
            // Recorded requests are what was merged already.
            is_unmerged: request.events == ReplayedEvents::Dispatch,
            contents: Contents::new(seed, one.buffer_bytes as usize),
            ended: self.ended,
        });
        thread::scope(|scope| {
            let reading = scope.spawn(move || feed.run(&sender));
            driver.prepare();
            let _ = ready.send(());
            // Then the caller need not know how many threads have failed.
            drop(ready);
            let Ok(start) = starting.recv() else {
                // The reader ends when nothing receives.
                drop(driver);
                return Ok((Tally::default(), None));
            };
            let (tally, failure) = driver.run(start);
            let read = reading.join().unwrap_or_else(|panic| resume_unwind(panic));
            let failure = failure.map(|error| error.to_string());
            Ok((tally, failure.or_else(|| read.err().map(|error| error.to_string()))))
        })
    }
}

fn report_of(one: &Opened, tally: &Tally, request: &ReplayRequest) -> ReplayedDevice {
    let target = one.target.facts().expect("a target has facts");
    let planned = one.device.needs.count();
    tally.report(&one.device.name, target, one.volume.facts().engine, planned, request.timing)
}

/// Reasons to doubt the figures.
fn warnings_of(request: &ReplayRequest, replayed: &[ReplayedDevice], is_stopped: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if is_stopped {
        warnings.push("interrupted: the figures are of the I/Os before".to_owned());
    }
    for device in replayed {
        let on = device.name();
        if let Some(late) = device.lateness_ns.filter(|late| !late.kept_up) {
            let mut reasons = Vec::new();
            if device.depth_waits > 0 {
                reasons.push(format!(
                    "{} I/Os were in flight {} times (--iodepth)",
                    request.depth(),
                    device.depth_waits
                ));
            }
            if device.trace_waits > 0 {
                reasons.push(format!("the reader of the trace was too slow {} times", device.trace_waits));
            }
            let reasons =
                if reasons.is_empty() { String::new() } else { format!("; {}", reasons.join("; ")) };
            warnings.push(format!("{on}: {}{reasons}", late.text()));
        }
        if device.widened > 0 {
            let align = device.target.direct_align_bytes.unwrap_or(1);
            warnings.push(format!(
                "{on}: {} widened to the alignment of the target, {align} bytes",
                counted(device.widened, "I/O")
            ));
        }
        if device.operations.iter().all(|op| op.recorded_ns.is_none()) {
            warnings.push(format!("{on}: the trace has no latencies to compare"));
        }
    }
    if request.reads_only {
        warnings.push(
            "only reads were replayed: their recorded latencies are those beside the other I/Os".to_owned(),
        );
    }
    warnings
}
