//! `iopath tune` on loop devices: sysfs shows what the command sets, and `--restore` sets the previous values again.
//! Needs root and loop devices; else the tests print a line and are skipped.

use crate::loops::{Alone, Loop, text};
use crate::support::{becomes_true, iopath, json_of, with_default_signals};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A loop device, and a directory of journals.
struct Rig {
    device: Loop,
    state: tempfile::TempDir,
    _alone: Alone,
}

impl Rig {
    fn new() -> Result<Self, String> {
        let alone = Alone::wait()?;
        let device = Loop::new(&alone, 8, &[])?;
        let state = tempfile::tempdir().map_err(|error| error.to_string())?;
        // A loop device keeps the settings of its last user, and a test may have been killed.
        for (name, value) in [("scheduler", "none"), ("nomerges", "0")] {
            fs::write(queue_of(&device.device).join(name), value).map_err(|error| error.to_string())?;
        }
        Ok(Self { device, state, _alone: alone })
    }

    fn tune(&self, args: &[&str]) -> Output {
        self.iopath(&[&["tune"], args].concat()).output().unwrap()
    }

    fn iopath(&self, args: &[&str]) -> Command {
        let mut command = iopath(args);
        command.env("IOPATH_STATE_DIR", self.state.path());
        command
    }

    /// The value in sysfs; of a list, the one in brackets.
    fn value(&self, name: &str) -> String {
        let text = fs::read_to_string(queue_of(&self.device.device).join(name)).unwrap();
        text.split(['[', ']']).nth(1).unwrap_or(text.trim()).to_owned()
    }
}

/// The settings of a device in sysfs.
fn queue_of(device: &Path) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().unwrap()).join("queue")
}

fn success(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn error_line(output: &Output, code: i32) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    stderr
}

#[test]
fn settings_are_shown_set_and_restored() {
    let rig = or_skip!(Rig::new());
    let device = text(&rig.device.device);
    let shown = json_of(&rig.tune(&[device, "--json"]));
    assert_eq!(shown["schema"], "iopath.tune/1");
    let names = ["scheduler", "nr_requests", "max_sectors_kb", "read_ahead_kb"];
    let before = names.map(|name| rig.value(name));
    for (name, value) in names.iter().zip(&before) {
        let setting = shown["settings"].as_array().unwrap().iter().find(|setting| setting["name"] == *name);
        assert_eq!(setting.unwrap()["value"], **value, "{name}");
    }
    let set = success(&rig.tune(&[device, "readahead=64k", "max_sectors=512k", "nr_requests=32"]));
    assert!(set.contains("→ 64") && set.contains("--restore"), "{set}");
    assert_eq!(names.map(|name| rig.value(name))[1..], ["32", "512", "64"]);
    let again = success(&rig.tune(&[device, "readahead=128k"]));
    assert!(again.contains("read_ahead_kb: 64 → 128"), "{again}");
    let table = success(&rig.tune(&[device]));
    assert!(table.contains("before") && table.contains("largest request"), "{table}");
    // Another command does not restore them.
    success(&rig.iopath(&["elevators"]).output().unwrap());
    assert_eq!(rig.value("read_ahead_kb"), "128");
    let restored = success(&rig.tune(&[device, "--restore"]));
    assert!(restored.contains(&format!("read_ahead_kb={}", before[3])), "{restored}");
    assert_eq!(names.map(|name| rig.value(name)), before);
    assert_eq!(success(&rig.tune(&["--restore"])), "nothing to restore\n");
}

#[test]
fn a_change_of_the_scheduler_is_undone_with_its_side_effects() {
    let rig = or_skip!(Rig::new());
    let device = text(&rig.device.device);
    let before = ["scheduler", "nr_requests", "wbt_lat_usec", "read_ahead_kb"].map(|name| rig.value(name));
    let output = rig.tune(&[device, "scheduler=mq-deadline", "writes_starved=4"]);
    if !output.status.success() {
        skip!("no mq-deadline here: {}", String::from_utf8_lossy(&output.stderr));
    }
    let set = success(&output);
    assert!(set.contains("scheduler: none → mq-deadline") && set.contains("changed by the kernel"), "{set}");
    assert_eq!(rig.value("iosched/writes_starved"), "4");
    success(&rig.tune(&["--restore"]));
    let after = ["scheduler", "nr_requests", "wbt_lat_usec", "read_ahead_kb"].map(|name| rig.value(name));
    assert_eq!(after, before);
}

#[test]
fn kept_settings_are_not_restored() {
    let rig = or_skip!(Rig::new());
    let device = text(&rig.device.device);
    let set = success(&rig.tune(&[device, "nr_requests=64", "--keep"]));
    assert!(set.contains("ATTR{queue/nr_requests}=\"64\""), "{set}");
    assert_eq!(success(&rig.tune(&["--restore"])), "nothing to restore\n");
    assert_eq!(rig.value("nr_requests"), "64");
    success(&rig.tune(&[device, "nr_requests=128", "--keep"]));
}

