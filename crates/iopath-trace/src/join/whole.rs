//! Makes records of I/Os of which the trace has one line each: the submission, and the completion a latency later. The
//! steps that the trace does not have are at the same times.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use iopath_core::log::{Event, Step, Subject};
use iopath_core::{Extent, Instant, Op, Record, Stream};
use iopath_log::StreamLabel;

use super::table::Table;
use crate::blocks::Blocks;
use crate::event::WholeIo;

/// The maximum number of I/Os in flight: 64 MiB. Further ones have no completion.
const IN_FLIGHT_MAX: usize = 1 << 20;

/// Bios without a latency have the numbers below this one in turn. Those of I/Os in flight begin here, so that all
/// numbers are small: a reader keeps a state for each number of each queue.
const OPEN_BIOS: u32 = 256;

/// An I/O in flight.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    queue: u16,
    stream: u16,
    op: Op,
    extent: Extent,
    done_ns: u64,
    /// Whether it waits for its dispatch.
    is_queued: bool,
}

/// Numbers for devices or processes, in the order in which they occur.
#[derive(Debug, Default)]
struct Numbers {
    by_name: HashMap<u32, u16>,
    names: Vec<u32>,
    /// The name before, with its number.
    last: Option<(u32, u16)>,
}

/// I/Os in flight. The bio and the request of an I/O have one number, which is unique among all queues: that of its
/// place in the table, from [`OPEN_BIOS`] on.
#[derive(Debug)]
pub(super) struct Whole {
    blocks: Blocks,
    queues: Numbers,
    streams: Numbers,
    in_flight: Table<InFlight>,
    /// The times of dispatches and completions to come, each with a number that keeps their order, and the I/O.
    later: BinaryHeap<Reverse<(u64, u64, u32)>>,
    sequence: u64,
    open_bio: u32,
    without_room: u64,
    without_latency: u64,
    many_devices: u64,
}

impl Default for Whole {
    fn default() -> Self {
        Self {
            blocks: Blocks::default(),
            queues: Numbers::default(),
            streams: Numbers::default(),
            in_flight: Table::new(IN_FLIGHT_MAX),
            later: BinaryHeap::new(),
            sequence: 0,
            open_bio: 0,
            without_room: 0,
            without_latency: 0,
            many_devices: 0,
        }
    }
}

impl Whole {
    pub(super) const fn blocks(&mut self) -> &mut Blocks {
        &mut self.blocks
    }

    /// I/Os without a completion because too many were in flight.
    pub(super) const fn without_room(&self) -> u64 {
        self.without_room
    }

    pub(super) const fn without_latency(&self) -> u64 {
        self.without_latency
    }

    pub(super) const fn many_devices(&self) -> u64 {
        self.many_devices
    }

    /// The number of devices and processes.
    pub(super) fn names_len(&self) -> usize {
        self.queues.names.len() + self.streams.names.len()
    }

    /// The devices, in the order of their queues.
    pub(super) fn devices(&self) -> &[u32] {
        &self.queues.names
    }

    /// The labels of the streams. A trace that names no processes has a stream for each device.
    pub(super) fn streams(
        &self,
        device_name: impl Fn(u32) -> Option<String>,
        process_name: impl Fn(u32) -> Option<String>,
    ) -> Vec<StreamLabel> {
        let label = |(stream, process): (usize, &u32)| {
            let command = process_name(*process);
            let pid = command.is_some().then_some(*process);
            let command =
                command.or_else(|| device_name(*process)).unwrap_or_else(|| format!("device {process}"));
            StreamLabel { stream: stream as u16, pid, command, is_own: false }
        };
        self.streams.names.iter().enumerate().map(label).collect()
    }

