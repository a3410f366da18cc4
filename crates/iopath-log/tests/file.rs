//! Log files: complete, truncated, damaged, and at their size limit. The meaning of records is tested elsewhere.

use iopath_core::log::{Event, NoRoom, Step, Subject};
use iopath_core::{
    Bio, Extent, Instant, LengthOnly, Limits, LogSink, QueueConfig, Record, RecordBatch, RequestQueue,
};
use iopath_log::{Damage, End, Entry, Filter, LogError, LogInfo, LogOptions, LogReader, LogWriter, Totals};
use proptest::prelude::*;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

/// Records of one queue, whose times wrap around the 40 bits of a record.
fn records(queue: u32, count: u64) -> Vec<(Instant, Record)> {
    let time = |number: u64| Instant::from_nanos(number << 38);
    let clock = |number| Step::new(Event::Clock, Subject::Queue).with_other((number >> 2) as u32);
    let step = |number| Step::new(Event::Queue, Subject::Bio(number as u32)).with_other(queue);
    let with_clock = |number: u64| {
        let clock =
            (number.is_multiple_of(4)).then(|| (time(number), Record::new(&clock(number), time(number))));
        clock.into_iter().chain([(time(number), Record::new(&step(number), time(number)))])
    };
    (0..count).flat_map(with_clock).collect()
}

/// Writes a log of some queues with equally many records each.
fn write(path: &Path, queues: u32, records_each: u64, options: &LogOptions) -> Totals {
    let log = LogWriter::create(path, &LogInfo::default(), options).unwrap();
    let mut producers: Vec<_> = (0..queues).map(|queue| (queue, log.add_queue())).collect();
    for (queue, producer) in &mut producers {
        let mut batch = RecordBatch::new();
        for records in records(*queue, records_each).chunks(RecordBatch::CAPACITY) {
            for (_, record) in records {
                batch.push(*record);
            }
            producer.take(&mut batch).unwrap();
        }
    }
    drop(producers);
    log.finish().unwrap()
}

fn read(bytes: &[u8]) -> Result<(Vec<Entry>, End), LogError> {
    let mut entries = Vec::new();
    let end = LogReader::new(bytes)?.for_each_block(|block| entries.extend(block.entries()))?;
    Ok((entries, end))
}

#[test]
fn records_are_read_in_order_with_full_times_for_each_queue() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let totals = write(&path, 3, 20_000, &LogOptions::default());
    assert_eq!(totals, Totals { records: 3 * 25_000, missed: 0, over_limit: 0 });
    let (entries, end) = read(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(end, End { totals, damage: None, ..End::default() });
    assert!(entries.iter().zip(0..).all(|(entry, number)| entry.number == number));
    for queue in 0..3 {
        let own = entries.iter().filter(|entry| u32::from(entry.queue) == queue);
        let own: Vec<_> = own.map(|entry| (entry.time, entry.record)).collect();
        assert_eq!(own, records(queue, 20_000), "queue {queue}");
    }
}

/// A log of several blocks, and the offsets of each block and the trailer.
fn blocks_log() -> &'static (Vec<u8>, Vec<u64>) {
    static LOG: OnceLock<(Vec<u8>, Vec<u64>)> = OnceLock::new();
    LOG.get_or_init(write_blocks_log)
}

fn write_blocks_log() -> (Vec<u8>, Vec<u64>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    // A queue's last block is written when its log ends: five queues make five blocks.
    let totals = write(&path, 5, 40, &LogOptions::default());
    assert_eq!(totals.records, 250);
    let bytes = std::fs::read(&path).unwrap();
    let magic = |place: &usize| bytes[*place..].starts_with(&[0x51, 0x2A, 0x4D, 0x18]);
    let mut starts: Vec<u64> = (0..bytes.len()).filter(magic).map(|place| place as u64).collect();
    assert_eq!(starts.len(), 5);
    starts.push(bytes.len() as u64 - 44);
    (bytes, starts)
}

