//! An NBD server for volumes: a few threads with an event loop each, no thread for each connection or request.
//!
//! A worker receives requests into its buffers, queues their I/O in a batch of its own for each export, and sends the
//! replies from the same buffers. Requests and replies that arrive together share system calls.

mod backing;
mod connection;
mod core;
mod encryption;
mod input;
mod outbox;
mod quota;
mod stream;
mod transfer;
mod worker;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use iopath::Volume;
use rustix::fs::Mode;

use self::core::Core;
pub use self::encryption::ServeTls;
use self::worker::{Listener, Mailbox, Shared, Worker};
use crate::export::{BlockSizes, Export};
use crate::protocol::TransmissionFlags;

/// The place at which a server accepts connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A unix socket, created with mode 0600 and removed at the end.
    Unix(PathBuf),
    /// A TCP port; port 0 selects a free one.
    Tcp(SocketAddr),
}

/// A volume under a name.
#[derive(Clone, Debug)]
pub struct Served {
    /// The name; the first export also answers to the empty name.
    pub name: String,
    /// A text for people, or empty.
    pub description: String,
    /// The volume. A direct volume that bounces unaligned I/O ([`iopath::Unaligned::Bounce`]) accepts every request; one
    /// that refuses it serves only aligned requests.
    pub volume: Volume,
    /// Whether clients may write. The volume must be open for writing then.
    pub is_writable: bool,
}

/// Limits of a server.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Threads.
    pub workers: usize,
    /// Connections at the same time. Further ones are closed at once.
    pub connections_max: u32,
    /// A client that neither sends nor receives within this time, in the middle of a message, is disconnected. So is a client
    /// that has not completed the negotiation, with TLS if it asks for that, within this time.
    pub patience: Duration,
    /// The encryption of connections; `None`: the server refuses TLS.
    pub tls: Option<ServeTls>,
}

impl Default for ServeOptions {
    /// A thread for each processor, at most 8; 1,024 connections; 30 s; no TLS.
    fn default() -> Self {
        let workers = std::thread::available_parallelism().map_or(1, |count| count.get().min(8));
        Self { workers, connections_max: 1024, patience: Duration::from_secs(30), tls: None }
    }
}

/// Counters of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServeTotals {
    /// Connections at present.
    pub connections: u32,
    /// Connections since the start.
    pub accepted: u64,
    /// Completed reads, writes, flushes, trims and writes of zeroes.
    pub requests: u64,
    /// Bytes of their data.
    pub bytes: u64,
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    listen: Listen,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    /// The volumes that clients may write.
    writable: Vec<Volume>,
}

impl Server {
    /// Starts to serve.
    ///
    /// # Errors
    ///
    /// The place is in use, or the system refuses a socket or thread.
    pub fn start(listen: &Listen, served: &[Served], options: &ServeOptions) -> io::Result<Self> {
        let (listener, listen) = bind(listen)?;
        let exports: Arc<[Export]> = served.iter().map(export_of).collect();
        let volumes: Arc<[Volume]> = served.iter().map(|served| served.volume.clone()).collect();
        let workers = options.workers.max(1);
        let shared = Arc::new(Shared {
            is_stopping: AtomicBool::new(false),
            connections: AtomicU32::new(0),
            accepted: AtomicU64::new(0),
            connections_max: options.connections_max,
            patience: options.patience,
            workers: (0..workers).map(|_| Mailbox::new()).collect::<io::Result<_>>()?,
            messages: Mutex::default(),
        });
        let writable =
            served.iter().filter(|served| served.is_writable).map(|served| served.volume.clone()).collect();
        let mut started = Self { listen, shared: Arc::clone(&shared), threads: Vec::new(), writable };
        let mut listener = Some(listener);
        for number in 0..workers {
            let (shared, listener) = (Arc::clone(&shared), listener.take());
            let (exports, volumes, tls) = (Arc::clone(&exports), Arc::clone(&volumes), options.tls.clone());
            // A batch stays on its thread, so the worker is made there.
            let run = move || Worker::new(number, shared, listener, Core::new(exports, volumes, tls))?.run();
            started.threads.push(std::thread::Builder::new().name(format!("nbd-{number}")).spawn(run)?);
        }
        Ok(started)
    }

    /// The place, with the port that the system selected.
    #[must_use]
    pub fn listen(&self) -> &Listen {
        &self.listen
    }

    /// Connections and completed requests.
    #[must_use]
    pub fn totals(&self) -> ServeTotals {
        let sum = |counter: fn(&Mailbox) -> &AtomicU64| {
            self.shared.workers.iter().map(|worker| counter(worker).load(Ordering::Relaxed)).sum()
        };
        ServeTotals {
            connections: self.shared.connections.load(Ordering::Relaxed),
            accepted: self.shared.accepted.load(Ordering::Relaxed),
            requests: sum(|worker| &worker.requests),
            bytes: sum(|worker| &worker.bytes),
        }
    }

    /// Takes the reasons for which the server closed connections, at most the last 64.
    #[must_use]
    pub fn take_messages(&self) -> Vec<String> {
        self.shared.messages.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    /// Accepts no further connections and requests, completes the requests in flight, and flushes the volumes.
    ///
    /// # Errors
    ///
    /// The error of an event loop, or of a flush.
    pub fn stop(mut self) -> io::Result<()> {
        let served = self.join();
        let flush = |volume: &Volume| volume.flush().map_err(io::Error::from);
        served.and(self.writable.iter().try_for_each(flush))
    }

    fn join(&mut self) -> io::Result<()> {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.shared.workers.iter().for_each(Mailbox::wake);
        let mut result = Ok(());
        for thread in self.threads.drain(..) {
            let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("a worker panicked")));
            result = result.and(ended);
        }
        if let Listen::Unix(path) = &self.listen {
            // The socket may be gone already.
            let _ = std::fs::remove_file(path);
        }
        result
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

fn bind(listen: &Listen) -> io::Result<(Listener, Listen)> {
    Ok(match listen {
        Listen::Unix(path) => {
            // The mask applies to the whole process, and only for the time of this call.
            let mask = rustix::process::umask(Mode::from_raw_mode(0o177));
            let listener = UnixListener::bind(path);
            rustix::process::umask(mask);
            let listener = listener?;
            listener.set_nonblocking(true)?;
            (Listener::Unix(listener), listen.clone())
        }
        Listen::Tcp(address) => {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            (Listener::Tcp(listener), Listen::Tcp(address))
        }
    })
}

fn export_of(served: &Served) -> Export {
    use TransmissionFlags as Flags;
    let volume = &served.volume;
    let always = Flags::SEND_FLUSH | Flags::SEND_CACHE | Flags::CAN_MULTI_CONN;
    let flags = if served.is_writable {
        Flags::SEND_FUA | Flags::SEND_TRIM | Flags::SEND_WRITE_ZEROES
    } else {
        Flags::READ_ONLY
    };
    let preferred = volume.facts().block_bytes.max(4096).next_power_of_two();
    Export {
        name: served.name.clone(),
        description: served.description.clone(),
        size: volume.size_bytes(),
        flags: always | flags,
        block_sizes: BlockSizes { min: 1, preferred, max: 32 << 20 },
        has_allocation: true,
    }
}
