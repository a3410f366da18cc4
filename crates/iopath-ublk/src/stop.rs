//! The end of a device: stops its disk, and removes it after its server. Waits with a limit. The server's own threads
//! end in `server.rs`.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::devices::{Control, Devices, disk_of};
use crate::error::UblkError;
use crate::info::{DeviceInfo, DeviceState};

/// Interval of the checks for the end of a server.
const POLL: Duration = Duration::from_millis(10);

/// The driver stops a disk for as long as its requests complete: the caller watches them.
const STOP: Duration = Duration::from_secs(3600);

/// The end of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UblkEnd {
    /// The device is removed.
    Removed,
    /// The device is in use, and waits for another server.
    Left,
}

/// Stops a device, or finds that it can be left because it is in use.
pub(crate) fn stop_unless_left<C: Control>(
    devices: &mut Devices<C>,
    device: &DeviceInfo,
) -> Result<UblkEnd, UblkError> {
    // Read now: at its start, the device had no disk yet.
    let Some(info) = devices.now(device)? else { return Ok(UblkEnd::Removed) };
    match stop_unused(devices, &info, STOP) {
        Err(UblkError::InUse(_)) if info.is_recoverable() => Ok(UblkEnd::Left),
        Err(UblkError::InUse(_)) => devices.stop(&info, STOP).map(|()| UblkEnd::Removed),
        other => other.map(|()| UblkEnd::Removed),
    }
}

/// Stops the disk if nothing has it open exclusively, such as a mount, after its dirty pages are written.
fn stop_unused<C: Control>(
    devices: &mut Devices<C>,
    info: &DeviceInfo,
    limit: Duration,
) -> Result<(), UblkError> {
    let device = info.device;
    let flags = (OFlags::EXCL | OFlags::CLOEXEC).bits().cast_signed();
    let path = disk_of(device);
    let held = match File::options().read(true).custom_flags(flags).open(&path) {
        Ok(held) => Some(held),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => {
            return Err(UblkError::InUse(device));
        }
        Err(source) => return Err(UblkError::Node { path, source }),
    };
    // Without a server, the write would wait for one.
    if let Some(held) = held.as_ref().filter(|_| info.state == DeviceState::Live) {
        held.sync_data().map_err(|source| UblkError::Node { path, source })?;
    }
    devices.stop(info, limit)
}

/// Whether a device whose server has lost a queue has not been stopped: its requests must wait for another server.
pub(crate) fn has_failed<C: Control>(
    devices: &mut Devices<C>,
    device: &DeviceInfo,
) -> Result<bool, UblkError> {
    // The driver marks a stopped device before it ends the queues.
    Ok(devices.now(device)?.is_some_and(|now| now.state != DeviceState::Dead))
}

/// Removes a device that the driver stops after the end of its server.
///
/// # Errors
/// [`UblkError::NotStopped`] after `limit`.
pub(crate) fn delete_stopped<C: Control>(
    devices: &mut Devices<C>,
    device: &DeviceInfo,
    limit: Duration,
) -> Result<(), UblkError> {
    let until = Instant::now() + limit;
    loop {
        match devices.delete(device) {
            Err(UblkError::NotStopped { .. }) if Instant::now() < until => std::thread::sleep(POLL),
            other => return other,
        }
    }
}

/// Removes a device of iopath, with or without its server. `server` is the last known process of the server: a device
/// that has stopped does not name it, while its flush may go on.
///
/// # Errors
/// [`UblkError::InUse`], [`UblkError::NotOurs`], unless forced: a mounted file system then loses unwritten data.
/// [`UblkError::ServerRuns`] if the server does not end within this time.
pub fn detach(
    device: &DeviceInfo,
    server: Option<u32>,
    is_forced: bool,
    limit: Duration,
) -> Result<(), UblkError> {
    remove(&mut Devices::open()?, device, server, is_forced, limit)
}

fn remove<C: Control>(
    devices: &mut Devices<C>,
    device: &DeviceInfo,
    server: Option<u32>,
    is_forced: bool,
    limit: Duration,
) -> Result<(), UblkError> {
    let Some(mut info) = devices.now(device)? else { return Err(UblkError::Missing(device.device)) };
    if !info.is_ours && !is_forced {
        return Err(UblkError::NotOurs(device.device));
    }
    let pid = match info.state {
        DeviceState::Dead => server.map_or(-1, u32::cast_signed),
        // A server that has left a device may serve others.
        _ => info.pid,
    };
    if info.state == DeviceState::Live && !is_running(pid) {
        // Its server was killed just now.
        info.state = DeviceState::Waiting;
    }
    match info.state {
        DeviceState::Dead => {}
        _ if is_forced => devices.stop(&info, limit)?,
        _ => stop_unused(devices, &info, limit)?,
    }
    // The server flushes its target and removes the device.
    let until = Instant::now() + limit;
    while is_running(pid) {
        if matches!(devices.now(device), Ok(None)) {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(UblkError::ServerRuns { device: device.device, pid, seconds: limit.as_secs() });
        }
        std::thread::sleep(POLL);
    }
    delete_stopped(devices, device, limit)
}

/// Whether a process runs. One that has ended, and whose parent has not asked for its exit code, does not.
pub(crate) fn is_running(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before the state may contain anything.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

#[cfg(test)]
mod tests;
