//! Targets as block devices of the kernel: opens them, starts or continues their devices, and stops them on a signal. A
//! record of each device (`attach/record.rs`) names its target for the next server. The ends of the devices:
//! `attach/running.rs`. The device itself: `iopath-ublk`.

mod record;
mod running;

use std::fs;
use std::io::ErrorKind;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use iopath::{IoMode, OpenError};
use iopath_nbd::ServeTotals;
use iopath_os::target::Refusal;
use iopath_ublk::{DeviceInfo, Devices, LEAVE, UblkError, UblkOptions, UblkServer};

use super::volume::{model_of, volume_of};
use super::watch::{Watched, watch};
use super::{ServeError, ServeRates, VolumeRequest, service, stop_on_signals};
use record::Record;
pub use running::AttachEnd;
use running::Running;

/// Longest time without progress at the end.
const STOP_LIMIT: Duration = Duration::from_secs(40);

/// Interval of the attempts to open a target that the last server still has.
const POLL: Duration = Duration::from_millis(10);

/// Requests of a queue. The kernel keeps further ones.
const DEPTH: u16 = 128;

/// The devices of the driver.
const DEVICES: &str = "/sys/class/ublk-char";

/// Targets that become block devices.
#[derive(Clone, Debug)]
pub struct AttachRequest {
    /// Files, block devices, models (`model:NAME`), stripes and NBD URIs: a device for each.
    pub targets: Vec<PathBuf>,
    /// How the targets are opened.
    pub volume: VolumeRequest,
    /// Queues, each with a thread; `None` for one for each processor, or one if their requests are ordered.
    pub queues: Option<u16>,
    /// The number of the first device; `None` for any.
    pub device: Option<u32>,
}

/// The devices of a process.
#[derive(Debug)]
pub struct Attaching {
    running: Mutex<Running>,
    /// Set by the first signal.
    stop: Arc<AtomicBool>,
    /// The paths of the block devices.
    pub paths: Vec<String>,
}

/// A device of iopath.
#[derive(Clone, Debug)]
pub struct AttachedDevice {
    /// The state in the driver.
    pub info: DeviceInfo,
    /// The target, if there is a record of it.
    pub target: Option<PathBuf>,
}

/// Opens the targets and starts a device for each.
///
/// # Errors
/// [`ServeError`]: there is no driver, or a target cannot be opened.
pub fn attach(request: &AttachRequest) -> Result<Attaching, ServeError> {
    // Before the targets are opened: a missing driver is the first thing to know.
    drop(Devices::open()?);
    let mut attaching = Attaching::new();
    for (number, target) in request.targets.iter().enumerate() {
        let device = request.device.map(|first| first + number as u32);
        match options_of(target, request, device).and_then(|options| Ok(UblkServer::start(options)?)) {
            Ok(server) => attaching.add(server, request, target),
            Err(error) => {
                // The devices that were started before are removed.
                let _ = attaching.into_running().stop();
                return Err(error);
            }
        }
    }
    attaching.announce();
    Ok(attaching)
}

/// Continues a device whose server has ended: with the target and options of its record, or those of the request.
///
/// # Errors
/// [`ServeError`]: there is no driver, the device does not wait for a server, or the target is not that of the device.
pub fn recover(device: u32, request: &AttachRequest) -> Result<Attaching, ServeError> {
    drop(Devices::open()?);
    let mut attaching = Attaching::new();
    // Before the target is opened: the last server has it until its end.
    let info = iopath_ublk::wait_for_end(device)?;
    let request = continued(device, request, Record::load(&info).as_ref())?;
    let target = &request.targets[0];
    let options = once_released(LEAVE, || options_of(target, &request, None))?;
    let server = UblkServer::recover(device, options)?;
    attaching.add(server, &request, target);
    attaching.announce();
    Ok(attaching)
}

/// The request that continues a device, from its record or with the target of a request.
fn continued(
    device: u32,
    request: &AttachRequest,
    record: Option<&Record>,
) -> Result<AttachRequest, ServeError> {
    let mut continued = match request.targets.len() {
        0 => record.ok_or(ServeError::NoTarget(device))?.request(),
        1 => request.clone(),
        count => return Err(ServeError::OneDisk(count)),
    };
    // A file system on a target of the device was written through the device.
    continued.volume.overwrite |= record.is_some_and(|record| record.is_of(&continued.targets[0]));
    Ok(continued)
}

/// Opens a target. The kernel releases that of a killed server after the last I/O: until then, it is locked or in use.
fn once_released<T>(limit: Duration, open: impl Fn() -> Result<T, ServeError>) -> Result<T, ServeError> {
    let until = Instant::now() + limit;
    loop {
        match open() {
            Err(
                ServeError::Locked(_)
                | ServeError::Open(OpenError::Refused(Refusal::Locked { .. } | Refusal::Busy { .. })),
            ) if Instant::now() < until => thread::sleep(POLL),
            other => return other,
        }
    }
}

