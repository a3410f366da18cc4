//! `iopath record` on loop devices: the log has every request that the kernel counts, each with its process. Skipped
//! where the process may not record, or has no loop devices.

use std::io::{BufRead, BufReader};
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
