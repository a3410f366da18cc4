//! The server of a device: makes or continues it, and ends it. A thread for each queue does the I/O (`worker.rs`).

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use iopath::Volume;
use iopath_os::target::Users;
use iopath_os::ublk::UblkDevice;
use rustix::io::Errno;

use crate::devices::{Devices, NewDevice};
use crate::error::UblkError;
use crate::info::{DeviceInfo, DeviceState, disk_of, node_of};
use crate::params::{Params, SECTOR_BYTES};
use crate::progress::Progress;
use crate::request::Disk;
use crate::state::SharedState;
use crate::stop::{RELEASE, UblkEnd, delete_stopped, has_failed, is_running, stop_unless_left};
use crate::worker::{self, Start};

/// Interval of the checks for the end of a thread, and for a device that is not ready.
const POLL: Duration = Duration::from_millis(10);

/// Longest time until a killed server has left its device and target, and its I/O has ended.
pub const LEAVE: Duration = Duration::from_secs(60);

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
    /// Completed requests, and pages that were written back, since the end has begun.
    progress: Option<Progress<(u64, u64)>>,
}

impl UblkServer {
    /// Makes a device of the volume.
    ///
    /// # Errors
    /// [`UblkError`]: there is no driver, or it refuses the device.
    pub fn start(options: UblkOptions) -> Result<Self, UblkError> {
        let mut devices = Devices::open()?;
        let is_unprivileged = !rustix::process::geteuid().is_root();
        let new = NewDevice {
            device: options.device,
            queues: options.queues,
            depth: options.depth,
            buffer_bytes: BUFFER_BYTES,
            is_recoverable: options.is_recoverable && !is_unprivileged,
            is_unprivileged,
            instance: RandomState::new().hash_one(options.device) as u32,
        };
        let info = once_free(RELEASE, || devices.add(&new))?;
        let params = Params::new(&options.volume, options.is_writable, info.buffer_bytes);
        let mut server = Self::new(devices, info, options);
        let started = server.begin(&params, Devices::start, |devices| {
            // For a user without privileges, the driver checks the node, which udev may change later.
            let node = open_node(info.device)?;
            devices.set_params(&info, &params)?;
            Ok(node)
        });
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
        let mut has_begun_before = false;
        let started = server.begin(&params, Devices::end_recovery, |devices| {
            has_begun_before = start_recovery(devices, &info)?;
            open_node(device)
        });
        let started =
            started.map_err(|error| if has_begun_before { UblkError::Stuck(device) } else { error });
        server.or_undo(started, false)
    }

    fn new(devices: Devices, info: DeviceInfo, options: UblkOptions) -> Self {
        let UblkOptions { volume, is_writable, stop_limit, .. } = options;
        let state = Arc::new(SharedState::default());
        Self { devices, info, threads: Vec::new(), state, volume, is_writable, stop_limit, progress: None }
    }

    /// Makes the queues, prepares the device and opens its node, joins them, and starts the disk, whose first reads the
    /// queues serve.
    fn begin(
        &mut self,
        params: &Params,
        start: fn(&mut Devices, &DeviceInfo, u32) -> Result<(), UblkError>,
        prepare: impl FnOnce(&mut Devices) -> Result<UblkDevice, UblkError>,
    ) -> Result<(), UblkError> {
        let disk = Disk {
            bytes: params.sectors * SECTOR_BYTES,
            buffer_bytes: self.info.buffer_bytes,
            is_writable: self.is_writable,
            discard_zeroes: self.volume.range_support().discard_zeroes,
        };
        let mut starts = Vec::new();
        for index in 0..self.info.queues {
            let (start, thread) = worker::spawn(index, &self.info, &self.volume, disk, &self.state)?;
            self.threads.push(thread);
            starts.push(start);
        }
        // All memory and time is taken before the device changes. A device whose recovery fails later than this may
        // accept no other server: once one process has mapped a queue, the driver refuses the next.
        starts.iter().try_for_each(Start::wait)?;
        let node = prepare(&mut self.devices)?;
        starts.iter().try_for_each(|queue| queue.open(&node))?;
        drop(node);
        // Linux 6.12 crashes in the next recovery if some queues have fetched their requests and others have not.
        starts.iter().try_for_each(Start::fetch)?;
        start(&mut self.devices, &self.info, std::process::id())
    }

