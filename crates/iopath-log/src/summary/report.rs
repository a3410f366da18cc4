//! The summary of a log as data: the model of `iopath log --json`, documented in docs/log-summary.md. Its tables are
//! in `iopath-report`.

use crate::error::Damage;
use crate::format::LogInfo;
use crate::labels::Loss;
use crate::text::escape_json;
use serde::Serialize;

/// The name and version of the JSON.
pub const SCHEMA: &str = "iopath.log-summary/2";

/// The summary of a log.
///
/// All counts of one report agree with each other; docs/log-summary.md lists the sums.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// Name and version of this schema: `iopath.log-summary/2`.
    pub schema: &'static str,
    /// The header of the log.
    pub log: LogInfo,
    /// Records read.
    pub records: u64,
    /// Records lost because a ring was full while the log was written.
    pub missed: u64,
    /// Records dropped after the file had reached its size limit.
    pub over_limit: u64,
    /// Steps that pass the filter. All fields below count these steps. A record stands for one to four steps.
    pub selected: u64,
    /// Whether a filter was given.
    pub is_filtered: bool,
    /// The content of the whole log, if a filter was given.
    pub contents: Option<Contents>,
    /// The position of the damage, if the log is damaged or truncated.
    pub damage: Option<Damage>,
    /// Queues that wrote records, without the callers of accesses.
    pub queues: usize,
    /// Time of the first step, since the log began.
    pub first_ns: u64,
    /// Time of the last step, since the log began.
    pub last_ns: u64,
    /// Time from the first to the last step; with repeats, the sum over the repeats.
    pub span_ns: u64,
    /// The repeats of a measurement, in order; empty if the log marks none.
    pub repeats: Vec<RepeatShare>,
    /// How often each event occurred.
    pub events: EventCounts,
    /// Changes of the I/O scheduler (elevator), in file order: the first 64. `log.elevator` names the initial one.
    pub elevators: Vec<ElevatorChange>,
    /// Accesses of programs, above a page cache; null in a log without them.
    pub file_access: Option<FileAccess>,
    /// Bios queued and requests dispatched, by operation.
    pub ops: Vec<OpCounts>,
    /// The same by size.
    pub sizes: Vec<SizeClass>,
    /// The outcome of the bios.
    pub flow: Flow,
    /// Why each request inserted into the elevator was not merged into another one. The sum is `events.insert`.
    pub not_merged: Reasons,
    /// Merge attempts refused, by reason. The sum is `events.no_merge`.
    pub merges_refused: Reasons,
    /// Use of the plug.
    pub plug: Plugging,
    /// Bios that failed, by errno.
    pub errors: Vec<ErrorCount>,
    /// Distances between consecutive requests at the device.
    pub seeks: Seeks,
    /// Latency of each stage.
    pub stages: Stages,
    /// Requests in flight at the device.
    pub depth: Depth,
    /// Share of each stream, largest first.
    pub streams: Vec<StreamShare>,
    /// Time between the last completion of the first and of the last stream to finish; with repeats, the largest of
    /// the repeats.
    pub skew_ns: u64,
    /// The slowest bios, slowest first. Bios of one batch that took equally long are one entry.
    pub slowest: Vec<Slow>,
    /// The devices of a log of the kernel, the busiest first; empty in other logs, whose queues are of one target.
    pub devices: Vec<DeviceShare>,
    /// Events that the recorder of a log of the kernel lost, by event and CPU.
    pub losses: Vec<Loss>,
    /// Completed bios without a known start: missed, filtered out or queued before the log began.
    pub unjoined: u64,
    /// Device events that came too late in the file to be ordered by time across queues. Depth and seeks are
    /// approximate if this is not 0.
    pub out_of_order: u64,
    /// Facts found while reading a trace of another program that limit the conclusions, in words: for example, lines
    /// that were skipped. `log.notes` has those of its format.
    pub notes: Vec<String>,
}

/// The content of a whole log, independent of the filter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Contents {
    /// Steps.
    pub steps: u64,
    /// Time of the last step, since the log began.
    pub last_ns: u64,
    /// Streams, in order: the first 64.
    pub streams: Vec<u32>,
    /// The first sector that any step touches.
    pub first_sector: u64,
    /// The sector after the last one that any step touches.
    pub end_sector: u64,
    /// Events that occur.
    pub events: Vec<&'static str>,
    /// Numbers of the repeats, in order: the first 64. 0 is the time before the first repeat.
    pub repeats: Vec<u32>,
}

