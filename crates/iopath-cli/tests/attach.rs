//! `iopath attach` and `iopath detach` as processes. A guest with the driver: `cargo xtask guest --attach`.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use iopath_report::fixtures::openmetrics::parse;

use crate::serving::Serving;
use crate::support::{iopath, scratch_directory};
use rustix::process::Signal;

const CONTROL: &str = "/dev/ublk-control";

/// The exit code and the message of a command that fails.
fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let output = iopath(arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?}");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn without_the_driver_each_command_names_the_module() {
    if Path::new(CONTROL).exists() {
        eprintln!("skipped: this kernel has the driver");
        return;
    }
    let commands: [&[&str]; 5] = [
        &["attach", "data.bin"],
        &["attach", "--list"],
        &["attach", "--recover", "0"],
        &["detach", "0"],
        &["detach", "--all"],
    ];
    for command in commands {
        let (code, message) = refused(command);
        assert_eq!(code, Some(1), "{command:?}: {message}");
        assert!(message.contains("modprobe ublk_drv"), "{command:?}: {message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn arguments_that_no_machine_accepts_are_refused() {
    let commands: [(&[&str], &str); 6] = [
        (&["attach"], "required"),
        (&["attach", "--list", "data.bin"], "cannot be used with"),
        (&["attach", "data.bin", "--queues", "0"], "invalid value"),
        (&["attach", "data.bin", "--read-only", "--overwrite"], "cannot be used with"),
        (&["detach"], "required"),
        (&["detach", "/dev/sda"], "is not a device of iopath"),
    ];
    for (command, expected) in commands {
        let (code, message) = refused(command);
        assert_eq!(code, Some(2), "{command:?}: {message}");
        assert!(message.contains(expected), "{command:?}: {message}");
    }
}

#[test]
fn a_target_is_a_block_device_until_it_is_detached() {
    if std::fs::File::options().write(true).open(CONTROL).is_err() || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: no ublk driver, or not root");
        return;
    }
    let Some(folder) = scratch_directory() else { return };
    let file = folder.path().join("disk");
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    let metrics = folder.path().join("metrics.prom");
    let mut serving =
        Serving::start(&["attach", file.to_str().unwrap(), "--metrics", metrics.to_str().unwrap()]);
    let device = serving.line();
    assert!(device.starts_with("/dev/ublkb"), "{device}");
    let list = iopath(&["attach", "--list"]).output().unwrap();
    assert!(String::from_utf8_lossy(&list.stdout).contains(&device));
    {
        let mut block = std::fs::File::options().read(true).write(true).open(&device).unwrap();
        block.seek(SeekFrom::Start(4096)).unwrap();
        block.write_all(&[9; 4096]).unwrap();
        block.sync_all().unwrap();
        block.rewind().unwrap();
        let mut bytes = [0; 8192];
        block.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, *[[7; 4096], [9; 4096]].as_flattened());
    }
    assert!(iopath(&["detach", &device]).status().unwrap().success());
    assert!(!Path::new(&device).exists());
    let (code, stderr) = serving.end(Signal::CONT);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(std::fs::read(&file).unwrap()[4096], 9);
    let text = std::fs::read_to_string(&metrics).unwrap();
    let samples = parse(&text).unwrap_or_else(|problem| panic!("{problem}\n{text}"));
    let written = samples.iter().find(|sample| sample.name == "iopath_transferred_bytes_total").unwrap();
    assert!(written.value >= 4096.0, "{text}");
}
