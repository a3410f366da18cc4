//! The first pass over a trace: its devices, and what each of them needs of a target. Keeps no I/O.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use iopath_bench::Interruption;
use iopath_bench::error::BenchError;
use iopath_core::{Op, SECTOR_BYTES};
use iopath_log::LogError;
use iopath_report::replay::ReplayedEvents;
use iopath_trace::{Io, Ios, Level};

use super::ReplayRequest;
use super::error::ReplayError;

/// The operations, in the order of results.
pub(super) const OPS: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];

/// The place of an operation in [`OPS`].
pub(super) fn index_of(op: Op) -> usize {
    OPS.iter().position(|known| *known == op).unwrap_or(0)
}

/// I/Os between two checks for an interruption.
const CHECK_EVERY: u64 = 1 << 16;

/// Which I/Os of a trace are replayed.
#[derive(Debug, Clone)]
pub(super) struct Selection {
    pub(super) level: Level,
    reads_only: bool,
    time_ns: Range<u64>,
}

impl Selection {
    pub(super) fn of(request: &ReplayRequest) -> Self {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            level: match request.events {
                ReplayedEvents::Queue => Level::Queue,
                ReplayedEvents::Dispatch => Level::Dispatch,
            },
            reads_only: request.reads_only,
            time_ns: ns(request.time.start)..ns(request.time.end),
        }
    }

    /// Whether an I/O is replayed. An I/O without sectors has nothing to transfer.
    pub(super) fn admits(&self, io: &Io) -> bool {
        (io.op == Op::Read || !self.reads_only)
            && self.time_ns.contains(&io.at_ns)
            && (io.op == Op::Flush || io.sectors > 0)
    }
}

/// What the I/Os of a device need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// I/Os of each of [`OPS`].
    pub(super) ios: [u64; OPS.len()],
    /// The end of the highest range, in bytes.
    pub(super) end_bytes: u64,
    /// The start and the length of the largest I/O, in bytes.
    pub(super) largest: [u64; 2],
    /// The same of reads and writes.
    pub(super) largest_data: [u64; 2],
    /// I/Os with a recorded latency.
    pub(super) timed: u64,
    pub(super) first_ns: u64,
}

impl Needs {
    fn add(&mut self, io: &Io) {
        if self.count() == 0 {
            self.first_ns = io.at_ns;
        }
        self.first_ns = self.first_ns.min(io.at_ns);
        self.ios[index_of(io.op)] += 1;
        self.timed += u64::from(io.latency_ns.is_some());
        let (start, bytes) = (io.sector * SECTOR_BYTES, io.sectors * SECTOR_BYTES);
        self.end_bytes = self.end_bytes.max(start + bytes);
        let largest = [start, bytes];
        if bytes > self.largest[1] {
            self.largest = largest;
        }
        if io.op.has_memory() && bytes > self.largest_data[1] {
            self.largest_data = largest;
        }
    }

    /// The number of I/Os.
    pub(super) fn count(&self) -> u64 {
        self.ios.iter().sum()
    }

    /// I/Os that change the target, or its cache: all but reads.
    pub(super) fn writes(&self) -> u64 {
        self.count() - self.ios[index_of(Op::Read)]
    }
}

/// A recorded device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    /// Its queue; none if all queues of the log are of one device.
    pub(super) queue: Option<u16>,
    pub(super) name: String,
    /// Major and minor number; empty if unknown.
    number: String,
    pub(super) needs: Needs,
}

impl Device {
    fn is_named(&self, name: &str) -> bool {
        let name = name.strip_prefix("/dev/").unwrap_or(name);
        name == self.name || name == self.number
    }
}

/// A trace as the first pass has found it.
#[derive(Debug)]
pub(super) struct Scan {
    /// The devices with I/Os to replay, in the order of their queues.
    pub(super) devices: Vec<Device>,
    /// Facts that limit the conclusions, in words.
    pub(super) notes: Vec<String>,
    /// Why the rest of the trace cannot be read.
    pub(super) failure: Option<LogError>,
}

