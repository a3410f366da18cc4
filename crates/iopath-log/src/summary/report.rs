//! What a summary says, as data: the model of `iopath log --json`, documented in docs/log-summary.md. How it
//! looks on a page: `page.rs`.

use super::Tallies;
use crate::error::Damage;
use crate::format::LogInfo;
use crate::reader::End;
use crate::text::escape_json;
use iopath_core::NoMerge;
use iopath_core::log::Event;
use serde::Serialize;

/// The name and version of the JSON.
const SCHEMA: &str = "iopath.log-summary/1";

/// The summary of a log.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Name and version of this form: `iopath.log-summary/1`.
    pub schema: &'static str,
    /// What the log says of itself.
    pub log: LogInfo,
    /// Records read.
    pub records: u64,
    /// Records that found no room in a ring while the log was taken.
    pub missed: u64,
    /// Records that came after the file had reached its limit.
    pub over_limit: u64,
    /// Steps that passed the filter: all below is of these. A record may stand for several.
    pub selected: u64,
    /// Whether a filter was given.
    pub is_filtered: bool,
    /// Where the log is damaged or cut off, if it is.
    pub damage: Option<Damage>,
    /// Queues that wrote to it.
    pub queues: usize,
    /// From the first record to the last.
    pub span_ns: u64,
    /// How often each event happened.
    pub events: EventCounts,
    /// Elevators that took over, in the order of the file: the first 64. `log` has the one before.
    pub elevators: Vec<ElevatorChange>,
    /// Bios taken and requests dispatched, by operation.
    pub ops: Vec<OpCounts>,
    /// The same by size.
    pub sizes: Vec<SizeClass>,
    /// Why pieces of I/O were not merged, and how often.
    pub refusals: Refusals,
    /// What the plug gathered.
    pub plug: Plugging,
    /// Bios cut into pieces.
    pub bios_split: u64,
    /// Merges of a request with a request, among `events.back_merge` and `front_merge`.
    pub requests_joined: u64,
    /// How bios failed.
    pub errors: Vec<ErrorCount>,
    /// How far the head moved.
    pub seeks: Seeks,
    /// How long each stage took.
    pub stages: Stages,
    /// How many requests were at the device.
    pub depth: Depth,
    /// What each stream got, largest first.
    pub streams: Vec<StreamShare>,
    /// How long after the first stream the last had its last bio completed.
    pub skew_ns: u64,
    /// The bios that took longest, slowest first.
    pub slowest: Vec<Slow>,
    /// Completions of bios whose beginning was not seen: missed, filtered out or before the log.
    pub unjoined: u64,
}

/// How often each event happened.
#[derive(Debug, Clone, Copy, Serialize)]
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
}

/// Another elevator took over from here on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ElevatorChange {
    /// When, since the log began.
    pub at_ns: u64,
    /// In which queue.
    pub queue: u16,
    /// Its name, of which a record holds 11 letters.
    pub elevator: String,
}

/// Bios and requests of one operation.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct OpCounts {
    /// `read`, `write`, `flush`, `discard`, `write-zeroes`.
    pub op: &'static str,
    /// Bios taken.
    pub bios: u64,
    /// Their bytes.
    pub bio_bytes: u64,
    /// Requests dispatched and not given back.
    pub requests: u64,
    /// Their bytes.
    pub request_bytes: u64,
}

/// Bios and requests from one power of two to the next.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct SizeClass {
    /// The smallest size of the class.
    pub from_bytes: u64,
    /// Bios taken.
    pub bios: u64,
    /// Requests dispatched and not given back.
    pub requests: u64,
}

/// How often a merge was refused, by reason.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Refusals {
    /// Nothing queued touched it.
    pub not_adjacent: u64,
    /// One did something else than the other.
    pub direction: u64,
    /// More bytes than the device takes.
    pub size_limit: u64,
    /// More segments than the device takes.
    pub segment_limit: u64,
    /// The elevator's latency bound.
    pub latency_bound: u64,
    /// The elevator's starvation bound.
    pub starvation_bound: u64,
    /// Forced unit access, or tried again after a failure.
    pub barrier: u64,
    /// A chunk boundary of the device.
    pub boundary: u64,
    /// The elevator, for another reason.
    pub elevator: u64,
    /// One was more urgent than the other.
    pub priority: u64,
}

/// What the plug gathered.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Plugging {
    /// How often it was emptied.
    pub unplugs: u64,
    /// Of how many requests in all.
    pub requests: u64,
}

/// How often one error ended a bio.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ErrorCount {
    /// The error, as in errno.h.
    pub errno: u32,
    /// Bios.
    pub bios: u64,
}

/// How far the head moved from the end of one request to the start of the next dispatched.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Seeks {
    /// Requests that have one before them.
    pub requests: u64,
    /// Those that do not start where that ended: the seeks. All distances are of these.
    pub count: u64,
    /// Seeks to a lower sector.
    pub backward: u64,
    /// The mean distance.
    pub mean_bytes: f64,
    /// The median.
    pub p50_bytes: u64,
    /// Of ten seeks the second longest.
    pub p90_bytes: u64,
    /// Of a hundred seeks the second longest.
    pub p99_bytes: u64,
    /// The longest.
    pub max_bytes: u64,
}

/// The stages of the path, named as in btt.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Stages {
    /// Bio queued to request slot taken: held back by order or waiting for a slot.
    pub q2g: Stage,
    /// Slot taken to request inserted: in the plug.
    pub g2i: Stage,
    /// Inserted to dispatched: in the elevator.
    pub i2d: Stage,
    /// Dispatched to complete: at the device.
    pub d2c: Stage,
    /// Bio queued to bio complete.
    pub q2c: Stage,
}