/// One repeat of a measurement.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RepeatShare {
    /// Its number; 0 is the time before the first repeat, such as a warm-up.
    pub repeat: u32,
    /// Time of its first step, since the log began.
    pub first_ns: u64,
    /// Time of its last step, since the log began.
    pub last_ns: u64,
    /// Bios queued.
    pub bios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Completed bios with a known start. The latencies are of these bios.
    pub completed: u64,
    /// Mean latency of a bio.
    pub mean_q2c_ns: f64,
    /// Median latency, to two digits; for the first 64 repeats.
    pub p50_q2c_ns: Option<u64>,
    /// 99th percentile, to two digits; for the first 64 repeats.
    pub p99_q2c_ns: Option<u64>,
    /// Largest latency.
    pub max_q2c_ns: u64,
    /// Time between the last completion of the first and of the last stream to finish. Counts the streams below 1,024.
    pub skew_ns: u64,
}

/// How often each event occurred.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[expect(missing_docs, reason = "each is the event of that name")]
pub struct EventCounts {
    pub queue: u64,
    pub hold: u64,
    pub split: u64,
    pub slot_wait: u64,
    pub get: u64,
    pub back_merge: u64,
    pub front_merge: u64,
    pub no_merge: u64,
    pub plug: u64,
    pub unplug: u64,
    pub insert: u64,
    pub dispatch: u64,
    pub requeue: u64,
    pub complete: u64,
    pub flush: u64,
    pub retry: u64,
    pub elevator: u64,
    pub access: u64,
    pub access_end: u64,
    pub remap: u64,
}

/// Accesses of programs, above a page cache.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileAccess {
    /// By operation.
    pub ops: Vec<AccessCounts>,
    /// Accesses that ended without a known start.
    pub unjoined: u64,
}

/// Accesses of one operation.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AccessCounts {
    /// `read`, `write`, `flush`, `discard` or `write-zeroes`.
    pub op: &'static str,
    /// Accesses that began.
    pub accesses: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Accesses that ended with an error.
    pub failed: u64,
    /// Accesses that ended, with a known start. The latencies are of these accesses.
    pub completed: u64,
    /// Mean latency.
    pub mean_ns: f64,
    /// Median latency, to three digits.
    pub p50_ns: u64,
    /// 99th percentile, to three digits.
    pub p99_ns: u64,
    /// Largest latency.
    pub max_ns: u64,
}

/// A change of the elevator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ElevatorChange {
    /// Time, since the log began.
    pub at_ns: u64,
    /// The queue.
    pub queue: u16,
    /// The new elevator; a record holds 11 letters of its name.
    pub elevator: String,
}

/// Bios and requests of one operation.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OpCounts {
    /// `read`, `write`, `flush`, `discard`, `write-zeroes`, or `unknown`.
    pub op: &'static str,
    /// Bios queued.
    pub bios: u64,
    /// Their bytes.
    pub bio_bytes: u64,
    /// Requests dispatched, without those that were requeued.
    pub requests: u64,
    /// Their bytes.
    pub request_bytes: u64,
}

/// Bios and requests of sizes from one power of two up to the next.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SizeClass {
    /// The smallest size of the class; 0 for bios and requests without data.
    pub from_bytes: u64,
    /// Bios queued.
    pub bios: u64,
    /// Their bytes.
    pub bio_bytes: u64,
    /// Requests dispatched, without those that were requeued.
    pub requests: u64,
    /// Their bytes.
    pub request_bytes: u64,
}

/// The outcome of the bios: each is counted in one of `flushes`, `merged`, `own_request`, `split` and `pending`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Flow {
    /// Bios queued: `events.queue`.
    pub bios: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bios merged into a queued request.
    pub merged: u64,
    /// Bios that got a request of their own.
    pub own_request: u64,
    /// Bios split into pieces.
    pub split: u64,
    /// All other bios. They wait when the log ends, or some of their records were missed or filtered out.
    pub pending: u64,
    /// Pieces of split bios.
    pub pieces: u64,
    /// Pieces merged into a queued request.
    pub pieces_merged: u64,
    /// Pieces that got a request of their own.
    pub pieces_own_request: u64,
    /// Requests for bios or pieces of a merged request that failed.
    pub retried: u64,
    /// Requests merged into another request, among `events.back_merge` and `events.front_merge`.
    pub requests_joined: u64,
}

