//! One recording, from its first to its last event: reads the rings, orders the events of all CPUs by time, joins them,
//! and writes the log.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use iopath_bench::Interruption;
use iopath_core::Instant;
use iopath_log::kernel::{AccessEvent, AccessStep, JoinCounts, Joiner, KernelEvent};
use iopath_log::{Interval, Intervals, Labels, LogInfo, LogOptions, Loss, SyncLogWriter, Totals};
use iopath_os::trace::{AccessProgram, RingsConfig, TraceRecord, TraceRings, Tracefs};
use iopath_os::{keep_child_status, now, process_cpu_times, trace};
use rustix::process::{Pid, Signal, kill_process};

use super::decode::Decoder;
use super::devices::{Queues, Receivers, Selected};
use super::error::RecordError;
use super::files::access_event;
use super::unseen::Unseen;

/// The time between two reads of the rings, unless one is a quarter full before.
const INTERVAL: Duration = Duration::from_millis(100);

/// An event is recorded when the rings were read this time after it. A CPU needs much less from the time of an event to
/// its place in the ring.
const SLACK: Duration = Duration::from_millis(10);

/// Partly filled blocks are written after this time. This bounds the loss when the program is killed.
const BLOCK_AGE_MAX: Duration = Duration::from_secs(1);

/// The name of records of system calls.
const SYSTEM_CALLS: &str = "system calls";

/// The loss of completions that the kernel did not report.
const UNSEEN: &str = "block_rq_complete without an event";

/// A command that still runs this time after the end was requested gets a signal.
const GRACE: Duration = Duration::from_secs(1);

/// What to record.
#[derive(Debug, Clone)]
pub struct RecordRequest {
    /// Names of devices, or files and directories on them; none for all devices.
    pub devices: Vec<PathBuf>,
    /// The duration; `None` until the command ends or a signal arrives.
    pub duration: Option<Duration>,
    /// The log; `None` for none.
    pub file: Option<PathBuf>,
    /// The maximum size of the log in bytes; `None` for the default.
    pub limit_bytes: Option<u64>,
    /// The ring of each CPU in bytes; `None` for the default.
    pub ring_bytes: Option<u64>,
    /// Whether the reads, writes and flushes of files are recorded, too, above the page cache. Needs a log.
    pub accesses: bool,
    /// The command and its arguments; empty for none.
    pub command: Vec<OsString>,
}

/// Receives the figures of intervals while a recording is in progress.
pub struct Top<'a> {
    /// The length of an interval.
    pub every: Duration,
    /// Receives the figures of an interval, and the events so far. The recording ends if it returns `Break`.
    pub show: &'a mut dyn FnMut(&Interval, EventCounts) -> ControlFlow<()>,
    /// Whether the part of an interval at the end is one, too.
    pub shows_rest: bool,
}

/// Events of the kernel since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Events that were read.
    pub read: u64,
    /// Events that found no room in a ring, as far as the kernel has reported them.
    pub lost: u64,
}

impl fmt::Debug for Top<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Top").field("every", &self.every).finish_non_exhaustive()
    }
}

/// The result of a recording.
#[derive(Debug)]
pub struct Recorded {
    /// Records in the log, and events that are not.
    pub totals: Totals,
    /// Events that the kernel delivered.
    pub events: u64,
    /// Events that it did not deliver, by event and CPU.
    pub losses: Vec<Loss>,
    /// Completions that it did not report, which are among the losses.
    pub unseen: u64,
    /// What the joiner could not join.
    pub counts: JoinCounts,
    /// Events that arrived too late to be recorded in the order of time.
    pub late: u64,
    /// The devices with an event.
    pub devices: Vec<String>,
    /// Accesses of files that were recorded, and the number of these files; `None` if they were not requested.
    pub accesses: Option<(u64, usize)>,
    /// Accesses through `io_uring`, whose files and ranges are not recorded.
    pub ring_requests: u64,
    /// The duration.
    pub elapsed: Duration,
    /// The CPU time of this process, from the first to the last event.
    pub cpu: Duration,
    /// The ring of each CPU in bytes.
    pub ring_bytes: usize,
    /// The largest part of a ring that was in use when it was read, 0 to 1.
    pub ring_use: f64,
    /// The end of the command, if there is one that has ended.
    pub status: Option<ExitStatus>,
}

