//! Targets as block devices of the kernel: opens them, starts or continues their devices, and stops them on a signal. A
//! record of each device (`attach/record.rs`) names its target for the next server. The device itself: `iopath-ublk`.

mod record;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use iopath::{IoMode, OpenError, Volume};
use iopath_core::elevator::ElevatorSpec;
use iopath_nbd::ServeTotals;
use iopath_os::target::Refusal;
use iopath_ublk::{DeviceInfo, Devices, LEAVE, UblkEnd, UblkError, UblkOptions, UblkServer};

use super::watch::{Watched, watch};
use super::{ServeError, ServeMode, ServeRates, ServeRequest, open, options_of, service, stop_on_signals};
use crate::modelled;
use iopath_bench::model::ModelTarget;
use record::Record;

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
    /// The path of the I/O.
    pub mode: ServeMode,
    /// The elevator.
    pub elevator: Option<ElevatorSpec>,
    /// Bytes of the page cache.
    pub cache_bytes: Option<u64>,
    /// Whether the devices can be written.
    pub is_writable: bool,
    /// Accepts a device with a signature.
    pub overwrite: bool,
    /// Accepts a target that another program has locked, and does not lock it.
    pub is_shared: bool,
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

#[derive(Debug, Default)]
struct Running {
    servers: Vec<UblkServer>,
    /// The work of the servers that have ended.
    ended: ServeTotals,
    messages: Vec<String>,
    left: Vec<u32>,
    error: Option<UblkError>,
}

/// The end of all devices.
#[derive(Clone, Debug)]
pub struct AttachEnd {
    /// Counters since the start.
    pub totals: ServeTotals,
    /// Devices that are in use and wait for another server.
    pub left: Vec<u32>,
    /// Messages since the last report.
    pub messages: Vec<String>,
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
        let server = volume_of(request, target)
            .and_then(|(volume, is_modelled)| {
                let options = options(request, device, volume, is_modelled);
                Ok(UblkServer::start(options)?)
            })
            .inspect_err(|_| attaching.abandon())?;
        attaching.add(server, request, target);
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
    let (volume, is_modelled) = once_released(LEAVE, || volume_of(&request, target))?;
    let server = UblkServer::recover(device, options(&request, None, volume, is_modelled))?;
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
        0 => record.and_then(Record::request).ok_or(ServeError::NoTarget(device))?,
        1 => request.clone(),
        count => return Err(ServeError::OneDisk(count)),
    };
    // A file system on a target of the device was written through the device.
    continued.overwrite |= record.is_some_and(|record| record.is_of(&continued.targets[0]));
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

/// Stops and removes a device, by its number or path, after its requests and the flush of its target.
///
/// # Errors
/// [`ServeError::Ublk`]: it is in use, unless forced. [`ServeError::NoDevice`].
pub fn detach(device: &str, is_forced: bool) -> Result<u32, ServeError> {
    let name = device.strip_prefix("/dev/").unwrap_or(device);
    let number = name.strip_prefix("ublkb").or_else(|| name.strip_prefix("ublkc")).unwrap_or(name);
    let number = number.parse().map_err(|_| ServeError::NoDevice(device.to_owned()))?;
    let info = Devices::open()?.info(number)?;
    let server = Record::load(&info).map(|record| record.server);
    iopath_ublk::detach(&info, server, is_forced, STOP_LIMIT)?;
    Record::remove(&info);
    Ok(number)
}

