//! Tests of sessions and restores on a simulated kernel, and on directories in place of sysfs. Loop devices are in
//! `tests/device_settings.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::device::Attributes;
use super::super::leftovers::restore_in;
use super::*;

/// The attributes of a simulated disk, with the side effects of Linux 6.18.
#[derive(Clone)]
struct Kernel(Arc<Mutex<Simulated>>);

struct Simulated {
    files: BTreeMap<String, String>,
    scheduler: &'static str,
    /// The error of all further writes.
    refusal: Option<rustix::io::Errno>,
    /// The error of all further reads.
    unreadable: Option<rustix::io::Errno>,
    /// The journal that has to exist at each write.
    journal: Option<std::path::PathBuf>,
    writes: u32,
}

/// A scheduler, its tunables with their defaults, and the default of `nr_requests`.
type Scheduler = (&'static str, &'static [(&'static str, &'static str)], &'static str);

const SCHEDULERS: [Scheduler; 3] = [
    ("none", &[], "128"),
    ("mq-deadline", &[("async_depth", "256"), ("read_expire", "500")], "256"),
    ("bfq", &[("low_latency", "1")], "256"),
];

impl Kernel {
    fn new() -> Self {
        let files = [
            ("queue/nr_requests", "128"),
            ("queue/max_sectors_kb", "1280"),
            ("queue/max_hw_sectors_kb", "1280"),
            ("queue/read_ahead_kb", "64"),
            ("queue/wbt_lat_usec", "2000"),
            ("queue/iostats", "1"),
            ("diskseq", "1"),
        ];
        let files = files.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Self(Arc::new(Mutex::new(Simulated {
            files,
            scheduler: "none",
            refusal: None,
            unreadable: None,
            journal: None,
            writes: 0,
        })))
    }

    fn get(&self, name: &str) -> String {
        let text = self.read(&format!("queue/{name}")).unwrap();
        text.split(['[', ']']).nth(1).unwrap_or(&text).to_owned()
    }

    /// A change by another program.
    fn put(&self, name: &str, value: &str) {
        self.0.lock().unwrap().files.insert(format!("queue/{name}"), value.to_owned());
    }

    fn device(&self) -> SettingsDevice {
        SettingsDevice::simulated("sdx", Box::new(self.clone()))
    }
}

impl Attributes for Kernel {
    fn read(&self, file: &str) -> io::Result<String> {
        let state = self.0.lock().unwrap();
        if let Some(errno) = state.unreadable {
            return Err(errno.into());
        }
        if file == "queue/scheduler" {
            let shown =
                SCHEDULERS.map(
                    |(name, ..)| {
                        if name == state.scheduler { format!("[{name}]") } else { name.to_owned() }
                    },
                );
            return Ok(shown.join(" "));
        }
        state.files.get(file).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn write(&self, file: &str, value: &str) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        if let Some(path) = &state.journal {
            let content = journal::read(path).unwrap();
            assert_eq!(content.changed, ["read_ahead_kb"]);
            assert!(content.before.contains(&("read_ahead_kb".to_owned(), "64".to_owned())), "{content:?}");
        }
        if let Some(errno) = state.refusal {
            return Err(errno.into());
        }
        state.writes += 1;
        match file {
            "queue/scheduler" => {
                let (name, tunables, requests) = SCHEDULERS
                    .into_iter()
                    .find(|(name, ..)| *name == value)
                    .ok_or(io::ErrorKind::InvalidInput)?;
                state.scheduler = name;
                state.files.retain(|file, _| !file.starts_with("queue/iosched/"));
                for (tunable, value) in tunables {
                    state.files.insert(format!("queue/iosched/{tunable}"), (*value).to_owned());
                }
                state.files.insert("queue/nr_requests".to_owned(), requests.to_owned());
                return Ok(());
            }
            "queue/nr_requests" if state.files.contains_key("queue/iosched/async_depth") => {
                state.files.insert("queue/iosched/async_depth".to_owned(), value.to_owned());
            }
            "queue/max_sectors_kb" | "queue/iostats" => {
                state.files.insert("queue/read_ahead_kb".to_owned(), "2560".to_owned());
            }
            _ => {}
        }
        // The kernel rounds readahead to pages.
        let value = match (file, value.parse::<u64>()) {
            ("queue/read_ahead_kb", Ok(kib)) => (kib / 4 * 4).to_string(),
            _ => value.to_owned(),
        };
        match state.files.get_mut(file) {
            Some(known) => *known = value,
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        Ok(())
    }

    fn tunables(&self) -> Vec<String> {
        let state = self.0.lock().unwrap();
        let names = state.files.keys().filter_map(|file| file.strip_prefix("queue/iosched/"));
        names.map(str::to_owned).collect()
    }
}

fn changes(texts: &[&str]) -> Vec<Change> {
    texts.iter().map(|text| Change::parse(text).unwrap()).collect()
}

fn begin(directory: &Path, kernel: &Kernel, until: Until) -> Session {
    Session::begin_in(&Roots::live(), directory, kernel.device(), until).unwrap()
}

fn state(kernel: &Kernel) -> Vec<(SettingName, String)> {
    kernel.device().values()
}

#[test]
fn every_change_is_in_the_journal_before_it_is_applied() {
    let directory = tempfile::tempdir().unwrap();
    let kernel = Kernel::new();
    let session = begin(directory.path(), &kernel, Until::Exit);
    let path = directory.path().join("7-0.exit.json");
    assert!(!path.exists(), "no change, no journal");
    kernel.0.lock().unwrap().refusal = Some(rustix::io::Errno::ROFS);
    let text = session.set(&changes(&["readahead=512"])).unwrap_err().to_string();
    assert!(text.contains("read_ahead_kb of sdx to 512") && text.contains("read-only"), "{text}");
    assert!(!path.exists(), "nothing to restore");
    {
        let mut kernel = kernel.0.lock().unwrap();
        (kernel.refusal, kernel.journal) = (None, Some(path.clone()));
    }
    session.set(&changes(&["readahead=512"])).unwrap();
    session.end().unwrap();
    assert_eq!(kernel.0.lock().unwrap().writes, 2);
    assert!(!path.exists());
}

#[test]
fn without_a_journal_no_setting_changes() {
    let directory = tempfile::tempdir().unwrap();
    let kernel = Kernel::new();
    let session = begin(directory.path(), &kernel, Until::Exit);
    fs::remove_dir_all(directory.path()).unwrap();
    let error = session.set(&changes(&["readahead=512"])).unwrap_err();
    assert!(matches!(error, SettingsError::State { .. }), "{error}");
    assert_eq!((kernel.get("read_ahead_kb").as_str(), kernel.0.lock().unwrap().writes), ("64", 0));
}

#[test]
fn side_effects_are_restored_in_an_order_that_keeps_them() {
    let directory = tempfile::tempdir().unwrap();
    let kernel = Kernel::new();
    for (name, value) in [("scheduler", "mq-deadline"), ("nr_requests", "64"), ("iosched/async_depth", "7")] {
        kernel.write(&format!("queue/{name}"), value).unwrap();
    }
    let before = state(&kernel);
    let session = begin(directory.path(), &kernel, Until::Exit);
    session.set(&changes(&["scheduler=bfq", "max_sectors=512k", "low_latency=0"])).unwrap();
    assert_eq!((kernel.get("scheduler"), kernel.get("read_ahead_kb")), ("bfq".into(), "2560".into()));
    assert_eq!(kernel.get("iosched/low_latency"), "0");
    // The next set does not depend on the previous one.
    session.set(&changes(&["nr_requests=100"])).unwrap();
    assert_eq!(
        (kernel.get("scheduler"), kernel.get("max_sectors_kb")),
        ("mq-deadline".into(), "1280".into())
    );
    assert_eq!((kernel.get("read_ahead_kb"), kernel.get("nr_requests")), ("64".into(), "100".into()));
    session.end().unwrap();
    assert_eq!(state(&kernel), before);
}

#[test]
fn a_panic_and_a_drop_restore_the_settings() {
    let directory = tempfile::tempdir().unwrap();
    let kernel = Kernel::new();
    let before = state(&kernel);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let session = begin(directory.path(), &kernel, Until::Exit);
        session.set(&changes(&["scheduler=bfq"])).unwrap();
        assert_ne!(state(&kernel), before);
        panic!("a bug");
    }));
    assert!(panicked.is_err());
    assert_eq!(state(&kernel), before);
    assert!(journal::journals(directory.path(), Until::Exit).is_empty());
}