/// Records until the duration has passed, the command has ended or the end is requested ([`Interruption`]), whichever
/// is first. Without a log, only `top` shows what was recorded.
///
/// # Errors
/// If the kernel refuses its events, the log cannot be written, or the command cannot be started.
pub fn record(request: &RecordRequest, top: Option<Top<'_>>) -> Result<Recorded, RecordError> {
    let selected = Selected::find(&request.devices)?;
    let tracefs = Tracefs::open()?;
    let (mut decoder, traced) = Decoder::new(&tracefs, &selected)?;
    let defaults = RingsConfig::default();
    let ring_bytes = request.ring_bytes.map_or(defaults.ring_bytes, |bytes| bytes as usize);
    let has_command = !request.command.is_empty();
    let tasks = has_command || request.accesses;
    let rings = TraceRings::open(&traced, &RingsConfig { ring_bytes, tasks, outputs: request.accesses })?;
    let program = if request.accesses {
        decoder.names.push(SYSTEM_CALLS);
        let recorded = if has_command { trace::Recorded::Started } else { trace::Recorded::All };
        Some(AccessProgram::attach(rings.outputs(), recorded)?)
    } else {
        None
    };
    let options = LogOptions::default();
    let limit_bytes = request.limit_bytes.unwrap_or(options.limit_bytes);
    let create =
        |file| SyncLogWriter::create(file, &info(&selected, request), &LogOptions { limit_bytes, ..options });
    let receivers = match (request.file.as_deref().map(create).transpose()?.map(Arc::new), &top) {
        (Some(log), None) => Receivers::Log(log),
        (log, _) => Receivers::Intervals(Intervals::new(now()), log),
    };
    let session = Session {
        rings,
        program,
        decoder,
        joiner: Joiner::new(Queues::new(receivers.clone())),
        receivers,
        labels: Labels::default(),
        waiting: Vec::new(),
        waiting_accesses: Vec::new(),
        accesses: 0,
        events: 0,
        lost: 0,
        bytes_max: 0,
        unseen: Unseen::default(),
    };
    let recorded = session.run(request, top);
    if let (Err(RecordError::Command { .. }), Some(file)) = (&recorded, &request.file)
        && fs::metadata(file).is_ok_and(|metadata| metadata.is_file())
    {
        // Nothing was recorded.
        let _ = fs::remove_file(file);
    }
    recorded
}

/// The header of the log.
fn info(selected: &[Selected], request: &RecordRequest) -> LogInfo {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let names: Vec<_> = selected.iter().map(|device| device.name.as_str()).collect();
    let only = if let [only] = selected { Some(only) } else { None };
    LogInfo {
        elevator: only.and_then(|only| only.scheduler.clone()).unwrap_or_default(),
        readahead: only.filter(|_| request.accesses).and_then(Selected::readahead),
        target: if names.is_empty() { "all block devices".to_owned() } else { names.join(", ") },
        start_ns: now().as_nanos(),
        started_unix_ns: since_1970.as_nanos() as u64,
        source: LogInfo::KERNEL.to_owned(),
        has_accesses: request.accesses,
        ..LogInfo::default()
    }
}

/// A recording in progress.
struct Session {
    rings: TraceRings,
    /// Records system calls, if they are requested.
    program: Option<AccessProgram>,
    decoder: Decoder,
    joiner: Joiner<Queues>,
    receivers: Receivers,
    /// The devices and processes so far, if intervals show them.
    labels: Labels,
    /// Events that may be preceded by others that are not read yet.
    waiting: Vec<KernelEvent>,
    waiting_accesses: Vec<AccessEvent>,
    accesses: u64,
    events: u64,
    /// Events that the rings reported as lost.
    lost: u64,
    bytes_max: usize,
    unseen: Unseen,
}

