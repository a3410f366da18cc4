//! An NBD server for volumes: a few threads with an event loop each, no thread for each connection or request.
//!
//! A worker receives requests into its buffers, queues their I/O in a batch of its own for each export, and sends the
//! replies from the same buffers. Requests and replies that arrive together share system calls.

mod backing;
pub(crate) mod clients;
mod connection;
pub(crate) mod core;
mod descriptors;
mod encryption;
mod gather;
mod input;
mod listener;
mod outbox;
mod pace;
mod poll_time;
#[cfg(feature = "sim")]
mod probe;
mod quota;
mod requests;
pub(crate) mod service;
mod serving;
mod shared;
mod socket_file;
mod status;
mod stop;
pub(crate) mod storage;
mod stream;
mod timer;
mod transfer;
pub(crate) mod transport;
mod worker;
mod zeroes;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::backing::Volumes;
use self::clients::Clients;
use self::core::{Core, Limits};
pub use self::descriptors::raise_descriptor_limit;
pub use self::encryption::ServeTls;
pub use self::listener::{Listen, Listener};
use self::shared::{Mailbox, Shared};
pub use self::socket_file::SocketFile;
use self::storage::DEPTH;
use self::worker::{Waiting, Worker};
use crate::export::{BlockSizes, Export};
use crate::protocol::TransmissionFlags;
use iopath::Volume;
use iopath::log::RequestLog;
use iopath::stats::LatencyTotals;

/// A volume under a name.
#[derive(Clone, Debug)]
pub struct Served {
    /// The name; the first export also answers to the empty name.
    pub name: String,
    /// A text for people, or empty.
    pub description: String,
    /// The volume. A direct volume that bounces unaligned I/O ([`iopath::Unaligned::Bounce`]) accepts every request;
    /// one that refuses it serves only aligned requests.
    pub volume: Volume,
    /// Whether clients may write. The volume must be open for writing then.
    pub is_writable: bool,
}

/// Limits of a server.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Threads.
    pub workers: usize,
    /// Clients that have negotiated, at the same time. Further connections are closed at once.
    pub connections_max: u32,
    /// Connections that negotiate at the same time, beside those of `connections_max`; an equal share of them for each
    /// thread. A further one takes the place of the oldest.
    pub handshakes_max: u32,
    /// A client that neither sends nor receives within this time, in the middle of a message, is disconnected. So is a
    /// client that has not completed the negotiation, with TLS if it asks for that, within this time.
    pub patience: Duration,
    /// Bytes in a second that a client must send or receive on average in the middle of a message. A message may take
    /// `patience`, and the time of its bytes at this rate.
    pub rate_min: u64,
    /// Longest time of [`Server::stop`]. The requests in flight have half of it, then connections are closed; the
    /// volumes are flushed in the rest. A flush that writes pages back has this time from the last of them.
    pub stop_limit: Duration,
    /// The encryption of connections; `None`: the server refuses TLS.
    pub tls: Option<ServeTls>,
    /// The request log. Each connection is a stream, numbered from 1.
    pub log: Option<RequestLog>,
}

impl Default for ServeOptions {
    /// A thread for each processor, at most 8; 1,024 connections and 256 that negotiate; 30 s and 16 KiB/s; 40 s to
    /// stop; no TLS and no log.
    fn default() -> Self {
        let workers = std::thread::available_parallelism().map_or(1, |count| count.get().min(8));
        Self {
            workers,
            connections_max: 1024,
            handshakes_max: 256,
            patience: Duration::from_secs(30),
            rate_min: 16 << 10,
            stop_limit: Duration::from_secs(40),
            tls: None,
            log: None,
        }
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
    /// Requests in flight that the server gave up when it stopped, because the time was over: their clients got no
    /// reply.
    pub abandoned: u64,
    /// Latencies of completed requests, for each [`ServeDirection`]: from the pass of the event loop that read the
    /// request to the one that made its last reply.
    pub latencies: [LatencyTotals; 3],
}

/// The kinds of requests with latencies of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServeDirection {
    /// Reads.
    Read,
    /// Writes, with the wait for their data.
    Write,
    /// Flushes, trims and writes of zeroes.
    Other,
}

impl ServeDirection {
    /// All of them, in the order of [`ServeTotals::latencies`].
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Other];

    /// The name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Other => "other",
        }
    }
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    places: Vec<Listen>,
    /// Sockets to remove at the end.
    files: Vec<SocketFile>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    stop_limit: Duration,
    /// The exports that clients may write: name and volume.
    writable: Vec<(String, Volume)>,
}

impl Server {
    /// Starts to serve at one place.
    ///
    /// # Errors
    ///
    /// The place is in use, or the system refuses a descriptor or thread.
    pub fn start(listen: &Listen, served: &[Served], options: &ServeOptions) -> io::Result<Self> {
        Self::start_on(vec![Listener::bind(listen)?], served, options)
    }

