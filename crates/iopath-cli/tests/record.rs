//! `iopath record` on loop devices: the log has every request that the kernel counts, each with its process. Skipped
//! where the process may not record, or has no loop devices.

use std::io::{BufRead, BufReader, Seek};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::loops::{Alone, Loop, text};
use crate::support::{becomes_true, iopath, json_of, with_default_signals};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A loop device with direct I/O that no other test uses; skips the test where recording is impossible.
macro_rules! device_or_skip {
    ($alone:ident, $device:ident) => {
        let $alone = or_skip!(Alone::wait());
        let $device = or_skip!(Loop::new(&$alone, 64, &[]));
        or_skip!(may_record());
    };
}

/// Why recording is impossible here.
fn may_record() -> Result<(), String> {
    let directory = directory();
    let output = record(directory.path(), &["--for", "1ms"]).output().map_err(|error| error.to_string())?;
    let stderr = lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(stderr) }
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `iopath record` into the file `log` of a directory.
fn record(directory: &Path, args: &[&str]) -> Command {
    let mut command = iopath(&["record"]);
    if !args.contains(&"-o") {
        command.args(["-o", "log"]);
    }
    command.args(args).current_dir(directory);
    command
}

fn summary(directory: &Path, args: &[&str]) -> Value {
    let log = directory.join("log");
    json_of(&iopath(&[&["log", text(&log), "--json", "-"], args].concat()).output().unwrap())
}

/// Counts of completed reads, writes, discards and flushes, and of sectors that were read and written.
fn counts(stat: &str) -> [u64; 6] {
    let fields: Vec<u64> = stat.split_whitespace().map(|field| field.parse().unwrap()).collect();
    [fields[0], fields[4], fields[11], fields[15], fields[2], fields[6]]
}

fn difference(after: [u64; 6], before: [u64; 6]) -> [u64; 6] {
    std::array::from_fn(|index| after[index] - before[index])
}

/// The same counts of the log of one device.
fn logged(log: &Value) -> [u64; 6] {
    let of = |op: &str, key: &str| {
        let ops = log["ops"].as_array().unwrap();
        ops.iter().find(|row| row["op"] == op).map_or(0, |row| row[key].as_u64().unwrap())
    };
    let sectors = |op| of(op, "request_bytes") / 512;
    [
        of("read", "requests"),
        // The kernel counts the request of a flush as a write, and the flush of the device as a flush.
        of("write", "requests") + of("flush", "bios"),
        of("discard", "requests"),
        of("flush", "requests"),
        sectors("read"),
        sectors("write"),
    ]
}

fn assert_success(output: &Output) {
    assert!(output.status.success(), "{}", lossy(&output.stderr));
}

#[test]
fn the_log_has_every_request_that_the_kernel_counts() {
    device_or_skip!(alone, device);
    let directory = directory();
    let name = device.device.file_name().unwrap().to_str().unwrap();
    let stat = format!("/sys/block/{name}/stat");
    let read_stat = || counts(&std::fs::read_to_string(&stat).unwrap());
    // Direct and cached writes, with merges and flushes; and random reads, several at a time.
    let script = format!(
        "cat {stat} > before; dd if=/dev/zero of={d} bs=64k count=300 oflag=direct 2> dd.log; \
         dd if={d} of=/dev/null bs=4k count=500 iflag=direct 2>> dd.log; \
         dd if=/dev/zero of={d} bs=1M count=32 conv=fsync 2>> dd.log; cat {stat} > after",
        d = text(&device.device)
    );
    let output = record(directory.path(), &[name, "--", "sh", "-c", &script]).output().unwrap();
    let outside = read_stat();
    assert_success(&output);
    let of_file = |file| counts(&std::fs::read_to_string(directory.path().join(file)).unwrap());
    let expected = difference(of_file("after"), of_file("before"));
    let at_most = difference(outside, of_file("before"));
    let log = summary(directory.path(), &["--device", name]);
    let logged = logged(&log);
    assert_eq!(log["missed"], 0);
    // Equal, unless another program, such as udev, used the device after the command.
    for index in 0..expected.len() {
        let range = expected[index]..=at_most[index];
        assert!(range.contains(&logged[index]), "{logged:?}, the kernel counted {expected:?} to {at_most:?}");
    }
    assert!(expected[0] >= 500 && expected[1] >= 300 && expected[3] >= 1, "{expected:?}");
    let ops = log["ops"].as_array().unwrap();
    let requests: u64 = ops.iter().map(|row| row["requests"].as_u64().unwrap()).sum();
    assert_eq!(log["devices"].as_array().unwrap().len(), 1);
    assert_eq!(log["devices"][0]["requests"], requests);
    assert_eq!(log["stages"]["d2c"]["count"], requests, "each request has its issue and its completion");
    assert_eq!(log["unjoined"], 0);
    assert_eq!(log["flow"]["pending"], 0, "each bio has its request: {}", log["flow"]);
    let streams = log["streams"].as_array().unwrap();
    let dd = streams.iter().find(|stream| stream["command"] == "dd").expect("dd has written");
    assert_eq!((&dd["is_own"], dd["pid"].is_u64()), (&Value::Bool(true), true));
    drop(alone);
}

