//! Distributes the events to the queues of their devices, and follows tasks and processes. The queue of a device is in
//! `queue.rs`.

use super::accesses::{AccessEvent, AccessStep, Accesses, FileSource};
use super::event::{DeviceNumber, KernelEvent, KernelIo, What};
use super::processes::Processes;
pub use super::queue::JoinCounts;
use super::queue::{Above, Queue};
use crate::labels::StreamLabel;
use crate::number_map::NumberMap;
use iopath_core::log::{Event, StepLog};
use iopath_core::{Instant, LogSink, Stream};
use std::fmt;

/// The maximum number of tasks that are remembered. A task is relevant from its last request to its unplug.
const TASKS_MAX: usize = 1 << 16;

/// The maximum number of queues: a log numbers them with 16 bits.
const QUEUES_MAX: usize = 1 << 16;

/// Names the devices of a recording, and opens their logs.
pub trait DeviceSource {
    /// A device has its first event.
    fn open(&mut self, device: DeviceNumber) -> OpenedDevice;
}

/// A device, and the log of its queue.
#[derive(Debug)]
pub struct OpenedDevice {
    /// The number of its queue in the log.
    pub queue: u16,
    /// Receives the records.
    pub sink: Box<dyn LogSink>,
    /// Whether the device has a request queue. The drivers of zram, md and most of dm take bios instead.
    pub has_requests: bool,
    /// Whether the device executes forced unit access (FUA). Otherwise the kernel flushes it after such a write.
    pub has_fua: bool,
}

/// Joins events into steps. Pass events in the order of time.
pub struct Joiner<S> {
    source: S,
    queues: Vec<Queue>,
    numbers: NumberMap<DeviceNumber, usize>,
    tasks: NumberMap<u32, Task>,
    processes: Processes,
    accesses: Accesses,
    /// The time up to which accesses are recorded.
    accesses_until: Instant,
    now: Instant,
    /// Events with an earlier time than what was recorded before.
    late: u64,
}

/// What a task did last.
#[derive(Debug, Clone, Copy, Default)]
struct Task {
    /// The queue and the number of the request that it got last.
    got: Option<(usize, u32)>,
    /// The bio that it remaps: the new range, the old one with its queue.
    remap: Option<(KernelIo, Above)>,
}

impl<S: DeviceSource> Joiner<S> {
    /// A joiner without events.
    pub fn new(source: S) -> Self {
        Self {
            source,
            queues: Vec::new(),
            numbers: NumberMap::default(),
            tasks: NumberMap::default(),
            processes: Processes::default(),
            accesses: Accesses::default(),
            accesses_until: Instant::ZERO,
            now: Instant::ZERO,
            late: 0,
        }
    }

    /// A process is the recorded command: its stream, and those of the processes that it starts, are labelled as its
    /// own.
    pub fn add_own_process(&mut self, pid: u32) {
        self.processes.begin_own(pid);
    }

    /// The labels of streams since the last call.
    pub fn take_stream_labels(&mut self) -> Vec<StreamLabel> {
        std::mem::take(&mut self.processes.new)
    }

    /// How often no subject was found, over all devices.
    pub fn counts(&self) -> JoinCounts {
        self.queues.iter().fold(JoinCounts::default(), |sum, queue| JoinCounts {
            unknown_completions: sum.unknown_completions + queue.counts.unknown_completions,
            partial_completions: sum.partial_completions + queue.counts.partial_completions,
            commands: sum.commands + queue.counts.commands,
            forgotten: sum.forgotten + queue.counts.forgotten,
        })
    }

    /// Events with an earlier time than the one before, and those of accesses with one that was recorded already. They
    /// are recorded at that later time.
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// The source of devices.
    pub const fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// Requests of a device that were issued and have not completed, without flushes.
    pub fn at_device(&self, device: DeviceNumber) -> usize {
        self.numbers.get(&device).map_or(0, |queue| self.queues[*queue].at_device())
    }

