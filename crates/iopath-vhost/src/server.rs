//! The server of a device: a thread accepts one front end at a time and speaks with it, and a thread for each queue
//! does the I/O. Each of them ends by an event, so that the server stops without a front end's help.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use iopath::Volume;
use iopath::log::RequestLog;
use iopath::stats::{LatencyCounts, LatencyTotals};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use vhost::vhost_user::{BackendReqHandler, Error};

use crate::config::{Config, SECTOR_BYTES};
use crate::control::Control;
use crate::front_end::Peeked;
use crate::request::ID_BYTES;
use crate::state::{DeviceState, Disk};
use crate::worker::Queue;

/// The largest number of queues: the messages that pass the descriptors of a queue have 8 bits for its number.
pub const QUEUES_MAX: u16 = 256;

/// Interval of the checks for the end of a thread.
const POLL: Duration = Duration::from_millis(5);

/// The pause after the system has refused a connection, such as for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// A disk of a virtual machine.
#[derive(Debug, Clone)]
pub struct VhostOptions {
    /// The volume. A direct volume on a file or block device transfers the guest's memory without a copy. A volume that
    /// bounces unaligned I/O ([`iopath::Unaligned::Bounce`]) accepts every request.
    pub volume: Volume,
    /// Whether the guest may write. The volume must be open for writing then.
    pub is_writable: bool,
    /// Queues, each with a thread of its own: at most [`QUEUES_MAX`].
    pub queues: u16,
    /// The name of the disk in the guest: the first 20 bytes.
    pub id: String,
    /// Longest time for requests in flight: of [`VhostServer::stop`], and when a front end stops a queue. After it, the
    /// connection ends, and none is served until those requests have completed.
    pub stop_limit: Duration,
    /// The request log. Each queue is a stream, numbered from 1.
    pub log: Option<RequestLog>,
}

/// Counters of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VhostTotals {
    /// Front ends at present: one at most.
    pub connections: u32,
    /// Front ends since the start.
    pub accepted: u64,
    /// Completed requests.
    pub requests: u64,
    /// Bytes of their data.
    pub bytes: u64,
    /// Reads and writes whose data was copied: all on a volume with a page cache that missed it, else unaligned ones.
    pub copied: u64,
    /// Latencies of reads, of writes, and of other completed requests: from the pass that took the request from its
    /// queue to the one that completed it.
    pub latencies: [LatencyTotals; 3],
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct VhostServer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    volume: Volume,
    is_writable: bool,
    stop_limit: Duration,
}

/// What the thread of the front end and the owner share.
#[derive(Debug)]
struct Shared {
    state: Arc<DeviceState>,
    /// Of each queue: reads, writes, and other requests.
    latencies: Vec<Arc<[LatencyCounts; 3]>>,
    control: Arc<Mutex<Control>>,
    stops: AtomicBool,
    /// Readable when the server stops.
    stop: OwnedFd,
    /// The present connection.
    connection: Mutex<Connections>,
}

#[derive(Debug, Default)]
struct Connections {
    present: Option<UnixStream>,
    accepted: u64,
}