impl Attaching {
    /// No device yet.
    fn new() -> Self {
        let mut running = Running::default();
        // Before the volumes are opened: their threads have it from this one.
        if let Err(error) = iopath_ublk::become_io_flusher() {
            running.messages.push(format!(
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
        let mut running = self.running.into_inner().unwrap_or_else(PoisonError::into_inner);
        running.stop(|_| true);
        match running.error {
            Some(error) => {
                report(&ServeRates::at_end(running.ended), &running.messages);
                Err(error.into())
            }
            None => Ok(AttachEnd { totals: running.ended, left: running.left, messages: running.messages }),
        }
    }

    fn add(&mut self, server: UblkServer, request: &AttachRequest, target: &Path) {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner);
        let info = server.info();
        if let Err(error) = Record::of(request, target, info.instance).store(info) {
            let device = info.device;
            let message =
                format!("cannot record the target of device {device}, which --recover needs: {error}");
            running.messages.push(message);
        }
        self.paths.push(server.path());
        running.servers.push(server);
    }

    fn announce(&self) {
        service::is_ready(&format!("serving {}", self.paths.join(" ")));
    }

    /// Removes the devices that were started before one that was not.
    fn abandon(&mut self) {
        self.running.get_mut().unwrap_or_else(PoisonError::into_inner).stop(|_| true);
    }
}

impl Running {
    /// Stops the servers that are to end.
    fn stop(&mut self, is_to_end: impl Fn(&UblkServer) -> bool) {
        for server in self.servers.extract_if(.., |server| is_to_end(server)) {
            let (info, totals) = (*server.info(), server.totals());
            self.ended.requests += totals.requests;
            self.ended.bytes += totals.bytes;
            self.messages.extend(server.take_messages());
            match server.stop(&mut service::extends_stop) {
                Ok(UblkEnd::Removed) => Record::remove(&info),
                Ok(UblkEnd::Left) => self.left.push(info.device),
                Err(error) => self.error = Some(error),
            }
        }
    }
}

impl Watched for Attaching {
    /// A device that was detached is removed at once, because `detach` waits for it.
    fn is_to_end(&self) -> bool {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.stop(UblkServer::has_ended);
        running.servers.is_empty() || self.stop.load(Ordering::Acquire)
    }

    fn totals(&self) -> ServeTotals {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut totals = ServeTotals { connections: running.servers.len() as u32, ..running.ended };
        for server in running.servers.iter().map(UblkServer::totals) {
            totals.requests += server.requests;
            totals.bytes += server.bytes;
        }
        totals
    }

    fn take_messages(&self) -> Vec<String> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut messages = std::mem::take(&mut running.messages);
        messages.extend(running.servers.iter().flat_map(UblkServer::take_messages));
        messages
    }
}

/// The volume of a target, and whether it is a model.
fn volume_of(request: &AttachRequest, target: &Path) -> Result<(Volume, bool), ServeError> {
    let request = ServeRequest {
        targets: Vec::new(),
        names: Vec::new(),
        listen: None,
        tls: None,
        mode: request.mode,
        elevator: request.elevator.clone(),
        cache_bytes: request.cache_bytes,
        is_writable: request.is_writable,
        overwrite: request.overwrite,
        is_shared: request.is_shared,
        log: None,
        threads: None,
        connections_max: None,
        exits_with_parent: false,
    };
    match ModelTarget::find(target).map_err(|error| ServeError::Model(Box::new(error)))? {
        None => Ok((open(target, &request)?, false)),
        Some(model) => Ok((modelled::open(&model, options_of(&request))?, true)),
    }
}

fn options(request: &AttachRequest, device: Option<u32>, volume: Volume, is_modelled: bool) -> UblkOptions {
    let cpus = thread::available_parallelism().map_or(1, |count| count.get().min(8) as u16);
    // Each queue has an elevator of its own.
    let is_ordered = request.elevator.as_ref().is_some_and(|elevator| elevator.to_string() != "none");
    let queues = request.queues.unwrap_or(if is_modelled || is_ordered { 1 } else { cpus });
    UblkOptions {
        volume,
        is_writable: request.is_writable,
        queues,
        depth: DEPTH,
        device,
        // Otherwise completed writes may be in the memory of the server only.
        is_recoverable: request.mode.0 != IoMode::Buffered && !is_modelled,
        stop_limit: STOP_LIMIT,
    }
}

#[cfg(test)]
mod tests;