#[test]
fn a_log_of_a_partition_names_both_levels() {
    device_or_skip!(alone, device);
    let mut device = device;
    let partition = or_skip!(device.partition(1, 8, 16));
    let directory = directory();
    let script = format!("dd if={} of=/dev/null bs=4k count=20 iflag=direct 2> dd.log", text(&partition));
    assert_success(
        &record(directory.path(), &[text(&partition), "--", "sh", "-c", &script]).output().unwrap(),
    );
    let log = summary(directory.path(), &[]);
    let name = partition.file_name().unwrap().to_str().unwrap();
    let devices = log["devices"].as_array().unwrap();
    let of = |name: &str| devices.iter().find(|row| row["device"] == name).expect("it has bios");
    // Another program, such as udev, may read the new partition, too.
    assert!(of(name)["remapped_bios"].as_u64().unwrap() >= 20, "{log}");
    assert!(of(&name[..name.len() - 2])["requests"].as_u64().unwrap() >= 20, "{log}");
    let dd = log["streams"].as_array().unwrap().iter().find(|stream| stream["command"] == "dd");
    assert_eq!(dd.expect("dd has read")["bios"], 20);
    assert!(log["slowest"][0]["sector"].as_u64().unwrap() >= 8 * 2048, "{log}");
    drop(alone);
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    or_skip!(may_record());
    let directory = directory();
    let code =
        |script: &str| record(directory.path(), &["--", "sh", "-c", script]).output().unwrap().status.code();
    assert_eq!((code("exit 7"), code("kill -KILL $$"), code("true")), (Some(7), Some(137), Some(0)));
    // The parent ignores SIGCHLD.
    let script =
        format!("trap '' CHLD; exec {} record -o log -- sh -c 'exit 9'", env!("CARGO_BIN_EXE_iopath"));
    let status = Command::new("sh").args(["-c", &script]).current_dir(directory.path()).status().unwrap();
    assert_eq!(status.code(), Some(9));
    let output = record(directory.path(), &["--", "no-such-program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(lossy(&output.stderr).contains("cannot start no-such-program"), "{}", lossy(&output.stderr));
    assert!(!directory.path().join("log").exists(), "nothing was recorded");
}

#[test]
fn a_signal_ends_the_recording_and_keeps_the_log() {
    or_skip!(may_record());
    let directory = directory();
    let mut command = with_default_signals(&record(directory.path(), &[]));
    let mut child = command.current_dir(directory.path()).spawn().unwrap();
    let log = directory.path().join("log");
    assert!(becomes_true(|| std::fs::metadata(&log).is_ok_and(|file| file.len() > 0)));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::INT.as_raw()));
    assert_eq!(summary(directory.path(), &[])["damage"], Value::Null);
}

#[test]
fn without_rights_one_line_names_cause_and_remedy() {
    or_skip!(may_record());
    let directory = directory();
    let record = record(directory.path(), &["--for", "1ms", "-o", "/dev/null"]);
    let program = Path::new(record.get_program());
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-all", "--inh-caps", "-all", "--reuid", "65534", "--clear-groups"]);
    command.arg(program).args(record.get_args());
    let output = or_skip!(command.current_dir(directory.path()).output());
    let stderr = lossy(&output.stderr);
    if !stderr.contains("iopath: ") {
        skip!("the program cannot be run without rights: {stderr}");
    }
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("root"), "{stderr}");
}

