//! The request that continues a device, and its target. No driver.

use std::cell::Cell;
use std::fs::File;
use std::io::Error;
use std::os::unix::fs::FileExt;
use std::process::Command;

use super::*;
use crate::serve::ServeMode;

fn request(target: &Path) -> AttachRequest {
    let volume = VolumeRequest {
        mode: ServeMode::ALL[0],
        elevator: None,
        cache_bytes: None,
        is_writable: true,
        overwrite: false,
        is_shared: false,
    };
    AttachRequest { targets: vec![target.to_owned()], volume, queues: None, device: None }
}

#[test]
fn a_record_has_the_target_and_options_of_its_request() {
    let volume = VolumeRequest {
        mode: ServeMode::ALL[1],
        elevator: Some("deadline:read_expire_ms=100".parse().unwrap()),
        cache_bytes: Some(1 << 20),
        is_writable: false,
        overwrite: true,
        is_shared: true,
    };
    let request = AttachRequest { volume, ..request(Path::new("model:hdd-20tb")) };
    let record = Record::of(&request, &request.targets[0], 1);
    let text = serde_json::to_string(&record).unwrap();
    let read: Record = serde_json::from_str(&text).unwrap();
    assert_eq!(format!("{read:?}"), format!("{record:?}"));
    assert_eq!(read.server, std::process::id());
    assert_eq!(format!("{:?}", read.request()), format!("{request:?}"));
    for known in [ServeMode::ALL[1].name(), "deadline:"] {
        assert!(serde_json::from_str::<Record>(&text.replace(known, "unknown")).is_err(), "{known}");
    }
}

#[test]
fn a_device_continues_on_a_target_with_its_file_system() {
    let Some((_image, path)) = loop_with_ext4() else { return };
    let first = request(&path);
    // Tests of other processes open each loop device for a moment.
    let open = |request: &AttachRequest| once_released(LEAVE, || options_of(&path, request, None));
    let is_refused = |request: &AttachRequest| {
        matches!(open(request), Err(ServeError::Open(OpenError::Refused(Refusal::Signature { .. }))))
    };
    assert!(is_refused(&first), "attach asks for --overwrite");
    let record = Record::of(&first, &path, 1);
    let none = AttachRequest { targets: Vec::new(), ..first.clone() };
    for next in [&none, &first] {
        let continued = continued(0, next, Some(&record)).unwrap();
        drop(open(&continued).expect("the file system is that of the device"));
    }
    let unknown = continued(0, &first, None).unwrap();
    assert!(is_refused(&unknown), "a target that is in no record");
    let other = AttachRequest { targets: vec!["/dev/null".into()], ..first };
    assert!(!continued(0, &other, Some(&record)).unwrap().volume.overwrite, "another target");
    assert!(matches!(continued(0, &none, None), Err(ServeError::NoTarget(_))));
}

/// A loop device with the magic number of ext4, which ends with the image.
struct Loop {
    device: String,
    _image: tempfile::NamedTempFile,
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
    }
}

fn loop_with_ext4() -> Option<(Loop, PathBuf)> {
    let image = tempfile::NamedTempFile::new().unwrap();
    let file: &File = image.as_file();
    file.set_len(8 << 20).unwrap();
    file.write_all_at(&[0x53, 0xef], 1024 + 56).unwrap();
    let made = Command::new("losetup").args(["--find", "--show"]).arg(image.path()).output();
    let Ok(made) = made.map(|made| String::from_utf8(made.stdout).unwrap().trim().to_owned()) else {
        eprintln!("skipped: no losetup");
        return None;
    };
    if made.is_empty() {
        eprintln!("skipped: no loop device");
        return None;
    }
    let path = PathBuf::from(&made);
    Some((Loop { device: made, _image: image }, path))
}

#[test]
fn the_target_of_a_killed_server_is_opened_once_it_is_released() {
    let attempts = Cell::new(0);
    let open = |refusal: fn() -> Refusal| {
        attempts.set(attempts.get() + 1);
        if attempts.get() < 3 { Err(ServeError::Open(refusal().into())) } else { Ok(()) }
    };
    let locked = || Refusal::Locked { target: "disk".into(), holder: "a program".to_owned() };
    let busy = || Refusal::Busy { target: "disk".into(), source: Error::from_raw_os_error(16) };
    for refusal in [locked, busy as fn() -> Refusal] {
        attempts.set(0);
        once_released(Duration::from_secs(60), || open(refusal)).unwrap();
        assert_eq!(attempts.get(), 3);
    }
    attempts.set(0);
    assert!(once_released(Duration::ZERO, || open(locked)).is_err(), "the wait has an end");
    attempts.set(0);
    let other = || Refusal::Directory { target: "disk".into() };
    assert!(once_released(Duration::from_secs(60), || open(other)).is_err(), "only a release is awaited");
    assert_eq!(attempts.get(), 1);
}