    /// Whether a request with this range waits for its issue.
    pub fn has_queued(&self, io: &KernelIo) -> bool {
        self.numbers.get(&io.device).is_some_and(|queue| self.queues[*queue].has_queued(io))
    }

    /// This many events of a device are missing: all that it has in flight is unknown from now on.
    pub fn forget(&mut self, device: DeviceNumber, lost: u64, now: Instant) {
        self.now = now.max(self.now);
        if let Some(queue) = self.numbers.get(&device) {
            self.queues[*queue].forget(lost, self.now);
        }
    }

    /// Passes the pending records of all queues to their sinks.
    pub fn flush(&mut self) {
        self.queues.iter_mut().for_each(Queue::flush_log);
        self.accesses.flush();
    }

    /// Ends the logs of all queues.
    pub fn finish(self) -> S {
        self.source
    }

    /// Records the step of an event, if it has one.
    pub fn handle(&mut self, event: &KernelEvent) {
        self.late += u64::from(event.at < self.now);
        self.now = event.at.max(self.now);
        let now = self.now;
        match event.what {
            What::Queue(io) => self.queue(event, io),
            What::Remap { to, from, from_sector } => {
                // Opens the devices, so that each device of the log has a queue.
                let queue = self.number(from);
                let above = Above {
                    queue,
                    number: self.queues[queue].number,
                    io: KernelIo { device: from, sector: from_sector, ..to },
                };
                self.task(event.tid).remap = Some((to, above));
            }
            What::Split { device, sector, new_sector } => {
                self.of(device).split(sector, new_sector, now);
            }
            What::Get(io) => {
                self.queue_remapped(event, &io);
                let stream = self.stream(event);
                let queue = self.number(io.device);
                let request = self.queues[queue].get(io, stream, now);
                self.task(event.tid).got = request.map(|request| (queue, request));
            }
            What::Plug => {
                if let Some((queue, request)) = self.tasks.get(&event.tid).and_then(|task| task.got) {
                    self.queues[queue].plug(request, now);
                }
            }
            What::Unplug { requests } => {
                if let Some((queue, _)) = self.tasks.get(&event.tid).and_then(|task| task.got) {
                    self.queues[queue].unplug(requests, now);
                }
            }
            What::BackMerge(io) | What::FrontMerge(io) => {
                self.queue_remapped(event, &io);
                let is_back = matches!(event.what, What::BackMerge(_));
                let kind = if is_back { Event::BackMerge } else { Event::FrontMerge };
                self.of(io.device).merge(kind, io, now);
            }
            What::MergeRequest(io) => self.of(io.device).merge_request(io, now),
            What::Insert(io) => {
                let stream = self.stream(event);
                self.of(io.device).insert(io, stream, now);
            }
            What::Issue(io) => {
                let stream = self.stream(event);
                self.of(io.device).issue(io, stream, now);
            }
            What::Requeue(io) => self.of(io.device).requeue(io, now),
            What::Complete(io, errno) => {
                let queue = self.number(io.device);
                self.queues[queue].complete(io, errno, now);
                self.complete_above(queue, errno);
            }
            What::BioComplete(io, errno) => {
                let queue = self.number(io.device);
                self.queues[queue].complete_bio(io, errno, now);
                self.complete_above(queue, errno);
            }
            What::Lost { events } => {
                for (number, queue) in self.queues.iter_mut().enumerate() {
                    queue.forget(if number == 0 { events } else { 0 }, now);
                }
                self.tasks.clear();
            }
            What::Fork { child, parent } => self.processes.forked(child, parent),
        }
    }

    fn queue(&mut self, event: &KernelEvent, io: KernelIo) {
        let stream = self.stream(event);
        let queue = self.number(io.device);
        let remap = self.tasks.get_mut(&event.tid).and_then(|task| task.remap.take());
        let remap = remap.filter(|(to, _)| is_same_range(to, &io)).map(|(_, above)| above);
        self.queues[queue].queue(io, stream, remap, self.now);
    }

