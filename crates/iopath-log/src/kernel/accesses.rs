//! Joins the begin and the end of system calls into accesses: the second level of a log, above the page cache. Each
//! file is a queue of the log, each process a stream. The number of an access is that of its thread, which executes one
//! at a time.
//!
//! The length of an access is what the call returned, which is known at its end. So accesses wait for the end of those
//! that began before them, and are recorded in the order of time.

use super::event::DeviceNumber;
use iopath_core::log::{Access, AccessLog};
use iopath_core::{Instant, LogSink, Op, Record, Stream};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};

/// More accesses than this do not wait for one that is still in progress; its length is then the one requested.
const WAITING_MAX: usize = 1 << 16;

/// The ends of this many accesses are recorded, too, if they are known later. Their files stay open until then.
const UNENDED_MAX: usize = 1 << 10;

/// The maximum number of files whose logs are open: each needs memory for its next records.
const OPEN_MAX: usize = 256;

/// An interrupted call that the kernel repeats has a number from here on in the place of its errno.
const ERRNO_MAX: u64 = 511;

/// A file, as the kernel numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileNumber {
    /// The device of its file system, or the block device.
    pub device: DeviceNumber,
    /// The inode; 0 for a block device.
    pub inode: u64,
    /// The generation of the inode: a file that was created after another one was removed may have its number.
    pub generation: u32,
}

/// An access begins or ends.
#[derive(Debug, Clone, Copy)]
pub struct AccessEvent {
    /// The time.
    pub at: Instant,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// What happened.
    pub what: AccessStep,
}

/// The kind of an event, with its values.
#[derive(Debug, Clone, Copy)]
pub enum AccessStep {
    /// A system call begins.
    Begin(FileCall),
    /// The system call of the thread has ended, with a number of bytes or a negative errno.
    End {
        /// The result.
        result: i64,
    },
    /// The thread has ended.
    Exit,
    /// Events were lost before this one.
    Lost,
}

/// A system call that accesses a file.
#[derive(Debug, Clone, Copy)]
pub struct FileCall {
    /// The file.
    pub file: FileNumber,
    /// Its descriptor in the process.
    pub descriptor: u32,
    /// The last part of its name, ended by a zero.
    pub name: [u8; 32],
    /// [`Op::Read`], [`Op::Write`] or [`Op::Flush`].
    pub op: Op,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes; `None` if only the end states it.
    pub bytes: Option<u64>,
    /// The name of the thread's command, ended by a zero.
    pub command: [u8; 16],
}

/// Names the files of a recording, and opens their logs.
pub trait FileSource {
    /// A file has its first access, by this process. Returns the number of its queue, which may be that of other files.
    fn add_file(&mut self, pid: u32, call: &FileCall) -> u16;

    /// A log for further accesses of a queue. The one before was dropped.
    fn open_file(&mut self, queue: u16) -> Box<dyn LogSink>;
}

/// Joins begins and ends.
#[derive(Debug, Default)]
pub(super) struct Accesses {
    files: Vec<File>,
    numbers: HashMap<FileNumber, usize>,
    queues: HashMap<u16, usize>,
    /// The files whose logs are open.
    open: Vec<usize>,
    threads: Threads,
    /// The accesses that are not recorded, in the order of their begin.
    waiting: VecDeque<Waiting>,
    /// How many accesses have left `waiting`.
    left: u64,
    /// The access of each thread, as its position counted from the first access.
    in_progress: HashMap<u32, u64>,
    /// Recorded accesses that are still in progress.
    unended: HashMap<u64, Ended>,
    /// The ends of recorded accesses.
    ends: BinaryHeap<Reverse<(Instant, u64)>>,
    ended: HashMap<u64, Ended>,
}

#[derive(Debug)]
struct File {
    queue: u16,
    log: Option<AccessLog>,
    /// Accesses that have begun in the log and not ended.
    begun: usize,
    /// The access that used it last.
    used: u64,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    at: Instant,
    file: usize,
    thread: u32,
    access: Access,
    end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    InProgress,
    /// At this time, with this errno or 0.
    At(Instant, u32),
    /// The event of the end is missing.
    Unknown,
}

#[derive(Debug, Clone, Copy)]
struct Ended {
    file: usize,
    thread: u32,
    access: Access,
    errno: u32,
}

/// Small numbers of threads. The number of a thread that has ended is used again.
#[derive(Debug, Default)]
struct Threads {
    numbers: HashMap<u32, u32>,
    free: BTreeSet<u32>,
}

impl Threads {
    fn number(&mut self, tid: u32) -> u32 {
        if let Some(number) = self.numbers.get(&tid) {
            return *number;
        }
        let number = self.free.pop_first().unwrap_or(self.numbers.len() as u32).min(Record::NO_TAG - 1);
        self.numbers.insert(tid, number);
        number
    }

    fn exited(&mut self, tid: u32) {
        self.free.extend(self.numbers.remove(&tid));
    }
}

