//! The control commands of the driver as operations on devices. Makes no system calls: a [`Control`] executes them.

use std::io;
use std::time::Duration;

use iopath_os::ublk::{UblkCommand, UblkControl, UblkOp};
use rustix::io::Errno;

use crate::error::UblkError;
use crate::info::{
    DeviceInfo, DeviceState, INFO_BYTES, IOCTL_COMMANDS, RECOVERY, RECOVERY_REISSUE, UNPRIVILEGED, node_of,
};
use crate::params::{PARAMS_BYTES, Params};

/// The number of a device that the driver chooses.
const ANY_DEVICE: u32 = u32::MAX;

/// Longest time of a command that needs no I/O.
const QUICK: Duration = Duration::from_secs(30);

/// Longest wait until the users of a removed device have released it.
const RELEASE: Duration = Duration::from_secs(5);

/// Longest time of the start of a disk: the kernel reads its partitions.
const START: Duration = Duration::from_secs(120);

/// Executes control commands.
pub trait Control {
    /// Executes a command.
    ///
    /// # Errors
    /// The error of the driver. `TimedOut`: the command has not ended within this time.
    fn execute(&mut self, command: &mut UblkCommand<'_>, limit: Duration) -> io::Result<()>;
}

impl Control for UblkControl {
    fn execute(&mut self, command: &mut UblkCommand<'_>, limit: Duration) -> io::Result<()> {
        Self::execute(self, command, limit)
    }
}

/// A device to make.
#[derive(Debug, Clone, Copy)]
pub struct NewDevice {
    /// Its number; `None` for the first free one.
    pub device: Option<u32>,
    /// Queues. The driver limits them to the number of processors.
    pub queues: u16,
    /// Requests of each queue, at most 4096.
    pub depth: u16,
    /// The largest request with data, in bytes.
    pub buffer_bytes: u32,
    /// The device waits for another server after the end of the first, and issues its requests again.
    pub is_recoverable: bool,
    /// The user has no privileges.
    pub is_unprivileged: bool,
    /// A random number, which distinguishes the device from a later one of its number.
    pub instance: u32,
}

/// The devices of the driver.
#[derive(Debug)]
pub struct Devices<C = UblkControl> {
    pub(crate) control: C,
}

impl Devices {
    /// Opens the driver.
    ///
    /// # Errors
    /// [`UblkError::NoDriver`], [`UblkError::Permission`], [`UblkError::Driver`], [`UblkError::OldDriver`].
    pub fn open() -> Result<Self, UblkError> {
        let control = UblkControl::open().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => UblkError::NoDriver,
            io::ErrorKind::PermissionDenied => UblkError::Permission,
            _ => UblkError::Driver(error),
        })?;
        Self::new(control)
    }
}

