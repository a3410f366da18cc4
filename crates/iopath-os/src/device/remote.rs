//! A block device on a server: requests of any number of devices go over a few connections, each with a thread that
//! waits for requests and for its socket. The protocol is a state machine of another crate ([`RemoteProtocol`]).
//!
//! ```text
//!  RemoteDevice ─ jobs ─▶ Mailbox ─▶ thread of a connection ─▶ RemoteSession ─ heads ─▶ sendmsg ─▶ server
//!       ▲                            (Connection, Wire)      ◀─ positions ─          ◀─ readv ──
//!       └──────────── Completed ◀────── completed jobs                data: from and to the memory of the requests
//! ```
//!
//! The sockets need a thread of their own, since all devices of a volume share them: the page cache, each thread, each
//! batch. A server without support for several connections permits only one.

mod connection;
mod entries;
mod job;
mod mailbox;
mod session;
mod stream;
mod wire;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use iopath_core::{BlockDevice, Busy, Completion, Instant, Io, IoError, Limits, Op, debug};

use super::completed::Completed;
use super::{Notifier, RealDevice, WaitError, Watch};
use crate::memory::Segment;
use connection::{Connection, Opened, Shared};
use job::Job;
use mailbox::Mailbox;

pub use connection::Losses;
pub use session::{
    Incoming, Outgoing, RemoteEncryption, RemoteEvent, RemoteFacts, RemoteProtocol, RemoteRequest,
    RemoteSession, RemoteSocket,
};
pub use stream::RemoteAddress;

/// The maximum number of requests in flight of one device.
const DEPTH_MAX: u32 = 4096;

/// The maximum number of connections of one device.
const CONNECTIONS_MAX: usize = 64;

/// The time for all connections after the first. A server may leave them waiting: `qemu-nbd` does so above `--shared`.
const FURTHER_TIME: Duration = Duration::from_secs(1);

/// The export of a server could not be opened.
#[derive(thiserror::Error)]
#[error("{server} cannot be opened: {reason}")]
#[non_exhaustive]
pub struct RemoteError {
    /// The server, as a URI.
    pub server: String,
    /// The reason, in words.
    pub reason: String,
}

impl fmt::Debug for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug::error("RemoteError", self, f)
    }
}

/// An open export of a server. Clones are the same export; the connections end with the last clone and device.
#[derive(Clone)]
pub struct Remote {
    open: Arc<Open>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("name", &debug::Text(self.open.shared.protocol.name()))
            .field("facts", &self.open.facts)
            .finish_non_exhaustive()
    }
}

/// An export that may be open ([`Remote::downgrade`]).
#[derive(Debug, Clone)]
pub struct WeakRemote {
    open: Weak<Open>,
}

impl WeakRemote {
    /// The export, if a clone or a device of it exists.
    pub fn upgrade(&self) -> Option<Remote> {
        self.open.upgrade().map(|open| Remote { open })
    }
}

#[derive(Debug)]
struct Open {
    shared: Arc<Shared>,
    facts: RemoteFacts,
    threads: Vec<JoinHandle<()>>,
}

impl Remote {
    /// Connects, up to `connections_max` times if the export permits it. Fewer connections than that are no error.
    ///
    /// # Errors
    /// The first connection fails, or the system refuses a thread.
    pub fn open(
        protocol: Arc<dyn RemoteProtocol>,
        address: RemoteAddress,
        connections_max: usize,
    ) -> Result<Self, RemoteError> {
        let server = protocol.name().to_owned();
        let failed = |reason: String| RemoteError { server: server.clone(), reason };
        let refused = |error: io::Error| failed(error.to_string());
        let count = connections_max.clamp(1, CONNECTIONS_MAX);
        let mailboxes = (0..count).map(|_| Mailbox::new()).collect::<io::Result<_>>().map_err(refused)?;
        let shared = Arc::new(Shared::new(protocol, address, mailboxes));
        let (first, opened) = start(0, &shared).map_err(refused)?;
        let facts =
            opened.recv().unwrap_or_else(|_| Err("its thread has ended".to_owned())).map_err(failed)?;
        let facts = *facts.ok_or_else(|| failed("the session stated no facts".to_owned()))?;
        shared.mailboxes[0].set_used();
        let mut threads = vec![first];
        let more = if facts.permits_connections { 1..count } else { 1..1 };
        let more: Vec<_> = more.map(|number| (number, start(number, &shared))).collect();
        let end = std::time::Instant::now() + FURTHER_TIME;
        for (number, started) in more {
            let Ok((thread, opened)) = started else { continue };
            threads.push(thread);
            let left = end.saturating_duration_since(std::time::Instant::now());
            if matches!(opened.recv_timeout(left), Ok(Ok(_))) {
                shared.mailboxes[number].set_used();
            } else {
                shared.mailboxes[number].close();
            }
        }
        Ok(Self { open: Arc::new(Open { shared, facts, threads }) })
    }