impl Accesses {
    /// A system call begins. Its stream is that of its process.
    pub(super) fn begin<S: FileSource>(
        &mut self,
        source: &mut S,
        event: &AccessEvent,
        call: &FileCall,
        stream: Stream,
    ) {
        // The end of the thread's previous call is missing.
        self.end_in_progress(event.tid, End::Unknown, None);
        let file = *self.numbers.entry(call.file).or_insert_with(|| {
            let queue = source.add_file(event.pid, call);
            *self.queues.entry(queue).or_insert_with(|| {
                self.files.push(File { queue, log: None, begun: 0, used: 0 });
                self.files.len() - 1
            })
        });
        let thread = self.threads.number(event.tid);
        let access = Access { op: call.op, offset: call.offset, bytes: call.bytes.unwrap_or(0), stream };
        self.in_progress.insert(event.tid, self.left + self.waiting.len() as u64);
        self.waiting.push_back(Waiting { at: event.at, file, thread, access, end: End::InProgress });
    }

    /// The call of a thread has ended.
    pub(super) fn end(&mut self, tid: u32, result: i64, at: Instant) {
        let errno = if result < 0 { result.unsigned_abs() } else { 0 };
        let errno = if errno > ERRNO_MAX { EINTR } else { errno as u32 };
        let bytes = u64::try_from(result).ok();
        self.end_in_progress(tid, End::At(at, errno), bytes);
    }

    fn end_in_progress(&mut self, tid: u32, end: End, bytes: Option<u64>) {
        let Some(number) = self.in_progress.remove(&tid) else { return };
        if let Some(mut access) = self.unended.remove(&number) {
            if let End::At(at, errno) = end {
                access.errno = errno;
                self.ends.push(Reverse((at, number)));
                self.ended.insert(number, access);
            } else {
                self.files[access.file].begun -= 1;
            }
            return;
        }
        let index = number.checked_sub(self.left).map(|index| index as usize);
        if let Some(waiting) = index.and_then(|index| self.waiting.get_mut(index)) {
            waiting.end = end;
            if let Some(bytes) = bytes.filter(|_| waiting.access.op != Op::Flush) {
                waiting.access.bytes = bytes;
            }
        }
    }

    /// A thread has ended.
    pub(super) fn exited(&mut self, tid: u32) {
        self.end_in_progress(tid, End::Unknown, None);
        self.threads.exited(tid);
    }

    /// Events are missing: any access in progress may have ended.
    pub(super) fn forget(&mut self) {
        let tids: Vec<u32> = self.in_progress.keys().copied().collect();
        for tid in tids {
            self.end_in_progress(tid, End::Unknown, None);
        }
    }

    /// Records the accesses up to a time, to which all events are known.
    pub(super) fn record_until<S: FileSource>(&mut self, source: &mut S, until: Instant) {
        while let Some(first) = self.waiting.front().copied() {
            let must_wait = first.end == End::InProgress && self.waiting.len() <= WAITING_MAX;
            if first.at > until || must_wait {
                break;
            }
            self.record_ends(first.at);
            self.waiting.pop_front();
            let number = self.left;
            self.left += 1;
            self.record_begin(source, number, first);
        }
        let known = self.waiting.front().map_or(until, |first| first.at.min(until));
        self.record_ends(known);
    }

    /// Records all accesses. Those in progress have no end.
    pub(super) fn finish<S: FileSource>(&mut self, source: &mut S) {
        self.forget();
        self.record_until(source, Instant::from_nanos(u64::MAX));
        self.files.iter_mut().for_each(|file| file.log = None);
    }

    /// Passes the pending records of all files to their sinks.
    pub(super) fn flush(&mut self) {
        self.files.iter_mut().filter_map(|file| file.log.as_mut()).for_each(AccessLog::flush);
    }

    fn record_begin<S: FileSource>(&mut self, source: &mut S, number: u64, begun: Waiting) {
        let Waiting { at, file, thread, access, end } = begun;
        if self.files[file].log.is_none() {
            self.close_files();
            let sink = source.open_file(self.files[file].queue);
            self.files[file].log = Some(AccessLog::new(sink));
            self.open.push(file);
        }
        let File { log, begun, used, .. } = &mut self.files[file];
        *used = number;
        if let Some(log) = log {
            log.begin(thread, &access, at);
        }
        match end {
            End::At(ended_at, errno) => {
                *begun += 1;
                self.ends.push(Reverse((ended_at, number)));
                self.ended.insert(number, Ended { file, thread, access, errno });
            }
            End::InProgress if self.unended.len() < UNENDED_MAX => {
                *begun += 1;
                self.unended.insert(number, Ended { file, thread, access, errno: 0 });
            }
            End::InProgress | End::Unknown => {}
        }
    }

    fn record_ends(&mut self, until: Instant) {
        while let Some(Reverse((at, number))) = self.ends.peek().copied().filter(|end| end.0.0 <= until) {
            self.ends.pop();
            let Some(Ended { file, thread, access, errno }) = self.ended.remove(&number) else { continue };
            let File { log, begun, .. } = &mut self.files[file];
            *begun -= 1;
            if let Some(log) = log {
                log.end(thread, &access, errno, at);
            }
        }
    }

    /// Closes the logs of files that were not used for the longest time, if too many are open.
    fn close_files(&mut self) {
        if self.open.len() < OPEN_MAX {
            return;
        }
        let Self { files, open, .. } = self;
        open.sort_unstable_by_key(|file| Reverse(files[*file].used));
        let mut kept = 0;
        open.retain(|file| {
            let file = &mut files[*file];
            kept += 1;
            let is_kept = kept <= OPEN_MAX / 2 || file.begun > 0;
            if !is_kept {
                file.log = None;
            }
            is_kept
        });
    }
}

/// The errno of an interrupted call.
const EINTR: u32 = 4;

#[cfg(test)]
mod tests;