/// A count for each reason not to merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reasons {
    /// No queued request was adjacent.
    pub not_adjacent: u64,
    /// The operations differ.
    pub direction: u64,
    /// The merged request would exceed the device's size limit.
    pub size_limit: u64,
    /// The merged request would exceed the device's segment limit.
    pub segment_limit: u64,
    /// The elevator's latency bound.
    pub latency_bound: u64,
    /// The elevator's starvation bound.
    pub starvation_bound: u64,
    /// Forced unit access, or a retry after an error.
    pub barrier: u64,
    /// The merged request would cross a chunk boundary of the device.
    pub boundary: u64,
    /// Another reason of the elevator.
    pub elevator: u64,
    /// The priorities differ.
    pub priority: u64,
    /// The record gives no reason, or one that this version does not define.
    pub unknown: u64,
}

/// Use of the plug.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Plugging {
    /// How often it was emptied.
    pub unplugs: u64,
    /// Requests it held then, in total.
    pub requests: u64,
}

/// Bios that failed with one errno.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorCount {
    /// The number, as in errno.h.
    pub errno: u32,
    /// Bios.
    pub bios: u64,
}

/// Distances from the end of one request to the start of the next, in the order of dispatch across all queues.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Seeks {
    /// Requests with a predecessor in the same repeat.
    pub requests: u64,
    /// Seeks: requests that do not start where their predecessor ends. All distances below are of these requests.
    pub count: u64,
    /// Seeks to a lower sector.
    pub backward: u64,
    /// Mean distance.
    pub mean_bytes: f64,
    /// Median distance.
    pub p50_bytes: u64,
    /// 90th percentile.
    pub p90_bytes: u64,
    /// 99th percentile.
    pub p99_bytes: u64,
    /// Largest distance.
    pub max_bytes: u64,
}

/// The stages of the path, named as in btt.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stages {
    /// From the queueing of a bio until it has a request slot: ordering holds it back, or it waits for a slot. One for
    /// each bio or piece with a request of its own.
    pub q2g: Stage,
    /// From the slot to the insertion into the elevator: in the plug. One for each inserted request.
    pub g2i: Stage,
    /// From the insertion to the first dispatch: in the elevator. One for each dispatched request, except flushes.
    pub i2d: Stage,
    /// From the last dispatch to completion: at the device. One for each completed request.
    pub d2c: Stage,
    /// From queueing a bio to its completion. One for each completed bio whose start is known.
    pub q2c: Stage,
}

/// Latency of one stage. Percentiles to three digits.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[expect(missing_docs, reason = "the names are the documentation")]
pub struct Stage {
    pub count: u64,
    /// The number of latencies measured with two clock readings. With one reading, a latency is always 0.
    pub timed: u64,
    pub mean_ns: f64,
    pub min_ns: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
}

/// Requests in flight at the device, summed over all queues.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Depth {
    /// Mean over `span_ns` of the report.
    pub mean: f64,
    /// Maximum.
    pub max: u32,
    /// The length of a span.
    pub span_ns: u64,
    /// Mean of each span, from the beginning of the log; the last span ends with the last completion.
    pub means: Vec<f64>,
}

/// One device of a log of the kernel.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceShare {
    /// The number of its queue.
    pub queue: u16,
    /// Its name, such as `sda`.
    pub device: String,
    /// Major and minor number, as in `8:0`; empty if unknown.
    pub number: String,
    /// Bios queued.
    pub bios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests dispatched; of a device without a request queue, bios.
    pub requests: u64,
    /// Their bytes.
    pub request_bytes: u64,
    /// Bios that are bios of a device below, too. A partition has only these.
    pub remapped_bios: u64,
    /// Their bytes.
    pub remapped_bytes: u64,
    /// The share of `span_ns` with a request at the device, 0 to 1.
    pub busy: f64,
    /// The mean number of requests at the device over `span_ns`.
    pub depth_mean: f64,
    /// The maximum.
    pub depth_max: u64,
    /// Completed requests with a known start. The latencies are of these requests.
    pub completed: u64,
    /// Mean time at the device.
    pub mean_d2c_ns: f64,
    /// Median time, to two digits; for the first 256 devices of the log.
    pub p50_d2c_ns: Option<u64>,
    /// 99th percentile, as `p50_d2c_ns`.
    pub p99_d2c_ns: Option<u64>,
    /// Largest time.
    pub max_d2c_ns: u64,
}