impl Session {
    fn run(mut self, request: &RecordRequest, mut top: Option<Top<'_>>) -> Result<Recorded, RecordError> {
        let cpu_before = cpu_time();
        self.rings.enable()?;
        let begun = now();
        let mut child = start(&request.command)?;
        if let Some(child) = &child {
            self.joiner.add_own_process(child.id());
        }
        let status = self.until_end(request.duration, begun, child.as_mut(), &mut top);
        self.rings.disable()?;
        let elapsed = now().saturating_since(begun);
        self.read();
        self.join_until(Instant::from_nanos(u64::MAX));
        self.joiner.finish_accesses();
        self.joiner.flush();
        if let Some(Top { show, .. }) = top.filter(|top| top.shows_rest) {
            let counts = self.counts();
            let _ = self.end_interval(now()).map(|rest| show(&rest, counts));
        }
        let cpu = cpu_time().saturating_sub(cpu_before);
        let unseen = self.unseen.found;
        let mut losses = self.losses();
        if unseen > 0 {
            losses.push(Loss { event: UNSEEN.to_owned(), cpu: None, lost: unseen });
        }
        let missed = losses.iter().map(|loss| loss.lost).sum();
        let ring_requests = self.program.as_ref().and_then(AccessProgram::ring_requests).unwrap_or(0);
        self.add_labels(losses.clone(), ring_requests);
        let (counts, late) = (self.joiner.counts(), self.joiner.late());
        let Self { joiner, receivers, rings, bytes_max, events, program, accesses, .. } = self;
        let Queues { labels, files, .. } = joiner.finish();
        let devices = labels.into_iter().map(|label| label.name).collect();
        let totals = receivers.finish(missed)?;
        Ok(Recorded {
            totals,
            events,
            losses,
            unseen,
            counts,
            late,
            devices,
            accesses: program.map(|_| (accesses, files)),
            ring_requests,
            elapsed,
            cpu,
            ring_bytes: rings.ring_bytes(),
            ring_use: bytes_max as f64 / rings.ring_bytes() as f64,
            status: status.or_else(|| child.and_then(end)),
        })
    }

    /// Records until the end. Returns the end of the command.
    fn until_end(
        &mut self,
        duration: Option<Duration>,
        begun: Instant,
        mut child: Option<&mut Child>,
        top: &mut Option<Top<'_>>,
    ) -> Option<ExitStatus> {
        let interval = top.as_ref().map_or(INTERVAL, |top| top.every.min(INTERVAL));
        let mut written = begun;
        let mut shown = begun;
        loop {
            let left = duration.map(|duration| duration.saturating_sub(now().saturating_since(begun)));
            if left == Some(Duration::ZERO) || Interruption::is_requested() {
                return None;
            }
            let interval = if self.unseen.has_excess() { 2 * SLACK } else { interval };
            self.rings.wait(left.map_or(interval, |left| left.min(interval)));
            let read_at = now();
            self.read();
            if let Some(sampled) = self.unseen.sampled().filter(|at| *at + SLACK <= read_at) {
                self.join_until(sampled);
                self.unseen.compare(&mut self.joiner);
            }
            let joined = Instant::from_nanos(read_at.as_nanos().saturating_sub(SLACK.as_nanos() as u64));
            self.join_until(joined);
            if self.unseen.sampled().is_none() {
                let new = std::mem::take(&mut self.joiner.source_mut().new);
                for device in new {
                    self.unseen.add(device);
                }
                self.unseen.sample(now);
            }
            if now().saturating_since(written) >= BLOCK_AGE_MAX {
                written = now();
                self.joiner.flush();
                self.add_labels(Vec::new(), 0);
                if let Some(log) = self.receivers.log() {
                    log.write_blocks();
                }
            }
            if let Some(Top { every, show, .. }) = top
                && joined.saturating_since(shown) >= *every
            {
                shown = joined;
                let counts = self.counts();
                if self.end_interval(joined).is_some_and(|interval| show(&interval, counts).is_break()) {
                    return None;
                }
            }
            match child.as_mut().map(|child| child.try_wait()) {
                Some(Ok(Some(status))) => return Some(status),
                // It has ended, and nobody has its status.
                Some(Err(_)) => return None,
                Some(Ok(None)) | None => {}
            }
        }
    }

    fn counts(&self) -> EventCounts {
        EventCounts { read: self.events, lost: self.lost }
    }

