//! The server of a device: makes or continues it, and ends it. A thread for each queue does the I/O (`worker.rs`).

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use iopath::Volume;
use iopath_os::ublk::UblkDevice;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::devices::{Devices, NewDevice, disk_of, node_of};
use crate::error::UblkError;
use crate::info::{DeviceInfo, DeviceState};
use crate::params::Params;
use crate::request::Disk;
use crate::state::SharedState;
use crate::worker;

/// Interval of the checks for the end of a thread, and for a device that is not ready.
const POLL: Duration = Duration::from_millis(10);

/// Longest time until a killed server has left its device, and its I/O has ended.
const LEAVE: Duration = Duration::from_secs(60);

/// Longest time until udev has given the node of a new device to its user.
const NODE: Duration = Duration::from_secs(10);

/// The largest request with data: the limit of most disks, and what a buffer of each tag may take.
const BUFFER_BYTES: u32 = 512 << 10;

/// A volume that becomes a block device.
#[derive(Debug, Clone)]
pub struct UblkOptions {
    /// The volume. One that bounces unaligned I/O ([`iopath::Unaligned::Bounce`]) accepts every request.
    pub volume: Volume,
    /// Whether the disk can be written. The volume must be open for writing then.
    pub is_writable: bool,
    /// Queues, each with a thread.
    pub queues: u16,
    /// Requests of each queue, at most 4096.
    pub depth: u16,
    /// The number of the device; `None` for the first free one.
    pub device: Option<u32>,
    /// No completed write is in the memory of this process only, so that another process can go on after its end.
    pub is_recoverable: bool,
    /// Longest time without progress at the end.
    pub stop_limit: Duration,
}

/// Counters of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UblkTotals {
    /// Completed requests.
    pub requests: u64,
    /// Bytes of their data.
    pub bytes: u64,
}

/// The end of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UblkEnd {
    /// The device is removed.
    Removed,
    /// The device is in use, and waits for another server.
    Left,
}

/// A device with its server. Dropping it leaves the device, as the end of the process does.
#[derive(Debug)]
pub struct UblkServer {
    devices: Devices,
    info: DeviceInfo,
    threads: Vec<JoinHandle<()>>,
    state: Arc<SharedState>,
    volume: Volume,
    is_writable: bool,
    stop_limit: Duration,
}

impl UblkServer {
    /// Makes a device of the volume.
    ///
    /// # Errors
    /// [`UblkError`]: there is no driver, or it refuses the device.
    pub fn start(options: UblkOptions) -> Result<Self, UblkError> {
        let mut devices = Devices::open()?;
        let is_unprivileged = !rustix::process::geteuid().is_root();
        let info = devices.add(&NewDevice {
            device: options.device,
            queues: options.queues,
            depth: options.depth,
            buffer_bytes: BUFFER_BYTES,
            is_recoverable: options.is_recoverable && !is_unprivileged,
            is_unprivileged,
        })?;
        let params = Params::new(&options.volume, options.is_writable, info.buffer_bytes);
        let mut server = Self::new(devices, info, options);
        let started = server.begin(&params, Devices::start, |devices| devices.set_params(&info, &params));
        server.or_undo(started, true)
    }

    /// Continues a device whose server has ended, with the volume of that server.
    ///
    /// # Errors
    /// [`UblkError`]: the device does not wait for a server, or the volume is another one.
    pub fn recover(device: u32, options: UblkOptions) -> Result<Self, UblkError> {
        let mut devices = Devices::open()?;
        let info = waiting(&mut devices, device)?;
        // The promise of the device to the kernel: the next end of its server must not lose a write either.
        if !options.is_recoverable {
            return Err(UblkError::Volatile(device));
        }
        let params = Params::new(&options.volume, options.is_writable, info.buffer_bytes);
        let expected = devices.params(&info)?;
        let properties = [
            ("the size in sectors", params.sectors, expected.sectors),
            ("the size of a block", params.block_bytes.into(), expected.block_bytes.into()),
            ("permission to write (0 or 1)", params.is_writable.into(), expected.is_writable.into()),
        ];
        for (what, target, expected) in properties {
            if target != expected {
                return Err(UblkError::OtherTarget { device, what, target, expected });
            }
        }
        let mut server = Self::new(devices, info, options);
        let started = server.begin(&params, Devices::end_recovery, |devices| {
            let until = Instant::now() + LEAVE;
            loop {
                match devices.start_recovery(&info) {
                    // The killed process still has the device open.
                    Err(UblkError::Refused { source, .. })
                        if Errno::from_io_error(&source) == Some(Errno::BUSY) && Instant::now() < until =>
                    {
                        std::thread::sleep(POLL);
                    }
                    other => return other,
                }
            }
        });
        server.or_undo(started, false)
    }