#[test]
fn a_truncated_log_is_read_up_to_its_last_complete_block() {
    let (bytes, starts) = blocks_log();
    let (all, _) = read(bytes).unwrap();
    for cut in 0..bytes.len() {
        let Ok((entries, end)) = read(&bytes[..cut]) else {
            assert!((cut as u64) < starts[0], "cut at {cut}, after the header, is no log at all");
            continue;
        };
        assert!(cut as u64 >= starts[0]);
        let whole = starts.iter().skip(1).filter(|start| **start <= cut as u64).count();
        assert_eq!(entries, all[..whole * 50], "cut at {cut}");
        let Damage { offset, record, what } = end.damage.expect("a truncated log is damaged");
        assert_eq!((offset, record), (starts[whole], whole as u64 * 50), "cut at {cut}: {what}");
        assert_eq!(end.totals.records, record);
        assert!(what.contains("truncated"), "cut at {cut}: {what}");
    }
}

/// A frame as docs/log-format.md specifies it. It does not use the writer, whose format can change.
fn frame(magic: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = magic.to_le_bytes().to_vec();
    frame.extend((payload.len() as u32 + 4).to_le_bytes());
    frame.extend(payload);
    frame.extend(crc32fast::hash(payload).to_le_bytes());
    frame
}

/// A log of version 1 or 2. A record holds one step in version 1, and at most two in version 2.
fn version(number: u8, records: &[[u64; 3]]) -> Vec<u8> {
    let words = (0..3).flat_map(|word| records.iter().flat_map(move |record| record[word].to_le_bytes()));
    let mut compressor = zstd::bulk::Compressor::new(1).unwrap();
    compressor.include_checksum(true).unwrap();
    let packed = compressor.compress(&words.collect::<Vec<u8>>()).unwrap();
    let json = br#"{"elevator":"none","target":"/dev/sdx","clock":"monotonic","start_ns":1000,"started_unix_ns":0,"written_by":"iopath 0.1.0"}"#;
    let count = records.len() as u64;
    let mut head = vec![0; 4];
    head.extend((count as u32).to_le_bytes());
    for field in [0, 1000, 0] {
        head.extend(u64::to_le_bytes(field));
    }
    head.extend((packed.len() as u32).to_le_bytes());
    let mut trailer = count.to_le_bytes().to_vec();
    trailer.extend([0; 24]);
    [
        frame(0x184D_2A50, &[b"iopath.log", &[number, 0][..], json].concat()),
        frame(0x184D_2A51, &head),
        packed,
        frame(0x184D_2A52, &trailer),
    ]
    .concat()
}

#[test]
fn a_log_of_version_1_is_readable() {
    // A read of 8 sectors at 2048 on stream 3: clock, Q, G, I, D, and C with its bio.
    let (time, place) = (|nanos: u64| nanos | 8 << 40, 2048 | 3 << 48);
    let (request, last, for_bio) = (1 << 60, 1 << 61, 5 << 24);
    let log = version(
        1,
        &[
            [1000, 0, 0xFF_FFFF | 17 << 48],
            [time(1000), place, 5 | 1 << 48],
            [time(1000), place, 9 | for_bio | 5 << 48 | request],
            [time(1100), place, 9 | 11 << 48 | 1 << 56 | request],
            [time(1100), place, 9 | 12 << 48 | request],
            [time(1900), place, 9 | 14 << 48 | request | last],
        ],
    );
    let (entries, end) = read(&log).unwrap();
    assert_eq!(
        end,
        End { totals: Totals { records: 6, missed: 0, over_limit: 0 }, damage: None, ..End::default() }
    );
    let steps: Vec<_> = entries.iter().map(|entry| (entry.time.as_nanos(), entry.record.event())).collect();
    let [clock, queue, get, insert, dispatch, complete] =
        [Event::Clock, Event::Queue, Event::Get, Event::Insert, Event::Dispatch, Event::Complete].map(Some);
    assert_eq!(
        steps,
        [(1000, clock), (1000, queue), (1000, get), (1100, insert), (1100, dispatch), (1900, complete)]
    );
    let report = LogReader::new(&log[..]).unwrap().summarise(&Filter::default()).unwrap();
    assert_eq!((report.log.elevator.as_str(), report.log.target.as_str()), ("none", "/dev/sdx"));
    assert_eq!((report.selected, report.unjoined, report.not_merged.not_adjacent), (6, 0, 1));
    let stages = &report.stages;
    assert_eq!(
        [&stages.q2g, &stages.g2i, &stages.i2d, &stages.d2c, &stages.q2c]
            .map(|stage| (stage.count, stage.max_ns)),
        [(1, 0), (1, 100), (1, 0), (1, 800), (1, 900)]
    );
    assert_eq!(
        report.streams.iter().map(|share| (share.stream, share.bytes)).collect::<Vec<_>>(),
        [(3, 4096)]
    );
}

