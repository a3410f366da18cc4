//! The state that the workers of a server and its caller share.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use iopath::stats::LatencyCounts;
use rustix::event::{EventfdFlags, eventfd};

use super::clients::Clients;
use super::stream::Stream;

/// State that all workers and the caller share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Set when the server stops: the time at which connections are closed, also with requests in flight.
    pub(super) stops_at: OnceLock<Instant>,
    pub(super) clients: Arc<Clients>,
    pub(super) workers: Vec<Mailbox>,
}

/// Connections that wait for a worker.
const STREAMS_MAX: usize = 128;

/// New connections for a worker, and its counters.
#[derive(Debug)]
pub(super) struct Mailbox {
    /// `None` when the worker has ended.
    streams: Mutex<Option<Vec<Stream>>>,
    pub(super) wake: OwnedFd,
    /// Completed requests of the worker.
    pub(super) requests: AtomicU64,
    /// Bytes of their data.
    pub(super) bytes: AtomicU64,
    /// Requests of the worker without a reply.
    pub(super) in_flight: AtomicU64,
    /// Requests that it gave up when the server stopped.
    pub(super) abandoned: AtomicU64,
    /// The latencies of its requests, for each [`super::ServeDirection`].
    pub(super) latencies: Arc<[LatencyCounts; 3]>,
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self {
            streams: Mutex::new(Some(Vec::new())),
            wake,
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
            latencies: Arc::default(),
        })
    }

    /// The requests in flight get no reply.
    pub(super) fn abandon(&self) {
        self.abandoned.fetch_max(self.in_flight.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Adds a connection, unless many wait already or the worker has ended.
    pub(super) fn put(&self, stream: Stream) -> Result<(), Stream> {
        match &mut *self.streams() {
            Some(streams) if streams.len() < STREAMS_MAX => streams.push(stream),
            _ => return Err(stream),
        }
        self.wake();
        Ok(())
    }

    pub(super) fn wake(&self) {
        // A full counter is readable already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    pub(super) fn take(&self) -> Vec<Stream> {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        self.streams().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Refuses further connections, and returns those that wait.
    pub(super) fn close(&self) -> Vec<Stream> {
        self.streams().take().unwrap_or_default()
    }

    fn streams(&self) -> MutexGuard<'_, Option<Vec<Stream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::serve::stream::Socket;

    #[test]
    fn a_worker_that_has_ended_gets_no_connections() {
        let mailbox = Mailbox::new().unwrap();
        let stream = || Stream::new(Socket::Unix(UnixStream::pair().unwrap().0));
        mailbox.put(stream()).unwrap();
        assert_eq!(mailbox.close().len(), 1);
        assert!(mailbox.put(stream()).is_err());
        assert!(mailbox.take().is_empty());
        assert!(mailbox.close().is_empty());
    }
}