    /// Ends the threads after a failed start, and removes the device if it is new.
    fn or_undo(mut self, started: Result<(), UblkError>, is_new: bool) -> Result<Self, UblkError> {
        if let Err(error) = started {
            self.leave();
            if is_new {
                let _ = self.devices.stop(&self.info, self.stop_limit);
                let _ = delete_stopped(&mut self.devices, &self.info, self.stop_limit);
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
    /// wait for another server is left. The kernel writes back and ends a file system on a device that cannot. Calls
    /// `on_progress` about once a second while requests complete, or the flush writes pages back.
    ///
    /// # Errors
    /// [`UblkError::NoProgress`]: the volume completes nothing. [`UblkError::Flush`]. [`UblkError::QueueFailed`].
    pub fn stop(&mut self, on_progress: &mut dyn FnMut()) -> Result<UblkEnd, UblkError> {
        if self.has_ended() {
            if self.within("the state of the device", has_failed, on_progress)?? {
                return Err(self.leave_failed(on_progress));
            }
        } else {
            match self.within("the end of the device", stop_unless_left, on_progress)? {
                Ok(UblkEnd::Removed) => {}
                Ok(UblkEnd::Left) => {
                    self.leave();
                    self.flush(on_progress)?;
                    return Ok(UblkEnd::Left);
                }
                Err(error) => return Err(error),
            }
        }
        if !self.join(on_progress) {
            return Err(self.no_progress("its requests in flight"));
        }
        let flushed = self.flush(on_progress);
        delete_stopped(&mut self.devices, &self.info, self.stop_limit)?;
        flushed.map(|()| UblkEnd::Removed)
    }

    /// Leaves a device that was not stopped although a queue has ended.
    fn leave_failed(&mut self, on_progress: &mut dyn FnMut()) -> UblkError {
        self.leave();
        if let Err(error) = self.flush(on_progress) {
            return error;
        }
        let is_left = self.info.is_recoverable();
        if !is_left {
            // The driver stops it after its last server.
            if let Err(error) = delete_stopped(&mut self.devices, &self.info, self.stop_limit) {
                return error;
            }
        }
        UblkError::QueueFailed { device: self.info.device, is_left }
    }

    fn flush(&mut self, on_progress: &mut dyn FnMut()) -> Result<(), UblkError> {
        if !self.is_writable {
            return Ok(());
        }
        let volume = self.volume.clone();
        self.within("the flush of its target", move |_, _| volume.flush(), on_progress)?
            .map_err(UblkError::Flush)
    }

    /// Calls `work` on another thread as long as there is progress.
    fn within<T: Send + 'static>(
        &mut self,
        what: &'static str,
        work: impl FnOnce(&mut Devices, &DeviceInfo) -> T + Send + 'static,
        on_progress: &mut dyn FnMut(),
    ) -> Result<T, UblkError> {
        // Opened before: another thread may hold the first one for as long as the driver takes.
        let mut devices = Devices::open()?;
        let info = self.info;
        let thread = std::thread::spawn(move || work(&mut devices, &info));
        while !thread.is_finished() {
            if self.is_late(on_progress) {
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
        self.join(&mut || {});
    }

    /// Whether the end has made no progress for its limit. One end has one deadline in all of its steps.
    fn is_late(&mut self, on_progress: &mut dyn FnMut()) -> bool {
        let now = Instant::now();
        if self.progress.as_ref().is_none_or(|progress| progress.is_due(now)) {
            // Pages: a volume without a page cache shows no progress of a flush.
            let pages = self.volume.stats().map_or(0, |stats| stats.cache.pages_written);
            let work = (self.totals().requests, pages);
            let progress = self.progress.get_or_insert_with(|| Progress::new(work, self.stop_limit, now));
            if progress.advance(work, now) {
                on_progress();
            }
        }
        self.progress.as_ref().is_some_and(|progress| progress.is_late(now))
    }

    /// Whether all threads have ended in time.
    fn join(&mut self, on_progress: &mut dyn FnMut()) -> bool {
        while !self.threads.iter().all(JoinHandle::is_finished) {
            if self.is_late(on_progress) {
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

/// Keeps allocations of this thread, and of those that it starts later, from waiting for writes to a device that the
/// process serves. To be called before a volume is opened.
///
/// # Errors
/// EPERM without `CAP_SYS_RESOURCE`.
pub fn become_io_flusher() -> io::Result<()> {
    Ok(rustix::process::configure_io_flusher_behavior(true)?)
}

/// Waits until the server of a device has ended, so that its target is free for the next one.
///
/// # Errors
/// [`UblkError`]: the device does not wait for a server.
pub fn wait_for_end(device: u32) -> Result<DeviceInfo, UblkError> {
    waiting(&mut Devices::open()?, device)
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

/// Makes a device. Its number is that of a removed one as long as a program has that open, such as udev.
fn once_free(
    limit: Duration,
    mut add: impl FnMut() -> Result<DeviceInfo, UblkError>,
) -> Result<DeviceInfo, UblkError> {
    let until = Instant::now() + limit;
    loop {
        match add() {
            Err(error @ UblkError::Refused { device, .. }) if error.errno() == Some(Errno::EXIST) => {
                // The node of a removed device is gone.
                if Path::new(&node_of(device)).exists() || Instant::now() >= until {
                    return Err(UblkError::Taken { device, users: Users::of(&disk_of(device)) });
                }
                std::thread::sleep(POLL);
            }
            other => return other,
        }
    }
}

/// Prepares a device for the queues of this process, once the killed one has closed it. Returns whether a recovery that
/// ended early has already prepared it: the driver refuses to do so twice.
fn start_recovery(devices: &mut Devices, info: &DeviceInfo) -> Result<bool, UblkError> {
    let until = Instant::now() + LEAVE;
    loop {
        match devices.start_recovery(info) {
            Ok(()) => return Ok(false),
            Err(error) => match error.errno() {
                Some(Errno::INVAL) => return Ok(true),
                Some(Errno::BUSY) if Instant::now() < until => std::thread::sleep(POLL),
                _ => return Err(error),
            },
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// `PF_MEMALLOC_NOIO` in the flags of `/proc/PID/stat`.
    const NO_IO: u64 = 0x0008_0000;

    fn flags_of_this_thread() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        rest.split(' ').nth(6).unwrap().parse().unwrap()
    }

    #[test]
    fn threads_that_start_after_the_call_allocate_without_io() {
        // The flag is that of a thread: this one ends with the test.
        let thread = std::thread::spawn(|| {
            assert_eq!(flags_of_this_thread() & NO_IO, 0);
            become_io_flusher()?;
            Ok::<_, io::Error>(std::thread::spawn(flags_of_this_thread).join().unwrap())
        });
        match thread.join().unwrap() {
            Ok(flags) => assert_eq!(flags & NO_IO, NO_IO),
            Err(error) => eprintln!("skipped: no CAP_SYS_RESOURCE: {error}"),
        }
    }
}
