//! The joiner on sequences of events as the kernel produces them, and on sequences that it never produces.

use super::*;
use crate::names::event_letter;
use iopath_core::log::{Event, NoRoom, Subject};
use iopath_core::{Instant, LogSink, NoMerge, Op, Record, RecordBatch};
use proptest::prelude::*;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

const DISK: DeviceNumber = DeviceNumber(8 << 20);
const PARTITION: DeviceNumber = DeviceNumber(8 << 20 | 1);
const ZRAM: DeviceNumber = DeviceNumber(253 << 20);
const MD: DeviceNumber = DeviceNumber(9 << 20);

/// The records of all queues.
type Records = Arc<Mutex<Vec<(usize, Record)>>>;

#[derive(Debug)]
struct Kept {
    queue: usize,
    records: Records,
}

impl LogSink for Kept {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        let records = batch.records().iter().flat_map(|record| record.parts());
        self.records.lock().unwrap().extend(records.map(|record| (self.queue, record)));
        batch.clear();
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Source {
    opened: usize,
    records: Records,
}

impl DeviceSource for Source {
    fn open(&mut self, device: DeviceNumber) -> OpenedDevice {
        self.opened += 1;
        let sink = Kept { queue: self.opened - 1, records: Arc::clone(&self.records) };
        OpenedDevice {
            queue: self.opened as u16 - 1,
            sink: Box::new(sink),
            has_requests: device != ZRAM && device != MD,
            has_fua: device != DISK,
        }
    }
}

impl FileSource for Source {
    fn add_file(&mut self, _pid: u32, _call: &FileCall) -> u16 {
        self.opened += 1;
        self.opened as u16 - 1
    }

    fn open_file(&mut self, queue: u16) -> Box<dyn LogSink> {
        Box::new(Kept { queue: queue.into(), records: Arc::clone(&self.records) })
    }
}

/// A joiner and its clock: each event is a microsecond later.
struct Test {
    joiner: Joiner<Source>,
    records: Records,
    at_us: u64,
    tid: u32,
}

impl Test {
    fn new() -> Self {
        let source = Source::default();
        let records = Arc::clone(&source.records);
        Self { joiner: Joiner::new(source), records, at_us: 0, tid: 1 }
    }

    fn feed(&mut self, events: &[What]) -> &mut Self {
        for what in events {
            self.at_us += 1;
            let mut command = [0; 16];
            command[0] = b'a' + self.tid as u8;
            let at = Instant::from_nanos(self.at_us * 1000);
            self.joiner.handle(&KernelEvent { at, pid: self.tid, tid: self.tid, command, what: *what });
        }
        self
    }