#[test]
fn values_that_the_device_does_not_have_are_refused_in_one_line_and_change_nothing() {
    let rig = or_skip!(Rig::new());
    let device = text(&rig.device.device);
    let before = rig.value("read_ahead_kb");
    for (change, code, named) in [
        ("scheduler=noop", 2, "one of: none"),
        ("max_sectors=1g", 2, "KiB on loop"),
        ("readahead=3", 1, "instead of 3"),
        ("queue_depth=4", 1, "has no setting queue_depth"),
        ("nr_requests=3", 2, "from 4 to"),
        ("iosched/nothing=1", 1, "has no setting iosched/nothing"),
    ] {
        let line = error_line(&rig.tune(&[device, change]), code);
        assert!(line.contains(named), "{line}");
    }
    assert_eq!(rig.value("read_ahead_kb"), before);
    let line = error_line(&rig.tune(&["--restore", "/dev/none"]), 1);
    assert!(line.contains("/dev/none"), "{line}");
}

#[test]
fn an_unwritable_directory_of_journals_is_an_error_and_no_setting_changes() {
    let rig = or_skip!(Rig::new());
    let before = rig.value("read_ahead_kb");
    let output = iopath(&["tune", text(&rig.device.device), "readahead=1m"])
        .env("IOPATH_STATE_DIR", "/proc/none")
        .output()
        .unwrap();
    let line = error_line(&output, 1);
    assert!(line.contains("/proc/none") && line.contains("IOPATH_STATE_DIR"), "{line}");
    assert_eq!(rig.value("read_ahead_kb"), before);
}

#[test]
fn a_read_only_sysfs_is_an_error_that_names_it() {
    let rig = or_skip!(Rig::new());
    let device = text(&rig.device.device);
    let script =
        "mount --bind /sys /sys && mount -o remount,bind,ro /sys && exec \"$0\" tune \"$1\" readahead=1m";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_iopath"), device]);
    let output = command.env("IOPATH_STATE_DIR", rig.state.path()).output();
    let output = or_skip!(output.map_err(|error| format!("no unshare here: {error}")));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if !stderr.contains("iopath:") {
        skip!("sysfs cannot be mounted read-only here: {stderr}");
    }
    assert!(stderr.contains("read-only") && stderr.contains("read_ahead_kb"), "{stderr}");
    assert_ne!(rig.value("read_ahead_kb"), "1024");
    assert_eq!(
        success(&rig.tune(&["--restore"])),
        "nothing to restore\n",
        "the refused change is not in the journal"
    );
}

#[test]
fn a_user_without_rights_gets_a_line() {
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        skip!("needs root to become another user");
    }
    let rig = or_skip!(Rig::new());
    let device = rig.device.device.file_name().unwrap().to_str().unwrap();
    let state = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(state.path(), Some(65534), Some(65534)).unwrap();
    let mut command = iopath(&["tune", device, "readahead=1m"]);
    let output = command.env("IOPATH_STATE_DIR", state.path()).uid(65534).gid(65534).output();
    let output = or_skip!(output.map_err(|error| format!("another user may not run the program: {error}")));
    let line = error_line(&output, 1);
    assert!(line.contains("run as root"), "{line}");
}

/// Sequential buffered reads of short repetitions.
const WORKLOAD: [&str; 9] =
    ["--", "--path", "kernel-buffered", "--bs", "4k", "--size", "4m", "--runtime", "40ms"];

#[test]
fn a_trial_keeps_what_is_better_with_confidence_until_a_restore() {
    let rig = or_skip!(Rig::new());
    let device = text(&rig.device.device);
    let before = rig.value("read_ahead_kb");
    // Each read of 4 KiB waits for the device.
    success(&rig.tune(&[device, "readahead=0"]));
    let args = [&[device, "--try", "readahead=4k,2m", "--json"], &WORKLOAD[..]].concat();
    let report = json_of(&rig.tune(&args));
    assert_eq!(report["schema"], "iopath.tune-trial/1");
    crate::support::schema::check(&report, &args);
    let winner = report["winner"].as_str().unwrap();
    let now = format!("read_ahead_kb={}", rig.value("read_ahead_kb"));
    if report["verdict"] == "better" {
        assert_eq!((&report["set"], now.as_str()), (&true.into(), winner), "{report}");
    } else {
        // On a machine that other programs keep busy, no difference may be significant.
        eprintln!("the trial had no clear result here: {}", report["verdict"]);
        assert_eq!((&report["set"], now.as_str()), (&false.into(), "read_ahead_kb=0"), "{report}");
    }
    assert_eq!(report["candidates"].as_array().unwrap().len(), 3);
    success(&rig.tune(&["--restore"]));
    assert_eq!(rig.value("read_ahead_kb"), before);
}