#[test]
fn a_log_of_version_2_is_readable() {
    // A read that never waits: clock, Q with G, I with D, and C with its bio.
    let (time, place) = (|nanos: u64| nanos | 8 << 40, 2048 | 3 << 48);
    let (request, last, both, for_bio) = (1 << 60, 1 << 61, 1 << 63, 5 << 24);
    let log = version(
        2,
        &[
            [1000, 0, 0xFF_FFFF | 17 << 48],
            [time(1000), place, 9 | for_bio | 5 << 48 | request | both],
            [time(1000), place, 9 | 12 << 48 | 1 << 56 | request | both],
            [time(1900), place, 9 | 14 << 48 | request | last],
        ],
    );
    let (entries, end) = read(&log).unwrap();
    assert_eq!(
        end,
        End { totals: Totals { records: 4, missed: 0, over_limit: 0 }, damage: None, ..End::default() }
    );
    let steps: Vec<_> = entries.iter().map(|entry| entry.record.to_words()[2]).collect();
    assert_eq!(
        steps,
        [
            0xFF_FFFF | 17 << 48,
            5 | 1 << 48,
            9 | for_bio | 5 << 48 | request,
            9 | 11 << 48 | 1 << 56 | request,
            9 | 12 << 48 | request,
            9 | 14 << 48 | request | last,
        ]
    );
    let report = LogReader::new(&log[..]).unwrap().summarise(&Filter::default()).unwrap();
    assert_eq!((report.selected, report.unjoined, report.not_merged.not_adjacent), (6, 0, 1));
    assert_eq!((report.stages.i2d.count, report.stages.d2c.max_ns, report.stages.q2c.max_ns), (1, 900, 900));
}

#[test]
fn other_files_are_refused() {
    let (bytes, _) = blocks_log();
    for other in [&b""[..], b"iopath", &[0x28, 0xB5, 0x2F, 0xFD, 0, 0, 0, 0], &bytes[60..]] {
        assert!(matches!(read(other), Err(LogError::NotALog { .. })));
    }
    // The name follows the eight bytes of the frame head.
    let header = blocks_log().1[0] as usize;
    for (cut, is_known) in [(8, false), (12, false), (18, true), (header - 1, true)] {
        let refused = read(&bytes[..cut]).unwrap_err();
        let is_cut_off = matches!(refused, LogError::NoHeader);
        assert!(
            is_cut_off == is_known && is_cut_off != refused.to_string().contains("writes one"),
            "{cut}: {refused}"
        );
    }
    let mut newer = bytes.clone();
    newer[18] = 9;
    assert!(matches!(read(&newer), Err(LogError::Version { version: 9 })));
}

proptest! {
    #[test]
    fn damage_never_panics_and_never_changes_a_record(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let (bytes, _) = blocks_log();
        let (all, _) = read(bytes).unwrap();
        let mut damaged = bytes.clone();
        for (place, change) in changes {
            damaged[place.index(bytes.len())] ^= change;
        }
        match read(&damaged) {
            Ok((entries, end)) => {
                prop_assert_eq!(&entries[..], &all[..entries.len()]);
                // Some bits in the head of a compressed frame do not affect its content.
                prop_assert!(entries.len() == all.len() || end.damage.is_some());
                let report = LogReader::new(&damaged[..]).unwrap().summarise(&Filter::default()).unwrap();
                prop_assert_eq!(report.selected, entries.len() as u64);
            }
            Err(LogError::NotALog { .. } | LogError::NoHeader | LogError::Version { .. }) => {}
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>, after_header: bool) {
        let mut log = if after_header { blocks_log().0.clone() } else { Vec::new() };
        log.truncate(if after_header { blocks_log().1[1] as usize } else { 0 });
        log.extend(bytes);
        if let Ok((entries, end)) = read(&log) {
            prop_assert_eq!(entries.len(), 50);
            prop_assert!(end.damage.is_some());
        }
    }
}

#[test]
fn the_file_stays_within_its_limit_and_dropped_records_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let options = LogOptions { limit_bytes: 5_000, ring_records: 300_000, ..LogOptions::default() };
    let totals = write(&path, 1, 100_000, &options);
    assert!(std::fs::metadata(&path).unwrap().len() <= 5_000);
    assert!(totals.records > 0 && totals.over_limit > 0, "{totals:?}");
    assert_eq!(totals.records + totals.over_limit, 125_000);
    let (entries, end) = read(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!((entries.len() as u64, end), (totals.records, End { totals, damage: None, ..End::default() }));
}

#[test]
fn a_limit_below_the_smallest_log_is_refused_with_the_minimum() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let create = |limit_bytes| {
        let options = LogOptions { limit_bytes, ..LogOptions::default() };
        LogWriter::create(&path, &LogInfo::default(), &options)
    };
    let Err(LogError::Limit { limit_bytes: 1, least_bytes }) = create(1) else { panic!("took 1 byte") };
    assert!(!path.exists(), "a refused log leaves no file");
    let totals = create(least_bytes).unwrap().finish().unwrap();
    assert_eq!(totals, Totals::default());
    assert_eq!(std::fs::metadata(&path).unwrap().len(), least_bytes);
}