    /// The steps as text, without clocks: `0 Q b0 100+8 1` is the `queue` of bio 0 in queue 0 at 1 µs.
    fn steps(&mut self) -> Vec<String> {
        self.joiner.flush();
        let records = std::mem::take(&mut *self.records.lock().unwrap());
        let steps = records.iter().filter(|(_, record)| record.event() != Some(Event::Clock));
        steps.map(|(queue, record)| text(*queue, *record)).collect()
    }
}

fn text(queue: usize, record: Record) -> String {
    let step = record.step().unwrap();
    let subject = match step.subject {
        Subject::Queue => "-".to_owned(),
        Subject::Bio(number) => format!("b{number}"),
        Subject::Request(number) => format!("r{number}"),
    };
    let other = match (step.event, step.other) {
        (Event::Get | Event::Split, Record::NO_TAG) => " of none".to_owned(),
        (Event::Get | Event::Split, bio) => format!(" of b{bio}"),
        (Event::BackMerge | Event::FrontMerge, Record::NO_TAG) => " to none".to_owned(),
        (Event::BackMerge | Event::FrontMerge, request) => format!(" to r{request}"),
        (Event::Complete, 0) if step.is_last => " last".to_owned(),
        (Event::Complete, 0) => String::new(),
        (Event::Complete | Event::Remap | Event::Unplug, number) => format!(" {number}"),
        _ => String::new(),
    };
    let reason = match step.reason {
        Some(NoMerge::NotAdjacent) => " alone",
        Some(NoMerge::Direction) => " direction",
        Some(_) => " other",
        None => "",
    };
    let letter = event_letter(step.event);
    let at_us = record.time_low() / 1000;
    let sectors = format!("{}+{}", step.extent.start().0, step.extent.sectors());
    format!("{queue} {letter} {subject} {sectors}{other}{reason} {at_us}")
}

fn io(sector: u64, sectors: u32, rwbs: &str) -> KernelIo {
    KernelIo::new(DISK, sector, sectors, rwbs.as_bytes())
}

fn on(device: DeviceNumber, sector: u64, sectors: u32) -> KernelIo {
    KernelIo::new(device, sector, sectors, b"W")
}

/// A read from its queueing to its insertion.
fn inserted(sector: u64) -> [What; 3] {
    let io = io(sector, 8, "R");
    [What::Queue(io), What::Get(io), What::Insert(io)]
}

#[test]
fn a_request_is_followed_from_its_bio_to_its_completion() {
    let read = io(100, 8, "RA");
    let mut test = Test::new();
    test.feed(&[What::Queue(read), What::Get(read), What::Plug, What::Unplug { requests: 1 }]);
    test.feed(&[What::Insert(read), What::Issue(read), What::Complete(read, 0)]);
    let expected = [
        "0 Q b0 100+8 1",
        "0 G r0 100+8 of b0 2",
        "0 P r0 100+8 3",
        "0 U - 0+0 1 4",
        "0 I r0 100+8 alone 5",
        "0 D r0 100+8 6",
        "0 C r0 100+8 last 7",
    ];
    assert_eq!(test.steps(), expected);
    assert_eq!(test.joiner.counts(), JoinCounts::default());
}

#[test]
fn a_request_that_skips_the_elevator_is_inserted_at_its_issue() {
    let (read, write) = (io(100, 8, "R"), io(108, 8, "W"));
    let mut test = Test::new();
    test.feed(&[What::Queue(write), What::Get(write), What::Queue(read), What::Get(read)]);
    test.feed(&[What::Issue(read), What::Complete(read, 5)]);
    let expected = ["0 I r1 100+8 direction 5", "0 D r1 100+8 5", "0 C r1 100+8 5 6"].map(str::to_owned);
    assert_eq!(test.steps()[4..], expected);
}

#[test]
fn merged_bios_complete_with_the_request_that_they_joined() {
    let of = |sector, sectors| io(sector, sectors, "W");
    let mut test = Test::new();
    test.feed(&[What::Queue(of(108, 8)), What::Get(of(108, 8))]);
    test.feed(&[What::Queue(of(116, 8)), What::BackMerge(of(116, 8))]);
    test.feed(&[What::Queue(of(100, 8)), What::FrontMerge(of(100, 8))]);
    test.feed(&[What::Queue(of(124, 8)), What::Get(of(124, 8)), What::MergeRequest(of(124, 8))]);
    test.feed(&[What::Insert(of(100, 32)), What::Issue(of(100, 32)), What::Complete(of(100, 32), 0)]);
    let expected = [
        "0 Q b0 108+8 1",
        "0 G r0 108+8 of b0 2",
        "0 Q b1 116+8 3",
        "0 M b1 116+8 to r0 4",
        "0 Q b2 100+8 5",
        "0 F b2 100+8 to r0 6",
        "0 Q b3 124+8 7",
        "0 G r1 124+8 of b3 8",
        "0 M r1 124+8 to r0 9",
        "0 I r0 100+32 alone 10",
        "0 D r0 100+32 11",
        "0 C r0 100+32 12",
        "0 C b0 108+8 12",
        "0 C b1 116+8 12",
        "0 C b2 100+8 12",
        "0 C b3 124+8 12",
    ];
    assert_eq!(test.steps(), expected);
}

#[test]
fn a_split_bio_completes_with_its_last_piece() {
    let split = |sector, new_sector| What::Split { device: DISK, sector, new_sector };
    let piece = |sector| io(sector, 8, "W");
    let mut test = Test::new();
    test.feed(&[What::Queue(io(0, 24, "W")), split(0, 8), What::Get(piece(0))]);
    test.feed(&[split(8, 16), What::BackMerge(piece(8)), What::Get(piece(16))]);
    test.feed(&[What::Issue(piece(16)), What::Complete(piece(16), 0)]);
    test.feed(&[What::Issue(io(0, 16, "W")), What::Complete(io(0, 16, "W"), 0)]);
    let expected = [
        "0 Q b0 0+24 1",
        "0 X b1 0+8 of b0 2",
        "0 G r0 0+8 of b1 3",
        "0 X b3 8+8 of b0 4",
        "0 M b3 8+8 to r0 5",
        "0 X b2 16+8 of b0 6",
        "0 G r1 16+8 of b2 6",
        "0 I r1 16+8 other 7",
        "0 D r1 16+8 7",
        "0 C r1 16+8 8",
        "0 I r0 0+16 alone 9",
        "0 D r0 0+16 9",
        "0 C r0 0+16 10",
        "0 C b0 0+24 10",
    ];
    let steps = test.steps();
    // The second piece is adjacent to the first one and of the same operation: the kernel had another reason.
    assert_eq!(steps[7], "0 I r1 16+8 7");
    assert_eq!([&steps[..7], &steps[8..]].concat(), [&expected[..7], &expected[8..]].concat());
}

#[test]
fn a_bio_beyond_32_bits_is_split_although_the_event_has_its_sector_truncated() {
    // 2 TiB and further, and a bio that crosses such a border.
    for start in [1 << 33, (1 << 32) - 8] {
        let mut test = Test::new();
        let split = What::split(DISK, start, (start + 8) & 0xFFFF_FFFF);
        test.feed(&[What::Queue(io(start, 24, "W")), split]);
        test.feed(&[What::Get(io(start, 8, "W"))]);
        let expected = [
            format!("0 Q b0 {start}+24 1"),
            format!("0 X b1 {start}+8 of b0 2"),
            format!("0 G r0 {start}+8 of b1 3"),
        ];
        assert_eq!(test.steps(), expected);
    }
}

#[test]
fn a_part_of_a_request_completes_the_bios_in_that_part() {
    let of = |sector, sectors| io(sector, sectors, "R");
    let mut test = Test::new();
    test.feed(&[
        What::Queue(of(0, 8)),
        What::Get(of(0, 8)),
        What::Queue(of(8, 8)),
        What::BackMerge(of(8, 8)),
    ]);
    test.feed(&[What::Issue(of(0, 16)), What::Complete(of(0, 8), 0), What::Complete(of(8, 8), 0)]);
    let expected = ["0 C b0 0+8 6", "0 C r0 8+8 last 7"].map(str::to_owned);
    assert_eq!(test.steps()[6..], expected);
    assert_eq!(test.joiner.counts().partial_completions, 1);
}

#[test]
fn flushes_complete_first_in_first_out() {
    let (bio, device, done) = (io(0, 0, "FWS"), io(0, 0, "FF"), io(0, 0, "WS"));
    let mut test = Test::new();
    test.feed(&[What::Queue(bio), What::Get(bio), What::Queue(bio), What::Get(bio)]);
    test.feed(&[
        What::Issue(device),
        What::Complete(device, 0),
        What::Complete(done, 0),
        What::Complete(done, 0),
    ]);
    let expected = [
        "0 Q b0 0+0 1",
        "0 W b0 0+0 2",
        "0 Q b1 0+0 3",
        "0 W b1 0+0 4",
        "0 D r0 0+0 5",
        "0 C r0 0+0 6",
        "0 C b0 0+0 7",
        "0 C b1 0+0 8",
    ];
    assert_eq!(test.steps(), expected);
    assert_eq!(test.joiner.counts(), JoinCounts::default());
}

#[test]
fn a_write_with_a_flush_ends_after_the_flush() {
    // The kernel clears the flag of the first flush before the issue.
    let (bio, data, device) = (io(100, 8, "FWFS"), io(100, 8, "WS"), io(0, 0, "FF"));
    let mut test = Test::new();
    test.feed(&[What::Queue(bio), What::Get(bio), What::Issue(device), What::Complete(device, 0)]);
    test.feed(&[What::Insert(data), What::Issue(data), What::Complete(data, 0)]);
    test.feed(&[What::Issue(device), What::Complete(device, 0), What::Complete(io(100, 0, "WS"), 0)]);
    let expected = ["0 C r0 100+8 7", "0 D r0 0+0 8", "0 C r0 0+0 9", "0 C b0 100+8 10"].map(str::to_owned);
    assert_eq!(test.steps()[6..], expected);
}

#[test]
fn of_equal_requests_the_one_issued_last_completes_first() {
    let read = io(100, 8, "R");
    let mut test = Test::new();
    for _ in 0..2 {
        test.feed(&inserted(100)).feed(&[What::Issue(read)]);
    }
    test.feed(&[What::Requeue(read), What::Complete(read, 0), What::Issue(read), What::Complete(read, 0)]);
    let expected = ["0 R r1 100+8 9", "0 C r0 100+8 last 10", "0 D r1 100+8 11", "0 C r1 100+8 last 12"];
    assert_eq!(test.steps()[8..], expected.map(str::to_owned));
}

#[test]
fn a_device_without_requests_takes_a_bio_at_once() {
    let mut test = Test::new();
    test.feed(&[What::Queue(on(ZRAM, 64, 16)), What::Queue(on(ZRAM, 64, 16))]);
    // The driver has advanced the start of the first one.
    test.feed(&[What::BioComplete(on(ZRAM, 80, 0), 0), What::BioComplete(on(ZRAM, 64, 16), 5)]);
    let expected = [
        "0 Q b0 64+16 1",
        "0 G r0 64+16 of b0 1",
        "0 I r0 64+16 1",
        "0 D r0 64+16 1",
        "0 Q b1 64+16 2",
        "0 G r1 64+16 of b1 2",
        "0 I r1 64+16 2",
        "0 D r1 64+16 2",
        "0 C r0 64+16 last 3",
        "0 C r1 64+16 5 4",
    ];
    assert_eq!(test.steps(), expected);
}

#[test]
fn a_bio_of_a_partition_is_a_bio_of_its_disk() {
    let bio = on(DISK, 2148, 8);
    let mut test = Test::new();
    test.feed(&[What::Remap { to: bio, from: PARTITION, from_sector: 100 }, What::Queue(bio)]);
    // Queue 0 is that of the partition: the remap names it first.
    assert_eq!(test.steps(), ["1 Q b0 2148+8 2", "1 L b0 100+8 0 2"]);
}

#[test]
fn a_bio_passed_on_without_an_event_completes_on_both_levels() {
    let (above, below) = (on(MD, 1000, 8), on(DISK, 500, 8));
    let mut test = Test::new();
    test.feed(&[What::Queue(above), What::Remap { to: below, from: MD, from_sector: 1000 }]);
    test.feed(&[What::Get(below), What::Issue(below), What::Complete(below, 0)]);
    let expected = [
        "0 Q b0 1000+8 1",
        "0 G r0 1000+8 of b0 1",
        "0 I r0 1000+8 1",
        "0 D r0 1000+8 1",
        "1 Q b0 500+8 3",
        "1 L b0 1000+8 0 3",
        "1 G r0 500+8 of b0 3",
        "1 I r0 500+8 alone 4",
        "1 D r0 500+8 4",
        "1 C r0 500+8 last 5",
        "0 C r0 1000+8 last 5",
    ];
    let mut steps = test.steps();
    steps.sort_by_key(|step| step.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    // The queues pass their records one after the other.
    steps[9..].sort_by(|a, b| b.cmp(a));
    assert_eq!(steps, expected);
}

#[test]
fn after_a_loss_all_in_flight_is_unknown() {
    let mut test = Test::new();
    test.feed(&inserted(100)).feed(&[What::Lost { events: 7 }]);
    test.feed(&[What::Issue(io(100, 8, "R")), What::Complete(io(100, 8, "R"), 0)]);
    test.feed(&[What::Complete(io(900, 8, "R"), 0), What::Plug, What::Unplug { requests: 3 }]);
    let expected = ["0 ! - 7+0 4", "0 I r0 100+8 alone 5", "0 D r0 100+8 5", "0 C r0 100+8 6"];
    assert_eq!(test.steps()[3..], expected.map(str::to_owned));
    let counts = test.joiner.counts();
    assert_eq!((counts.forgotten, counts.unknown_completions), (2, 1));
}

#[test]
fn a_bio_that_the_kernel_ends_without_a_request_completes() {
    let mut test = Test::new();
    test.feed(&[What::Queue(io(100, 8, "R")), What::BioComplete(io(100, 8, "R"), 6)]);
    assert_eq!(test.steps(), ["0 Q b0 100+8 1", "0 C b0 100+8 6 2"]);
}

#[test]
fn a_late_access_is_recorded_at_the_time_of_the_last() {
    let mut test = Test::new();
    let file = FileNumber { device: DISK, inode: 7, generation: 0 };
    let (bytes, name, command) = (Some(512), [0; 32], [0; 16]);
    let call = FileCall { file, descriptor: 3, name, op: Op::Read, offset: 0, bytes, command };
    let mut access = |at_us: u64, what| {
        let at = Instant::from_nanos(at_us * 1000);
        test.joiner.handle_access(&AccessEvent { at, pid: 1, tid: 1, what });
        test.joiner.record_accesses(at);
    };
    access(10, AccessStep::Begin(call));
    access(20, AccessStep::End { result: 512 });
    access(15, AccessStep::Begin(call));
    access(30, AccessStep::End { result: 512 });
    test.joiner.finish_accesses();
    assert_eq!(test.joiner.late(), 1);
    let records = test.records.lock().unwrap();
    let of_accesses = |record: &&(usize, Record)| record.1.event() != Some(Event::Clock);
    let times: Vec<_> =
        records.iter().filter(of_accesses).map(|(_, record)| record.time_low() / 1000).collect();
    assert_eq!(times, [10, 20, 20, 30]);
}

#[test]
fn processes_of_the_command_are_marked() {
    let mut test = Test::new();
    test.joiner.add_own_process(5);
    test.feed(&[What::Fork { child: 5, parent: 1 }]);
    test.feed(&[What::Fork { child: 6, parent: 5 }, What::Fork { child: 7, parent: 1 }]);
    for tid in [5, 6, 7, 6] {
        test.tid = tid;
        test.feed(&[What::Queue(io(u64::from(tid) * 8, 8, "R"))]);
    }
    let labels = test.joiner.take_stream_labels();
    let labels: Vec<_> = labels.iter().map(|label| (label.to_string(), label.is_own)).collect();
    assert_eq!(labels, [("f 5".to_owned(), true), ("g 6".to_owned(), true), ("h 7".to_owned(), false)]);
    assert!(test.joiner.take_stream_labels().is_empty());
}

/// Any event about a few sectors, so that many events have a subject.
fn any_event() -> impl Strategy<Value = (u64, u32, What)> {
    let rwbs = prop::sample::select(vec!["R", "W", "WF", "FW", "FF", "D", "N", ""]);
    let device = prop::sample::select(vec![DISK, PARTITION, ZRAM, MD]);
    let sector = prop_oneof![4 => 0..6_u64, 1 => Just(u64::MAX - 4)];
    let io = (device, sector, 0..5_u32, rwbs)
        .prop_map(|(device, sector, sectors, rwbs)| KernelIo::new(device, sector, sectors, rwbs.as_bytes()));
    let what = (0..16_u8, io, 0..8_u64).prop_map(|(kind, io, number)| match kind {
        0 | 1 => What::Queue(io),
        2 => What::Remap { to: io, from: MD, from_sector: number },
        3 => What::Split { device: io.device, sector: io.sector, new_sector: number },
        4 => What::Get(io),
        5 => What::Plug,
        6 => What::Unplug { requests: number as u32 },
        7 => What::BackMerge(io),
        8 => What::FrontMerge(io),
        9 => What::MergeRequest(io),
        10 => What::Insert(io),
        11 => What::Issue(io),
        12 => What::Requeue(io),
        13 => What::Complete(io, number as u32),
        14 => What::BioComplete(io, 0),
        _ if number == 0 => What::Lost { events: 3 },
        _ => What::Issue(io),
    });
    (0..1_u64 << 42, 0..3_u32, what)
}

proptest! {
    /// In any order, with any losses: no panic, every record is valid, and a number names one I/O at a time.
    #[test]
    fn any_sequence_of_events_becomes_a_valid_log(events in prop::collection::vec(any_event(), 0..3000)) {
        let mut test = Test::new();
        for (at, tid, what) in events {
            let at = Instant::from_nanos(at);
            test.joiner.handle(&KernelEvent { at, pid: tid, tid, command: [0; 16], what });
        }
        test.joiner.flush();
        let mut live = HashSet::new();
        for (queue, record) in test.records.lock().unwrap().iter() {
            let step = record.step().unwrap();
            let request = (*queue, step.subject);
            match step.event {
                Event::Get => prop_assert!(live.insert(request), "{request:?} has not ended"),
                Event::Complete | Event::BackMerge => {
                    live.remove(&request);
                }
                Event::Missed => live.retain(|(of, _)| of != queue),
                _ => {}
            }
        }
        prop_assert!(test.joiner.counts().unknown_completions < 3000);
    }
}
