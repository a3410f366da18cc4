//! The life of devices with a driver of these tests, which has the rules of the kernel's.

use std::collections::BTreeMap;

use super::*;

/// A device of the driver.
#[derive(Debug)]
pub(crate) struct TestDevice {
    pub(crate) info: DeviceInfo,
    params: Option<Vec<u8>>,
    is_recovering: bool,
}

/// A driver.
#[derive(Debug, Default)]
pub(crate) struct TestControl {
    is_old: bool,
    has_privileges: bool,
    /// The removed disk is mounted.
    is_in_use: bool,
    /// Removals that are refused because a program has the device open.
    pub(crate) busy_deletions: u32,
    pub(crate) devices: BTreeMap<u32, TestDevice>,
}

impl Control for TestControl {
    fn execute(&mut self, command: &mut UblkCommand<'_>, _limit: Duration) -> io::Result<()> {
        self.run(command).map_err(Into::into)
    }
}

impl TestControl {
    fn run(&mut self, command: &mut UblkCommand<'_>) -> Result<(), Errno> {
        match command.op {
            UblkOp::GetFeatures if self.is_old => return Err(Errno::OPNOTSUPP),
            UblkOp::GetFeatures => {
                command.payload.copy_from_slice(&IOCTL_COMMANDS.to_ne_bytes());
                return Ok(());
            }
            UblkOp::AddDevice => return self.add(command),
            _ => {}
        }
        let device = self.devices.get_mut(&command.device).ok_or(Errno::NODEV)?;
        let is_privileged = device.info.flags & UNPRIVILEGED == 0;
        if is_privileged && !self.has_privileges {
            return Err(Errno::PERM);
        }
        // The path is read for these devices, and for this command, only: else it would be taken for the structure.
        if (!is_privileged || command.op == UblkOp::GetDeviceInfo)
            != (command.path == node_of(command.device))
        {
            return Err(Errno::INVAL);
        }
        match command.op {
            UblkOp::GetDeviceInfo => command.payload.copy_from_slice(&device.info.to_bytes()),
            UblkOp::SetParameters => device.params = Some(command.payload.to_vec()),
            UblkOp::GetParameters => {
                command.payload.copy_from_slice(device.params.as_ref().ok_or(Errno::INVAL)?);
            }
            UblkOp::StartDevice if device.params.is_none() || command.data == 0 => return Err(Errno::INVAL),
            UblkOp::StartDevice if device.info.state != DeviceState::Dead => return Err(Errno::EXIST),
            UblkOp::EndRecovery if !device.is_recovering => return Err(Errno::BUSY),
            UblkOp::StartDevice | UblkOp::EndRecovery => {
                device.info.state = DeviceState::Live;
                device.info.pid = command.data as i32;
                device.is_recovering = false;
            }
            UblkOp::StopDevice => {
                device.info.state = DeviceState::Dead;
                device.info.pid = -1;
            }
            UblkOp::StartRecovery if device.info.state != DeviceState::Waiting => return Err(Errno::BUSY),
            UblkOp::StartRecovery => device.is_recovering = true,
            UblkOp::DeleteDevice if self.busy_deletions > 0 => {
                self.busy_deletions -= 1;
                return Err(Errno::BUSY);
            }
            UblkOp::DeleteDevice if self.is_in_use => return Err(Errno::TIMEDOUT),
            UblkOp::DeleteDevice => drop(self.devices.remove(&command.device)),
            UblkOp::GetFeatures | UblkOp::AddDevice => unreachable!(),
        }
        Ok(())
    }

    fn add(&mut self, command: &mut UblkCommand<'_>) -> Result<(), Errno> {
        let mut info = DeviceInfo::from_bytes(command.payload.first_chunk().ok_or(Errno::INVAL)?);
        if !self.has_privileges && info.flags & UNPRIVILEGED == 0 {
            return Err(Errno::PERM);
        }
        if info.flags & UNPRIVILEGED != 0 {
            info.flags &= !(RECOVERY | RECOVERY_REISSUE);
        }
        assert_eq!(info.device, command.device);
        if info.device == ANY_DEVICE {
            info.device = (0..64).find(|device| !self.devices.contains_key(device)).unwrap_or_default();
        }
        if self.devices.contains_key(&info.device) {
            return Err(Errno::EXIST);
        }
        info.queues = info.queues.min(2);
        command.payload.copy_from_slice(&info.to_bytes());
        self.devices.insert(info.device, TestDevice { info, params: None, is_recovering: false });
        Ok(())
    }
}

pub(crate) const NEW: NewDevice = NewDevice {
    device: None,
    queues: 4,
    depth: 64,
    buffer_bytes: 1 << 19,
    is_recoverable: true,
    is_unprivileged: false,
    instance: 1,
};