    /// Some drivers pass a bio to another device, which queues it without an event, and the bio has one completion:
    /// that of the lower device.
    fn queue_remapped(&mut self, event: &KernelEvent, io: &KernelIo) {
        let Some(remap) = self.tasks.get(&event.tid).and_then(|task| task.remap) else { return };
        let (to, above) = remap;
        let queue = self.number(to.device);
        if to.device != io.device || to.sector != io.sector || self.queues[queue].has_waiting(io) {
            return;
        }
        self.task(event.tid).remap = None;
        let stream = self.stream(event);
        if let Some(bio) = self.queues[queue].queue(to, stream, Some(above), self.now) {
            self.queues[queue].end_above(bio, above);
        }
    }

    /// Completes the bios of devices above that ended with those of this queue.
    fn complete_above(&mut self, queue: usize, errno: u32) {
        while let Some(above) = self.queues[queue].above.pop() {
            if above.queue != queue {
                self.queues[above.queue].complete_bio(above.io, errno, self.now);
                self.complete_above_of(above.queue, errno);
            }
        }
    }

    /// As [`Self::complete_above`], one level higher. Deeper stacks are not followed.
    fn complete_above_of(&mut self, queue: usize, errno: u32) {
        while let Some(above) = self.queues[queue].above.pop() {
            self.queues[above.queue].complete_bio(above.io, errno, self.now);
        }
    }

    fn stream(&mut self, event: &KernelEvent) -> Stream {
        self.processes.stream(event.pid, event.command)
    }

    fn of(&mut self, device: DeviceNumber) -> &mut Queue {
        let number = self.number(device);
        &mut self.queues[number]
    }

    fn number(&mut self, device: DeviceNumber) -> usize {
        if let Some(number) = self.numbers.get(&device) {
            return *number;
        }
        let number = self.queues.len();
        if number >= QUEUES_MAX {
            return QUEUES_MAX - 1;
        }
        let OpenedDevice { queue, sink, has_requests, has_fua } = self.source.open(device);
        self.queues.push(Queue::new(queue, StepLog::new(sink), has_requests, has_fua));
        self.numbers.insert(device, number);
        number
    }

    fn task(&mut self, tid: u32) -> &mut Task {
        if self.tasks.len() >= TASKS_MAX && !self.tasks.contains_key(&tid) {
            self.tasks.clear();
        }
        self.tasks.entry(tid).or_default()
    }
}

impl<S: FileSource> Joiner<S> {
    /// Joins an event of a system call. Pass these events in the order of time.
    pub fn handle_access(&mut self, event: &AccessEvent) {
        self.late += u64::from(event.at < self.accesses_until);
        let event = &AccessEvent { at: event.at.max(self.accesses_until), ..*event };
        match event.what {
            AccessStep::Begin(call) => {
                let stream = self.processes.stream(event.pid, call.command);
                self.accesses.begin(&mut self.source, event, &call, stream);
            }
            AccessStep::End { result } => self.accesses.end(event.tid, result, event.at),
            AccessStep::Exit => self.accesses.exited(event.tid),
            AccessStep::Lost => self.accesses.forget(),
        }
    }

    /// Records the accesses up to a time, to which all events were passed.
    pub fn record_accesses(&mut self, until: Instant) {
        self.accesses_until = until.max(self.accesses_until);
        self.accesses.record_until(&mut self.source, until);
    }

    /// Records the remaining accesses. Those in progress have no end.
    pub fn finish_accesses(&mut self) {
        self.accesses.finish(&mut self.source);
    }
}

/// Whether a bio has the range that a remap produced. Its length may be smaller: the remap precedes a split.
fn is_same_range(to: &KernelIo, io: &KernelIo) -> bool {
    to.device == io.device && to.sector == io.sector && to.sectors >= io.sectors
}

impl<S> fmt::Debug for Joiner<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queues, tasks, now, late, .. } = self;
        f.debug_struct("Joiner")
            .field("queues", &queues.len())
            .field("tasks", &tasks.len())
            .field("now", now)
            .field("late", late)
            .finish_non_exhaustive()
    }
}