    /// Reads the rings.
    fn read(&mut self) {
        let Self { rings, decoder, waiting, waiting_accesses, accesses, program, events, lost, .. } = self;
        let bytes = rings.read(|_, record| {
            if let TraceRecord::Lost { events, .. } = record {
                *lost += events;
            } else {
                *events += 1;
            }
            waiting.extend(decoder.decode(&record));
            if program.is_some() {
                let access = access_event(&record);
                let is_begin = |event: &AccessEvent| matches!(event.what, AccessStep::Begin(_));
                *accesses += u64::from(access.as_ref().is_some_and(is_begin));
                waiting_accesses.extend(access);
            }
        });
        self.bytes_max = self.bytes_max.max(bytes);
    }

    /// Joins the events up to a time, in the order of time.
    fn join_until(&mut self, end: Instant) {
        // Stable: events of one CPU at one time keep their order. The rings are sorted runs, which this sort merges.
        self.waiting.sort_by_key(|event| event.at);
        let count = self.waiting.partition_point(|event| event.at <= end);
        for event in &self.waiting[..count] {
            self.joiner.handle(event);
        }
        self.waiting.drain(..count);
        self.waiting_accesses.sort_by_key(|event| event.at);
        let count = self.waiting_accesses.partition_point(|event| event.at <= end);
        for event in self.waiting_accesses.drain(..count) {
            self.joiner.handle_access(&event);
        }
        self.joiner.record_accesses(end);
    }

    /// Adds labels that the log does not have yet.
    fn add_labels(&mut self, losses: Vec<Loss>, ring_requests: u64) {
        let streams = self.joiner.take_stream_labels();
        let new = Labels { streams, losses, ring_requests, ..Labels::default() };
        if let Some(log) = self.receivers.log() {
            log.add_labels(&new);
        }
        if self.receivers.intervals().is_some() {
            self.labels.merge(new);
        }
    }

    /// The figures of the interval that ends at this time.
    fn end_interval(&mut self, end: Instant) -> Option<Interval> {
        self.joiner.flush();
        self.add_labels(Vec::new(), 0);
        self.labels.queues.clone_from(&self.joiner.source_mut().labels);
        self.receivers.intervals().map(|intervals| intervals.take(end, &self.labels))
    }

    /// The events that the kernel did not deliver. Kernels before 6.0 count them by ring.
    fn losses(&self) -> Vec<Loss> {
        let Some(losses) = self.rings.losses() else {
            let lost = Loss { event: "any".to_owned(), cpu: None, lost: self.lost };
            return if lost.lost > 0 { vec![lost] } else { Vec::new() };
        };
        let name = |event: usize| self.decoder.names.get(event).map_or("unknown", |name| *name).to_owned();
        losses
            .iter()
            .map(|loss| Loss { event: name(loss.event), cpu: Some(loss.cpu), lost: loss.lost })
            .collect()
    }
}

fn cpu_time() -> Duration {
    let times = process_cpu_times();
    times.user + times.system
}

fn start(command: &[OsString]) -> Result<Option<Child>, RecordError> {
    let Some((program, arguments)) = command.split_first() else { return Ok(None) };
    keep_child_status();
    let child = Command::new(program).args(arguments).spawn();
    let name = || program.to_string_lossy().into_owned();
    Ok(Some(child.map_err(|source| RecordError::Command { command: name(), source })?))
}

/// Ends a command that still runs when the recording has ended. After `--for`, the command continues to its end.
fn end(mut child: Child) -> Option<ExitStatus> {
    let requested = now();
    while Interruption::is_requested() && now().saturating_since(requested) < GRACE {
        match child.try_wait() {
            Ok(None) => {}
            // Without a status it has ended, too, and its number may be that of another process.
            ended => return ended.ok().flatten(),
        }
        std::thread::sleep(INTERVAL / 10);
    }
    if Interruption::is_requested()
        && let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
    {
        // A terminal has sent the signal to the command, too; another sender has not.
        let _ = kill_process(pid, Signal::TERM);
    }
    child.wait().ok()
}

impl Recorded {
    /// The exit code of the command, as a shell states it; `None` without a command.
    pub fn exit_code(&self) -> Option<u8> {
        let status = self.status?;
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        Some(code.map_or(1, |code| code as u8))
    }
}