    /// The export.
    pub fn facts(&self) -> &RemoteFacts {
        &self.open.facts
    }

    /// The server, as a URI.
    pub fn name(&self) -> &str {
        self.open.shared.protocol.name()
    }

    /// The number of connections.
    pub fn connections(&self) -> usize {
        self.open.used().count()
    }

    /// The reason of the last failure of a connection.
    pub fn failure(&self) -> Option<String> {
        self.open.shared.failure()
    }

    /// The connections that were lost and made anew so far.
    pub fn losses(&self) -> Losses {
        self.open.shared.losses()
    }

    /// Closes the connections, also if the server is silent. All requests, those in flight too, fail with
    /// [`IoError::Disconnected`]. A write in flight may still be executed.
    pub fn give_up(&self) {
        self.open.shared.give_up();
    }

    /// A reference that does not keep the connections open.
    pub fn downgrade(&self) -> WeakRemote {
        WeakRemote { open: Arc::downgrade(&self.open) }
    }

    /// Whether both are the same open export.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.open, &other.open)
    }

    /// A device with up to `depth` requests in flight, within `limits`: those of [`RemoteFacts`], or smaller ones.
    pub fn device(&self, limits: &Limits, depth: u32) -> RemoteDevice {
        let depth = depth.clamp(1, DEPTH_MAX.min(limits.depth_max));
        let limits = Limits { depth_max: depth, ..limits.clone() };
        let shared = Arc::new(Completed::new(depth as usize));
        let segments_max = usize::from(limits.segments_max);
        RemoteDevice {
            staged: VecDeque::with_capacity(depth as usize),
            of_connection: self.open.shared.mailboxes.iter().map(|_| VecDeque::new()).collect(),
            completed: VecDeque::with_capacity(depth as usize),
            spare: (0..depth).map(|_| Job::new(segments_max, &shared)).collect(),
            open: Arc::clone(&self.open),
            shared,
            limits,
            syscalls: 0,
        }
    }
}

fn start(number: usize, shared: &Arc<Shared>) -> io::Result<(JoinHandle<()>, Receiver<Opened>)> {
    let (opening, opened) = sync_channel(1);
    let connection = Connection::new(number, shared, opening);
    let builder = std::thread::Builder::new().name(format!("iopath-net-{number}"));
    Ok((builder.spawn(move || connection.run())?, opened))
}

impl Open {
    /// The numbers of the connections in use.
    fn used(&self) -> impl Iterator<Item = usize> {
        let mailboxes = &self.shared.mailboxes;
        (0..mailboxes.len()).filter(|number| mailboxes[*number].is_used())
    }

    /// The connection for the next request: the least busy of those that are established.
    fn choose(&self) -> usize {
        let busy = |number: &usize| {
            let mailbox = &self.shared.mailboxes[*number];
            (!mailbox.is_up(), mailbox.outstanding())
        };
        self.used().min_by_key(busy).unwrap_or(0)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.mailboxes.iter().for_each(Mailbox::close);
        for thread in self.threads.drain(..) {
            // Fails only if the thread panicked, which the panic hook has reported.
            let _ = thread.join();
        }
    }
}

/// A device on the export of a server ([`Remote::device`]).
///
/// Drop waits for the committed requests: at most for the time that the session needs to fail them.
pub struct RemoteDevice {
    open: Arc<Open>,
    limits: Limits,
    /// Submitted, and not yet committed.
    staged: VecDeque<Job>,
    /// Staged jobs for each connection; empty between calls.
    of_connection: Box<[VecDeque<Job>]>,
    /// Completed, and not yet polled.
    completed: VecDeque<Job>,
    /// Unused jobs.
    spare: Vec<Job>,
    shared: Arc<Completed<Job>>,
    syscalls: u64,
}

impl fmt::Debug for RemoteDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("RemoteDevice");
        debug.field("server", &debug::Text(self.open.shared.protocol.name())).field("limits", &self.limits);
        debug.field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

impl RemoteDevice {
    /// Passes the staged jobs to the connections.
    fn submit_staged(&mut self) {
        while let Some(mut job) = self.staged.pop_front() {
            let request = job.request;
            if request.length == 0 && request.op != Op::Flush {
                // The whole range lies beyond the end of the export.
                job.end(Ok(()));
                self.completed.push_back(job);
                continue;
            }
            let routed = match request.op {
                Op::Flush => self.open.shared.protocol.route_flush(),
                _ => None,
            };
            let number = routed.unwrap_or_else(|| self.open.choose());
            self.open.shared.mailboxes[number].add_outstanding();
            self.of_connection[number].push_back(job);
        }
        for (mailbox, jobs) in self.open.shared.mailboxes.iter().zip(&mut self.of_connection) {
            if jobs.is_empty() {
                continue;
            }
            self.syscalls += u64::from(mailbox.submit(jobs));
            // Jobs remain if the thread has panicked.
            mailbox.sub_outstanding(jobs.len() as u32);
            for mut job in jobs.drain(..) {
                job.end(Err(IoError::Disconnected));
                self.completed.push_back(job);
            }
        }
    }
}