#[test]
fn an_unknown_compression_level_is_refused() {
    let path = Path::new("never-created");
    for level in [-21, 0, 20, i32::MIN, i32::MAX] {
        let options = LogOptions { level, ..LogOptions::default() };
        let refused = LogWriter::create(path, &LogInfo::default(), &options);
        assert!(matches!(refused, Err(LogError::Level { .. })), "level {level}");
    }
}

#[test]
fn an_error_of_opening_names_the_file() {
    let path = Path::new("/nonexistent/folder/log");
    let refused = LogWriter::create(path, &LogInfo::default(), &LogOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("/nonexistent/folder/log"), "{refused}");
    let full = Path::new("/dev/full");
    let refused = LogWriter::create(full, &LogInfo::default(), &LogOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("/dev/full"), "{refused}");
    let refused = LogReader::open(path).unwrap_err();
    assert!(refused.to_string().contains("/nonexistent/folder/log"), "{refused}");
}

/// Keeps all records.
#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<Vec<Record>>>);

impl LogSink for Kept {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        self.0.lock().unwrap().extend(batch.records());
        batch.clear();
        Ok(())
    }
}

/// Executes reads, one after another, with times that wrap around the 40 bits of a record.
fn run_reads(sink: Box<dyn LogSink>) {
    let mut queue: RequestQueue<LengthOnly> =
        RequestQueue::new(Limits::with_capacity(1 << 40), &QueueConfig::default());
    queue.start_log(sink);
    for number in 0..40_000 {
        let now = Instant::from_nanos(number << 28);
        let extent = Extent::from_bytes(number * 4096, 4096).unwrap();
        queue.submit_bio(Bio::read(extent, LengthOnly::new(4096), number), now).unwrap();
        let tag = queue.poll_dispatch(now).unwrap().tag;
        queue.handle_completion(tag, Ok(()), now);
        queue.poll_completion().unwrap();
    }
}

