//! Settings of loop devices: every setting of the table is set, seen in sysfs and restored. Needs root and loop
//! devices; else the tests print a line and are skipped.

use std::fs;
use std::path::Path;

use crate::loops::{Alone, Loop};
use iopath_bench::device_settings::{Change, SETTINGS, Session, Setting, SettingsDevice, Until};

/// Sets the directory of journals of this test program.
fn state_directory() -> &'static Path {
    static DIRECTORY: std::sync::OnceLock<tempfile::TempDir> = std::sync::OnceLock::new();
    DIRECTORY.get_or_init(|| tempfile::tempdir().unwrap()).path()
}

fn sysfs(device: &Loop, file: &str) -> String {
    let name = device.device.file_name().unwrap();
    let text =
        fs::read_to_string(Path::new("/sys/block").join(name).join("queue").join(file)).unwrap_or_default();
    text.split(['[', ']']).nth(1).unwrap_or(text.trim()).to_owned()
}

fn values(device: &SettingsDevice) -> Vec<(String, String)> {
    device.settings().into_iter().map(|Setting { name, value, .. }| (name.to_string(), value)).collect()
}

fn change(text: &str) -> Change {
    Change::parse(text).unwrap()
}

#[test]
fn every_setting_of_a_loop_device_is_set_and_restored() {
    let alone = or_skip!(Alone::wait());
    let device = or_skip!(Loop::new(&alone, 8, &[]));
    let find = || SettingsDevice::find(&device.device).unwrap();
    let before = values(&find());
    let session = or_skip!(Session::begin_in_directory(state_directory(), find(), Until::Exit));
    let mut tested = 0;
    for (name, value) in [
        ("nr_requests", "64"),
        ("rotational", if sysfs(&device, "rotational") == "0" { "1" } else { "0" }),
        ("max_sectors_kb", "64"),
        ("wbt_lat_usec", "3000"),
        ("nomerges", "2"),
        ("rq_affinity", "2"),
        ("add_random", "1"),
        ("iostats", "0"),
        ("read_ahead_kb", "4096"),
    ] {
        if !before.iter().any(|(known, _)| known == name) {
            eprintln!("skipped: loop devices have no {name} here");
            continue;
        }
        or_skip!(session.set(&[change(&format!("{name}={value}"))]));
        assert_eq!(sysfs(&device, name), value, "{name}");
        assert_eq!(session.drift(), [], "{name}");
        tested += 1;
    }
    assert!(tested > 3 && SETTINGS.len() > tested);
    // All at once: later writes do not undo earlier ones.
    let all = ["iostats=0", "readahead=64k", "max_sectors=512k", "nr_requests=32"].map(change);
    session.set(&all).unwrap();
    for (name, value) in
        [("iostats", "0"), ("read_ahead_kb", "64"), ("max_sectors_kb", "512"), ("nr_requests", "32")]
    {
        assert_eq!(sysfs(&device, name), value, "{name}");
    }
    session.end().unwrap();
    assert_eq!(values(&find()), before);
}

#[test]
fn each_scheduler_with_a_tunable_is_set_and_the_first_one_returns_with_its_tunables() {
    let alone = or_skip!(Alone::wait());
    let device = or_skip!(Loop::new(&alone, 8, &[]));
    let find = || SettingsDevice::find(&device.device).unwrap();
    let schedulers = fs::read_to_string(find().directory().join("queue/scheduler")).unwrap();
    let schedulers: Vec<&str> =
        schedulers.split_whitespace().map(|name| name.trim_matches(['[', ']'])).collect();
    let tunable = |scheduler: &str| match scheduler {
        // A whole number of ticks at any clock rate of the kernel.
        "mq-deadline" => Some("iosched/read_expire=200"),
        "kyber" => Some("iosched/read_lat_nsec=1000000"),
        "bfq" => Some("iosched/low_latency=0"),
        _ => None,
    };
    for first in &schedulers {
        // The state before the session: a scheduler with another tunable, and fewer requests.
        let given: Vec<Change> = [
            Some(format!("scheduler={first}")),
            tunable(first).map(str::to_owned),
            Some("nr_requests=50".to_owned()),
        ]
        .into_iter()
        .flatten()
        .map(|text| change(&text))
        .collect();
        let outer =
            or_skip!(Session::begin_in_directory(&state_directory().join("outer"), find(), Until::Exit));
        or_skip!(outer.set(&given));
        let before = values(&find());
        let session = Session::begin_in_directory(state_directory(), find(), Until::Exit).unwrap();
        for scheduler in &schedulers {
            let wanted = [Some(format!("scheduler={scheduler}")), tunable(scheduler).map(str::to_owned)];
            let wanted: Vec<Change> = wanted.into_iter().flatten().map(|text| change(&text)).collect();
            session.set(&wanted).unwrap();
            assert_eq!(sysfs(&device, "scheduler"), *scheduler);
            if let Some((name, value)) = tunable(scheduler).and_then(|text| text.split_once('=')) {
                assert_eq!(sysfs(&device, name), value);
            }
        }
        session.end().unwrap();
        assert_eq!(values(&find()), before, "{first}");
        outer.end().unwrap();
    }
}

#[test]
fn a_device_is_found_by_path_name_partition_and_file() {
    let alone = or_skip!(Alone::wait());
    let mut device = or_skip!(Loop::new(&alone, 32, &[]));
    let name = device.device.file_name().unwrap().to_str().unwrap().to_owned();
    let partition = or_skip!(device.partition(1, 8, 16));
    for given in [device.device.clone(), name.clone().into(), partition] {
        assert_eq!(SettingsDevice::find(&given).unwrap().name(), name, "{}", given.display());
    }
    for bad in ["/dev/none", "none-such", "/dev/null", "/proc"] {
        let text = SettingsDevice::find(Path::new(bad)).unwrap_err().to_string();
        assert!(text.starts_with(bad) && text.contains("name a block device"), "{text}");
    }
}