#[test]
fn a_setting_that_no_change_can_affect_keeps_the_value_of_another_program() {
    let directory = tempfile::tempdir().unwrap();
    let kernel = Kernel::new();
    let session = begin(directory.path(), &kernel, Until::Exit);
    session.set(&changes(&["readahead=512"])).unwrap();
    assert_eq!(session.drift(), []);
    kernel.put("wbt_lat_usec", "7000");
    kernel.put("read_ahead_kb", "4");
    let drift: Vec<String> = session.drift().iter().map(Drift::to_string).collect();
    assert_eq!(
        drift,
        [
            "another program changed wbt_lat_usec from 2000 to 7000",
            "another program changed read_ahead_kb from 512 to 4"
        ]
    );
    session.end().unwrap();
    assert_eq!((kernel.get("wbt_lat_usec"), kernel.get("read_ahead_kb")), ("7000".into(), "64".into()));
}

#[test]
fn a_value_that_the_kernel_rounds_or_lacks_is_an_error_and_is_undone() {
    let directory = tempfile::tempdir().unwrap();
    for until in [Until::Exit, Until::Restore] {
        let kernel = Kernel::new();
        let session = begin(directory.path(), &kernel, until);
        let text = session.set(&changes(&["iostats=0", "readahead=3"])).unwrap_err().to_string();
        assert!(text.contains("set read_ahead_kb of sdx to 0 instead of 3"), "{text}");
        assert_eq!((kernel.get("iostats"), kernel.get("read_ahead_kb")), ("1".into(), "64".into()));
        for (bad, named) in [
            ("scheduler=kyber", "one of: none, mq-deadline, bfq on sdx"),
            ("max_sectors=2m", "it is 4–1280 KiB on sdx"),
            ("rotational=1", "sdx has no setting rotational"),
            ("iosched/read_expire=1", "sdx has no setting iosched/read_expire"),
        ] {
            let text = session.set(&changes(&[bad])).unwrap_err().to_string();
            assert!(text.contains(named), "{text}");
        }
        session.end().unwrap();
    }
}