impl<C: Control> Devices<C> {
    /// The devices of a control.
    ///
    /// # Errors
    /// [`UblkError::OldDriver`]: it does not know the commands.
    pub fn new(mut control: C) -> Result<Self, UblkError> {
        let mut features = [0; 8];
        let command = &mut UblkCommand {
            op: UblkOp::GetFeatures,
            device: 0,
            data: 0,
            path: "",
            payload: &mut features,
        };
        // A driver without this command reports EOPNOTSUPP or EINVAL.
        control.execute(command, QUICK).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => UblkError::Driver(error),
            _ => UblkError::OldDriver,
        })?;
        if u64::from_ne_bytes(features) & IOCTL_COMMANDS == 0 {
            return Err(UblkError::OldDriver);
        }
        Ok(Self { control })
    }

    /// Makes a device without a disk. Returns what the driver has made.
    ///
    /// # Errors
    /// [`UblkError::Refused`].
    pub fn add(&mut self, new: &NewDevice) -> Result<DeviceInfo, UblkError> {
        let recovery = if new.is_recoverable { RECOVERY | RECOVERY_REISSUE } else { 0 };
        let device = new.device.unwrap_or(ANY_DEVICE);
        let asked = DeviceInfo {
            device,
            queues: new.queues,
            depth: new.depth,
            buffer_bytes: new.buffer_bytes,
            state: DeviceState::Dead,
            pid: 0,
            is_ours: true,
            instance: new.instance,
            flags: recovery | IOCTL_COMMANDS | if new.is_unprivileged { UNPRIVILEGED } else { 0 },
        };
        let mut payload = asked.to_bytes();
        let command =
            &mut UblkCommand { op: UblkOp::AddDevice, device, data: 0, path: "", payload: &mut payload };
        let refused = UblkError::refused(new.device.unwrap_or_default(), "make a device");
        self.control.execute(command, QUICK).map_err(refused)?;
        Ok(DeviceInfo::from_bytes(&payload))
    }

    /// The state of a device.
    ///
    /// # Errors
    /// [`UblkError::Missing`], [`UblkError::Refused`].
    pub fn info(&mut self, device: u32) -> Result<DeviceInfo, UblkError> {
        let mut payload = [0; INFO_BYTES];
        let path = &node_of(device);
        let command =
            &mut UblkCommand { op: UblkOp::GetDeviceInfo, device, data: 0, path, payload: &mut payload };
        self.control.execute(command, QUICK).map_err(|source| {
            // The node disappears before the device.
            if matches!(Errno::from_io_error(&source), Some(Errno::NODEV | Errno::NOENT)) {
                return UblkError::Missing(device);
            }
            UblkError::Refused { device, what: "show its state", source }
        })?;
        Ok(DeviceInfo::from_bytes(&payload))
    }

    /// The present state of this device; `None` if it is removed, even if another one has its number.
    ///
    /// # Errors
    /// [`UblkError::Refused`].
    pub fn now(&mut self, device: &DeviceInfo) -> Result<Option<DeviceInfo>, UblkError> {
        match self.info(device.device) {
            Ok(now) if (now.is_ours, now.instance) == (device.is_ours, device.instance) => Ok(Some(now)),
            Ok(_) | Err(UblkError::Missing(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets the parameters of the disk, before its start.
    ///
    /// # Errors
    /// [`UblkError::Refused`].
    pub fn set_params(&mut self, device: &DeviceInfo, params: &Params) -> Result<(), UblkError> {
        self.execute(device, UblkOp::SetParameters, 0, &mut params.to_bytes(), QUICK)
            .map_err(UblkError::refused(device.device, "set the parameters of the disk"))
    }

    /// The parameters of the disk.
    ///
    /// # Errors
    /// [`UblkError::Refused`].
    pub fn params(&mut self, device: &DeviceInfo) -> Result<Params, UblkError> {
        let mut payload = [0; PARAMS_BYTES];
        payload[..4].copy_from_slice(&(PARAMS_BYTES as u32).to_ne_bytes());
        self.execute(device, UblkOp::GetParameters, 0, &mut payload, QUICK)
            .map_err(UblkError::refused(device.device, "show the parameters of the disk"))?;
        Ok(Params::from_bytes(&payload))
    }

    /// Adds the disk. The queues of process `pid` wait for requests.
    ///
    /// # Errors
    /// [`UblkError::Refused`].
    pub fn start(&mut self, device: &DeviceInfo, pid: u32) -> Result<(), UblkError> {
        self.execute(device, UblkOp::StartDevice, u64::from(pid), &mut [], START)
            .map_err(UblkError::refused(device.device, "start the disk"))
    }

    /// Removes the disk. The server completes its requests.
    ///
    /// # Errors
    /// [`UblkError::Refused`], after `limit` at the latest.
    pub fn stop(&mut self, device: &DeviceInfo, limit: Duration) -> Result<(), UblkError> {
        self.execute(device, UblkOp::StopDevice, 0, &mut [], limit)
            .map_err(UblkError::refused(device.device, "stop the disk"))
    }

    /// Removes the device, which has stopped, and whose server has closed it. Success if it is removed already. Its
    /// number is free after the last use, such as a mount of the stopped disk, which is not awaited.
    ///
    /// # Errors
    /// [`UblkError::NotStopped`], [`UblkError::Refused`].
    pub fn delete(&mut self, device: &DeviceInfo) -> Result<(), UblkError> {
        // The driver removes any device of this number, and fails the requests of one that has not stopped.
        match self.now(device)? {
            None => return Ok(()),
            Some(DeviceInfo { state: DeviceState::Dead, .. }) => {}
            Some(DeviceInfo { device, state, .. }) => return Err(UblkError::NotStopped { device, state }),
        }
        match self.execute(device, UblkOp::DeleteDevice, 0, &mut [], RELEASE) {
            // The driver has removed it, and waits for its last user only.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(()),
            Err(error) if !matches!(Errno::from_io_error(&error), Some(Errno::NODEV | Errno::NOENT)) => {
                Err(UblkError::refused(device.device, "remove the device")(error))
            }
            _ => Ok(()),
        }
    }

    /// Prepares a device whose server has ended for the queues of another one.
    ///
    /// # Errors
    /// [`UblkError::Refused`].
    pub fn start_recovery(&mut self, device: &DeviceInfo) -> Result<(), UblkError> {
        self.execute(device, UblkOp::StartRecovery, 0, &mut [], QUICK)
            .map_err(UblkError::refused(device.device, "prepare the device for another server"))
    }

    /// Continues the device. The queues of process `pid` wait for requests.
    ///
    /// # Errors
    /// [`UblkError::Refused`].
    pub fn end_recovery(&mut self, device: &DeviceInfo, pid: u32) -> Result<(), UblkError> {
        self.execute(device, UblkOp::EndRecovery, u64::from(pid), &mut [], START)
            .map_err(UblkError::refused(device.device, "continue the disk"))
    }

    /// For a device of a user without privileges, the driver checks the permission of its node.
    fn execute(
        &mut self,
        device: &DeviceInfo,
        op: UblkOp,
        data: u64,
        payload: &mut [u8],
        limit: Duration,
    ) -> io::Result<()> {
        let node = if device.flags & UNPRIVILEGED == 0 { String::new() } else { node_of(device.device) };
        let command = &mut UblkCommand { op, device: device.device, data, path: &node, payload };
        self.control.execute(command, limit)
    }
}

#[cfg(test)]
pub(crate) mod tests;