/// Opens the I/Os of a trace.
pub(super) fn open(path: &Path, level: Level, queue: Option<u16>) -> Result<Ios, LogError> {
    Ok(Ios::new(iopath_trace::open(path)?, level, queue))
}

/// Reads the whole trace.
///
/// # Errors
/// The trace cannot be opened, has no I/O to replay, or a signal came. A failure to read on is in the result.
pub(super) fn scan(path: &Path, selection: &Selection) -> Result<Scan, ReplayError> {
    // A device or a FIFO could have no end, and is read once only.
    let metadata =
        std::fs::metadata(path).map_err(|source| ReplayError::Open { path: path.to_owned(), source })?;
    if !metadata.is_file() {
        return Err(ReplayError::NoTrace { path: path.to_owned() });
    }
    let mut ios = open(path, selection.level, None)?;
    let has_devices = ios.info().has_devices();
    let mut found: BTreeMap<u16, Needs> = BTreeMap::new();
    let (mut read, mut empty) = (0_u64, 0_u64);
    let failure = loop {
        match ios.next() {
            Ok(Some(io)) => {
                read += 1;
                empty += u64::from(io.op != Op::Flush && io.sectors == 0);
                if selection.admits(&io) {
                    found.entry(if has_devices { io.queue } else { 0 }).or_default().add(&io);
                }
                if read.is_multiple_of(CHECK_EVERY) && Interruption::is_requested() {
                    return Err(BenchError::Interrupted.into());
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    let end = ios.end();
    let device = |(queue, needs): (u16, Needs)| {
        let label = ios.labels().queue(queue).filter(|_| has_devices);
        let unnamed = if has_devices { format!("queue {queue}") } else { ios.info().target.clone() };
        Device {
            queue: has_devices.then_some(queue),
            name: label.map_or(unnamed, |label| label.name.clone()),
            number: label.map_or_else(String::new, |label| label.number.clone()),
            needs,
        }
    };
    let devices: Vec<Device> = found.into_iter().map(device).collect();
    if devices.is_empty() {
        return Err(match failure {
            Some(error) => error.into(),
            None if read > 0 => ReplayError::NothingSelected { path: path.to_owned(), read },
            None => ReplayError::Empty { path: path.to_owned() },
        });
    }
    let mut notes = ios.info().notes.clone();
    if let Some(end) = end {
        notes.extend(end.notes.iter().cloned());
        notes.extend(
            end.damage.map(|damage| format!("{damage}; only the part before the damage is replayed")),
        );
        if end.totals.missed > 0 {
            notes.push(format!(
                "{} records are missing in the log: some I/Os are not replayed",
                end.totals.missed
            ));
        }
    }
    if empty > 0 {
        notes.push(format!("{empty} reads and writes have no sectors: they are not replayed"));
    }
    Ok(Scan { devices, notes, failure })
}

/// The devices for these targets: those with these names, or all.
///
/// # Errors
/// A name is unknown, or the numbers of devices and targets differ.
pub(super) fn select(devices: Vec<Device>, request: &ReplayRequest) -> Result<Vec<Device>, ReplayError> {
    let list = |devices: &[Device]| {
        let one = |device: &Device| format!("{} ({} I/Os)", device.name, device.needs.count());
        devices.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let selected = if request.devices.is_empty() {
        devices
    } else {
        let named = |name: &String| {
            devices
                .iter()
                .find(|device| device.is_named(name))
                .cloned()
                .ok_or_else(|| ReplayError::NoDevice { name: name.clone(), devices: list(&devices) })
        };
        request.devices.iter().map(named).collect::<Result<_, _>>()?
    };
    if selected.len() == request.targets.len() {
        return Ok(selected);
    }
    let (devices, targets) = (list(&selected), request.targets.len());
    Err(ReplayError::Devices { path: request.trace.clone(), count: selected.len(), devices, targets })
}
