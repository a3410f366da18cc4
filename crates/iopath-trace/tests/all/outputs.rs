//! Each row of the table of outputs: what is written is read back with the same figures.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use iopath_log::LogReader;
use iopath_trace::{Converted, OUTPUTS, Output, convert};

use crate::samples::{bytes, file, samples, summary};

/// A file in memory.
#[derive(Debug, Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The content of a file in another format.
pub(crate) fn converted(path: &Path, output: &str) -> (Vec<u8>, Converted) {
    let memory = Memory::default();
    let output = Output::named(output).unwrap();
    let converted = convert(iopath_trace::open(path).unwrap(), output, Box::new(memory.clone())).unwrap();
    let content = memory.0.lock().unwrap().clone();
    (content, converted)
}

#[test]
fn each_sample_in_each_output_has_the_same_bios() {
    let folder = tempfile::tempdir().unwrap();
    for sample in samples() {
        let path = file(folder.path(), "in", &sample.content);
        let before = summary(&path);
        for output in OUTPUTS.iter().filter(|output| !matches!(output.name, "perfetto" | "parquet")) {
            let (content, _) = converted(&path, output.name);
            let written = file(folder.path(), "out", &content);
            let after = summary(&written);
            let what = format!("{} as {}", sample.format, output.name);
            assert_eq!((after.flow.bios, bytes(&after)), (before.flow.bios, bytes(&before)), "{what}");
            if matches!(output.name, "log" | "blktrace" | "csv") {
                assert_eq!(after.stages.q2c.count, before.stages.q2c.count, "{what}");
                assert!((after.stages.q2c.mean_ns - before.stages.q2c.mean_ns).abs() < 1e-6, "{what}");
            }
            if matches!(output.name, "log" | "blktrace") {
                assert_eq!(after.stages.d2c.count, before.stages.d2c.count, "{what}");
                assert_eq!(
                    (after.flow.merged, after.seeks.count),
                    (before.flow.merged, before.seeks.count),
                    "{what}"
                );
            }
        }
    }
}

#[cfg(feature = "parquet")]
#[test]
fn each_request_is_a_row_of_the_table() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    let folder = tempfile::tempdir().unwrap();
    for sample in samples() {
        let path = file(folder.path(), "in", &sample.content);
        let log = summary(&path);
        let (content, _) = converted(&path, "parquet");
        let table = SerializedFileReader::new(bytes::Bytes::from(content)).unwrap();
        let rows: Vec<_> = table.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        let index = |name: &str| {
            let mut columns = table.metadata().file_metadata().schema_descr().columns().iter();
            columns.position(|column| column.name() == name).unwrap()
        };
        let [bytes, dispatched, completed] = ["bytes", "dispatched_ns", "completed_ns"].map(index);
        let requests: u64 = log.ops.iter().map(|op| op.requests).sum();
        let sum: u64 = log.ops.iter().map(|op| op.request_bytes).sum();
        assert_eq!(rows.len() as u64, requests, "{}", sample.format);
        assert_eq!(
            rows.iter().map(|row| row.get_ulong(bytes).unwrap()).sum::<u64>(),
            sum,
            "{}",
            sample.format
        );
        let times = rows
            .iter()
            .filter_map(|row| Some(row.get_long(completed).ok()? - row.get_long(dispatched).ok()?));
        let times: Vec<i64> = times.collect();
        assert_eq!(times.len() as u64, log.stages.d2c.count, "{}", sample.format);
        let mean = times.iter().sum::<i64>() as f64 / times.len().max(1) as f64;
        assert!((mean - log.stages.d2c.mean_ns).abs() < 1e-3, "{}: {mean}", sample.format);
    }
}

#[test]
fn a_log_keeps_the_notes_and_labels_of_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let sample = samples().into_iter().find(|sample| sample.format == "biosnoop").unwrap();
    let path = file(folder.path(), "in", &sample.content);
    let (content, _) = converted(&path, "log");
    let log = LogReader::new(content.as_slice()).unwrap();
    assert!(log.info().notes.iter().any(|note| note.contains("merges are not recorded")));
    let end = log.for_each_block(|_| {}).unwrap();
    let processes: Vec<_> = end.labels.streams.iter().map(ToString::to_string).collect();
    assert_eq!(processes, ["supervise 1950", "supervise 1952"]);
    assert_eq!(end.labels.queues[0].name, "vda");
}

#[test]
fn an_output_is_found_by_its_name_and_by_the_ending_of_a_file() {
    for output in &OUTPUTS {
        assert_eq!(Output::named(output.name).unwrap().name, output.name);
        let ending = output.ending.replace("NUMBER", "12");
        assert_eq!(Output::of_path(Path::new(&format!("a{ending}"))).unwrap().name, output.name);
    }
    assert!(Output::of_path(Path::new("a.blktrace.x")).is_none());
    assert!(Output::of_path(Path::new("a.txt")).is_none());
}

