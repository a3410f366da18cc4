//! Reads a request log: the bios as the requests of a trace, and the recorded run with its completions and its use of
//! the device.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use iopath_core::elevator::ElevatorSpec;
use iopath_core::log::Event;
use iopath_core::{Op, Record};
use iopath_log::{End, Entry, LogInfo, MainDevice, main_device};

use super::error::WhatIfError;
use super::request::Found;
use super::tally::{Tally, Usage};
use super::trace::{Builder, Built, Input, UNKNOWN};

/// The streams of a log have this number of bits.
const STREAM_BITS: u32 = 16;

/// A request at the device.
#[derive(Debug, Clone, Copy)]
struct Dispatched {
    at_ns: u64,
    done_ns: u64,
    sector: u64,
    /// 0 for an operation without data.
    sectors: u64,
}

/// Follows the bios and requests of a log.
#[derive(Debug, Default)]
struct Follower {
    builder: Builder,
    /// The bio in each slot of each queue, as its number in `builder`.
    bios: HashMap<(u16, u32), usize>,
    /// The request in each slot of each queue.
    requests: HashMap<(u16, u32), Request>,
    dispatched: Vec<Dispatched>,
    start_ns: u64,
    /// Whether accesses are the requests of the trace, instead of bios.
    has_accesses: bool,
    queues_are: QueuesAre,
    /// The queue whose requests are those of the recorded run; none for all queues.
    device: Option<u16>,
    /// The queues that have bios.
    queues: BTreeSet<u16>,
    repeats: u32,
    failed: u64,
    is_too_large: bool,
}

/// What the queues of a log are, to the requests that are replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum QueuesAre {
    /// Queues of one device.
    #[default]
    OneDevice,
    /// Each a device of its own.
    Devices,
    /// Each a file that programs access. Their threads have numbers of all files.
    Files,
}

/// A request in flight.
#[derive(Debug, Clone, Copy)]
struct Request {
    /// The slot of the bio for which it was created.
    bio: u32,
    /// Its index in `dispatched`.
    dispatch: Option<usize>,
}

/// Reads a log: its bios, or its accesses above a page cache.
///
/// # Errors
/// The log cannot be read, or has no bios or accesses.
pub(super) fn read(path: &Path, has_accesses: bool) -> Result<Input, WhatIfError> {
    let reader = iopath_trace::open(path)?;
    let info = reader.info().clone();
    // Volumes of a set of traces are independent; the devices of a kernel may be layers of each other.
    let are_independent = info.source == LogInfo::TRACE;
    let device = if are_independent { None } else { main_device(iopath_trace::open(path)?)? };
    let mut follower = Follower {
        start_ns: info.start_ns,
        has_accesses,
        queues_are: if are_independent {
            QueuesAre::Devices
        } else if has_accesses && info.has_devices() {
            QueuesAre::Files
        } else {
            QueuesAre::OneDevice
        },
        device: device.as_ref().map(|device| device.queue),
        ..Follower::default()
    };
    let end = reader.for_each_block(|block| {
        for entry in block.entries() {
            follower.follow(&entry);
        }
    })?;
    if follower.is_too_large {
        return Err(follower.builder.too_large(path));
    }
    if follower.builder.len() == 0 {
        return Err(WhatIfError::Empty { path: path.to_owned() });
    }
    let mut input = follower.finish(path, &info, &end);
    if let Some(MainDevice { name, others, .. }) = device.filter(|device| device.others > 0 && !has_accesses)
    {
        let plural = if others == 1 { "" } else { "s" };
        input.notes.push(format!(
            "the log has {others} other device{plural}: only {name} is replayed, whose requests moved the most bytes"
        ));
    }
    Ok(input)
}

impl Follower {
    fn follow(&mut self, entry: &Entry) {
        if self.is_too_large {
            return;
        }
        let (record, queue) = (entry.record, entry.queue);
        let now = entry.time.as_nanos().saturating_sub(self.start_ns);
        let slot = (queue, record.tag());
        let is_access = matches!(record.event(), Some(Event::Access | Event::AccessEnd));
        if self.device.is_some_and(|device| device != queue) && !(is_access && self.has_accesses) {
            return;
        }
        self.repeats = self.repeats.max(entry.repeat);
        match record.event() {
            Some(Event::Queue) => {
                self.queues.insert(queue);
                if !self.has_accesses {
                    self.queued(slot, record, now);
                }
            }
            Some(Event::Access) if self.has_accesses => self.queued(slot, record, now),
            Some(Event::AccessEnd) if self.has_accesses => self.completed(slot, record, now),
            // From here on, the slot is that of a piece.
            Some(Event::Split) => {
                self.bios.remove(&slot);
            }
            Some(Event::Get) => {
                self.requests.insert(slot, Request { bio: record.other(), dispatch: None });
            }
            Some(Event::Dispatch) => {
                let sectors = if record.op().is_some_and(Op::has_memory) { record.sectors() } else { 0 };
                // A flush of the device has no `get`.
                let none = Request { bio: Record::NO_TAG, dispatch: None };
                self.requests.entry(slot).or_insert(none).dispatch = Some(self.dispatched.len());
                let sector = record.sector();
                self.dispatched.push(Dispatched { at_ns: now, done_ns: UNKNOWN, sector, sectors });
            }
            Some(Event::Requeue) => {
                if let Some(request) = self.requests.get_mut(&slot) {
                    request.dispatch = None;
                }
            }
            Some(Event::Complete) if record.is_request() => {
                let Some(request) = self.requests.remove(&slot) else { return };
                if let Some(dispatched) = request.dispatch.map(|index| &mut self.dispatched[index]) {
                    dispatched.done_ns = now.max(dispatched.at_ns);
                }
                if record.is_last() {
                    self.completed((queue, request.bio), record, now);
                }
            }
            Some(Event::Complete) => self.completed(slot, record, now),
            Some(Event::Missed) => {
                self.bios.retain(|(of, _), _| *of != queue);
                self.requests.retain(|(of, _), _| *of != queue);
            }
            _ => {}
        }
    }