#[test]
fn a_device_that_does_not_exist_is_named() {
    let directory = directory();
    let output = record(directory.path(), &["no-such-device", "--for", "1ms"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(lossy(&output.stderr).contains("no-such-device"), "{}", lossy(&output.stderr));
    assert!(!directory.path().join("log").exists());
}

/// Why accesses cannot be recorded here.
fn may_record_accesses() -> Result<(), String> {
    let directory = directory();
    let output = record(directory.path(), &["--accesses", "--for", "1ms"]).output();
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(lossy(&output.stderr)) }
}

/// Options that select a file of a directory: its queue has its path, the end of a long path, or its last part if the
/// program ended too early.
fn of_file(directory: &Path, name: &str) -> [String; 6] {
    let path = directory.join(name);
    let path = text(&path);
    let end = format!("...{}", &path[path.len().saturating_sub(60)..]);
    let device = || "--device".to_owned();
    [device(), name.to_owned(), device(), path.to_owned(), device(), end]
}

/// The offset and the length of each access of a file, in order, without flushes and accesses of 0 bytes.
fn ranges(directory: &Path, name: &str) -> Vec<(u64, u64)> {
    let log = directory.join("log");
    let mut command = iopath(&["log", "dump", text(&log), "--event", "access"]);
    let output = command.args(of_file(directory, name)).output().unwrap();
    assert_success(&output);
    let range = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [.., bytes, "bytes", "at", offset] = words[..] else { return None };
        Some((offset.parse().unwrap(), bytes.parse().unwrap()))
    };
    lossy(&output.stdout).lines().filter_map(range).collect()
}

/// Counts of an operation on a file: accesses, bytes, completed.
fn access_counts(directory: &Path, name: &str, op: &str) -> [u64; 3] {
    let devices = of_file(directory, name);
    let log = summary(directory, &devices.each_ref().map(String::as_str));
    let ops = log["file_access"]["ops"].as_array().cloned().unwrap_or_default();
    let row = ops.iter().find(|row| row["op"] == op);
    ["accesses", "bytes", "completed"].map(|key| row.map_or(0, |row| row[key].as_u64().unwrap()))
}

#[test]
fn accesses_are_the_reads_and_writes_of_a_program() {
    or_skip!(may_record_accesses());
    let directory = directory();
    let path = directory.path();
    std::fs::write(path.join("input"), vec![7; 9500]).unwrap();
    let dd = ["dd", "if=input", "of=output", "bs=1000", "skip=2", "seek=1", "conv=fsync,notrunc"];
    assert_success(&record(path, &[&["--accesses", "--"], &dd[..]].concat()).output().unwrap());
    // Seven whole blocks, half a block, and the end of the file, which has no range.
    let reads = (2..9).map(|block| (block * 1000, 1000)).chain([(9000, 500)]);
    assert_eq!(ranges(path, "input"), reads.collect::<Vec<_>>());
    assert_eq!(access_counts(path, "input", "read"), [9, 7500, 9]);
    let writes = (1..8).map(|block| (block * 1000, 1000)).chain([(8000, 500)]);
    assert_eq!(ranges(path, "output"), writes.collect::<Vec<_>>());
    assert_eq!(access_counts(path, "output", "write"), [8, 7500, 8]);
    assert_eq!(access_counts(path, "output", "flush"), [1, 0, 1]);
    assert_eq!(access_counts(path, "output", "read"), [0, 0, 0]);
}

#[test]
fn accesses_through_io_uring_are_counted() {
    or_skip!(may_record_accesses());
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    if !symbols.contains("__tracepoint_io_uring_submit_req") {
        eprintln!("skipped: the kernel has no tracepoint io_uring_submit_req");
        return;
    }
    let directory = directory();
    let iopath = env!("CARGO_BIN_EXE_iopath");
    let run =
        ["run", "--path", "kernel-uring", "--rw", "read", "--bs", "4k", "--size", "1m", "--runtime", "10ms"];
    let args = [&["--accesses", "--", iopath], &run[..], &["--target", ".", "--repeat", "1"]].concat();
    let output = record(directory.path(), &args).output().unwrap();
    if !output.status.success() {
        eprintln!("skipped: no io_uring: {}", lossy(&output.stderr));
        return;
    }
    assert!(
        lossy(&output.stderr).contains("through io_uring have no file and range"),
        "{}",
        lossy(&output.stderr)
    );
    let log = summary(directory.path(), &[]);
    assert!(log["notes"].to_string().contains("submitted through io_uring"), "{}", log["notes"]);
}