#[test]
fn a_trial_without_a_better_candidate_restores_all_settings() {
    let rig = or_skip!(Rig::new());
    let device = text(&rig.device.device);
    let names = ["scheduler", "nr_requests", "nomerges", "read_ahead_kb"];
    let before = names.map(|name| rig.value(name));
    // Any difference below a factor of eleven counts as the same.
    let limits = ["--threshold", "1000%", "--repetitions-max", "5"];
    let lists = ["nomerges=1,2", "nr_requests=32,64", "--try"];
    let shown = success(&rig.tune(&[&[device], &limits[..], &lists, &WORKLOAD].concat()));
    assert!(shown.contains("as before") && shown.contains("nomerges=2 nr_requests=64"), "{shown}");
    assert_eq!(names.map(|name| rig.value(name)), before);
    assert_eq!(success(&rig.tune(&["--restore"])), "nothing to restore\n");
    // The default candidates: those that this device refuses are named.
    let all = rig.tune(&[&[device, "--try"], &limits[..], &WORKLOAD].concat());
    let stderr = String::from_utf8_lossy(&all.stderr).into_owned();
    assert!(success(&all).contains("read_ahead_kb=") && stderr.contains("nr_requests=1024"), "{stderr}");
    assert_eq!(names.map(|name| rig.value(name)), before);
}

#[test]
fn an_interrupted_trial_shows_its_measurements_and_restores_all_settings() {
    let rig = or_skip!(Rig::new());
    let device = text(&rig.device.device);
    let before = rig.value("nomerges");
    let json = rig.state.path().join("trial.json");
    // Measurements shorter than the interval at which a measurement looks for a signal.
    let args = [
        &["tune", device, "--try", "nomerges=1,2", "nr_requests=16,32,64,128", "--json", text(&json)],
        &WORKLOAD[..],
    ];
    let mut command = with_default_signals(&rig.iopath(&args.concat()));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("measurement 3: ")), "two are complete");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    lines.for_each(drop);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(Signal::INT.as_raw()), "{output:?}");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("was interrupted") && shown.contains("present"), "{shown}");
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!((&report["partial"], &report["set"]), (&true.into(), &false.into()), "{report}");
    let measured = report["candidates"].as_array().unwrap().iter();
    assert!(measured.map(|one| one["repetitions"].as_u64().unwrap()).sum::<u64>() > 0, "{report}");
    assert_eq!(rig.value("nomerges"), before);
}

#[test]
fn kill_9_in_a_trial_is_undone_by_a_restore() {
    let rig = or_skip!(Rig::new());
    let device = text(&rig.device.device);
    let before = rig.value("nomerges");
    let args = [&["tune", device, "--try", "nomerges=1,2"], &WORKLOAD[..8], &["300ms"]].concat();
    let mut child = rig.iopath(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    assert!(becomes_true(|| rig.value("nomerges") != before), "a candidate is set");
    child.kill().unwrap();
    child.wait().unwrap();
    // The kill may fall between two candidates.
    let journal = rig.state.path().read_dir().unwrap().flatten();
    let journals = journal.filter(|entry| entry.file_name().to_string_lossy().ends_with("exit.json"));
    assert_eq!(journals.count(), 1);
    let restored = success(&rig.tune(&["--restore"]));
    assert!(
        restored.contains("(iopath tune)") && restored.contains(&format!("nomerges={before}")),
        "{restored}"
    );
    assert_eq!(rig.value("nomerges"), before);
}

#[test]
fn a_trial_on_another_device_is_refused_and_a_job_file_is_a_workload() {
    let rig = or_skip!(Rig::new());
    let device = text(&rig.device.device);
    let elsewhere = [device, "--try", "--", "--path", "kernel-buffered", "--target", "/proc"];
    let line = error_line(&rig.tune(&elsewhere), 1);
    assert!(line.contains("/proc is not on loop"), "{line}");
    let job = rig.state.path().join("job.fio");
    fs::write(&job, format!("[one]\nrw=read\nbs=64k\nsize=1m\nfilename={device}\n")).unwrap();
    // A name is a target, too.
    let name = device.strip_prefix("/dev/").unwrap();
    let named = [name, "--try", "nomerges=2", "--repetitions-max", "2", "--threshold", "1000%"];
    let shown = success(&rig.tune(&[&named[..], &WORKLOAD].concat()));
    assert!(shown.contains("nomerges=2 against the present settings"), "{shown}");
    let args =
        [device, "--try", "nomerges=2", "--repetitions-max", "2", "--threshold", "1000%", "--", text(&job)];
    let shown = success(&rig.tune(&args));
    assert!(shown.contains("nomerges=2 against the present settings, 2 new pairs"), "{shown}");
}