    fn new(devices: Devices, info: DeviceInfo, options: UblkOptions) -> Self {
        let UblkOptions { volume, is_writable, stop_limit, .. } = options;
        let state = Arc::new(SharedState::default());
        Self { devices, info, threads: Vec::new(), state, volume, is_writable, stop_limit }
    }

    /// Prepares the device, starts the threads, and starts the disk, whose first reads they serve.
    fn begin(
        &mut self,
        params: &Params,
        start: fn(&mut Devices, &DeviceInfo, u32) -> Result<(), UblkError>,
        prepare: impl FnOnce(&mut Devices) -> Result<(), UblkError>,
    ) -> Result<(), UblkError> {
        // Memory for this process must not wait for a write to this device. Needs CAP_SYS_RESOURCE.
        let _ = rustix::process::configure_io_flusher_behavior(true);
        prepare(&mut self.devices)?;
        let node = open_node(self.info.device)?;
        let disk = Disk {
            bytes: params.sectors * crate::params::SECTOR_BYTES,
            buffer_bytes: self.info.buffer_bytes,
            is_writable: self.is_writable,
            discard_zeroes: self.volume.range_support().discard_zeroes,
        };
        for index in 0..self.info.queues {
            let thread = worker::spawn(index, &self.info, &node, &self.volume, disk, &self.state)?;
            self.threads.push(thread);
        }
        drop(node);
        start(&mut self.devices, &self.info, std::process::id())
    }

    /// Ends the threads after a failed start, and removes the device if it is new.
    fn or_undo(mut self, started: Result<(), UblkError>, is_new: bool) -> Result<Self, UblkError> {
        if let Err(error) = started {
            self.leave();
            if is_new {
                let _ = self.devices.delete(&self.info);
            }
            return Err(error);
        }
        Ok(self)
    }

    /// The device.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The path of the block device.
    #[must_use]
    pub fn path(&self) -> String {
        disk_of(self.info.device)
    }

    /// Counters.
    #[must_use]
    pub fn totals(&self) -> UblkTotals {
        let SharedState { requests, bytes, .. } = &*self.state;
        UblkTotals { requests: requests.load(Ordering::Relaxed), bytes: bytes.load(Ordering::Relaxed) }
    }

    /// Takes the messages of the device, at most the last 64: errors of the volume.
    #[must_use]
    pub fn take_messages(&self) -> Vec<String> {
        self.state.take_messages()
    }

    /// Whether the device was stopped from outside, by `detach`, or a queue has failed.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Completes the requests in flight, flushes the volume, and removes the device. A device that is in use and can
    /// wait for another server is left. The kernel writes back and ends a file system on a device that cannot.
    ///
    /// # Errors
    /// [`UblkError::NoProgress`]: the volume completes nothing. [`UblkError::Flush`].
    pub fn stop(mut self) -> Result<UblkEnd, UblkError> {
        if !self.has_ended() {
            match self.within("the end of the device", stop_unless_left)? {
                Ok(UblkEnd::Removed) => {}
                Ok(UblkEnd::Left) => {
                    self.leave();
                    self.flush()?;
                    return Ok(UblkEnd::Left);
                }
                Err(error) => return Err(error),
            }
        }
        let until = Instant::now() + self.stop_limit;
        if !self.join(until) {
            return Err(self.no_progress("its requests in flight"));
        }
        let flushed = self.flush();
        self.devices.delete(&self.info)?;
        flushed.map(|()| UblkEnd::Removed)
    }

    fn flush(&mut self) -> Result<(), UblkError> {
        if !self.is_writable {
            return Ok(());
        }
        let volume = self.volume.clone();
        self.within("the flush of its target", move |_, _| volume.flush())?.map_err(UblkError::Flush)
    }

