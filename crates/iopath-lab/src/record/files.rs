//! The level above the page cache: decodes the records of system calls, and names the files in the log.

use std::fs;
use std::os::unix::fs::MetadataExt;

use iopath_core::{Instant, LogSink};
use iopath_log::kernel::{AccessEvent, AccessStep, DeviceNumber, FileCall, FileNumber, FileSource};
use iopath_log::{Labels, QueueLabel};
use iopath_os::target::DeviceNumber as SysNumber;
use iopath_os::trace::{AccessCall, AccessRecord, TraceRecord};

use super::devices::{Queues, kernel_number};

/// The maximum length of a name: labels are cut at their end, and a path is best known by its end.
const NAME_BYTES_MAX: usize = 60;

/// The event of a record, if it concerns an access.
pub(super) fn access_event(record: &TraceRecord<'_>) -> Option<AccessEvent> {
    let (time_ns, pid, tid, what) = match *record {
        TraceRecord::Event { time_ns, pid, tid, data } => {
            let what = match AccessRecord::parse(data)? {
                AccessRecord::Begin(call) => AccessStep::Begin(file_call(&call)),
                AccessRecord::End { result } => AccessStep::End { result },
            };
            (time_ns, pid, tid, what)
        }
        TraceRecord::Exit { time_ns, tid } => (time_ns, 0, tid, AccessStep::Exit),
        TraceRecord::Lost { time_ns, .. } => (time_ns, 0, 0, AccessStep::Lost),
        TraceRecord::Fork { .. } => return None,
    };
    Some(AccessEvent { at: Instant::from_nanos(time_ns), pid, tid, what })
}

fn file_call(call: &AccessCall) -> FileCall {
    let AccessCall { op, offset, bytes, device, inode, descriptor, command, name } = *call;
    let file = FileNumber { device: DeviceNumber(device), inode };
    FileCall { file, descriptor, name, op, offset, bytes, command }
}

impl FileSource for Queues {
    fn add_file(&mut self, pid: u32, call: &FileCall) -> u16 {
        let queue = self.next_queue();
        let FileNumber { device, inode } = call.file;
        let number = if inode == 0 { device.to_string() } else { format!("{device}/{inode}") };
        let name = path(pid, call).unwrap_or_else(|| text(&call.name));
        self.files += 1;
        if let Some(log) = self.receivers.log() {
            let label = QueueLabel { queue, name: end_of(&name), number };
            log.add_labels(&Labels { queues: vec![label], ..Labels::default() });
            // The queue has its number from the log.
            drop(log.add_queue());
        }
        queue
    }

    fn open_file(&mut self, queue: u16) -> Box<dyn LogSink> {
        let log = self.receivers.log().expect("accesses are recorded only with a log");
        Box::new(log.reopen_queue(queue))
    }
}

/// The path of the file, if the process still has it open.
fn path(pid: u32, call: &FileCall) -> Option<String> {
    let link = format!("/proc/{pid}/fd/{}", call.descriptor);
    let metadata = fs::metadata(&link).ok()?;
    let FileNumber { device, inode } = call.file;
    // Another file may have the descriptor by now.
    let is_same = metadata.ino() == inode
        || inode == 0 && kernel_number(SysNumber::from_raw(metadata.rdev())) == Some(device);
    let path = fs::read_link(link).ok().filter(|_| is_same)?;
    Some(path.to_string_lossy().into_owned())
}

/// The text before the first zero.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The end of a name that is too long, after dots.
fn end_of(name: &str) -> String {
    if name.len() <= NAME_BYTES_MAX {
        return name.to_owned();
    }
    let begin = (name.len() - NAME_BYTES_MAX..=name.len()).find(|begin| name.is_char_boundary(*begin));
    format!("...{}", &name[begin.unwrap_or(name.len())..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_keeps_its_end() {
        assert_eq!(end_of("/a/b"), "/a/b");
        let long = "é".repeat(40) + "/data.db";
        let cut = end_of(&long);
        assert!(
            cut.starts_with("...é") && cut.ends_with("/data.db") && cut.len() <= 3 + NAME_BYTES_MAX,
            "{cut}"
        );
    }

    #[test]
    fn records_of_tracepoints_are_no_accesses() {
        let event = |data| TraceRecord::Event { time_ns: 5, pid: 1, tid: 2, data };
        assert!(access_event(&event(&[7, 0, 1, 0])).is_none());
        assert!(access_event(&event(&[])).is_none());
        let end = [0, 0, 2, 0, 0, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0];
        let found = access_event(&event(&end)).unwrap();
        assert!(matches!(found.what, AccessStep::End { result: 100 }), "{found:?}");
        assert_eq!((found.tid, found.at), (2, Instant::from_nanos(5)));
    }
}