/// How long one stage took. Percentiles to three digits.
#[derive(Debug, Clone, Copy, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Stage {
    pub count: u64,
    pub mean_ns: f64,
    pub min_ns: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
}

/// How many requests were at the device, over time.
#[derive(Debug, Clone, Serialize)]
pub struct Depth {
    /// The mean over the whole log.
    pub mean: f64,
    /// The most, of one queue.
    pub max: u32,
    /// The length of a span.
    pub span_ns: u64,
    /// The mean in each span, from the beginning of the log.
    pub means: Vec<f64>,
}

/// What one stream got.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct StreamShare {
    /// Its number; 65,535 is that and all above.
    pub stream: u32,
    /// Bios taken.
    pub bios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of all bytes, 0 to 1.
    pub share: f64,
    /// Its first bio queued, since the log began.
    pub first_ns: u64,
    /// Its last bio complete, since the log began.
    pub last_ns: u64,
    /// How long its bios took, on average.
    pub mean_q2c_ns: f64,
    /// Half of them took no longer; to two digits, and only for the first 64 streams of the log.
    pub p50_q2c_ns: Option<u64>,
    /// Of a hundred the second longest, as `p50_q2c_ns`.
    pub p99_q2c_ns: Option<u64>,
    /// How long the slowest took.
    pub max_q2c_ns: u64,
}

/// A bio that took long.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Slow {
    /// When it was queued, since the log began.
    pub queued_ns: u64,
    /// How long it took.
    pub q2c_ns: u64,
    /// How much of that its request was at the device, where that is one request.
    pub d2c_ns: Option<u64>,
    /// Whose.
    pub stream: u32,
    /// What.
    pub op: &'static str,
    /// Where.
    pub sector: u64,
    /// How long.
    pub sectors: u64,
    /// How it ended: 0 for success.
    pub errno: u32,
}

impl Report {
    /// The report as JSON, several lines of it, in which nothing is for a terminal to obey.
    pub fn to_json(&self) -> String {
        let json = serde_json::to_string_pretty(self).expect("strings and numbers are always JSON");
        escape_json(&json)
    }

    pub(super) fn new(log: LogInfo, end: End, is_filtered: bool, queues: usize, tallies: &Tallies) -> Self {
        let (streams, skew_ns) = tallies.streams.report(log.start_ns);
        let errors = tallies.errnos.iter().map(|(errno, bios)| ErrorCount { errno: *errno, bios: *bios });
        Self {
            schema: SCHEMA,
            records: end.totals.records,
            missed: end.totals.missed,
            over_limit: end.totals.over_limit,
            selected: tallies.steps.iter().sum(),
            is_filtered,
            damage: end.damage,
            queues,
            span_ns: tallies.last_ns.saturating_sub(tallies.first_ns),
            events: EventCounts::new(tallies),
            elevators: tallies.elevators.report(log.start_ns),
            ops: tallies.sizes.ops(),
            sizes: tallies.sizes.classes(),
            refusals: Refusals::new(tallies),
            plug: Plugging { unplugs: tallies.count(Event::Unplug), requests: tallies.unplugged },
            bios_split: tallies.bios_split,
            requests_joined: tallies.requests_joined,
            errors: errors.collect(),
            seeks: tallies.seeks.report(),
            stages: tallies.stages.report(),
            depth: tallies.depth.report(),
            streams,
            skew_ns,
            slowest: tallies.slowest.report(log.start_ns),
            unjoined: tallies.unjoined,
            log,
        }
    }
}

impl EventCounts {
    fn new(tallies: &Tallies) -> Self {
        Self {
            queue: tallies.count(Event::Queue),
            hold: tallies.count(Event::Hold),
            split: tallies.count(Event::Split),
            slot_wait: tallies.count(Event::SlotWait),
            get: tallies.count(Event::Get),
            back_merge: tallies.count(Event::BackMerge),
            front_merge: tallies.count(Event::FrontMerge),
            no_merge: tallies.count(Event::NoMerge),
            plug: tallies.count(Event::Plug),
            unplug: tallies.count(Event::Unplug),
            insert: tallies.count(Event::Insert),
            dispatch: tallies.count(Event::Dispatch),
            requeue: tallies.count(Event::Requeue),
            complete: tallies.count(Event::Complete),
            flush: tallies.count(Event::Flush),
            retry: tallies.count(Event::Retry),
            elevator: tallies.count(Event::Elevator),
        }
    }
}

impl Refusals {
    fn new(tallies: &Tallies) -> Self {
        Self {
            not_adjacent: tallies.refused(NoMerge::NotAdjacent),
            direction: tallies.refused(NoMerge::Direction),
            size_limit: tallies.refused(NoMerge::SizeLimit),
            segment_limit: tallies.refused(NoMerge::SegmentLimit),
            latency_bound: tallies.refused(NoMerge::LatencyBound),
            starvation_bound: tallies.refused(NoMerge::StarvationBound),
            barrier: tallies.refused(NoMerge::Barrier),
            boundary: tallies.refused(NoMerge::Boundary),
            elevator: tallies.refused(NoMerge::Elevator),
            priority: tallies.refused(NoMerge::Priority),
        }
    }

    /// Each reason by its name, in the order of the page.
    pub(super) const fn rows(&self) -> [(&'static str, u64); NoMerge::ALL.len()] {
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
        ]
    }
}