pub(crate) const PARAMS: Params = Params {
    sectors: 2048,
    block_bytes: 512,
    preferred_bytes: 4096,
    request_bytes_max: 1 << 19,
    is_writable: true,
    has_discard: true,
    has_zeroes: true,
};

pub(crate) fn devices() -> Devices<TestControl> {
    Devices::new(TestControl { has_privileges: true, ..TestControl::default() }).unwrap()
}

#[test]
fn a_device_is_made_started_stopped_and_removed() {
    let mut devices = devices();
    let made = devices.add(&NEW).unwrap();
    assert_eq!((made.device, made.queues, made.state), (0, 2, DeviceState::Dead));
    assert!(made.is_recoverable() && made.is_ours);
    assert!(devices.start(&made, 7).is_err(), "a disk needs parameters");
    devices.set_params(&made, &PARAMS).unwrap();
    assert_eq!(devices.params(&made).unwrap(), PARAMS);
    devices.start(&made, 7).unwrap();
    let live = devices.info(0).unwrap();
    assert_eq!((live.state, live.pid, live.is_ours), (DeviceState::Live, 7, true));
    let second = devices.add(&NEW).unwrap();
    assert_eq!(second.device, 1);
    devices.stop(&live, QUICK).unwrap();
    assert_eq!(devices.info(0).unwrap().state, DeviceState::Dead);
    devices.delete(&live).unwrap();
    assert!(matches!(devices.info(0), Err(UblkError::Missing(0))));
    devices.delete(&live).unwrap();
}

#[test]
fn only_the_same_device_is_removed_and_only_after_its_stop() {
    let mut devices = devices();
    let first = devices.add(&NEW).unwrap();
    devices.set_params(&first, &PARAMS).unwrap();
    devices.start(&first, 7).unwrap();
    for state in [DeviceState::Live, DeviceState::Waiting] {
        devices.control.devices.get_mut(&0).unwrap().info.state = state;
        let refused = devices.delete(&first).unwrap_err();
        assert!(matches!(refused, UblkError::NotStopped { device: 0, .. }), "{refused}");
    }
    devices.stop(&first, QUICK).unwrap();
    devices.control.is_in_use = true;
    devices.delete(&first).unwrap();
    devices.control.is_in_use = false;
    devices.delete(&first).unwrap();
    let second = devices.add(&NewDevice { instance: 2, ..NEW }).unwrap();
    assert_eq!(second.device, first.device);
    assert_eq!(devices.now(&first).unwrap(), None);
    devices.delete(&first).unwrap();
    assert_eq!(devices.now(&second).unwrap(), Some(second));
}

#[test]
fn a_device_whose_server_has_ended_continues_with_another() {
    let mut devices = devices();
    let made = devices.add(&NEW).unwrap();
    devices.set_params(&made, &PARAMS).unwrap();
    devices.start(&made, 7).unwrap();
    let refused = devices.start_recovery(&made).unwrap_err();
    assert!(refused.to_string().contains("device 0"), "{refused}");
    devices.control.devices.get_mut(&0).unwrap().info.state = DeviceState::Waiting;
    assert!(devices.end_recovery(&made, 8).is_err(), "not before the start");
    devices.start_recovery(&made).unwrap();
    devices.end_recovery(&made, 8).unwrap();
    let live = devices.info(0).unwrap();
    assert_eq!((live.state, live.pid), (DeviceState::Live, 8));
}

#[test]
fn a_user_without_privileges_names_the_node() {
    let mut devices = Devices::new(TestControl::default()).unwrap();
    let refused = devices.add(&NEW).unwrap_err().to_string();
    assert!(refused.contains("make a device"), "{refused}");
    let made = devices.add(&NewDevice { is_unprivileged: true, ..NEW }).unwrap();
    assert!(!made.is_recoverable(), "the driver refuses it");
    devices.set_params(&made, &PARAMS).unwrap();
    devices.start(&made, 7).unwrap();
    let live = devices.info(made.device).unwrap();
    devices.stop(&live, QUICK).unwrap();
    devices.delete(&live).unwrap();
}

#[test]
fn a_number_that_exists_and_an_old_driver_are_refused() {
    let mut devices = devices();
    let new = NewDevice { device: Some(5), ..NEW };
    assert_eq!(devices.add(&new).unwrap().device, 5);
    let refused = devices.add(&new).unwrap_err().to_string();
    assert!(refused.contains("device 5"), "{refused}");
    let old = Devices::new(TestControl { is_old: true, ..TestControl::default() });
    assert!(matches!(old, Err(UblkError::OldDriver)));
}