    fn queued(&mut self, slot: (u16, u32), record: Record, now: u64) {
        let Some(op) = record.op() else { return };
        let found = Found {
            at_ns: now,
            op,
            is_fua: record.step().is_ok_and(|step| step.is_fua),
            sector: record.sector(),
            sectors: record.sectors() as u32,
            stream: self.stream(record),
            device: if self.queues_are == QueuesAre::OneDevice { 0 } else { slot.0.into() },
        };
        if !self.builder.accepts(op) {
            return;
        }
        if op != Op::Flush && found.sectors == 0 {
            return;
        }
        match self.builder.push(&found) {
            Some(number) => {
                self.bios.insert(slot, number);
            }
            None => self.is_too_large = true,
        }
    }

    /// The stream of a bio or access. A replay through a page cache executes one access of a stream at a time, so a job
    /// with several in flight has a stream for each slot.
    fn stream(&self, record: Record) -> u32 {
        let (stream, slot) = (record.stream().0, record.tag());
        let is_first = slot == 0 || record.op() == Some(Op::Flush) && self.queues_are != QueuesAre::Files;
        if !self.has_accesses || is_first { stream } else { stream | slot << STREAM_BITS }
    }

    fn completed(&mut self, slot: (u16, u32), record: Record, now: u64) {
        let Some(number) = self.bios.remove(&slot) else { return };
        self.builder.complete(number, now);
        self.failed += u64::from(record.other() != 0);
    }

    fn finish(mut self, path: &Path, info: &LogInfo, end: &End) -> Input {
        let files = if self.queues_are == QueuesAre::Files { self.builder.place_files() } else { 1 };
        let Self { builder, mut dispatched, has_accesses, queues, repeats, failed, .. } = self;
        let mut notes: Vec<String> = info.notes.iter().chain(&end.notes).cloned().collect();
        if let Some(damage) = end.damage {
            notes.push(format!("{damage}; only the part before the damage is used"));
        }
        if end.totals.missed > 0 {
            notes.push(format!(
                "{} records are missing in the log: some requests are not replayed, or without dependency",
                end.totals.missed
            ));
        }
        notes.extend(builder.note());
        if files > 1 {
            notes.push(format!("the log has accesses of {files} files: they are placed one after another"));
        }
        if failed > 0 {
            notes.push(format!(
                "{failed} recorded requests failed: the replay executes them without an error"
            ));
        }
        if repeats > 1 {
            notes.push(format!(
                "the log has {repeats} repetitions: the replay does not reset the model between them"
            ));
        }
        if !info.elevator.is_empty() && info.elevator.parse::<ElevatorSpec>().is_err() {
            notes.push(format!(
                "the recorded elevator `{}` is not one of iopath: none is the reference",
                info.elevator
            ));
        }
        let Built { windows, devices, streams } = builder.finish();
        dispatched.retain(|request| request.done_ns != UNKNOWN);
        dispatched.sort_by_key(|request| request.at_ns);
        let mut input = Input {
            name: path.to_owned(),
            devices,
            streams,
            windows,
            recorded: None,
            has_accesses,
            queues: queues.len(),
            notes,
        };
        input.recorded = recorded(&input, &dispatched);
        input
    }
}

/// The recorded run; none without a completion. `dispatched` is in the order of dispatch.
fn recorded(input: &Input, dispatched: &[Dispatched]) -> Option<Tally> {
    let trace = input.devices.first().filter(|trace| !trace.done_ns.is_empty())?;
    let mut tally = Tally::new(input.windows, input.streams.len(), &trace.requests);
    for (request, done_ns) in trace.completions() {
        tally.complete(request, request.at_ns, done_ns);
    }
    let (mut head, mut busy_until, mut next) = (None, 0, 0);
    for request in dispatched {
        while trace.requests.get(next + 1).is_some_and(|after| after.at_ns <= request.at_ns) {
            next += 1;
        }
        let window = usize::from(trace.requests[next].window);
        let busy_ns = request.done_ns.saturating_sub(busy_until.max(request.at_ns));
        busy_until = busy_until.max(request.done_ns);
        let mut usage = Usage { busy_ns: busy_ns.into(), ..Usage::default() };
        if request.sectors > 0 {
            (usage.ios, usage.bytes) = (1, request.sectors * 512);
            if let Some(head) = head {
                (usage.moves, usage.distance_sectors) = (1, request.sector.abs_diff(head).into());
            }
            head = Some(request.sector + request.sectors);
        }
        tally.add_usage(window, &usage);
    }
    Some(tally)
}