    /// An I/O begins. All steps before it are recorded first.
    #[inline]
    pub(super) fn begin(&mut self, io: &WholeIo, extent: Extent) {
        while let Some(&Reverse((at_ns, _, number))) = self.later.peek()
            && at_ns <= io.at_ns
        {
            self.later.pop();
            self.step(number, at_ns);
        }
        let Some(queue) = self.queues.of(io.device) else {
            self.many_devices += 1;
            return;
        };
        // Processes beyond the number of streams share the last one.
        let stream = self.streams.of(io.process).unwrap_or(u16::MAX);
        let now = Instant::from_nanos(io.at_ns);
        let step = Step {
            op: io.op,
            extent,
            stream: Stream(stream.into()),
            ..Step::new(Event::Queue, Subject::Bio(0))
        };
        let has_room = !self.in_flight.is_full();
        let Some(latency_ns) = io.latency_ns.filter(|_| has_room) else {
            if io.latency_ns.is_some() {
                self.without_room += 1;
            } else {
                self.without_latency += 1;
            }
            self.open_bio = (self.open_bio + 1) % OPEN_BIOS;
            let bio = Step { subject: Subject::Bio(self.open_bio), ..step };
            return self.blocks.push_at(queue, Record::new(&bio, now), now);
        };
        let dispatch_ns = io.at_ns.saturating_add(io.queued_ns);
        let done_ns = dispatch_ns.saturating_add(latency_ns);
        let is_queued = io.queued_ns > 0 && io.op != Op::Flush;
        let number = self.in_flight.insert(InFlight { queue, stream, op: io.op, extent, done_ns, is_queued });
        let name = OPEN_BIOS + number;
        let request = Step { subject: Subject::Request(name), ..step };
        if io.op == Op::Flush {
            // A flush has no slot in the elevator.
            self.push(queue, Step { subject: Subject::Bio(name), ..step }, now);
            self.push(queue, Step { event: Event::Dispatch, ..request }, now);
            self.schedule(done_ns, number);
        } else if is_queued {
            self.push(queue, Step { subject: Subject::Bio(name), ..step }, now);
            self.push(queue, Step { event: Event::Get, other: name, ..request }, now);
            self.push(queue, Step { event: Event::Insert, ..request }, now);
            self.schedule(dispatch_ns, number);
        } else {
            let dispatch = Step { event: Event::Dispatch, other: name, ..request };
            self.blocks.push_at(queue, Record::new(&dispatch, now).and_all_before(), now);
            self.schedule(done_ns, number);
        }
    }

    #[inline]
    fn push(&mut self, queue: u16, step: Step, now: Instant) {
        self.blocks.push_at(queue, Record::new(&step, now), now);
    }

    #[inline]
    fn schedule(&mut self, at_ns: u64, number: u32) {
        self.sequence += 1;
        self.later.push(Reverse((at_ns, self.sequence, number)));
    }

    /// The dispatch or the completion of an I/O.
    fn step(&mut self, number: u32, at_ns: u64) {
        let Some(io) = self.in_flight.get_mut(number) else { return };
        let is_dispatch = std::mem::take(&mut io.is_queued);
        let InFlight { queue, stream, op, extent, done_ns, .. } = *io;
        let event = if is_dispatch { Event::Dispatch } else { Event::Complete };
        let step = Step {
            op,
            extent,
            stream: Stream(stream.into()),
            is_last: !is_dispatch && op != Op::Flush,
            ..Step::new(event, Subject::Request(OPEN_BIOS + number))
        };
        let now = Instant::from_nanos(at_ns);
        self.push(queue, step, now);
        if op == Op::Flush {
            self.push(queue, Step { subject: Subject::Bio(OPEN_BIOS + number), ..step }, now);
        }
        if is_dispatch {
            self.schedule(done_ns, number);
        } else {
            self.in_flight.remove(number);
        }
    }

    /// Records all steps to come, and ends all blocks.
    pub(super) fn end_all(&mut self) {
        while let Some(Reverse((at_ns, _, number))) = self.later.pop() {
            self.step(number, at_ns);
        }
        self.blocks.end_all();
    }
}

impl Numbers {
    /// The number of a name; none if there are too many.
    #[inline]
    fn of(&mut self, name: u32) -> Option<u16> {
        if let Some((last, number)) = self.last
            && last == name
        {
            return Some(number);
        }
        let number = match self.by_name.get(&name) {
            Some(number) => *number,
            None if self.names.len() >= usize::from(u16::MAX) => return None,
            None => {
                let number = self.names.len() as u16;
                self.names.push(name);
                self.by_name.insert(name, number);
                number
            }
        };
        self.last = Some((name, number));
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A summary has a state for each number up to the largest, for each queue, within a bound on memory.
    #[test]
    fn the_numbers_of_bios_are_small_on_every_queue() {
        let mut whole = Whole::default();
        for number in 0..1000 {
            let latency_ns = (number % 2 == 0).then_some(1000);
            let io = WholeIo {
                at_ns: u64::from(number) * 10_000,
                op: Op::Read,
                device: number % 100,
                process: 0,
                sector: 0,
                sectors: 8,
                queued_ns: 0,
                latency_ns,
            };
            whole.begin(&io, Extent::from_bytes(0, 4096).unwrap());
        }
        whole.end_all();
        let (mut block, mut records) = (iopath_log::Block::default(), 0);
        while whole.blocks().take(&mut block) {
            for entry in block.entries() {
                let record = entry.record;
                // The block has records of its clock, too.
                if !matches!(record.event(), Some(Event::Queue | Event::Dispatch | Event::Complete)) {
                    continue;
                }
                assert!(record.tag() <= OPEN_BIOS, "{record:?}");
                records += 1;
            }
        }
        assert!(records >= 1000 + 500, "{records}");
    }
}