/// The devices of iopath.
///
/// # Errors
/// [`ServeError::Ublk`]: there is no driver, or no permission.
pub fn attached() -> Result<Vec<AttachedDevice>, ServeError> {
    let mut devices = Devices::open()?;
    let mut found = Vec::new();
    for entry in fs::read_dir(DEVICES).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("ublkc")?.parse().ok());
        let Some(device) = number else { continue };
        match devices.info(device) {
            Ok(info) if info.is_ours => {
                let target = Record::load(&info).map(|record| record.target);
                found.push(AttachedDevice { info, target });
            }
            Ok(_) | Err(UblkError::Missing(_)) => {}
            // A device of another user.
            Err(UblkError::Refused { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error.into()),
        }
    }
    found.sort_by_key(|attached| attached.info.device);
    Ok(found)
}

/// Stops and removes devices, by their numbers or paths, after their requests and the flushes of their targets. They
/// end beside each other. Returns the errors.
#[must_use]
pub fn detach(devices: &[String], is_forced: bool) -> Vec<ServeError> {
    thread::scope(|scope| {
        let ends: Vec<_> =
            devices.iter().map(|device| scope.spawn(move || detach_one(device, is_forced))).collect();
        let result_of = |end: thread::ScopedJoinHandle<'_, Result<(), ServeError>>| {
            end.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        ends.into_iter().filter_map(|end| result_of(end).err()).collect()
    })
}

/// # Errors
/// [`ServeError::Ublk`]: it is in use, unless forced. [`ServeError::NoDevice`].
fn detach_one(device: &str, is_forced: bool) -> Result<(), ServeError> {
    let name = device.strip_prefix("/dev/").unwrap_or(device);
    let number = name.strip_prefix("ublkb").or_else(|| name.strip_prefix("ublkc")).unwrap_or(name);
    let number = number.parse().map_err(|_| ServeError::NoDevice(device.to_owned()))?;
    let info = Devices::open()?.info(number)?;
    let server = Record::load(&info).map(|record| record.server);
    iopath_ublk::detach(&info, server, is_forced, STOP_LIMIT)?;
    Record::remove(&info);
    Ok(())
}

impl Attaching {
    /// No device yet.
    fn new() -> Self {
        let mut running = Running::default();
        // Before the volumes are opened: their threads have it from this one.
        if let Err(error) = iopath_ublk::become_io_flusher() {
            running.note(format!(
                "memory of this process may wait for a write to its own device (no CAP_SYS_RESOURCE: {error})"
            ));
        }
        Self { running: Mutex::new(running), stop: stop_on_signals(), paths: Vec::new() }
    }

    /// Serves until SIGINT, SIGTERM or SIGHUP, or until all devices are detached. Requests in flight complete, and the
    /// targets are flushed. A second signal ends the process at once. `report` is called every second, with messages.
    ///
    /// # Errors
    /// [`ServeError::Ublk`]: requests that did not complete, or the flush.
    pub fn run(self, mut report: impl FnMut(&ServeRates, &[String])) -> Result<AttachEnd, ServeError> {
        watch(&self, &mut report);
        match self.into_running().stop() {
            (end, None) => Ok(end),
            (end, Some(error)) => {
                report(&ServeRates::at_end(end.totals), &end.messages);
                Err(error.into())
            }
        }
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn into_running(self) -> Running {
        self.running.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&mut self, server: UblkServer, request: &AttachRequest, target: &Path) {
        let info = server.info();
        if let Err(error) = Record::of(request, target, info.instance).store(info) {
            let device = info.device;
            let message =
                format!("cannot record the target of device {device}, which --recover needs: {error}");
            self.running().note(message);
        }
        self.paths.push(server.path());
        self.running().add(server);
    }

    fn announce(&self) {
        service::is_ready(&format!("serving {}", self.paths.join(" ")));
    }
}

impl Watched for Attaching {
    /// A device that was detached is removed at once, because `detach` waits for it.
    fn is_to_end(&self) -> bool {
        self.running().poll() || self.stop.load(Ordering::Acquire)
    }

    fn totals(&self) -> ServeTotals {
        self.running().totals()
    }

    fn take_messages(&self) -> Vec<String> {
        self.running().take_messages()
    }
}

/// The options of a target's device.
fn options_of(
    target: &Path,
    request: &AttachRequest,
    device: Option<u32>,
) -> Result<UblkOptions, ServeError> {
    let model = model_of(target)?;
    let VolumeRequest { mode, elevator, is_writable, .. } = &request.volume;
    // Each queue has an elevator of its own.
    let is_ordered = elevator.as_ref().is_some_and(|elevator| elevator.name() != "none");
    let cpus = thread::available_parallelism().map_or(1, |count| count.get().min(8) as u16);
    let queues = request.queues.unwrap_or(if model.is_some() || is_ordered { 1 } else { cpus });
    Ok(UblkOptions {
        volume: volume_of(target, model.as_ref(), &request.volume)?,
        is_writable: *is_writable,
        queues,
        depth: DEPTH,
        device,
        // Otherwise completed writes may be in the memory of the server only.
        is_recoverable: mode.0 != IoMode::Buffered && model.is_none(),
        stop_limit: STOP_LIMIT,
    })
}

#[cfg(test)]
mod tests;
