//! Traces that are truncated, mixed, out of order, or made up: an error with file and position, or notes with counts.

use std::io::Write;
use std::path::Path;

use iopath_log::{Block, Filter, LogError};
use proptest::prelude::*;

use crate::samples::{self, COMPLETE, ISSUE, QUEUE, file, record, samples, summary};

/// Reads a file to its end: its steps are valid, its counts agree, and an error names the file and the position.
fn read(path: &Path) -> Option<u64> {
    let named = |error: LogError| {
        let text = error.to_string();
        let is_named =
            text.contains(path.to_str().unwrap()) && (text.contains(" line ") || text.contains(" byte "));
        assert!(is_named || matches!(error, LogError::NotALog { .. } | LogError::NoHeader), "{text}");
        None::<u64>
    };
    let mut log = match iopath_trace::open(path) {
        Ok(log) => log,
        Err(error) => return named(error),
    };
    let (mut block, mut records) = (Block::default(), 0);
    loop {
        match log.read_block(&mut block) {
            Ok(true) => {
                records += block.len() as u64;
                assert!(block.entries().all(|entry| entry.record.step().is_ok()));
            }
            Ok(false) => break,
            Err(error) => return named(error),
        }
    }
    let end = log.end().unwrap();
    assert_eq!(end.totals.records, records);
    // The summary reads the same without an error.
    let report = iopath_trace::open(path).unwrap().summarise(&Filter::default()).unwrap();
    assert_eq!((report.records, &report.notes), (records, &end.notes));
    Some(records)
}

/// A change of the content of a file.
#[derive(Debug, Clone)]
enum Change {
    Cut {
        at: usize,
    },
    Flip {
        at: usize,
        bits: u8,
    },
    /// Copies a part to another place.
    Copy {
        from: usize,
        length: usize,
        to: usize,
    },
    Remove {
        at: usize,
        length: usize,
    },
    Insert {
        at: usize,
        bytes: Vec<u8>,
    },
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        let length = content.len().max(1);
        match self {
            Self::Cut { at } => content.truncate(at % length),
            Self::Flip { at, bits } => {
                if let Some(byte) = content.get_mut(at % length) {
                    *byte ^= bits;
                }
            }
            Self::Copy { from, length: part, to } => {
                let from = (from % length).min(content.len());
                let copied = content[from..(from + part).min(content.len())].to_vec();
                let to = (to % length).min(content.len());
                content.splice(to..to, copied);
            }
            Self::Remove { at, length: part } => {
                let at = (at % length).min(content.len());
                content.drain(at..(at + part).min(content.len()));
            }
            Self::Insert { at, bytes } => {
                let at = (at % length).min(content.len());
                content.splice(at..at, bytes.iter().copied());
            }
        }
    }
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let at = || any::<prop::sample::Index>().prop_map(|index| index.index(1 << 20));
    let number = prop::sample::select(vec![
        "18446744073709551615",
        "0",
        "-1",
        "99999999999999999999999",
        "9223372036854775807",
        ",",
        "\n",
    ]);
    let change = prop_oneof![
        at().prop_map(|at| Change::Cut { at }),
        (at(), 1..=255_u8).prop_map(|(at, bits)| Change::Flip { at, bits }),
        (at(), 1..200_usize, at()).prop_map(|(from, length, to)| Change::Copy { from, length, to }),
        (at(), 1..60_usize).prop_map(|(at, length)| Change::Remove { at, length }),
        (at(), number).prop_map(|(at, text)| Change::Insert { at, bytes: text.as_bytes().to_vec() }),
    ];
    prop::collection::vec(change, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_changed_trace_of_any_format_is_read_or_refused(index in 0..10_usize, repeat in 1..40_usize, changes in changes()) {
        let samples = samples();
        let sample = &samples[index % samples.len()];
        let mut content = sample.content.repeat(repeat);
        for change in &changes {
            change.apply(&mut content);
        }
        let folder = tempfile::tempdir().unwrap();
        read(&file(folder.path(), "changed", &content));
    }

    #[test]
    fn any_records_of_blktrace_are_read(
        fields in prop::collection::vec((any::<u32>(), any::<u64>(), 0..20_u32, 0..1_u32 << 16, 0..64_u64, 0..3_u32), 0..200),
    ) {
        let content: Vec<u8> = fields
            .iter()
            .flat_map(|(sequence, time, action, category, sector, sectors)| {
                let sector = if sector % 7 == 0 { u64::MAX - sector } else { sector * 8 };
                record(*sequence, time % (1 << 50), action | category << 16, sector, sectors * 4096)
            })
            .collect();
        let folder = tempfile::tempdir().unwrap();
        let path = file(folder.path(), "made-up", &content);
        prop_assert!(content.is_empty() || read(&path).is_some());
    }
}

fn notes(content: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    summary(&file(folder.path(), "trace", content)).notes.join("\n")
}

#[test]
fn a_truncated_trace_is_read_up_to_its_end() {
    let whole: Vec<u8> = (0..10).flat_map(|number| samples::read(number, 8)).collect();
    assert!(notes(&whole[..whole.len() - 20]).contains("cut off in the record at byte 2352"));
    let text = "128166372003061629,hm,0,Read,383496192,32768,113\n128166372016382155,hm,0,Wri";
    assert!(notes(text.as_bytes()).contains("cut off in line 2"));
    let long: Vec<u8> =
        (0..5000).flat_map(|number| samples::read(number, u64::from(number) * 977 % 4093)).collect();
    let zstd = zstd::encode_all(long.as_slice(), 1).unwrap();
    assert!(notes(&zstd[..zstd.len() / 2]).contains("compressed file is cut off"));
}

