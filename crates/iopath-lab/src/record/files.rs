//! The level above the page cache: decodes the records of system calls, and names the files in the log.

use std::fs;
use std::os::unix::fs::MetadataExt;

use iopath_core::{Instant, LogSink};
use iopath_log::kernel::{
    AccessEvent, AccessStep, DeviceNumber, FileCall, FileNumber, FileSource, kernel_name,
};
use iopath_log::{Labels, QueueLabel};
use iopath_os::target::DeviceNumber as SysNumber;
use iopath_os::trace::{AccessCall, AccessRecord, TraceRecord};

use super::devices::{Queues, kernel_number};

/// The maximum length of a name: labels are cut at their end, and a path is best known by its end.
const NAME_BYTES_MAX: usize = 60;

/// The maximum number of files with a queue of their own. All further files share one queue, so that numbers remain for
/// devices.
pub(super) const FILES_MAX: usize = 60_000;

/// The name of that queue.
const FURTHER_FILES: &str = "further files";

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
    let AccessCall { op, offset, bytes, device, inode, generation, descriptor, command, name } = *call;
    let file = FileNumber { device: DeviceNumber(device), inode, generation };
    FileCall { file, descriptor, name, op, offset, bytes, command }
}

impl FileSource for Queues {
    fn add_file(&mut self, pid: u32, call: &FileCall) -> u16 {
        self.files += 1;
        let is_further = self.files > FILES_MAX;
        if let Some(queue) = self.further_files.filter(|_| is_further) {
            return queue;
        }
        let queue = self.next_queue();
        self.further_files = is_further.then_some(queue);
        if let Some(log) = self.receivers.log() {
            let (name, number) =
                if is_further { (FURTHER_FILES.to_owned(), String::new()) } else { label(pid, call) };
            let label = QueueLabel { queue, name, number };
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

/// The name and the number of the file.
fn label(pid: u32, call: &FileCall) -> (String, String) {
    let FileNumber { device, inode, .. } = call.file;
    let number = if inode == 0 { device.to_string() } else { format!("{device}/{inode}") };
    let name = path(pid, call).unwrap_or_else(|| kernel_name(&call.name));
    (end_of(&name), number)
}

/// The path of the file, if the process still has it open. Does not ask the file system, which may not answer.
fn path(pid: u32, call: &FileCall) -> Option<String> {
    let link = format!("/proc/{pid}/fd/{}", call.descriptor);
    let path = fs::read_link(&link).ok()?;
    let FileNumber { device, inode, .. } = call.file;
    // Another file may have the descriptor by now.
    let is_same = if inode == 0 {
        path.starts_with("/dev")
            && kernel_number(SysNumber::from_raw(fs::metadata(&link).ok()?.rdev())) == Some(device)
    } else {
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", call.descriptor)).ok()?;
        inode_of(&info) == Some(inode)
    };
    is_same.then(|| path.to_string_lossy().into_owned())
}

/// The inode in the description of a descriptor; none before Linux 5.14.
fn inode_of(info: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix("ino:")?.trim().parse().ok())
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
    use crate::record::devices::Receivers;
    use iopath_core::Op;
    use iopath_log::Intervals;
    use std::os::fd::AsRawFd;

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

    fn call(inode: u64, descriptor: u32) -> FileCall {
        let file = FileNumber { device: DeviceNumber(0), inode, generation: 0 };
        let (name, command) = ([0; 32], [0; 16]);
        FileCall { file, descriptor, name, op: Op::Read, offset: 0, bytes: None, command }
    }

    #[test]
    fn a_path_is_that_of_the_file_with_the_inode() {
        assert_eq!(inode_of("pos:\t0\nflags:\t02\nmnt_id:\t25\nino:\t4711\n"), Some(4711));
        assert_eq!(inode_of("pos:\t0\nmnt_id:\t25\n"), None, "an older kernel");
        let own = std::env::current_exe().unwrap();
        let file = fs::File::open(&own).unwrap();
        let descriptor = file.as_raw_fd() as u32;
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).unwrap();
        let inode = inode_of(&info).unwrap_or(1);
        let found = |inode| path(std::process::id(), &call(inode, descriptor));
        assert_eq!(found(inode + 1), None, "another file has the descriptor");
        assert_eq!(found(inode).is_some(), info.contains("ino:"));
    }

    #[test]
    fn further_files_share_a_queue() {
        let mut queues = Queues::new(Receivers::Intervals(Intervals::new(Instant::ZERO), None));
        let first = |count: u64, queues: &mut Queues| {
            (0..count).map(|inode| queues.add_file(1, &call(inode, 3))).max()
        };
        assert_eq!(first(FILES_MAX as u64, &mut queues), Some(FILES_MAX as u16 - 1));
        assert_eq!(first(10, &mut queues), Some(FILES_MAX as u16));
        assert_eq!((queues.next_queue(), queues.files), (FILES_MAX as u16 + 1, FILES_MAX + 10));
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