#[test]
fn accesses_of_child_processes_continue_the_position_of_an_inherited_file() {
    or_skip!(may_record_accesses());
    let directory = directory();
    let path = directory.path();
    std::fs::write(path.join("input"), vec![7; 8192]).unwrap();
    let mut input = std::fs::File::open(path.join("input")).unwrap();
    input.seek(std::io::SeekFrom::Start(1024)).unwrap();
    // Two processes share the position, which lies behind the start when the recording begins.
    let script = "dd bs=512 count=3 of=/dev/null 2> first.log; dd bs=100 count=2 of=/dev/null 2> second.log; \
                  echo hello >> appended; echo world >> appended";
    let mut command = record(path, &["--accesses", "--", "sh", "-c", script]);
    assert_success(&command.stdin(input).output().unwrap());
    let expected = [(1024, 512), (1536, 512), (2048, 512), (2560, 100), (2660, 100)];
    assert_eq!(ranges(path, "input"), expected);
    assert_eq!(ranges(path, "appended"), [(0, 6), (6, 6)]);
}

#[test]
fn recorded_accesses_are_replayed_with_another_cache() {
    or_skip!(may_record_accesses());
    let directory = directory();
    let path = directory.path();
    std::fs::write(path.join("input"), vec![7; 1 << 20]).unwrap();
    let dd = ["dd", "if=input", "of=output", "bs=4096", "count=200"];
    assert_success(&record(path, &[&["--accesses", "--"], &dd[..]].concat()).output().unwrap());
    let log = path.join("log");
    let log = text(&log);
    let replayed = |options: &[&str]| {
        let whatif = ["whatif", log, "--target", "model:hdd-20tb", "--json", "-"];
        json_of(&iopath(&[&whatif, options].concat()).output().unwrap())
    };
    let study = replayed(&["--closed", "--readahead", "off,linux:128k"]);
    let trace = &study["inputs"][0];
    assert!(trace["requests"].as_u64().unwrap() >= 400, "{trace}");
    assert_eq!(trace["cells"].as_array().unwrap().len(), 2, "{trace}");
}

#[test]
fn the_metrics_have_the_requests_of_the_devices_at_the_end() {
    device_or_skip!(alone, device);
    let directory = directory();
    let name = device.device.file_name().unwrap().to_str().unwrap();
    let read = format!("if={}", text(&device.device));
    let dd = ["dd", &read, "of=/dev/null", "iflag=direct", "bs=64k", "count=100"];
    let args = ["--metrics", "metrics.prom", name, "--"];
    assert_success(&record(directory.path(), &[&args[..], &dd[..]].concat()).output().unwrap());
    let metrics = std::fs::read_to_string(directory.path().join("metrics.prom")).unwrap();
    let samples = iopath_report::fixtures::openmetrics::parse(&metrics).unwrap();
    let of_device = |family: &str| {
        let label = [("device".to_owned(), name.to_owned())];
        samples.iter().find(|one| one.name == family && one.labels == label).map(|one| one.value as u64)
    };
    assert_eq!(of_device("iopath_device_requests_total"), Some(100), "{metrics}");
    assert_eq!(of_device("iopath_device_bytes_total"), Some(100 << 16), "{metrics}");
    assert!(
        metrics.contains("iopath_lost_events_total 0\n") && metrics.contains("quantile=\"0.99\""),
        "{metrics}"
    );
    drop(alone);
}

#[test]
fn top_shows_devices_and_processes_until_its_reader_leaves() {
    device_or_skip!(alone, device);
    let directory = directory();
    let name = device.device.file_name().unwrap().to_str().unwrap();
    let mut command = iopath(&["record", "--top=100ms", "--for", "10m", name]);
    let mut top = command.current_dir(directory.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(top.stdout.take().unwrap()).lines();
    let read = format!("if={}", text(&device.device));
    let reads = || Command::new("dd").args([&read, "of=/dev/null", "iflag=direct", "bs=4k"]).output();
    let line = std::thread::scope(|scope| {
        let first = scope.spawn(|| lines.next().expect("a device has I/O").unwrap());
        while !first.is_finished() {
            assert_success(&reads().unwrap());
        }
        first.join().unwrap()
    });
    assert!(line.starts_with(&format!("{name}: ")) && line.contains("most bytes: dd "), "{line}");
    drop(lines);
    let has_ended = becomes_true(|| {
        assert_success(&reads().unwrap());
        top.try_wait().unwrap().is_some()
    });
    assert!(has_ended, "it goes on without a reader");
    assert!(top.wait().unwrap().success(), "a closed pipe is no failure");
    assert!(!directory.path().join("record.log").exists(), "--top alone writes no log");
    drop(alone);
}
