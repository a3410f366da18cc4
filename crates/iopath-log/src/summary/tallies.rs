//! Counters over all queues of a log, and the report made from them. `join.rs` changes the counters.

use super::accesses::Accesses;
use super::contents::Seen;
use super::devices::Devices;
use super::elevators::Changes;
use super::repeats::{Repeats, Visit};
use super::report::{ErrorCount, EventCounts, Flow, Plugging, Reasons, Report, SCHEMA};
use super::sizes::Sizes;
use super::slowest::Slowest;
use super::stages::StageTimes;
use super::streams::Streams;
use super::timeline::Timeline;
use crate::format::LogInfo;
use crate::reader::End;
use iopath_core::log::Event;
use iopath_core::{NoMerge, Op};
use std::collections::BTreeMap;

/// The maximum number of different errnos; no kernel has more.
const ERRNOS_MAX: usize = 256;

/// Counters over all queues.
#[derive(Debug)]
pub(super) struct Tallies {
    /// Occurrences of each event, by its code.
    steps: [u64; 32],
    pub(super) elevators: Changes,
    pub(super) flow: Flow,
    pub(super) not_merged: ReasonCounts,
    pub(super) merges_refused: ReasonCounts,
    /// Requests that left the plug.
    pub(super) unplugged: u64,
    /// Bios completed without a known start.
    pub(super) unjoined: u64,
    errnos: BTreeMap<u32, u64>,
    pub(super) stages: StageTimes,
    pub(super) sizes: Sizes,
    pub(super) timeline: Timeline,
    pub(super) streams: Streams,
    pub(super) repeats: Repeats,
    pub(super) slowest: Slowest,
    pub(super) accesses: Accesses,
    /// Figures of each device, in a log of the kernel.
    pub(super) devices: Option<Devices>,
}

/// Counts by reason code.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReasonCounts([u64; 16]);

/// The part of a report that describes the log as read.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) info: LogInfo,
    pub(super) end: End,
    pub(super) queues: usize,
    /// `Some` if a filter was given.
    pub(super) seen: Option<Seen>,
}

impl Tallies {
    /// Tallies for a log that began at `start_ns`. In a log of the kernel, each queue is a device.
    pub(super) fn new(start_ns: u64, is_of_kernel: bool) -> Self {
        Self {
            steps: [0; 32],
            elevators: Changes::default(),
            flow: Flow::default(),
            not_merged: ReasonCounts::default(),
            merges_refused: ReasonCounts::default(),
            unplugged: 0,
            unjoined: 0,
            errnos: BTreeMap::new(),
            stages: StageTimes::default(),
            sizes: Sizes::default(),
            timeline: Timeline::new(start_ns, is_of_kernel),
            streams: Streams::default(),
            repeats: Repeats::default(),
            slowest: Slowest::default(),
            accesses: Accesses::default(),
            devices: is_of_kernel.then(Devices::default),
        }
    }

    /// Begins a visit to the repeat at `now`. The visit ends before the first step of another repeat.
    pub(super) fn begin_visit(&mut self, now: u64) -> Visit {
        self.repeats.begin_visit(now, self.sizes.all_bios())
    }

    pub(super) fn end_visit(&mut self, visit: Visit) {
        self.repeats.end_visit(visit, self.sizes.all_bios());
    }

    #[inline]
    pub(super) const fn count_step(&mut self, event_code: u8) {
        self.steps[(event_code & 31) as usize] += 1;
    }

    fn count(&self, event: Event) -> u64 {
        self.steps[usize::from(event.code())]
    }

    pub(super) fn note_errno(&mut self, errno: u32) {
        if errno != 0 && (self.errnos.len() < ERRNOS_MAX || self.errnos.contains_key(&errno)) {
            *self.errnos.entry(errno).or_default() += 1;
        }
    }

