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
    /// A file has its first access, by this process. Returns the number of its queue.
    fn add_file(&mut self, pid: u32, call: &FileCall) -> u16;

    /// A log for further accesses of a queue. The one before was dropped.
    fn open_file(&mut self, queue: u16) -> Box<dyn LogSink>;
}

/// Joins begins and ends.
#[derive(Debug, Default)]
pub(super) struct Accesses {
    files: Vec<File>,
    numbers: HashMap<FileNumber, usize>,
    /// The files whose logs are open.
    open: Vec<usize>,
    threads: Threads,
    /// The accesses that are not recorded, in the order of their begin.
    waiting: VecDeque<Waiting>,
    /// How many accesses have left `waiting`.
    left: u64,
    /// The access of each thread, as its position counted from the first access.
    in_progress: HashMap<u32, u64>,
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
            self.files.push(File { queue, log: None, begun: 0, used: 0 });
            self.files.len() - 1
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
        // An access that did not wait for its end was recorded without it.
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
        if let End::At(ended_at, errno) = end {
            *begun += 1;
            self.ends.push(Reverse((ended_at, number)));
            self.ended.insert(number, Ended { file, thread, access, errno });
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
mod tests {
    use super::*;
    use iopath_core::RecordBatch;
    use iopath_core::log::{Event, NoRoom};
    use std::sync::{Arc, Mutex};

    const BEGUN: Event = Event::Access;
    const ENDED: Event = Event::AccessEnd;

    /// Queue, time, event, thread, and the range of a begin or the errno of an end.
    type Logged = (u16, u64, Event, u32, (u64, u64));

    /// The records of all files, in the order in which their logs passed them on.
    #[derive(Debug, Clone, Default)]
    struct Sinks {
        records: Arc<Mutex<Vec<(u16, Record)>>>,
        files: u16,
        opened: usize,
    }

    #[derive(Debug)]
    struct Sink(u16, Arc<Mutex<Vec<(u16, Record)>>>);

    impl LogSink for Sink {
        fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
            self.1.lock().unwrap().extend(batch.records().iter().map(|record| (self.0, *record)));
            batch.clear();
            Ok(())
        }
    }

    impl FileSource for Sinks {
        fn add_file(&mut self, _pid: u32, _call: &FileCall) -> u16 {
            self.files += 1;
            self.files - 1
        }

        fn open_file(&mut self, queue: u16) -> Box<dyn LogSink> {
            self.opened += 1;
            Box::new(Sink(queue, Arc::clone(&self.records)))
        }
    }

    fn call(inode: u64, op: Op, offset: u64, bytes: Option<u64>) -> FileCall {
        let file = FileNumber { device: DeviceNumber(0), inode };
        FileCall { file, descriptor: 3, name: [0; 32], op, offset, bytes, command: [0; 16] }
    }

    struct Test {
        accesses: Accesses,
        sinks: Sinks,
    }

    impl Test {
        fn new() -> Self {
            Self { accesses: Accesses::default(), sinks: Sinks::default() }
        }

        fn begin(&mut self, at: u64, tid: u32, call: &FileCall) {
            let at = Instant::from_nanos(at);
            let event = AccessEvent { at, pid: tid, tid, what: AccessStep::Begin(*call) };
            self.accesses.begin(&mut self.sinks, &event, call, Stream(tid));
        }

        fn end(&mut self, at: u64, tid: u32, result: i64) {
            self.accesses.end(tid, result, Instant::from_nanos(at));
        }

        fn until(&mut self, at: u64) {
            self.accesses.record_until(&mut self.sinks, Instant::from_nanos(at));
        }

        /// The records of the files.
        fn finish(mut self) -> Vec<Logged> {
            self.accesses.finish(&mut self.sinks);
            let records = self.sinks.records.lock().unwrap();
            let known = |(queue, record): &(u16, Record)| {
                let event = record.event()?;
                let value = match event {
                    BEGUN => record.access_range(),
                    ENDED => (record.other().into(), 0),
                    _ => return None,
                };
                // Only the lower bits of these small times are in use.
                let at = record.to_words()[0] & ((1 << Record::TIME_BITS) - 1);
                Some((*queue, at, event, record.tag(), value))
            };
            records.iter().filter_map(known).collect()
        }
    }

    #[test]
    fn the_length_is_the_result_and_records_are_in_the_order_of_time() {
        let mut test = Test::new();
        test.begin(10, 7, &call(1, Op::Read, 100, Some(5000)));
        test.begin(20, 8, &call(1, Op::Write, 0, None));
        test.end(30, 8, 4096);
        test.until(35);
        assert!(test.accesses.waiting.len() == 2, "the first is in progress");
        test.end(40, 7, 50);
        test.begin(50, 8, &call(1, Op::Flush, 0, Some(0)));
        test.end(60, 8, -5);
        test.until(70);
        assert_eq!(
            test.finish(),
            [
                (0, 10, BEGUN, 0, (100, 50)),
                (0, 20, BEGUN, 1, (0, 4096)),
                (0, 30, ENDED, 1, (0, 0)),
                (0, 40, ENDED, 0, (0, 0)),
                (0, 50, BEGUN, 1, (0, 0)),
                (0, 60, ENDED, 1, (5, 0)),
            ]
        );
    }

    #[test]
    fn an_access_without_an_end_is_recorded_as_it_was_requested() {
        let mut test = Test::new();
        test.begin(10, 7, &call(1, Op::Read, 0, Some(512)));
        // Its end was lost: the thread begins the next one.
        test.begin(20, 7, &call(2, Op::Read, 512, Some(512)));
        test.accesses.exited(7);
        test.begin(30, 9, &call(2, Op::Read, 1024, Some(512)));
        let expected =
            [(0, 10, BEGUN, 0, (0, 512)), (1, 20, BEGUN, 0, (512, 512)), (1, 30, BEGUN, 0, (1024, 512))];
        assert_eq!(test.finish(), expected, "the number of a thread that has ended is used again");
    }

    #[test]
    fn an_access_in_progress_does_not_hold_others_without_limit() {
        let mut test = Test::new();
        test.begin(0, 1, &call(1, Op::Read, 0, Some(512)));
        for index in 0..=WAITING_MAX as u64 {
            test.begin(2 * index + 1, 2, &call(2, Op::Read, 0, Some(512)));
            test.end(2 * index + 2, 2, 512);
        }
        test.until(u64::MAX);
        assert_eq!(test.accesses.waiting.len(), 0);
        test.end(1 << 30, 1, 512);
    }

    #[test]
    fn only_some_logs_of_many_files_are_open() {
        let mut test = Test::new();
        for inode in 0..3 * OPEN_MAX as u64 {
            test.begin(2 * inode, 1, &call(inode, Op::Write, 0, Some(512)));
            test.end(2 * inode + 1, 1, 512);
            test.until(2 * inode + 1);
            assert!(test.accesses.open.len() <= OPEN_MAX);
        }
        test.begin(1 << 20, 1, &call(0, Op::Write, 512, Some(512)));
        test.end(1 << 21, 1, -512);
        test.until(1 << 21);
        assert_eq!(test.sinks.opened, 3 * OPEN_MAX + 1, "the first file was opened again");
        let records = test.finish();
        assert_eq!(records.len(), 6 * OPEN_MAX + 2);
        assert_eq!(records.iter().filter(|one| one.0 == 0).count(), 4);
        assert!(records.contains(&(0, 1 << 21, ENDED, 0, (EINTR.into(), 0))));
    }
}