#[test]
fn changes_until_a_restore_add_up_and_a_run_in_between_returns_to_them() {
    let directory = tempfile::tempdir().unwrap();
    let kernel = Kernel::new();
    let set = |texts: &[&str], keep: bool| {
        let session = begin(directory.path(), &kernel, Until::Restore);
        let changes = changes(texts);
        session.set(&changes).unwrap();
        session.leave(keep.then_some(&changes)).unwrap();
    };
    set(&["readahead=512"], false);
    set(&["nr_requests=64"], false);
    let run = begin(directory.path(), &kernel, Until::Exit);
    run.set(&changes(&["readahead=1024"])).unwrap();
    run.end().unwrap();
    assert_eq!((kernel.get("read_ahead_kb"), kernel.get("nr_requests")), ("512".into(), "64".into()));
    let path = directory.path().join("7-0.restore.json");
    let (before, changed) = names(&journal::read(&path).unwrap()).unwrap();
    set(&["nr_requests=32"], true);
    restore(&kernel.device(), &before, &changed).unwrap();
    assert_eq!(journal::read(&path).unwrap().changed, ["read_ahead_kb"]);
    set(&["readahead=256"], true);
    assert!(!path.exists(), "nothing is left to restore");
}

#[test]
fn a_restore_that_failed_is_tried_again_and_a_device_without_an_answer_is_not_gone() {
    let directory = tempfile::tempdir().unwrap();
    let kernel = Kernel::new();
    let session = begin(directory.path(), &kernel, Until::Exit);
    session.set(&changes(&["readahead=512"])).unwrap();
    // No descriptor is left.
    kernel.0.lock().unwrap().unreadable = Some(rustix::io::Errno::MFILE);
    let ended = session.locked().end();
    assert!(matches!(ended, Err(SettingsError::NotRestored { .. })), "{ended:?}");
    assert_eq!(journal::journals(directory.path(), Until::Exit).len(), 1);
    kernel.0.lock().unwrap().unreadable = None;
    assert!(matches!(session.set(&changes(&["readahead=4"])), Err(SettingsError::Interrupted)));
    drop(session);
    assert_eq!(kernel.get("read_ahead_kb"), "64");
    assert!(journal::journals(directory.path(), Until::Exit).is_empty());
}

