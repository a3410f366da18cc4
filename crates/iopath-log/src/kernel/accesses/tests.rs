//! Accesses on sequences of system calls.

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
    let file = FileNumber { device: DeviceNumber(0), inode, generation: 0 };
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
    test.begin(0, 1, &call(1, Op::Flush, 0, Some(0)));
    test.begin(0, 3, &call(3, Op::Read, 0, Some(512)));
    for index in 0..=WAITING_MAX as u64 {
        test.begin(2 * index + 1, 2, &call(2, Op::Read, 0, Some(512)));
        test.end(2 * index + 2, 2, 512);
    }
    test.until(1 << 19);
    assert_eq!((test.accesses.waiting.len(), test.accesses.unended.len()), (0, 2));
    test.end(1 << 20, 1, -5);
    test.accesses.exited(3);
    test.until(1 << 21);
    let unended = &test.accesses.unended;
    assert!(unended.is_empty() && test.accesses.files.iter().all(|file| file.begun == 0));
    let records = test.finish();
    let of = |queue| records.iter().copied().filter(|one| one.0 == queue).collect::<Vec<_>>();
    let (begun, ended) = ((0, 0, BEGUN, 0, (0, 0)), (0, 1 << 20, ENDED, 0, (5, 0)));
    assert_eq!(of(0), [begun, ended], "its end is recorded");
    assert_eq!(of(1), [(1, 0, BEGUN, 1, (0, 512))], "its end is unknown");
}

#[test]
fn files_of_one_queue_share_its_log() {
    let mut test = Test::new();
    test.begin(0, 1, &call(1, Op::Write, 0, Some(512)));
    // The next file gets the number of the first again.
    test.sinks.files = 0;
    test.begin(10, 2, &call(2, Op::Write, 512, Some(512)));
    test.end(20, 2, 512);
    test.end(30, 1, 512);
    test.until(40);
    assert_eq!(test.sinks.opened, 1);
    let times: Vec<_> = test.finish().iter().map(|one| one.1).collect();
    assert_eq!(times, [0, 10, 20, 30]);
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