    pub(super) fn report(mut self, reading: Reading) -> Report {
        let Reading { info: log, end, queues, seen } = reading;
        self.timeline.finish();
        let start_ns = log.start_ns;
        let labels = &end.labels;
        let (streams, streams_skew_ns) = self.streams.report(start_ns, labels);
        let (repeats, span) = self.repeats.report(start_ns);
        let skew_ns = repeats.iter().map(|repeat| repeat.skew_ns).max().unwrap_or(streams_skew_ns);
        let errors = self.errnos.iter().map(|(errno, bios)| ErrorCount { errno: *errno, bios: *bios });
        Report {
            schema: SCHEMA,
            records: end.totals.records,
            missed: end.totals.missed,
            over_limit: end.totals.over_limit,
            selected: self.steps.iter().sum(),
            is_filtered: seen.is_some(),
            contents: seen.map(|seen| seen.report(start_ns)),
            damage: end.damage,
            queues,
            first_ns: span.first_ns,
            last_ns: span.last_ns,
            span_ns: span.measured_ns,
            repeats,
            events: self.events(),
            elevators: self.elevators.report(start_ns),
            file_access: self.accesses.report(),
            ops: self.sizes.ops(),
            sizes: self.sizes.classes(),
            flow: self.flow(),
            not_merged: self.not_merged.report(),
            merges_refused: self.merges_refused.report(),
            plug: Plugging { unplugs: self.count(Event::Unplug), requests: self.unplugged },
            errors: errors.collect(),
            seeks: self.timeline.seeks(),
            stages: self.stages.report(),
            depth: self.timeline.depth(span.measured_ns),
            streams,
            skew_ns,
            slowest: self.slowest.report(start_ns),
            devices: self
                .devices
                .as_ref()
                .map_or_else(Vec::new, |devices| devices.report(labels, span.measured_ns)),
            losses: labels.losses.clone(),
            unjoined: self.unjoined,
            out_of_order: self.timeline.out_of_order(),
            notes: end.notes,
            log,
        }
    }

    /// The flow, with the counts that are known only at the end.
    fn flow(&self) -> Flow {
        let bios = self.count(Event::Queue);
        let flushes = self.sizes.bios(Op::Flush);
        let Flow { merged, own_request, split, .. } = self.flow;
        let pending = bios.saturating_sub(flushes + merged + own_request + split);
        Flow { bios, flushes, pending, ..self.flow }
    }

    fn events(&self) -> EventCounts {
        EventCounts {
            queue: self.count(Event::Queue),
            hold: self.count(Event::Hold),
            split: self.count(Event::Split),
            slot_wait: self.count(Event::SlotWait),
            get: self.count(Event::Get),
            back_merge: self.count(Event::BackMerge),
            front_merge: self.count(Event::FrontMerge),
            no_merge: self.count(Event::NoMerge),
            plug: self.count(Event::Plug),
            unplug: self.count(Event::Unplug),
            insert: self.count(Event::Insert),
            dispatch: self.count(Event::Dispatch),
            requeue: self.count(Event::Requeue),
            complete: self.count(Event::Complete),
            flush: self.count(Event::Flush),
            retry: self.count(Event::Retry),
            elevator: self.count(Event::Elevator),
            access: self.count(Event::Access),
            access_end: self.count(Event::AccessEnd),
            remap: self.count(Event::Remap),
        }
    }
}

impl ReasonCounts {
    #[inline]
    pub(super) const fn add(&mut self, reason_code: u8) {
        self.0[(reason_code & 15) as usize] += 1;
    }

    fn report(&self) -> Reasons {
        let of = |reason: NoMerge| self.0[usize::from(reason.code())];
        let known: u64 = NoMerge::ALL.into_iter().map(of).sum();
        Reasons {
            not_adjacent: of(NoMerge::NotAdjacent),
            direction: of(NoMerge::Direction),
            size_limit: of(NoMerge::SizeLimit),
            segment_limit: of(NoMerge::SegmentLimit),
            latency_bound: of(NoMerge::LatencyBound),
            starvation_bound: of(NoMerge::StarvationBound),
            barrier: of(NoMerge::Barrier),
            boundary: of(NoMerge::Boundary),
            elevator: of(NoMerge::Elevator),
            priority: of(NoMerge::Priority),
            unknown: self.0.iter().sum::<u64>() - known,
        }
    }
}