impl VhostServer {
    /// Starts to serve front ends that connect to the socket.
    ///
    /// # Errors
    /// The system refuses a thread, a descriptor or an engine for the I/O. `InvalidInput`: no queue, or more than 256:
    /// the protocol has 8 bits for the number of a queue.
    pub fn start(listener: UnixListener, options: VhostOptions) -> io::Result<Self> {
        let VhostOptions { volume, is_writable, queues, id, stop_limit, log } = options;
        if queues == 0 || queues > QUEUES_MAX {
            let reason = format!("{queues} queues; a device has 1 to {QUEUES_MAX}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let config = Config::new(&volume, is_writable, queues);
        let state = Arc::new(DeviceState::default());
        state.capacity.store(config.capacity, Ordering::Relaxed);
        let mut name = [0; ID_BYTES];
        let length = id.len().min(ID_BYTES);
        name[..length].copy_from_slice(&id.as_bytes()[..length]);
        let latencies: Vec<Arc<[LatencyCounts; 3]>> = (0..queues).map(|_| Arc::default()).collect();
        let threads = (0..queues)
            .map(|index| {
                let discard_zeroes = volume.range_support().discard_zeroes;
                let latencies = Arc::clone(&latencies[usize::from(index)]);
                let disk = Disk {
                    state: Arc::clone(&state),
                    is_writable,
                    id: name,
                    has_discard: config.has_discard,
                    has_zeroes: config.has_zeroes,
                    discard_zeroes,
                    latencies,
                    log: log.clone(),
                };
                Queue::spawn(index, volume.clone(), disk)
            })
            .collect::<io::Result<Vec<_>>>()?;
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared {
            control: Arc::new(Mutex::new(Control::new(config, Arc::clone(&state), threads, stop_limit))),
            state,
            latencies,
            stops: AtomicBool::new(false),
            stop: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            connection: Mutex::default(),
        });
        let served = Arc::clone(&shared);
        let run = move || served.accept_all(&listener);
        let thread = std::thread::Builder::new().name("vhost".to_owned()).spawn(run)?;
        Ok(Self { shared, thread: Some(thread), volume, is_writable, stop_limit })
    }

    /// Counters.
    #[must_use]
    pub fn totals(&self) -> VhostTotals {
        let connections = lock(&self.shared.connection);
        let state = &self.shared.state;
        VhostTotals {
            connections: u32::from(connections.present.is_some()),
            accepted: connections.accepted,
            requests: state.requests.load(Ordering::Relaxed),
            bytes: state.bytes.load(Ordering::Relaxed),
            copied: state.copied.load(Ordering::Relaxed),
            latencies: [0, 1, 2]
                .map(|direction| self.shared.latencies.iter().map(|queue| queue[direction].get()).sum()),
        }
    }

    /// Takes the messages of the server, at most the last 64: mistakes of guests, errors of the device.
    #[must_use]
    pub fn take_messages(&self) -> Vec<String> {
        self.shared.state.take_messages()
    }

    /// Gives the disk the size that the volume has now, and tells the guest. The volume follows the growth of its file
    /// ([`Volume::follow_growth`]). Returns the size in bytes if it has changed. Does not wait for requests in flight:
    /// a later call changes the size.
    ///
    /// # Errors
    /// Those of [`Volume::follow_growth`].
    pub fn update_size(&self) -> io::Result<Option<u64>> {
        let sectors = self.volume.follow_growth()? / SECTOR_BYTES;
        if sectors == self.shared.state.capacity.load(Ordering::Acquire) {
            return Ok(None);
        }
        // While a queue stops, the thread of the front end has the lock. The next call changes the size then.
        let mut control = match self.shared.control.try_lock() {
            Ok(control) => control,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        if !control.set_capacity(sectors) {
            let message = "the front end takes no messages: the guest sees the new size after a restart";
            self.shared.state.note(message.to_owned());
        }
        Ok(Some(sectors * SECTOR_BYTES))
    }

    /// Ends the connection, completes the requests in flight, and flushes the volume.
    ///
    /// # Errors
    /// The error of the flush. `TimedOut`: the volume did not complete the requests within
    /// [`VhostOptions::stop_limit`]; the threads that wait for it are given up.
    pub fn stop(mut self) -> io::Result<VhostTotals> {
        let until = Instant::now() + self.stop_limit;
        self.join(until)?;
        if self.is_writable {
            let volume = self.volume.clone();
            let flush = std::thread::spawn(move || volume.flush());
            if !ends_until(&flush, until) {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the volume was not flushed in time"));
            }
            flush.join().map_err(|_| io::Error::other("the flush panicked"))??;
        }
        Ok(self.totals())
    }

    fn join(&mut self, until: Instant) -> io::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.shared.stops.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes());
        if let Some(connection) = &lock(&self.shared.connection).present {
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
        let late = || io::Error::new(io::ErrorKind::TimedOut, "requests in flight did not complete in time");
        if !ends_until(&thread, until) {
            return Err(late());
        }
        // The thread has stopped the rings, so the queues end at once.
        let threads: Vec<_> =
            lock(&self.shared.control).queues().iter_mut().filter_map(Queue::quit).collect();
        threads.iter().all(|thread| ends_until(thread, until)).then_some(()).ok_or_else(late)
    }
}

impl Drop for VhostServer {
    fn drop(&mut self) {
        let _ = self.join(Instant::now() + self.stop_limit);
    }
}

impl Shared {
    /// Serves one front end after another.
    fn accept_all(&self, listener: &UnixListener) {
        while !self.stops.load(Ordering::Acquire) {
            let mut waits = [
                PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
            ];
            let _ = poll(&mut waits, None);
            match listener.accept() {
                Ok((stream, _)) => {
                    if let Err(error) = self.serve(stream) {
                        self.state.note(format!("closed the connection: {error}"));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    self.state.note(format!("cannot accept a connection: {error}"));
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    fn serve(&self, stream: UnixStream) -> io::Result<()> {
        if !lock(&self.control).is_ready() {
            return Err(io::Error::other("requests of the last front end are in flight"));
        }
        stream.set_nonblocking(false)?;
        let mut peeked = Peeked::new(stream.try_clone()?);
        {
            let mut connections = lock(&self.connection);
            connections.present = Some(stream.try_clone()?);
            connections.accepted += 1;
        }
        // A stop that came before the connection was known has not shut it down; the loop sees that stop.
        let mut result = Ok(());
        let mut handler = BackendReqHandler::from_stream(stream, Arc::clone(&self.control));
        while !self.stops.load(Ordering::Acquire) {
            let channel = peeked.channel();
            if let Some(channel) = channel {
                lock(&self.control).set_to_front_end(channel);
            }
            if let Err(error) = handler.handle_request() {
                // This device has refused the message, and the front end knows it.
                if matches!(error, Error::InvalidOperation(_)) {
                    continue;
                }
                let is_end =
                    matches!(error, Error::Disconnected | Error::SocketBroken(_) | Error::PartialMessage);
                if !is_end && !self.stops.load(Ordering::Acquire) {
                    result = Err(io::Error::other(error.to_string()));
                }
                break;
            }
        }
        lock(&self.control).reset();
        lock(&self.connection).present = None;
        result
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a thread ends until this time.
fn ends_until<T>(thread: &JoinHandle<T>, until: Instant) -> bool {
    while !thread.is_finished() {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(POLL);
    }
    true
}