    /// Calls `work` on another thread as long as requests complete.
    fn within<T: Send + 'static>(
        &mut self,
        what: &'static str,
        work: impl FnOnce(&mut Devices, &DeviceInfo) -> T + Send + 'static,
    ) -> Result<T, UblkError> {
        // Opened before: another thread may hold the first one for as long as the driver takes.
        let mut devices = Devices::open()?;
        let info = self.info;
        let thread = std::thread::spawn(move || work(&mut devices, &info));
        let (mut requests, mut until) = (self.totals().requests, Instant::now() + self.stop_limit);
        while !thread.is_finished() {
            let now = self.totals().requests;
            if now != requests {
                (requests, until) = (now, Instant::now() + self.stop_limit);
            } else if Instant::now() >= until {
                return Err(self.no_progress(what));
            }
            std::thread::sleep(POLL);
        }
        thread.join().map_err(|_| UblkError::Driver(io::Error::other("a thread panicked")))
    }

    fn no_progress(&self, what: &'static str) -> UblkError {
        UblkError::NoProgress { device: self.info.device, what, seconds: self.stop_limit.as_secs() }
    }

    /// Ends the threads without the device.
    fn leave(&mut self) {
        self.state.leaves.store(true, Ordering::Release);
        self.join(Instant::now() + self.stop_limit);
    }

    /// Whether all threads have ended until this time.
    fn join(&mut self, until: Instant) -> bool {
        while !self.threads.iter().all(JoinHandle::is_finished) {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(POLL);
        }
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
        true
    }
}

impl Drop for UblkServer {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Stops a device, or finds that it can be left because it is in use.
fn stop_unless_left(devices: &mut Devices, info: &DeviceInfo) -> Result<UblkEnd, UblkError> {
    match stop_unused(devices, info, STOP) {
        Err(UblkError::InUse(_)) if info.is_recoverable() => Ok(UblkEnd::Left),
        Err(UblkError::InUse(_)) => devices.stop(info, STOP).map(|()| UblkEnd::Removed),
        other => other.map(|()| UblkEnd::Removed),
    }
}

/// The driver stops a disk for as long as its requests complete: the caller watches them.
const STOP: Duration = Duration::from_secs(3600);

/// Stops the disk if nothing has it open exclusively, such as a mount, after its dirty pages are written.
fn stop_unused(devices: &mut Devices, info: &DeviceInfo, limit: Duration) -> Result<(), UblkError> {
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

/// Removes a device of iopath, with or without its server.
///
/// # Errors
/// [`UblkError::InUse`], [`UblkError::NotOurs`], unless forced: a mounted file system then loses unwritten data.
/// [`UblkError::NoProgress`] if the server does not end within this time.
pub fn detach(device: u32, is_forced: bool, limit: Duration) -> Result<(), UblkError> {
    let mut devices = Devices::open()?;
    let info = devices.info(device)?;
    if !info.is_ours && !is_forced {
        return Err(UblkError::NotOurs(device));
    }
    let info = if info.state == DeviceState::Live && !is_running(info.pid) {
        // Its server was killed just now.
        DeviceInfo { state: DeviceState::Waiting, ..info }
    } else {
        info
    };
    if is_forced {
        devices.stop(&info, limit)?;
    } else {
        stop_unused(&mut devices, &info, limit)?;
    }
    // The server flushes its target and removes the device.
    let until = Instant::now() + limit;
    while is_running(info.pid) {
        if matches!(devices.info(device), Err(UblkError::Missing(_))) {
            break;
        }
        if Instant::now() >= until {
            let seconds = limit.as_secs();
            return Err(UblkError::NoProgress { device, what: "the end of its server", seconds });
        }
        std::thread::sleep(POLL);
    }
    devices.delete(&info)
}

/// Waits until the driver knows that the server of a device has ended.
fn waiting(devices: &mut Devices, device: u32) -> Result<DeviceInfo, UblkError> {
    let until = Instant::now() + LEAVE;
    loop {
        let info = devices.info(device)?;
        if !info.is_ours {
            return Err(UblkError::NotOurs(device));
        }
        if !info.is_recoverable() {
            return Err(UblkError::NotRecoverable(device));
        }
        match info.state {
            DeviceState::Waiting => return Ok(info),
            DeviceState::Live if !is_running(info.pid) && Instant::now() < until => std::thread::sleep(POLL),
            state => return Err(UblkError::NotWaiting { device, state }),
        }
    }
}

/// Whether a process runs. One that has ended, and whose parent has not asked for its exit code, does not.
fn is_running(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before the state may contain anything.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// The node of a new device appears at once, and udev may change its owner later.
fn open_node(device: u32) -> Result<UblkDevice, UblkError> {
    let path = node_of(device);
    let until = Instant::now() + NODE;
    loop {
        match UblkDevice::open(&path) {
            Ok(node) => return Ok(node),
            Err(source)
                if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
                    && Instant::now() < until =>
            {
                std::thread::sleep(POLL);
            }
            Err(source) => return Err(UblkError::Node { path, source }),
        }
    }
}
