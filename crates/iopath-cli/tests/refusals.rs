//! Targets that the program refuses to write, even with `--overwrite`, on loop devices.

use crate::loops::{Alone, Loop, run, text};
use crate::support::iopath;
use std::io::Read;
use std::path::Path;

/// Writing to `target` is refused in one line with its name and `reason`, and its content is unchanged.
fn refused(target: &Path, reason: &str) {
    let before = start_of(target);
    for path in ["kernel-direct", "iopath-direct"] {
        let args = ["run", "--path", path, "--rw", "write", "--size", "1m", "--repeat", "1", "--overwrite"];
        let run = iopath(&args).arg("--target").arg(target).output().unwrap();
        let stderr = String::from_utf8(run.stderr).unwrap();
        let line = stderr.lines().last().unwrap_or_default();
        assert_eq!(run.status.code(), Some(1), "{path} on {}: {stderr}", target.display());
        assert!(line.contains(text(target)) && line.contains(reason), "{line}");
    }
    assert!(start_of(target) == before, "{} was written to", target.display());
}

/// The first bytes of a target, where a refused write would begin. They have the header of a swap area, which the
/// kernel does not change; it may write further pages at any time.
fn start_of(target: &Path) -> Vec<u8> {
    let mut start = vec![0; 4096];
    std::fs::File::open(target).unwrap().read_exact(&mut start).unwrap();
    start
}

#[test]
fn a_mounted_device_its_disk_its_image_and_a_signature_are_refused() {
    let alone = or_skip!(Alone::wait());
    let mut device = or_skip!(Loop::new(&alone, 32, &[]));
    let partition = or_skip!(device.partition(1, 8, 16));
    or_skip!(run("mkfs.ext4", &["-q", text(&partition)]));
    refused(&partition, "ext");
    let mounted = or_skip!(device.mount(&partition));
    // A writable filesystem updates its superblock and its tables at any time.
    or_skip!(run("mount", &["-o", "remount,ro", text(&mounted)]));
    let (disk, image) = (device.device.clone(), device.image.clone());
    refused(&partition, "mounted");
    refused(&disk, "mounted");
    refused(&image, "loop device");
}

#[test]
fn swap_is_refused() {
    let alone = or_skip!(Alone::wait());
    let mut device = or_skip!(Loop::new(&alone, 8, &[]));
    let disk = device.device.clone();
    or_skip!(run("mkswap", &[text(&disk)]));
    refused(&disk, "swap");
    or_skip!(run("swapon", &[text(&disk)]));
    device.at_end(&["swapoff", text(&disk)]);
    refused(&disk, "active swap area");
}

#[test]
fn a_free_device_is_read_freely_and_written_on_request() {
    let alone = or_skip!(Alone::wait());
    let device = or_skip!(Loop::new(&alone, 8, &[]));
    for path in ["kernel-direct", "iopath-direct", "iopath-raw"] {
        let read = ["run", "--path", path, "--size", "1m", "--repeat", "1", "--target", text(&device.device)];
        assert!(iopath(&read).output().unwrap().status.success(), "{path} reads");
        let write = [&read[..], &["--rw", "write"]].concat();
        assert_eq!(iopath(&write).output().unwrap().status.code(), Some(1), "{path} refuses to write");
        let overwrite = [&write[..], &["--overwrite"]].concat();
        let run = iopath(&overwrite).output().unwrap();
        assert!(run.status.success(), "{path}: {}", String::from_utf8_lossy(&run.stderr));
    }
    assert!(std::fs::read(&device.device).unwrap()[..1 << 20].iter().any(|byte| *byte != 0), "written");
}

#[test]
fn results_and_logs_never_replace_a_device() {
    let alone = or_skip!(Alone::wait());
    let device = or_skip!(Loop::new(&alone, 8, &[]));
    let before = std::fs::read(&device.device).unwrap();
    for option in ["--json", "--log"] {
        let args = ["run", "--path", "null", "--size", "1m", "--repeat", "1", option, text(&device.device)];
        let run = iopath(&args).output().unwrap();
        let stderr = String::from_utf8(run.stderr).unwrap();
        let named = format!("({option})");
        assert_eq!(run.status.code(), Some(1), "{option}: {stderr}");
        assert!(stderr.contains("is a block device") && stderr.contains(&named), "{option}: {stderr}");
    }
    assert!(std::fs::read(&device.device).unwrap() == before, "the device was written to");
}
