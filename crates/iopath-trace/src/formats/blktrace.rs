//! The binary files of `blktrace`, versions 7 and 8, of either byte order: one file for each CPU, or one merged file
//! (`blkparse -d`). `blktrace/record.rs` has the layout of a record.

mod record;
mod stream;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};

use iopath_log::kernel::{DeviceNumber, KernelIo, What};
use iopath_log::{LogError, NumberMap};

use super::merges::Merges;
use super::ranges::errno;
use crate::event::TraceEvent;
use crate::input::Input;
use crate::reader::TraceReader;
use record::{Action, Head};
use stream::Stream;

pub(crate) use record::{
    CATEGORY_COMPLETE, CATEGORY_DISCARD, CATEGORY_FLUSH, CATEGORY_FUA, CATEGORY_ISSUE, CATEGORY_QUEUE,
    CATEGORY_READ, CATEGORY_REQUEUE, CATEGORY_WRITE, Record as BlktraceRecord,
};

/// The events of one call of [`TraceReader::read`].
const EVENTS_AT_ONCE: usize = 4096;

/// The files of a run, merged by time.
struct Blktrace {
    streams: Vec<Stream>,
    /// The time of the next record of each stream that has one.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    merges: Merges,
    /// The commands of processes, from records that name them.
    commands: NumberMap<u32, [u8; 16]>,
    /// The name of the file without its ending: the device, if all events are of one.
    name: Option<String>,
    /// The device of the first event.
    device: Option<u32>,
    has_devices: bool,
    others: u64,
    unknown: u64,
}

/// Whether the first bytes are those of a record.
pub(crate) fn detect(start: &[u8]) -> bool {
    Head::parse(start).is_some()
}

/// Opens the file, and the files of the other CPUs of its run: those that differ in the number at the end.
pub(crate) fn open(input: Input) -> Result<Box<dyn TraceReader>, LogError> {
    let path = input.path().to_owned();
    let mut streams = Vec::new();
    let mut first = Some(input);
    for path in files_of_run(&path) {
        let input = match first.take_if(|first| first.path() == path) {
            Some(input) => input,
            None => Input::open(&path)?,
        };
        streams.push(Stream::new(input)?);
    }
    let next =
        streams.iter().enumerate().filter_map(|(index, stream)| Some(Reverse((stream.next_ns()?, index))));
    Ok(Box::new(Blktrace {
        next: next.collect(),
        streams,
        merges: Merges::default(),
        commands: NumberMap::default(),
        name: parts_of_name(&path).map(|(name, _)| name.to_owned()),
        device: None,
        has_devices: false,
        others: 0,
        unknown: 0,
    }))
}

/// `NAME` and the rest of a file `NAME.blktrace.CPU`.
pub(crate) fn parts_of_name(path: &Path) -> Option<(&str, &str)> {
    path.file_name()?.to_str()?.split_once(".blktrace.")
}

/// The files of a run, of which one is given: `NAME.blktrace.CPU` for each CPU. Any other file is alone.
pub(crate) fn files_of_run(path: &Path) -> Vec<PathBuf> {
    let alone = || vec![path.to_owned()];
    // Compressed files have a further ending.
    let Some((base, cpu)) = parts_of_name(path) else { return alone() };
    let ending = cpu.trim_start_matches(|char: char| char.is_ascii_digit());
    if ending.len() == cpu.len() {
        return alone();
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = folder.read_dir() else { return alone() };
    let cpu_of = |other: &str| {
        let cpu = other.strip_prefix(base)?.strip_prefix(".blktrace.")?.strip_suffix(ending)?;
        cpu.bytes().all(|byte| byte.is_ascii_digit()).then(|| cpu.parse::<u32>().ok())?
    };
    let mut files: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.ok()?.file_name();
            Some((cpu_of(name.to_str()?)?, path.with_file_name(&name)))
        })
        .collect();
    files.sort_unstable();
    let files: Vec<_> = files.into_iter().map(|(_, path)| path).collect();
    if files.iter().any(|file| file == path) { files } else { alone() }
}