#[test]
fn changes_until_a_restore_stay_only_if_the_session_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let kernel = Kernel::new();
    let earlier = begin(directory.path(), &kernel, Until::Restore);
    earlier.set(&changes(&["nr_requests=64"])).unwrap();
    earlier.leave(None).unwrap();
    let path = directory.path().join("7-0.restore.json");
    let journal_before = fs::read(&path).unwrap();
    let interrupted = begin(directory.path(), &kernel, Until::Restore);
    interrupted.set(&changes(&["readahead=512", "nr_requests=32"])).unwrap();
    interrupted.locked().end().unwrap();
    assert!(matches!(interrupted.leave(None), Err(SettingsError::Interrupted)));
    assert_eq!((kernel.get("read_ahead_kb"), kernel.get("nr_requests")), ("64".into(), "64".into()));
    assert_eq!(fs::read(&path).unwrap(), journal_before);
}

#[test]
fn a_journal_of_a_running_process_is_never_renamed() {
    let (tree, roots, device) = fixture();
    let directory = tempfile::tempdir().unwrap();
    let session = Session::begin_in(&roots, directory.path(), device, Until::Exit).unwrap();
    session.set(&changes(&["readahead=4096"])).unwrap();
    let path = directory.path().join("8-0.exit.json");
    fs::write(&path, "in the middle of a change").unwrap();
    assert!(restore_in(&roots, directory.path(), &[Until::Exit], None).is_empty());
    let outcomes = restore_in(&roots, directory.path(), &[Until::Exit, Until::Restore], None);
    assert!(matches!(&outcomes[..], [Leftover::Failed(SettingsError::InUse { .. })]), "{outcomes:?}");
    assert!(path.exists());
    drop((session, tree));
}

#[test]
fn a_second_session_on_a_device_is_refused_and_names_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let kernel = Kernel::new();
    let first = begin(directory.path(), &kernel, Until::Exit);
    let second = Session::begin_in(&Roots::live(), directory.path(), kernel.device(), Until::Restore);
    let text = second.unwrap_err().to_string();
    assert!(text.contains("sdx are in use by process"), "{text}");
    drop(first);
    begin(directory.path(), &kernel, Until::Restore);
}

#[test]
fn a_device_that_goes_is_no_failure_of_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let kernel = Kernel::new();
    let session = begin(directory.path(), &kernel, Until::Exit);
    session.set(&changes(&["readahead=512"])).unwrap();
    // Another medium at the same number: its settings are not those of the journal.
    kernel.0.lock().unwrap().files.insert("diskseq".to_owned(), "2".to_owned());
    assert!(matches!(session.set(&changes(&["readahead=4"])), Err(SettingsError::NoDevice { .. })));
    session.end().unwrap();
    assert_eq!(kernel.get("read_ahead_kb"), "512");
    assert!(journal::journals(directory.path(), Until::Exit).is_empty());
}

/// A directory in place of sysfs with one disk.
fn fixture() -> (tempfile::TempDir, Roots, SettingsDevice) {
    let tree = tempfile::tempdir().unwrap();
    let disk = tree.path().join("devices/sdx");
    for directory in [disk.join("queue"), tree.path().join("dev/block")] {
        fs::create_dir_all(directory).unwrap();
    }
    for (name, value) in [
        ("dev", "8:0"),
        ("size", "2048"),
        ("diskseq", "5"),
        ("queue/scheduler", "none"),
        ("queue/read_ahead_kb", "128"),
    ] {
        fs::write(disk.join(name), value).unwrap();
    }
    std::os::unix::fs::symlink("../../devices/sdx", tree.path().join("dev/block/8:0")).unwrap();
    let roots = Roots { sys: tree.path().to_owned(), ..Roots::live() };
    let number = iopath_os::target::DeviceNumber { major: 8, minor: 0 };
    let device = SettingsDevice::numbered(&roots, number).unwrap();
    (tree, roots, device)
}