    /// Starts to serve on sockets that listen already.
    ///
    /// # Errors
    ///
    /// The system refuses a descriptor or thread.
    pub fn start_on(
        mut listeners: Vec<Listener>,
        served: &[Served],
        options: &ServeOptions,
    ) -> io::Result<Self> {
        listeners.iter().try_for_each(Listener::prepare)?;
        let places = listeners.iter().filter_map(Listener::place).collect();
        let files = listeners.iter_mut().filter_map(Listener::take_file).collect();
        let exports: Arc<[Export]> = served.iter().map(export_of).collect();
        let volumes: Arc<[Volume]> = served.iter().map(|served| served.volume.clone()).collect();
        let workers = options.workers.max(1);
        let handshakes_max = (options.handshakes_max as usize).div_ceil(workers).max(1);
        let shared = Arc::new(Shared {
            stops_at: OnceLock::new(),
            clients: Arc::new(Clients::new(options.connections_max, handshakes_max, options.patience)),
            workers: (0..workers).map(|_| Mailbox::new()).collect::<io::Result<_>>()?,
        });
        let writable = served.iter().filter(|served| served.is_writable);
        let writable = writable.map(|served| (served.name.clone(), served.volume.clone())).collect();
        let threads = Vec::new();
        let stop_limit = options.stop_limit;
        let mut started = Self { places, files, shared: Arc::clone(&shared), threads, stop_limit, writable };
        let mut listeners = Some(listeners);
        for number in 0..workers {
            let shared = Arc::clone(&shared);
            let listeners = listeners.take().unwrap_or_default();
            let exports = Arc::clone(&exports);
            let volumes = Arc::clone(&volumes);
            let options = options.clone();
            let waiting = Waiting::new(&shared.workers[number], &listeners)?;
            // A batch stays on its thread, so the worker is made there.
            let run = move || {
                let latencies = Arc::clone(&shared.workers[number].latencies);
                let limits = Limits {
                    tls: ServeTls::rule(options.tls.as_ref()),
                    patience: options.patience,
                    rate_min: options.rate_min,
                    depth: DEPTH,
                };
                let volumes = Volumes::new(volumes, options.log);
                let core = Core::new(exports, volumes, latencies, &limits, Instant::now());
                let tls = options.tls.map(|tls| tls.server);
                Worker::new(number, shared, listeners, waiting, core, tls).run()
            };
            started.threads.push(std::thread::Builder::new().name(format!("nbd-{number}")).spawn(run)?);
        }
        Ok(started)
    }

    /// The places, with the ports that the system selected. A unix socket without a file has none.
    #[must_use]
    pub fn places(&self) -> &[Listen] {
        &self.places
    }

    /// Connections and completed requests.
    #[must_use]
    pub fn totals(&self) -> ServeTotals {
        let sum = |counter: fn(&Mailbox) -> &AtomicU64| {
            self.shared.workers.iter().map(|worker| counter(worker).load(Ordering::Relaxed)).sum()
        };
        ServeTotals {
            connections: self.shared.clients.connections(),
            accepted: self.shared.clients.accepted(),
            requests: sum(|worker| &worker.requests),
            bytes: sum(|worker| &worker.bytes),
            abandoned: sum(|worker| &worker.abandoned),
            latencies: [0, 1, 2].map(|direction| {
                self.shared.workers.iter().map(|worker| worker.latencies[direction].get()).sum()
            }),
        }
    }

    /// Takes the messages of the server, at most the last 64: why it closed connections, or cannot accept further ones.
    #[must_use]
    pub fn take_messages(&self) -> Vec<String> {
        self.shared.clients.take_messages()
    }

    /// Accepts no further connections and requests, completes the requests in flight, and flushes the volumes, all
    /// within [`ServeOptions::stop_limit`]; a flush may take longer while it makes progress. Returns the counters at
    /// the end.
    ///
    /// A volume that does not answer in time is given up, with the threads that wait for it: their memory is lost until
    /// the process ends.
    ///
    /// # Errors
    ///
    /// The error of an event loop, or of a flush. `TimedOut`: an export that was not flushed in time.
    pub fn stop(self) -> io::Result<ServeTotals> {
        self.stop_with(&mut || ())
    }

    /// As [`Server::stop`]. `on_progress` is called at each progress of a flush, at most once a second.
    ///
    /// # Errors
    ///
    /// As [`Server::stop`].
    pub fn stop_with(mut self, on_progress: &mut dyn FnMut()) -> io::Result<ServeTotals> {
        let began = Instant::now();
        let served = self.join(began);
        let writable = std::mem::take(&mut self.writable);
        served.and(stop::flush(writable, began, self.stop_limit, on_progress))?;
        Ok(self.totals())
    }

    fn join(&mut self, began: Instant) -> io::Result<()> {
        let _ = self.shared.stops_at.set(began + self.stop_limit / 2);
        self.shared.workers.iter().for_each(Mailbox::wake);
        let mut result = Ok(());
        for (thread, worker) in self.threads.drain(..).zip(&self.shared.workers) {
            if let Some(ended) = stop::join_until(thread, began + self.stop_limit * 3 / 4) {
                result = result.and(ended);
            } else {
                // It waits for a volume, with these requests. A worker counts them at the end of a pass, and this one
                // is inside of a pass.
                worker.abandon();
                worker.abandoned.fetch_max(1, Ordering::Relaxed);
            }
        }
        for file in self.files.drain(..) {
            // A socket that stays is replaced by the next server.
            let _ = file.remove();
        }
        result
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.join(Instant::now());
    }
}

fn export_of(served: &Served) -> Export {
    use TransmissionFlags as Flags;
    let volume = &served.volume;
    let always = Flags::SEND_FLUSH | Flags::SEND_CACHE | Flags::CAN_MULTI_CONN;
    let mut flags = if served.is_writable { Flags::SEND_FUA } else { Flags::READ_ONLY };
    if served.is_writable {
        let support = volume.range_support();
        flags.set(Flags::SEND_TRIM, support.discard);
        flags.set(Flags::SEND_WRITE_ZEROES, support.zero);
        flags.set(Flags::SEND_FAST_ZERO, support.zero && support.discard_zeroes);
    }
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
