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
    let mut child = std::process::Command::new("true").spawn().unwrap();
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
