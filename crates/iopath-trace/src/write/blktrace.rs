//! Writes blktrace, version 7, as blkparse, btt and fio read it: a record for each step that the kernel has, too.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use iopath_core::log::{Event, Step, Subject};
use iopath_core::{Op, SECTOR_BYTES};
use iopath_log::{Entry, Labels, LogInfo};

use super::StepWriter;
use crate::formats::blktrace::{
    BlktraceRecord, CATEGORY_COMPLETE, CATEGORY_DISCARD, CATEGORY_FLUSH, CATEGORY_FUA, CATEGORY_ISSUE,
    CATEGORY_QUEUE, CATEGORY_READ, CATEGORY_REQUEUE, CATEGORY_WRITE,
};

/// The device number of queues without one: 252 is for local use.
const MAJOR_LOCAL: u32 = 252;

/// Each event with blkparse's letter and category.
const LETTERS: [(Event, u8, u64); 12] = [
    (Event::Queue, b'Q', CATEGORY_QUEUE),
    (Event::Split, b'X', 0),
    (Event::Get, b'G', CATEGORY_QUEUE),
    (Event::BackMerge, b'M', CATEGORY_QUEUE),
    (Event::FrontMerge, b'F', CATEGORY_QUEUE),
    (Event::Plug, b'P', CATEGORY_QUEUE),
    (Event::Unplug, b'U', CATEGORY_QUEUE),
    (Event::Insert, b'I', CATEGORY_QUEUE),
    (Event::Dispatch, b'D', CATEGORY_ISSUE),
    (Event::Requeue, b'R', CATEGORY_REQUEUE),
    (Event::Complete, b'C', CATEGORY_COMPLETE),
    (Event::Remap, b'A', 0),
];

/// The records of a log.
pub(super) struct Blktrace {
    has_devices: bool,
    sequence: u32,
    /// Streams whose process is named.
    named: HashSet<u32>,
    /// Bios that have no request so far, by queue and number.
    alone: HashSet<(u16, u32)>,
    devices: HashMap<u16, u32>,
    bytes: Vec<u8>,
    others: u64,
    large: u64,
}

impl Blktrace {
    pub(super) fn new(info: &LogInfo) -> Self {
        Self {
            has_devices: info.has_devices(),
            sequence: 0,
            named: HashSet::new(),
            alone: HashSet::new(),
            devices: HashMap::new(),
            bytes: Vec::new(),
            others: 0,
            large: 0,
        }
    }

    /// The device of a queue. All queues of iopath are of one device.
    fn device(&mut self, queue: u16, labels: &Labels) -> u32 {
        let queue = if self.has_devices { queue } else { 0 };
        *self.devices.entry(queue).or_insert_with(|| {
            let number = labels.queue(queue).and_then(|label| {
                let (major, minor) = label.number.split_once(':')?;
                let (major, minor) = (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?);
                (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)
            });
            number.unwrap_or(MAJOR_LOCAL << 20 | u32::from(queue))
        })
    }

    /// The process of a stream, whose name is written before its first step.
    fn process(&mut self, stream: u32, time_ns: u64, labels: &Labels) -> u32 {
        let label = labels.stream(stream);
        let pid = label.and_then(|label| label.pid).unwrap_or(stream + 1);
        if self.named.insert(stream) {
            let mut name = [0; 16];
            let command = label.map_or_else(|| format!("stream {stream}"), |label| label.command.clone());
            let length = command.len().min(name.len() - 1);
            name[..length].copy_from_slice(&command.as_bytes()[..length]);
            // Like those of the kernel, it has no number.
            BlktraceRecord { time_ns, pid, ..BlktraceRecord::default() }.write(&name, &mut self.bytes);
        }
        pid
    }

    fn write(&mut self, record: BlktraceRecord, payload: &[u8]) {
        self.sequence = self.sequence.wrapping_add(1);
        BlktraceRecord { sequence: self.sequence, ..record }.write(payload, &mut self.bytes);
    }

    /// Whether the kernel has a record of this step. A bio in a request completes with the request.
    fn has_record(&mut self, queue: u16, step: &Step) -> bool {
        match (step.event, step.subject) {
            (Event::Queue, Subject::Bio(bio)) => {
                self.alone.insert((queue, bio));
            }
            // The bio, or its pieces, belong to requests from now on.
            (Event::Split | Event::Get, _) => {
                self.alone.remove(&(queue, step.other));
            }
            (Event::BackMerge | Event::FrontMerge, Subject::Bio(bio)) => {
                self.alone.remove(&(queue, bio));
            }
            (Event::Complete, Subject::Bio(bio)) => return self.alone.remove(&(queue, bio)),
            (Event::Missed, _) => self.alone.retain(|(of, _)| *of != queue),
            _ => {}
        }
        true
    }
}

const fn category(op: Op) -> u64 {
    match op {
        Op::Read => CATEGORY_READ,
        Op::Write | Op::WriteZeroes => CATEGORY_WRITE,
        Op::Flush => CATEGORY_WRITE | CATEGORY_FLUSH,
        Op::Discard => CATEGORY_WRITE | CATEGORY_DISCARD,
    }
}

impl StepWriter for Blktrace {
    fn step(&mut self, entry: &Entry, labels: &Labels, out: &mut dyn Write) -> io::Result<()> {
        let Ok(step) = entry.record.step() else { return Ok(()) };
        if !self.has_record(entry.queue, &step) {
            return Ok(());
        }
        let Some((_, letter, of_event)) = LETTERS.iter().find(|(event, ..)| *event == step.event) else {
            self.others += u64::from(!matches!(step.event, Event::Clock));
            return Ok(());
        };
        let time_ns = entry.time.as_nanos();
        let device = self.device(entry.queue, labels);
        let is_queue = step.subject == Subject::Queue;
        let pid = if is_queue { 0 } else { self.process(step.stream.0, time_ns, labels) };
        let bytes = step.extent.sectors() * SECTOR_BYTES;
        self.large += u64::from(bytes > u64::from(u32::MAX));
        let fua = if step.is_fua { CATEGORY_FUA } else { 0 };
        let start = step.extent.start().0;
        let record = BlktraceRecord {
            time_ns,
            sector: start,
            bytes: bytes.min(u64::from(u32::MAX)) as u32,
            category: of_event | if is_queue { 0 } else { category(step.op) | fua },
            letter: *letter,
            pid,
            device,
            error: if step.event == Event::Complete { step.other.min(0x7FFF) as u16 } else { 0 },
            sequence: 0,
        };
        // Numbers in payloads are big-endian.
        match step.event {
            Event::Unplug => self.write(record, &u64::from(step.other).to_be_bytes()),
            Event::Split => self.write(record, &step.extent.end().0.to_be_bytes()),
            Event::Remap => {
                let from = self.device(step.other as u16, labels);
                let mut payload = [0; 16];
                payload[..4].copy_from_slice(&from.to_be_bytes());
                payload[4..8].copy_from_slice(&device.to_be_bytes());
                payload[8..].copy_from_slice(&start.to_be_bytes());
                self.write(record, &payload);
            }
            _ => self.write(record, &[]),
        }
        out.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }

    fn finish(&mut self, _: &Labels, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        let rows = [
            (self.others, "steps have no event of blktrace, such as refused merges: they are left out"),
            (self.large, "requests of 4 GiB and more have the largest length"),
        ];
        rows.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect()
    }
}