/// Leaves a journal as a killed process does: `read_ahead_kb` was 128 and is 512.
fn killed(directory: &Path, roots: &Roots, device: SettingsDevice, sys: &Path) -> std::path::PathBuf {
    let session = Session::begin_in(roots, directory, device, Until::Exit).unwrap();
    session.set(&changes(&["readahead=4096"])).unwrap();
    // The directory is no kernel: a longer value replaces a shorter one as a whole.
    assert_eq!(fs::read_to_string(sys.join("devices/sdx/queue/read_ahead_kb")).unwrap(), "4096");
    session.leave(None).unwrap();
    fs::write(sys.join("devices/sdx/queue/read_ahead_kb"), "512").unwrap();
    directory.join("8-0.exit.json")
}

#[test]
fn the_journal_of_a_killed_process_is_restored_once() {
    let (tree, roots, device) = fixture();
    let directory = tempfile::tempdir().unwrap();
    let path = killed(directory.path(), &roots, device, tree.path());
    let outcomes = restore_in(&roots, directory.path(), &[Until::Exit], None);
    assert!(matches!(&outcomes[..], [Leftover::Restored { .. }]), "{outcomes:?}");
    let text = outcomes[0].to_string();
    assert!(text.contains("sdx") && text.contains("read_ahead_kb=128"), "{text}");
    assert_eq!(fs::read_to_string(tree.path().join("devices/sdx/queue/read_ahead_kb")).unwrap(), "128");
    assert!(!path.exists());
    assert!(restore_in(&roots, directory.path(), &[Until::Exit, Until::Restore], None).is_empty());
}

#[test]
fn a_journal_of_another_boot_device_or_place_changes_nothing() {
    for (edit, named) in [
        ((|content: &mut Content| content.boot.push('x')) as fn(&mut Content), "restarted"),
        (|content| content.device.diskseq = Some(4), "disk sequence number 4, now 5"),
        (|content| (content.device.diskseq, content.device.size_bytes) = (None, 7), "7 bytes, now 1048576"),
        (|content| content.device.number = "8:1".to_owned(), "gone"),
        (|content| content.device.number = "../..".to_owned(), "name is that of another device"),
        (|content| content.changed = vec!["../dev".to_owned()], "cannot be used"),
        (|content| content.before[0].1 = "a\nb".to_owned(), "cannot be used"),
    ] {
        let (tree, roots, device) = fixture();
        let directory = tempfile::tempdir().unwrap();
        let path = killed(directory.path(), &roots, device, tree.path());
        let mut content = journal::read(&path).unwrap();
        edit(&mut content);
        let new = directory
            .path()
            .join(format!("{}.exit.json", content.device.number.replace([':', '/', '.'], "-")));
        fs::remove_file(&path).unwrap();
        journal::write(&new, &content).unwrap();
        let outcomes = restore_in(&roots, directory.path(), &[Until::Exit], None);
        let text = outcomes.iter().map(Leftover::to_string).collect::<String>();
        assert!(outcomes.len() == 1 && text.contains(named), "{named}: {text}");
        assert_eq!(fs::read_to_string(tree.path().join("devices/sdx/queue/read_ahead_kb")).unwrap(), "512");
    }
}

#[test]
fn a_damaged_journal_is_reported_once_and_kept_for_its_reader() {
    let (tree, roots, device) = fixture();
    let directory = tempfile::tempdir().unwrap();
    let path = killed(directory.path(), &roots, device, tree.path());
    fs::write(&path, &fs::read(&path).unwrap()[..100]).unwrap();
    let outcomes = restore_in(&roots, directory.path(), &[Until::Exit], None);
    let [Leftover::Damaged { path: aside, .. }] = &outcomes[..] else { panic!("{outcomes:?}") };
    assert!(aside.exists() && !path.exists());
    assert!(restore_in(&roots, directory.path(), &[Until::Exit], None).is_empty());
}