#[test]
fn a_wrong_line_or_record_is_named_by_its_position() {
    let folder = tempfile::tempdir().unwrap();
    let error = |content: &[u8]| {
        let log = iopath_trace::open(&file(folder.path(), "t", content))
            .and_then(|log| log.summarise(&Filter::default()));
        log.unwrap_err().to_string()
    };
    let wrong = error(b"419,W,8192,4096,1577808000000046\n419,X,8192,4096,1577808000000046\n1,R,0,512,1\n");
    assert!(wrong.contains("t line 2: it has not the columns device_id,opcode"), "{wrong}");
    let mut content: Vec<u8> = (0..2).flat_map(|number| samples::read(number, 8)).collect();
    content[48 * 7] ^= 0xFF;
    content[48 * 7 + 3] ^= 0xFF;
    let wrong = error(&content);
    assert!(wrong.contains("t byte 336: no record of blktrace"), "{wrong}");
}

#[test]
fn versions_may_be_mixed() {
    let mut content = samples::read(0, 8);
    // A queued read of version 8.
    content.extend(0x6561_7408_u32.to_ne_bytes());
    content.extend(6_u32.to_ne_bytes());
    content.extend(9_000_000_u64.to_ne_bytes());
    content.extend(800_u64.to_ne_bytes());
    content.extend(512_u32.to_ne_bytes());
    content.extend(7_u32.to_ne_bytes());
    content.extend(u64::from(QUEUE).to_ne_bytes());
    content.extend((8_u32 << 20).to_ne_bytes());
    content.extend([0; 20]);
    let folder = tempfile::tempdir().unwrap();
    let report = summary(&file(folder.path(), "mixed", &content));
    assert_eq!((report.flow.bios, report.stages.q2c.count, report.last_ns), (2, 1, 9_000_000));
}

#[test]
fn a_clock_that_goes_back_is_counted_and_its_events_are_moved() {
    let mut content = Vec::new();
    for number in 0..3000_u32 {
        content.extend(record(
            number * 2 + 1,
            1_000_000_000 + u64::from(number),
            QUEUE,
            u64::from(number) * 8,
            4096,
        ));
        content.extend(record(
            number * 2 + 2,
            1_000_000_000 + u64::from(number),
            ISSUE,
            u64::from(number) * 8,
            4096,
        ));
    }
    content.extend(record(6001, 5, COMPLETE, 0, 4096));
    let notes = notes(&content);
    assert!(notes.contains("1 events are earlier than an event 4096 events before them"), "{notes}");
}

#[test]
fn missing_records_sectors_that_do_not_exist_and_commands_are_counted() {
    let content = [
        samples::read(0, 8),
        // Ten records are missing.
        record(16, 2_000_000, QUEUE, u64::MAX - 7, 4096),
        record(17, 2_000_001, QUEUE, 1 << 50, 4096),
        record(18, 2_000_002, COMPLETE, 777, 4096),
        // A command, and an action that no version has.
        record(19, 2_000_003, 0x7 | 0x240 << 16, 0, 0),
        record(20, 2_000_004, 0x11 | 1 << 16, 0, 0),
    ];
    let notes = notes(&content.concat());
    for part in [
        "lacks 10 events",
        "1 events have sectors at or beyond 2^55",
        "1 events have sectors at or beyond 2^48",
        "1 completions have no request",
        "1 events are commands",
        "1 events have an action that iopath does not know",
    ] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
}

#[test]
fn a_request_of_length_0_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    for content in [
        "fio version 3 iolog\n1 a read 0 0\n2 a read 0 512\n",
        "time_ns,op,sector,sectors\n0,read,0,0\n1,read,0,8\n",
    ] {
        let error = iopath_trace::open(&file(folder.path(), "t", content.as_bytes()));
        let error = error.and_then(|log| log.summarise(&Filter::default())).unwrap_err().to_string();
        assert!(error.contains("t line 2: "), "{error}");
    }
}

#[test]
fn an_empty_trace_has_no_steps() {
    let folder = tempfile::tempdir().unwrap();
    for content in [
        "fio version 3 iolog\n",
        "time_ns,op,sector,sectors\n",
        "TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)\n",
    ] {
        assert_eq!(summary(&file(folder.path(), "t", content.as_bytes())).records, 0, "{content}");
    }
}

#[test]
fn records_that_the_kernel_does_not_number_leave_no_gap() {
    // The name of a process and a time stamp.
    let notify = |number: u32| record(0, 0, number | 0x400 << 16, 0, 0);
    let content = [samples::read(0, 8), notify(0), samples::read(1, 8), notify(1), samples::read(2, 8)];
    let notes = notes(&content.concat());
    assert!(!notes.contains("lacks"), "{notes}");
}

#[test]
fn a_damaged_compressed_file_of_any_length_is_refused_or_noted() {
    let content: Vec<u8> = (0..10).flat_map(|number| samples::read(number, 8)).collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&content).unwrap();
    let gzip = gzip.finish().unwrap();
    let cut_off = notes(&gzip[..gzip.len() - 3]);
    assert!(cut_off.contains("the compressed file is cut off"), "{cut_off}");
    let mut damaged = gzip;
    let checksum = damaged.len() - 8;
    damaged[checksum] ^= 1;
    let folder = tempfile::tempdir().unwrap();
    let log = iopath_trace::open(&file(folder.path(), "damaged", &damaged));
    let error = log.and_then(|log| log.summarise(&Filter::default())).unwrap_err().to_string();
    assert!(error.contains("damaged") && error.contains("cannot unpack it"), "{error}");
}
