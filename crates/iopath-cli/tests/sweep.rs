//! `iopath sweep`: matrix, skipped cells, formats, interruption and resume, on models and on loop devices. Tests on
//! loop devices print a line and are skipped where these are missing.

use crate::loops::{Alone, Loop, text};
use crate::support::{becomes_true, iopath, with_default_signals};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory for results and journals.
struct Rig {
    directory: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn results(&self) -> PathBuf {
        self.directory.path().join("sweep.json")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = iopath(args);
        command.env("IOPATH_STATE_DIR", self.directory.path().join("state"));
        command
    }

    fn sweep(&self, args: &[&str]) -> Output {
        let mut command = self.command(&["sweep", "--output", text(&self.results())]);
        command.args(args).output().unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&fs::read(self.results()).unwrap()).unwrap()
    }

    fn measured(&self) -> usize {
        let Ok(bytes) = fs::read(self.results()) else { return 0 };
        let file: Value = serde_json::from_slice(&bytes).expect("the file is complete at any time");
        file["cells"].as_array().unwrap().iter().filter(|cell| !cell["run"].is_null()).count()
    }
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

const MODEL: [&str; 8] =
    ["--path", "iopath-direct", "--target", "model:ssd-nvme", "--size", "4m", "--repeat", "2"];

#[test]
fn a_sweep_without_the_target_that_it_needs_writes_no_file() {
    let rig = Rig::new();
    let output = rig.sweep(&["--path", "null,kernel-direct", "--bs", "4k,8k", "--runtime", "1ms"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("kernel-direct needs a --target"), "{stderr}");
    assert!(!rig.results().exists());
}

#[test]
fn the_json_is_that_of_the_results_file_with_its_origin() {
    let rig = Rig::new();
    let cells = ["--path", "iopath-direct", "--target", "model:cloud", "--bs", "4k,8k", "--size", "1m"];
    let output = rig.sweep(&[&cells[..], &["--json", "-"]].concat());
    assert_eq!(String::from_utf8_lossy(&output.stdout).matches("\"origin\":").count(), 1);
    let alone = crate::support::json_of(&output);
    assert_eq!(alone["schema"], "iopath.sweep/1");
    assert!(alone["origin"]["command"].as_array().unwrap().iter().any(|word| word == "sweep"), "{alone:#}");
    let file = rig.directory.path().join("copy.json");
    let shown = rig.sweep(&[&cells[..], &["--json", text(&file)]].concat());
    assert!(String::from_utf8_lossy(&shown.stdout).contains("best"), "{shown:?}");
    let copy: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(copy["cells"], alone["cells"]);
}

#[test]
fn a_sweep_of_a_model_measures_every_combination_and_shows_each_axis_and_a_map() {
    let rig = Rig::new();
    let args =
        [&MODEL[..], &["--bs", "4k..64k", "--rw", "read,randread", "--set", "max_sectors=16k,64k"]].concat();
    let shown = stdout(&rig.sweep(&args));
    let file = rig.json();
    assert_eq!((file["schema"].as_str(), file["complete"].as_bool()), (Some("iopath.sweep/1"), Some(true)));
    assert_eq!(rig.measured(), 5 * 2 * 2);
    for part in [
        "20 cells, 20 measured, 0 skipped; order from seed 1",
        "bs ",
        "rw ",
        "max_sectors ",
        "MB/s by bs",
        "▲",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // Virtual time: the same sweep gives the same cells, in any order.
    let first = rig.json();
    stdout(&rig.sweep(&args));
    let second = rig.json();
    assert!(first["cells"] == second["cells"] && first["axes"] == second["axes"], "{second}");
    // The limit on requests has an effect.
    let of = |limit: &str| {
        let is = |cell: &&Value| cell["values"].as_array().unwrap().iter().any(|value| value == limit);
        let requests = |cell: &Value| cell["run"]["device"]["reads"].as_u64().unwrap();
        file["cells"].as_array().unwrap().iter().filter(is).map(requests).sum::<u64>()
    };
    assert!(of("16k") > of("64k"), "{} {}", of("16k"), of("64k"));
}

#[test]
fn readahead_and_elevator_are_settings_of_modelled_hosts() {
    let rig = Rig::new();
    let args = ["--path", "iopath-buffered", "--target", "model:hdd-20tb", "--size", "8m", "--repeat", "1"];
    let sets = ["--set", "readahead=64k,1m", "--set", "elevator=none,deadline"];
    let shown = stdout(&rig.sweep(&[&args[..], &sets].concat()));
    assert!(shown.contains("readahead") && shown.contains("elevator"), "{shown}");
    assert_eq!(rig.measured(), 4);
}

#[test]
fn options_after_the_dashes_may_need_those_of_the_sweep_and_contradict_no_axis() {
    let rig = Rig::new();
    let steady = ["--bs", "4k", "--runtime", "30", "--", "--steady-state", "bw"];
    stdout(&rig.sweep(&[&MODEL[..], &steady].concat()));
    assert_eq!(rig.measured(), 1);
    let split = ["--bs", "4k,64k", "--", "--bssplit", "4k/50:16k/50"];
    let refused = rig.sweep(&[&MODEL[..], &split].concat());
    assert_eq!(refused.status.code(), Some(2));
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(message.contains("--bssplit cannot be used with --bs"), "{message}");
}

#[test]
fn cells_that_cannot_run_are_skipped_by_name_with_the_reason() {
    let rig = Rig::new();
    let output = rig.sweep(&["--path", "null", "--bs", "1000,4k", "--size", "1m", "--repeat", "1"]);
    let shown = stdout(&output);
    assert!(shown.contains("2 cells, 1 measured, 1 skipped"), "{shown}");
    assert!(shown.contains("skipped: bs 1000: --bs 1000 is not valid"), "{shown}");
    let output = rig.sweep(&["--path", "null", "--bs", "1000", "--size", "1m", "--repeat", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no cell could be measured: --bs 1000"));
}

#[test]
fn writes_to_a_file_of_the_user_are_skipped_and_its_bytes_stay() {
    let rig = Rig::new();
    let file = rig.directory.path().join("mine");
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    let args = ["--path", "kernel-buffered", "--target", text(&file), "--rw", "write,read", "--repeat", "1"];
    let shown = stdout(&rig.sweep(&args));
    assert!(shown.contains("1 measured, 1 skipped") && shown.contains("--overwrite"), "{shown}");
    assert!(fs::read(&file).unwrap().iter().all(|byte| *byte == 7));
}

#[test]
fn csv_and_perftest_tables_are_read_by_compare() {
    let rig = Rig::new();
    let args = [&MODEL[..], &["--bs", "4k,64k", "--rw", "read,write", "--iodepth", "1"]].concat();
    let head = "block_bytes,read1_s,read2_s,write1_s,write2_s,mean_mib_per_s,stddev_mib_per_s,iops";
    for (format, first) in [("csv", head), ("perftest", "blocksize")] {
        let table = stdout(&rig.sweep(&[&args[..], &["--format", format]].concat()));
        assert!(table.contains(first), "{table}");
        let file = rig.directory.path().join(format);
        fs::write(&file, &table).unwrap();
        let compared = rig.command(&["compare", text(&file), text(&file)]).output().unwrap();
        let shown = stdout(&compared);
        assert!(shown.contains("same") && !shown.contains("slower"), "{table}\n{shown}");
    }
    let table = stdout(&rig.sweep(&[&args[..], &["--format", "perftest"]].concat()));
    let rows: Vec<Vec<f64>> = table
        .lines()
        .map(|line| line.split_whitespace().filter_map(|word| word.parse().ok()).collect())
        .filter(|row: &Vec<f64>| row.len() == 6)
        .collect();
    assert_eq!(rows.len(), 4, "{table}");
    for row in rows {
        // Bytes per second from the seconds, and from IOPS.
        let [block, first, second, mean, _, iops] = row[..] else { panic!("{row:?}") };
        let rate = 4.0 * (1.0 / first + 1.0 / second) / 2.0;
        assert!(
            (mean / rate - 1.0).abs() < 0.05 && (iops * block / 1_048_576.0 / mean - 1.0).abs() < 0.05,
            "{row:?}"
        );
    }
}

#[test]
fn an_unfinished_sweep_is_not_replaced_and_a_file_of_another_program_neither() {
    let rig = Rig::new();
    fs::write(rig.results(), "my notes").unwrap();
    let output = rig.sweep(&MODEL);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not a sweep"));
    assert_eq!(fs::read_to_string(rig.results()).unwrap(), "my notes");
    fs::remove_file(rig.results()).unwrap();
    stdout(&rig.sweep(&MODEL));
    let mut file = rig.json();
    file["complete"] = false.into();
    fs::write(rig.results(), file.to_string()).unwrap();
    let stderr = String::from_utf8(rig.sweep(&MODEL).stderr).unwrap();
    assert!(stderr.contains("unfinished") && stderr.contains("--resume"), "{stderr}");
    file["axes"][0]["values"][0] = "null".into();
    fs::write(rig.results(), file.to_string()).unwrap();
    let resumed = rig.command(&["sweep", "--resume", text(&rig.results())]).output().unwrap();
    let stderr = String::from_utf8_lossy(&resumed.stderr).into_owned();
    assert!(stderr.contains("cannot be resumed") && resumed.status.code() == Some(1), "{stderr}");
}

/// A sweep of some seconds on a loop device with settings.
struct OnDevice {
    rig: Rig,
    device: Loop,
    _alone: Alone,
}

/// The settings that the sweep of [`OnDevice`] changes, and those that the kernel changes with them.
const NAMES: [&str; 5] = ["scheduler", "nr_requests", "max_sectors_kb", "wbt_lat_usec", "read_ahead_kb"];

impl OnDevice {
    fn new() -> Result<Self, String> {
        let alone = Alone::wait()?;
        Ok(Self { rig: Rig::new(), device: Loop::new(&alone, 16, &[])?, _alone: alone })
    }

    fn value(&self, name: &str) -> String {
        let device = self.device.device.file_name().unwrap();
        let text = fs::read_to_string(Path::new("/sys/block").join(device).join("queue").join(name)).unwrap();
        text.split(['[', ']']).nth(1).unwrap_or(text.trim()).to_owned()
    }

    fn values(&self) -> Vec<String> {
        NAMES.map(|name| self.value(name)).to_vec()
    }

    /// Starts a sweep of 16 cells, and returns after its first cell, while the settings differ from those before.
    fn started(&self, before: &[String]) -> std::process::Child {
        let results = self.rig.results();
        let args = [
            "sweep",
            "--output",
            text(&results),
            "--path",
            "kernel-buffered",
            "--target",
            text(&self.device.device),
            "--bs",
            "16k,64k",
            "--size",
            "4m",
            "--repeat",
            "1",
            "--runtime",
            "150ms",
            "--set",
            "scheduler=mq-deadline,bfq,none,kyber",
            "--set",
            "readahead=64k,512k",
            "--set",
            "max_sectors=64k",
        ];
        let mut command = with_default_signals(&self.rig.command(&args));
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        assert!(becomes_true(|| self.rig.measured() >= 1), "the first cell ends");
        assert!(becomes_true(|| self.values() != before), "the settings of a cell are set");
        child
    }

    /// Resumes the sweep, and checks that each cell has a result or a reason.
    fn resumed(&self) {
        let done = self.rig.measured();
        let output = self.rig.command(&["sweep", "--resume", text(&self.rig.results())]).output().unwrap();
        let shown = stdout(&output);
        assert!(shown.contains("16 cells") && !shown.contains("not measured yet"), "{shown}");
        assert!(self.rig.json()["complete"] == true && self.rig.measured() >= done);
    }
}

#[test]
fn kill_9_in_a_sweep_leaves_a_journal_and_the_next_start_restores_all_settings() {
    let on = or_skip!(OnDevice::new());
    let before = on.values();
    for restorer in [&["tune", "--restore"][..], &["elevators"]] {
        let _ = fs::remove_file(on.rig.results());
        let mut child = on.started(&before);
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert_ne!(on.values(), before, "a killed process cannot restore");
        let output = on.rig.command(restorer).output().unwrap();
        stdout(&output);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains("restored settings of loop") && said.contains("(iopath sweep)"), "{said}");
        assert_eq!(on.values(), before, "{restorer:?}");
    }
    on.resumed();
    assert_eq!(on.values(), before);
}

#[test]
fn a_signal_in_a_sweep_restores_all_settings_and_leaves_a_file_to_resume() {
    let on = or_skip!(OnDevice::new());
    let before = on.values();
    for signal in [Signal::INT, Signal::TERM] {
        let _ = fs::remove_file(on.rig.results());
        let child = on.started(&before);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(signal.as_raw()));
        assert_eq!(on.values(), before, "{signal:?}");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains("sweep --resume"), "{stderr}");
    }
    on.resumed();
    assert_eq!(on.values(), before);
}

#[test]
fn a_second_command_on_the_device_is_refused_and_drift_is_reported() {
    let on = or_skip!(OnDevice::new());
    let before = on.values();
    let mut child = on.started(&before);
    let second = on.rig.command(&["tune", text(&on.device.device), "readahead=1m"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(second.status.code() == Some(1) && stderr.contains("(iopath sweep)"), "{stderr}");
    // As udev does: another program changes a setting while a cell runs. It does so many times in each cell, because
    // the sweep compares the settings at the start of a cell with those at its end: both values are equally likely
    // there.
    let device = on.device.device.file_name().unwrap();
    let attribute = Path::new("/sys/block").join(device).join("queue/nomerges");
    while child.try_wait().unwrap().is_none() {
        for (value, time_ms) in [("2", 7), ("0", 11)] {
            fs::write(&attribute, value).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(time_ms));
        }
    }
    let output = child.wait_with_output().unwrap();
    fs::write(&attribute, "0").unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("another program changed nomerges from "), "{stderr}");
    assert_eq!(on.values(), before);
    let cells = on.rig.json();
    assert!(cells["cells"].as_array().unwrap().iter().any(|cell| cell["drift"].is_array()));
}