#[test]
fn records_that_do_not_fit_are_counted_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let all = Kept::default();
    run_reads(Box::new(all.clone()));
    // The records arrive faster than a thread can empty such a small ring.
    let options = LogOptions { ring_records: 0, ..LogOptions::default() };
    let log = LogWriter::create(&path, &LogInfo::default(), &options).unwrap();
    run_reads(Box::new(log.add_queue()));
    let totals = log.finish().unwrap();
    assert!(totals.missed > 0, "{totals:?}");

    let mut kept = Vec::new();
    let mut reported = 0;
    let end = LogReader::open(&path).unwrap().for_each_block(|block| {
        for entry in block.entries().filter(|entry| entry.record.event() == Some(Event::Missed)) {
            reported += entry.record.sector();
        }
        kept.extend(block.entries().map(|entry| (entry.time, entry.record)));
    });
    assert_eq!(end.unwrap(), End { totals, damage: None, ..End::default() });
    // The times are full, although the record with the upper bits may be lost.
    let mut high = 0;
    let mut sent = std::collections::BTreeSet::new();
    for record in all.0.lock().unwrap().iter() {
        high = if record.event() == Some(Event::Clock) { u64::from(record.other()) } else { high };
        let time = Instant::from_nanos(high << Record::TIME_BITS | record.time_low());
        sent.extend(record.parts().map(|step| (time, step.to_words())));
    }
    let is_of_log = |record: &Record| matches!(record.event(), Some(Event::Missed | Event::Clock));
    assert!(kept.iter().all(|(time, step)| is_of_log(step) || sent.contains(&(*time, step.to_words()))));
    let gaps = kept.iter().filter(|(_, step)| step.event() == Some(Event::Missed)).count();
    // Without a gap, only records of the end were lost: the thread had no processor until then.
    let last = kept.last().map(|(time, _)| *time);
    let is_start = || sent.iter().filter(|(time, _)| Some(*time) <= last).count() == kept.len();
    assert!(gaps > 0 || is_start(), "no gap is reported, and the log is not the start of all records");
    assert!(reported <= totals.missed, "{reported} reported in {gaps} gaps of {totals:?}");
    let report = LogReader::open(&path).unwrap().summarise(&Filter::default()).unwrap();
    assert_eq!((report.records, report.missed), (totals.records, totals.missed));
}

#[test]
fn records_of_an_idle_queue_reach_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = LogWriter::create(&path, &LogInfo::default(), &LogOptions::default()).unwrap();
    let mut queue: RequestQueue<LengthOnly> =
        RequestQueue::new(Limits::with_capacity(1 << 40), &QueueConfig::default());
    queue.start_log(Box::new(log.add_queue()));
    let read_one = |queue: &mut RequestQueue<LengthOnly>, number| {
        let (now, extent) = (Instant::from_nanos(number), Extent::from_bytes(number * 4096, 4096).unwrap());
        queue.submit_bio(Bio::read(extent, LengthOnly::new(4096), number), now).unwrap();
        let tag = queue.poll_dispatch(now).unwrap().tag;
        queue.handle_completion(tag, Ok(()), now);
        queue.poll_completion().unwrap();
    };
    let in_file = || read(&std::fs::read(&path).unwrap()).unwrap().0.len();
    let clocks = 1;
    for number in 1..=2 {
        read_one(&mut queue, number);
        queue.publish_log();
        let begin = std::time::Instant::now();
        // Each has the steps queue, get, insert, dispatch and complete.
        while in_file() < clocks + 5 * number as usize {
            assert!(begin.elapsed() < std::time::Duration::from_secs(60), "{} records", in_file());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    queue.end_log();
    assert_eq!(log.finish().unwrap(), Totals { records: 1 + 2 * 2, missed: 0, over_limit: 0 });
}

/// A reader orders the records of all queues by time, in memory that is bounded.
#[test]
fn records_of_a_slow_queue_are_not_far_behind_those_of_a_fast_one() {
    const BLOCK: u64 = 16_384;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = LogWriter::create(&path, &LogInfo::default(), &LogOptions::default()).unwrap();
    let (mut slow, mut fast) = (log.add_queue(), log.add_queue());
    let mut batch = RecordBatch::new();
    batch.push(records(0, 1)[0].1);
    slow.take(&mut batch).unwrap();
    for records in records(1, 60 * BLOCK).chunks(RecordBatch::CAPACITY) {
        for (_, record) in records {
            batch.push(*record);
        }
        while let Err(NoRoom) = fast.take(&mut batch) {
            std::thread::yield_now();
        }
    }
    drop((slow, fast));
    log.finish().unwrap();
    let mut queues = Vec::new();
    LogReader::open(&path).unwrap().for_each_block(|block| queues.push(block.queue())).unwrap();
    // Eight blocks, and those of two turns of a ring.
    let before = queues.iter().position(|queue| *queue == 0).unwrap();
    assert!(before <= 8 + 2 * 6, "{before} of {} blocks are before it", queues.len());
}

#[test]
fn zstd_accepts_the_file_as_its_own() {
    let (bytes, _) = blocks_log();
    let columns = zstd::stream::decode_all(bytes.as_slice()).unwrap();
    // Flags, and at least a byte of event and tag for each record.
    assert!(columns.len() > 250 * 3 && columns.len() < 250 * Record::BYTES, "{} bytes", columns.len());
}