impl BlockDevice for RemoteDevice {
    type Memory = Segment;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    /// # Panics
    /// If the request's memory is not as long as its extent: a bug of the caller.
    fn submit(&mut self, io: &Io<'_, Segment>, _now: Instant) -> Result<(), Busy> {
        let Some(job) = self.spare.last_mut() else { return Err(Busy { tag: io.tag }) };
        job.set(io, self.open.facts.size_bytes);
        self.staged.extend(self.spare.pop());
        Ok(())
    }

    fn commit(&mut self, _now: Instant) {
        self.submit_staged();
        if !self.completed.is_empty() {
            // No watch or notifier announces these.
            self.shared.add(&mut self.completed);
        }
    }

    fn poll_completion(&mut self, _now: Instant) -> Option<Completion> {
        if self.completed.is_empty() && self.in_flight() > 0 {
            self.shared.collect(&mut self.completed);
        }
        let job = self.completed.pop_front()?;
        self.syscalls += u64::from(job.syscalls);
        let completion = job.completion();
        self.spare.push(job);
        Some(completion)
    }
}

// SAFETY: a job is reported as completed after its connection has removed it: then no system call uses its memory,
// since each call describes the memory of present jobs only, and ends before the thread goes on. Drop waits for all
// jobs.
unsafe impl RealDevice for RemoteDevice {
    fn commit_and_wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.submit_staged();
        let wanted = completions.min(self.in_flight()) as usize;
        if self.completed.len() < wanted {
            self.shared.wait_for(wanted - self.completed.len(), timeout);
        }
        Ok(())
    }

    fn watch(&self) -> Arc<dyn Watch> {
        Arc::clone(&self.shared) as Arc<dyn Watch>
    }

    fn end_watch(&mut self) {
        self.shared.end_watch();
    }

    fn in_flight(&self) -> u32 {
        self.limits.depth_max - self.spare.len() as u32
    }

    fn syscalls(&self) -> u64 {
        self.syscalls
    }

    /// No protocol is trusted to have received every byte.
    fn fills_reads(&self) -> bool {
        false
    }

    fn set_notifier(&mut self, notifier: &Notifier) -> io::Result<()> {
        self.shared.set_notifier(notifier);
        Ok(())
    }
}

impl Drop for RemoteDevice {
    fn drop(&mut self) {
        let submitted = self.in_flight() as usize - self.staged.len() - self.completed.len();
        while self.shared.len() < submitted {
            self.shared.wait_for(submitted, None);
        }
        // A completed job refers to the list that contains it: neither would be dropped.
        self.completed.clear();
        self.shared.collect(&mut self.completed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_core::{Extent, Tag};

    #[derive(Debug)]
    struct Nobody;

    impl RemoteProtocol for Nobody {
        fn session(&self, _number: usize) -> Box<dyn RemoteSession> {
            unreachable!("there is no connection")
        }

        fn route_flush(&self) -> Option<usize> {
            None
        }

        fn name(&self) -> &'static str {
            "nobody"
        }
    }

    #[test]
    fn an_export_its_devices_and_errors_print_briefly() {
        let shared =
            Shared::new(Arc::new(Nobody), RemoteAddress::Unix("/long".repeat(400).into()), Box::new([]));
        let facts = RemoteFacts::new(u64::MAX, Limits::with_capacity(8));
        let remote = Remote { open: Arc::new(Open { shared: Arc::new(shared), facts, threads: Vec::new() }) };
        let device = remote.device(&remote.facts().limits, 4096);
        let error = RemoteError { server: "long".repeat(500), reason: "long".repeat(500) };
        for text in [
            format!("{remote:?}"),
            format!("{:?}", remote.downgrade()),
            format!("{device:?}"),
            format!("{error:?}"),
        ] {
            assert!(text.len() <= 1024, "{} bytes: {text}", text.len());
        }
    }

    #[test]
    fn a_dropped_device_drops_the_completions_that_were_not_polled() {
        let facts = RemoteFacts::new(0, Limits::with_capacity(8));
        let address = RemoteAddress::Unix("nowhere".into());
        let shared = Arc::new(Shared::new(Arc::new(Nobody), address, Box::new([])));
        let remote = Remote { open: Arc::new(Open { shared, facts, threads: Vec::new() }) };
        let mut device = remote.device(&remote.facts().limits, 4);
        let list = Arc::downgrade(&device.shared);
        // Past the end of the export: it completes without a server.
        let extent = Extent::from_bytes(0, 512).unwrap();
        device.submit(&Io::new(Tag::from_bits(0), Op::Discard, extent, &[]), Instant::ZERO).unwrap();
        device.commit(Instant::ZERO);
        assert_eq!(device.shared.len(), 1);
        drop(device);
        assert!(list.upgrade().is_none(), "the job and the list keep each other");
    }
}
