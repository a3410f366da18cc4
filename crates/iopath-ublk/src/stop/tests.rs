//! The end of devices with the driver of the tests of `devices.rs`. Their disks have no nodes.

use super::*;
use crate::devices::NewDevice;
use crate::devices::tests::{NEW, PARAMS, TestControl, devices};

const LIMIT: Duration = Duration::from_millis(20);

/// A number that no test machine has as a device, so that no disk of another program is opened.
const NUMBER: u32 = 1_000_003;

fn live(devices: &mut Devices<TestControl>, instance: u32, is_recoverable: bool) -> DeviceInfo {
    let made = devices.add(&NewDevice { device: Some(NUMBER), instance, is_recoverable, ..NEW }).unwrap();
    devices.set_params(&made, &PARAMS).unwrap();
    devices.start(&made, std::process::id()).unwrap();
    made
}

fn set_state(devices: &mut Devices<TestControl>, state: DeviceState) {
    devices.control.devices.get_mut(&NUMBER).unwrap().info.state = state;
}

fn ended_process() -> u32 {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

#[test]
fn a_lost_queue_fails_a_device_unless_it_was_stopped() {
    let mut devices = devices();
    let device = live(&mut devices, 1, true);
    for state in [DeviceState::Live, DeviceState::Waiting] {
        set_state(&mut devices, state);
        assert!(has_failed(&mut devices, &device).unwrap(), "{state}");
        assert!(delete_stopped(&mut devices, &device, LIMIT).is_err(), "{state}: it is kept");
    }
    devices.stop(&device, LIMIT).unwrap();
    assert!(!has_failed(&mut devices, &device).unwrap(), "stopped by `detach`");
    delete_stopped(&mut devices, &device, LIMIT).unwrap();
    assert!(!has_failed(&mut devices, &device).unwrap(), "removed by `detach`");
}

#[test]
fn the_end_concerns_the_device_of_the_server_only() {
    let mut devices = devices();
    let first = live(&mut devices, 1, true);
    assert_eq!(stop_unless_left(&mut devices, &first).unwrap(), UblkEnd::Removed);
    devices.delete(&first).unwrap();
    let second = live(&mut devices, 2, true);
    assert_eq!(stop_unless_left(&mut devices, &first).unwrap(), UblkEnd::Removed);
    assert!(matches!(remove(&mut devices, &first, None, true, LIMIT), Err(UblkError::Missing(NUMBER))));
    assert_eq!(devices.now(&second).unwrap().unwrap().state, DeviceState::Live);
}

#[test]
fn a_second_detach_waits_for_the_server_whose_device_has_stopped() {
    let mut devices = devices();
    let device = live(&mut devices, 1, true);
    devices.stop(&device, LIMIT).unwrap();
    let server = std::process::id();
    let waits = remove(&mut devices, &device, Some(server), false, LIMIT).unwrap_err();
    assert!(matches!(waits, UblkError::ServerRuns { pid, .. } if pid == server.cast_signed()), "{waits}");
    assert!(devices.now(&device).unwrap().is_some(), "its server removes it");
    remove(&mut devices, &device, Some(ended_process()), false, LIMIT).unwrap();
    assert_eq!(devices.now(&device).unwrap(), None);
}

#[test]
fn a_device_without_a_server_is_stopped_and_removed() {
    let mut devices = devices();
    let device = live(&mut devices, 1, true);
    set_state(&mut devices, DeviceState::Waiting);
    devices.control.devices.get_mut(&NUMBER).unwrap().info.pid = -1;
    let serves_others = Some(std::process::id());
    remove(&mut devices, &device, serves_others, false, LIMIT).unwrap();
    assert_eq!(devices.now(&device).unwrap(), None);
}

#[test]
fn a_removal_waits_for_a_program_that_has_the_device_open_and_names_the_users_at_the_end() {
    let mut devices = devices();
    let device = live(&mut devices, 1, true);
    devices.stop(&device, LIMIT).unwrap();
    devices.control.busy_deletions = u32::MAX;
    let refused = delete_stopped(&mut devices, &device, LIMIT).unwrap_err();
    assert!(matches!(refused, UblkError::InUse { device: NUMBER, .. }), "{refused}");
    assert!(devices.now(&device).unwrap().is_some());
    devices.control.busy_deletions = 3;
    delete_stopped(&mut devices, &device, Duration::from_secs(60)).unwrap();
    assert_eq!(devices.now(&device).unwrap(), None);
}

/// A loop device of an image, which ends with it.
struct Loop(String);

impl Loop {
    fn new(image: &std::path::Path) -> Option<Self> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(image).output();
        let made =
            made.map(|made| String::from_utf8_lossy(&made.stdout).trim().to_owned()).unwrap_or_default();
        if made.is_empty() {
            eprintln!("skipped: no loop device");
            return None;
        }
        Some(Self(made))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_disk_that_a_program_has_for_a_moment_is_awaited() {
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(1 << 20).unwrap();
    let Some(disk) = Loop::new(image.path()) else { return };
    let path = disk.0.as_str();
    let moment = hold(path, Duration::from_secs(60)).unwrap().expect("it exists");
    let refused = hold(path, Duration::ZERO).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
    let released = std::thread::spawn(move || {
        std::thread::sleep(LIMIT);
        drop(moment);
    });
    assert!(hold(path, Duration::from_secs(60)).unwrap().is_some());
    released.join().unwrap();
    assert!(hold("/dev/no-such-disk", Duration::ZERO).unwrap().is_none());
}

#[test]
fn a_command_that_waits_for_a_silent_disk_is_given_up_and_its_error_is_shown() {
    let mut devices = devices();
    let device = live(&mut devices, 1, true);
    let command = |program: &str, argument: &str| {
        let mut command = Command::new(program);
        command.arg(argument);
        command
    };
    let silent = run(command("sleep", "600"), &device, LIMIT).unwrap_err();
    assert!(matches!(silent, UblkError::NoResponse { device: NUMBER, .. }), "{silent}");
    assert!(silent.to_string().contains("iopath detach --force"), "{silent}");
    let long = Duration::from_secs(60);
    run(command("true", ""), &device, long).unwrap();
    let failed = run(command("sync", "/no/such/file"), &device, long).unwrap_err().to_string();
    assert!(failed.contains("/no/such/file"), "{failed}");
}

#[test]
fn the_kernel_counts_completed_requests_and_those_in_flight() {
    let stat = "  10 1 80 5  20 2 160 9  3 12 14  4 0 32 1  6 2\n";
    assert_eq!(Requests::parse(stat), Requests { completed: 10 + 20 + 4 + 6, in_flight: 3 });
    assert_eq!(Requests::parse(""), Requests::default());
    // A disk without requests responds.
    let mut devices = devices();
    let device = live(&mut devices, 1, true);
    wait_for_response(&device, LIMIT).unwrap();
}