impl Blktrace {
    /// The event of the next record of a stream.
    fn event(&mut self, index: usize) -> Result<Option<TraceEvent>, LogError> {
        let (head, payload) = self.streams[index].current();
        let what = match head.action() {
            Action::Process => {
                let mut command = [0; 16];
                let length = payload.len().min(15);
                command[..length].copy_from_slice(&payload[..length]);
                if self.commands.len() < 1 << 16 {
                    self.commands.insert(head.pid, command);
                }
                None
            }
            Action::Notify => None,
            Action::Known(letter) => {
                self.has_devices |= *self.device.get_or_insert(head.device) != head.device;
                let what = what(&head, letter, payload);
                self.others += u64::from(what.is_none());
                what
            }
            Action::Unknown => {
                self.unknown += 1;
                None
            }
        };
        self.streams[index].advance()?;
        let Some(what) = what else { return Ok(None) };
        let command = self.commands.get(&head.pid).copied().unwrap_or_default();
        let mut event = TraceEvent::kernel(head.time_ns, head.pid, &command, what);
        if let TraceEvent::Kernel(event) = &mut event {
            self.merges.follow(event);
        }
        Ok(Some(event))
    }
}

/// The event of a record; none if it has no I/O of the path.
fn what(head: &Head, letter: u8, payload: &[u8]) -> Option<What> {
    let device = DeviceNumber(head.device);
    let (op, is_preflush) = head.operation();
    let io = KernelIo {
        device,
        sector: head.sector,
        sectors: head.bytes.div_ceil(512),
        op,
        is_preflush,
        is_fua: head.is_fua(),
    };
    let is_io = io.sectors > 0 || is_preflush;
    // Numbers in payloads are big-endian on every machine.
    let number = |at: usize| {
        let bytes = payload.get(at..)?.first_chunk::<8>()?;
        Some(u64::from_be_bytes(*bytes))
    };
    let of: fn(KernelIo) -> What = match letter {
        b'Q' => What::Queue,
        b'G' => What::Get,
        b'M' => What::BackMerge,
        b'F' => What::FrontMerge,
        b'I' => What::Insert,
        b'D' => What::Issue,
        b'R' => What::Requeue,
        b'C' => |io| What::Complete(io, 0),
        b'P' => return Some(What::Plug),
        b'U' => return Some(What::Unplug { requests: number(0)?.min(u64::from(u32::MAX >> 8)) as u32 }),
        b'X' => return Some(What::split(device, head.sector, number(0)?)),
        b'A' => {
            let device_at =
                |at: usize| payload.get(at..)?.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes));
            let (from, from_sector) = (DeviceNumber(device_at(0)?), number(8)?);
            return Some(What::Remap { to: io, from, from_sector });
        }
        _ => return None,
    };
    match of(io) {
        _ if !is_io => None,
        What::Complete(io, _) => Some(What::Complete(io, errno(head.error.into()))),
        what => Some(what),
    }
}

impl TraceReader for Blktrace {
    fn read(&mut self, out: &mut Vec<TraceEvent>) -> Result<bool, LogError> {
        for _ in 0..EVENTS_AT_ONCE {
            let Some(Reverse((_, index))) = self.next.pop() else { return Ok(false) };
            out.extend(self.event(index)?);
            self.next.extend(self.streams[index].next_ns().map(|at_ns| Reverse((at_ns, index))));
        }
        Ok(true)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.streams.iter().flat_map(Stream::notes).collect();
        if self.others > 0 {
            notes.push(format!(
                "{} events are commands without sectors, sleeps or bounces: they are not used",
                self.others
            ));
        }
        if self.unknown > 0 {
            notes.push(format!(
                "{} events have an action that iopath does not know: they are not used",
                self.unknown
            ));
        }
        notes
    }

    fn device_name(&self, device: u32) -> Option<String> {
        self.name.clone().filter(|_| self.device == Some(device) && !self.has_devices)
    }

    fn process_name(&self, _: u32) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_run_differ_in_the_cpu_only() {
        let folder = tempfile::tempdir().unwrap();
        for name in
            ["sda.blktrace.10", "sda.blktrace.2", "sda.blktrace.0.gz", "sdb.blktrace.0", "sda.blktrace.x"]
        {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let names = |name: &str| -> Vec<String> {
            let files = files_of_run(&folder.path().join(name));
            files.iter().map(|file| file.file_name().unwrap().to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names("sda.blktrace.2"), ["sda.blktrace.2", "sda.blktrace.10"]);
        assert_eq!(names("sda.blktrace.0.gz"), ["sda.blktrace.0.gz"]);
        assert_eq!(names("sda.blktrace.x"), ["sda.blktrace.x"]);
        assert_eq!(names("merged.bin"), ["merged.bin"]);
    }
}