/// One stream.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StreamShare {
    /// Its number; 65,535 stands for all streams from 65,535 on.
    pub stream: u32,
    /// The process, if the log names it.
    pub pid: Option<u32>,
    /// The name of its command.
    pub command: Option<String>,
    /// Whether it is the command that was recorded, or a process that it started.
    pub is_own: bool,
    /// Bios queued.
    pub bios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Share of the bytes of all streams, 0 to 1.
    pub share: f64,
    /// Completed bios with a known start. The latencies are of these bios.
    pub completed: u64,
    /// Time of its first step, since the log began.
    pub first_ns: u64,
    /// Time of its last completion, since the log began.
    pub last_ns: u64,
    /// Mean latency of a bio.
    pub mean_q2c_ns: f64,
    /// Median latency, to two digits; for the first 64 streams of the log.
    pub p50_q2c_ns: Option<u64>,
    /// 99th percentile, as `p50_q2c_ns`.
    pub p99_q2c_ns: Option<u64>,
    /// Largest latency.
    pub max_q2c_ns: u64,
}

/// One of the slowest bios, or several of one batch that took equally long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Slow {
    /// The number of bios with the same queue, operation, stream, size, errno, queueing time and completion time.
    pub bios: u64,
    /// Time of queueing, since the log began.
    pub queued_ns: u64,
    /// Latency.
    pub q2c_ns: u64,
    /// The time of the request at the device, if the bio was in one request.
    pub d2c_ns: Option<u64>,
    /// The queue.
    pub queue: u16,
    /// The stream.
    pub stream: u32,
    /// The operation.
    pub op: &'static str,
    /// The first sector; the lowest of several bios.
    pub sector: u64,
    /// The length of each in sectors.
    pub sectors: u64,
    /// 0 for success.
    pub errno: u32,
}

impl Report {
    /// The content of the log, if a filter was given and no step of a bio or request passes it.
    pub fn nothing_passed(&self) -> Option<&Contents> {
        self.contents.as_ref().filter(|_| self.events.of_io() == 0)
    }

    /// The report as JSON on several lines. Characters that control a terminal are escaped.
    pub fn to_json(&self) -> String {
        let json = serde_json::to_string_pretty(self).expect("strings and numbers are always JSON");
        escape_json(&json)
    }
}

impl EventCounts {
    /// Steps of bios, requests, accesses and the plug: all but changes of the elevator.
    const fn of_io(&self) -> u64 {
        let Self { queue, hold, split, slot_wait, get, back_merge, front_merge, no_merge, .. } = *self;
        let Self {
            plug,
            unplug,
            insert,
            dispatch,
            requeue,
            complete,
            flush,
            retry,
            access,
            access_end,
            remap,
            ..
        } = *self;
        let joins = back_merge + front_merge + no_merge;
        let starts = queue + hold + split + slot_wait + get + plug + unplug + insert;
        joins + starts + dispatch + requeue + complete + flush + retry + access + access_end + remap
    }
}

impl Reasons {
    /// Each reason by its name, in the order of the page.
    pub const fn rows(&self) -> [(&'static str, u64); 11] {
        [
            ("not adjacent", self.not_adjacent),
            ("direction", self.direction),
            ("size limit", self.size_limit),
            ("segment limit", self.segment_limit),
            ("latency bound", self.latency_bound),
            ("starvation bound", self.starvation_bound),
            ("barrier", self.barrier),
            ("boundary", self.boundary),
            ("elevator veto", self.elevator),
            ("priority", self.priority),
            ("unknown", self.unknown),
        ]
    }

    /// The sum of all reasons.
    pub fn total(&self) -> u64 {
        self.rows().iter().map(|(_, count)| count).sum()
    }
}
