//! The end of a device: stops its disk, and removes it after its server. Waits with a limit. The server's own threads
//! end in `server.rs`.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use iopath_os::target::Users;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::devices::{Control, Devices};
use crate::error::UblkError;
use crate::info::{DeviceInfo, DeviceState, disk_of};
use crate::progress::Progress;

/// Interval of the checks for the end of a server or of a use.
const POLL: Duration = Duration::from_millis(10);

/// Longest wait for a use that ends by itself, such as that of a program of udev.
pub(crate) const RELEASE: Duration = Duration::from_secs(5);

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
        Err(UblkError::InUse { .. }) if info.is_recoverable() => Ok(UblkEnd::Left),
        Err(UblkError::InUse { .. }) => stop(devices, &info, STOP).map(|()| UblkEnd::Removed),
        other => other.map(|()| UblkEnd::Removed),
    }
}

/// Stops the disk if nothing has it open exclusively, such as a mount, after its dirty pages are written.
fn stop_unused<C: Control>(
    devices: &mut Devices<C>,
    info: &DeviceInfo,
    limit: Duration,
) -> Result<(), UblkError> {
    let held = hold(&disk_of(info.device), RELEASE).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => UblkError::in_use(info.device),
        _ => UblkError::Node { path: disk_of(info.device), source: error },
    })?;
    // Without a server, the write would wait for one.
    if held.is_some() && info.state == DeviceState::Live {
        write_back(info, limit)?;
    }
    stop(devices, info, limit)
}

/// Stops the disk, with its users.
fn stop<C: Control>(devices: &mut Devices<C>, info: &DeviceInfo, limit: Duration) -> Result<(), UblkError> {
    if info.state == DeviceState::Live {
        wait_for_response(info, limit)?;
    }
    devices.stop(info, limit)
}

/// Opens a disk exclusively; `None` if it does not exist. Waits for users that have it for a moment only, such as
/// programs of udev.
fn hold(path: &str, limit: Duration) -> io::Result<Option<File>> {
    let flags = (OFlags::EXCL | OFlags::CLOEXEC).bits().cast_signed();
    let until = Instant::now() + limit;
    loop {
        match File::options().read(true).custom_flags(flags).open(path) {
            Ok(held) => return Ok(Some(held)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                if Instant::now() >= until || Users::are_lasting(path) {
                    return Err(error);
                }
                std::thread::sleep(POLL);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Writes the dirty pages of a disk with `sync(1)`. A thread of this process that waited for a target which does not
/// respond would keep the process from its end, and a server from closing its device.
fn write_back(info: &DeviceInfo, limit: Duration) -> Result<(), UblkError> {
    let mut command = Command::new("sync");
    command.arg("-d").arg(disk_of(info.device));
    run(command, info, limit)
}

/// Runs a command as long as requests of the disk complete.
fn run(mut command: Command, info: &DeviceInfo, limit: Duration) -> Result<(), UblkError> {
    let failed = |source| UblkError::WriteBack { device: info.device, source };
    iopath_os::keep_child_status();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    // One that waits for the disk ends with the wait.
    while_requests_complete(info, limit, || child.try_wait().map_err(failed))
        .inspect_err(|_| drop(child.kill()))?;
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(io::Error::other(String::from_utf8_lossy(&output.stderr).trim_end().to_owned())))
}

/// Waits until a request completes, if there are any. The driver waits for all of them when it stops a disk, in a way
/// that keeps this process from its end.
fn wait_for_response(info: &DeviceInfo, limit: Duration) -> Result<(), UblkError> {
    let before = Requests::of(info.device);
    while_requests_complete(info, limit, || {
        let now = Requests::of(info.device);
        Ok((now.in_flight == 0 || now.completed != before.completed).then_some(()))
    })
}

/// Calls `poll` until it returns a result, as long as requests of the disk complete.
fn while_requests_complete<T>(
    info: &DeviceInfo,
    limit: Duration,
    mut poll: impl FnMut() -> Result<Option<T>, UblkError>,
) -> Result<T, UblkError> {
    let completed = || Requests::of(info.device).completed;
    let mut progress = Progress::new(completed(), limit, Instant::now());
    loop {
        if let Some(result) = poll()? {
            return Ok(result);
        }
        let now = Instant::now();
        if progress.is_due(now) {
            progress.advance(completed(), now);
        }
        if progress.is_late(now) {
            let DeviceInfo { device, pid, .. } = *info;
            return Err(UblkError::NoResponse { device, pid, seconds: limit.as_secs() });
        }
        std::thread::sleep(POLL);
    }
}

/// The requests of a disk, as the kernel counts them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Requests {
    completed: u64,
    in_flight: u64,
}

impl Requests {
    /// None if the disk does not exist.
    fn of(device: u32) -> Self {
        let stat = std::fs::read_to_string(format!("/sys/block/ublkb{device}/stat")).unwrap_or_default();
        Self::parse(&stat)
    }

    /// The columns of reads, writes, discards and flushes, and that of requests in flight
    /// (`Documentation/block/stat.rst`).
    fn parse(stat: &str) -> Self {
        let columns: Vec<u64> = stat.split_whitespace().filter_map(|column| column.parse().ok()).collect();
        let column = |index: usize| columns.get(index).copied().unwrap_or_default();
        Self { completed: [0, 4, 11, 15].into_iter().map(column).sum(), in_flight: column(8) }
    }
}

/// Whether a device whose server has lost a queue has not been stopped: its requests must wait for another server.
pub(crate) fn has_failed<C: Control>(
    devices: &mut Devices<C>,
    device: &DeviceInfo,
) -> Result<bool, UblkError> {
    // The driver marks a stopped device before it ends the queues.
    Ok(devices.now(device)?.is_some_and(|now| now.state != DeviceState::Dead))
}

/// Removes a device that the driver stops after the end of its server, once its last user permits it.
///
/// # Errors
/// [`UblkError::NotStopped`], [`UblkError::InUse`] after `limit`.
pub(crate) fn delete_stopped<C: Control>(
    devices: &mut Devices<C>,
    device: &DeviceInfo,
    limit: Duration,
) -> Result<(), UblkError> {
    let until = Instant::now() + limit;
    loop {
        let error = match devices.delete(device) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let is_busy = error.errno() == Some(Errno::BUSY);
        if !is_busy && !matches!(error, UblkError::NotStopped { .. }) {
            return Err(error);
        }
        if Instant::now() >= until {
            return Err(if is_busy { UblkError::in_use(device.device) } else { error });
        }
        std::thread::sleep(POLL);
    }
}

/// Removes a device of iopath, with or without its server. `server` is the last known process of the server: a device
/// that has stopped does not name it, while its flush may go on.
///
/// # Errors
/// [`UblkError::InUse`], [`UblkError::NotOurs`], unless forced: a mounted file system then loses unwritten data.
/// [`UblkError::NoResponse`], [`UblkError::ServerRuns`]: its requests do not complete, or its server does not end,
/// within this time.
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
        _ if is_forced => stop(devices, &info, limit)?,
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