/// Two bios of a partition, and one of a device with storage on another one.
const LEVELS: &str = "\
8,0 1 1 0.000000000 7 A R 2056 + 8 <- (8,1) 8
8,0 1 2 0.000000100 7 Q R 2056 + 8 [a]
8,0 1 3 0.000000200 7 G R 2056 + 8 [a]
8,0 1 4 0.000000300 7 D R 2056 + 8 [a]
8,0 1 5 0.000005000 0 C R 2056 + 8 [0]
8,0 1 6 0.000006000 7 A W 2064 + 16 <- (8,1) 16
8,0 1 7 0.000006100 7 Q W 2064 + 16 [a]
8,0 1 8 0.000006200 7 G W 2064 + 16 [a]
8,0 1 9 0.000006300 7 D W 2064 + 16 [a]
8,0 1 10 0.000009000 0 C W 2064 + 16 [0]
253,0 1 11 0.000010000 7 Q R 0 + 8 [b]
8,0 1 12 0.000010100 7 A R 4096 + 8 <- (253,0) 0
8,0 1 13 0.000010200 7 Q R 4096 + 8 [b]
8,0 1 14 0.000010300 7 G R 4096 + 8 [b]
8,0 1 15 0.000010400 7 D R 4096 + 8 [b]
8,0 1 16 0.000019000 0 C R 4096 + 8 [0]
253,0 1 17 0.000019100 0 C R 0 + 8 [0]
";

#[test]
fn bios_of_a_partition_are_bios_of_the_disk_and_those_of_a_level_above_are_written_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "in", LEVELS.as_bytes());
    for (output, words) in [
        ("csv", [",read,2056,8,", ",write,2064,16,", ",read,0,8,"]),
        ("iolog", [" read 1052672 4096", " write 1056768 8192", " read 0 4096"]),
    ] {
        let (content, converted) = converted(&path, output);
        let text = String::from_utf8(content).unwrap();
        for word in words {
            assert_eq!(text.matches(word).count(), 1, "{output}: {word}: {text}");
        }
        let ios = text.lines().filter(|line| line.contains("read") || line.contains("write")).count();
        assert_eq!(ios, 3, "{output}: {text}");
        assert_eq!(
            converted.notes,
            ["1 bios are left out: they are bios of a device above, which is in the output"]
        );
    }
}

#[test]
fn bios_without_an_end_are_in_the_order_of_their_queueing() {
    let folder = tempfile::tempdir().unwrap();
    let sectors: Vec<u64> = (0..300).map(|number| number * 8_999 % 30_011).collect();
    let lines = sectors.iter().map(|sector| format!("0,read,{sector},8\n")).collect::<Vec<_>>().concat();
    let path = file(folder.path(), "in", format!("time_ns,op,sector,sectors\n{lines}").as_bytes());
    let text = String::from_utf8(converted(&path, "csv").0).unwrap();
    let written = text.lines().skip(1).map(|line| line.split(',').nth(2).unwrap().parse().unwrap());
    assert_eq!(written.collect::<Vec<u64>>(), sectors);
}

#[test]
fn a_log_has_each_label_once() {
    const IOS: u32 = 60_000;
    let folder = tempfile::tempdir().unwrap();
    // A new process every thousand lines.
    let line = |number: u32| {
        let (seconds, process) = (f64::from(number) / 1e3, number / 1000);
        format!("{seconds:.6} proc-{process}x {process} vda R {} 4096 0.10\n", number * 8)
    };
    let lines: String = (0..IOS).map(line).collect();
    let path = file(
        folder.path(),
        "in",
        format!("TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)\n{lines}").as_bytes(),
    );
    let (content, _) = converted(&path, "log");
    let text = String::from_utf8_lossy(&content);
    for process in 0..IOS / 1000 {
        assert_eq!(text.matches(&format!("proc-{process}x")).count(), 1, "{process}");
    }
    assert_eq!(summary(&file(folder.path(), "out", &content)).streams.len(), 60);
}

#[test]
fn the_events_of_a_written_blktrace_are_numbered_and_the_names_of_processes_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "in", LEVELS.as_bytes());
    let (content, _) = converted(&path, "blktrace");
    let number = |at: usize| u32::from_ne_bytes(content[at..at + 4].try_into().unwrap());
    let (mut at, mut events, mut names) = (0, 0, 0);
    while at < content.len() {
        if number(at + 28) >> 16 & 0x400 == 0 {
            events += 1;
            assert_eq!(number(at + 4), events);
        } else {
            names += 1;
            assert_eq!(number(at + 4), 0);
        }
        at += 48 + usize::from(u16::from_ne_bytes(content[at + 46..at + 48].try_into().unwrap()));
    }
    assert!(events > 10 && names > 0, "{events} {names}");
}
