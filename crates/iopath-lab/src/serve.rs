//! Serves targets over NBD: opens them, starts the server, and stops it on a signal. The server itself: `iopath-nbd`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use iopath::{IoMode, OpenError, Options, Unaligned, Volume};
use iopath_core::elevator::ElevatorSpec;
pub use iopath_nbd::Listen;
use iopath_nbd::{
    NbdUri, Place, ServeOptions, ServeTls, ServeTotals, Served, Server, TlsError, TlsFiles, TlsServer,
};
use signal_hook::flag;
use thiserror::Error;

use crate::signals::ending_signals;

/// Interval of reports.
const INTERVAL: Duration = Duration::from_secs(1);

/// Interval of the checks for a signal.
const POLL: Duration = Duration::from_millis(50);

/// Requests in flight at the device, for each worker.
const DEPTH: u32 = 256;

/// A path of `PATHS` that can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServeMode(IoMode);

impl ServeMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self(IoMode::Direct), Self(IoMode::Buffered), Self(IoMode::Raw)];

    /// The name of the path.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            IoMode::Direct => "iopath-direct",
            IoMode::Buffered => "iopath-buffered",
            IoMode::Raw => "iopath-raw",
        }
    }
}

impl std::str::FromStr for ServeMode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mode| mode.name() == name);
        found.ok_or_else(|| format!("{name} is not a path that can serve"))
    }
}

/// The encryption of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeTlsRequest {
    /// The certificate of the server, followed by those of its issuers: PEM.
    pub certificate: PathBuf,
    /// Its private key: PEM.
    pub key: PathBuf,
    /// The authorities of clients: PEM. With it, a client needs a certificate.
    pub client_ca: Option<PathBuf>,
    /// Refuses clients without TLS.
    pub is_required: bool,
}

/// Targets and their server.
#[derive(Clone, Debug)]
pub struct ServeRequest {
    /// Files and block devices.
    pub targets: Vec<PathBuf>,
    /// Names of the exports, in the order of the targets; a target without a name has that of its file.
    pub names: Vec<String>,
    /// The place; `None` for a unix socket of its own.
    pub listen: Option<Listen>,
    /// The encryption of connections; `None`: the server refuses TLS.
    pub tls: Option<ServeTlsRequest>,
    /// The path of the I/O.
    pub mode: ServeMode,
    /// The elevator.
    pub elevator: Option<ElevatorSpec>,
    /// Bytes of the page cache.
    pub cache_bytes: Option<u64>,
    /// Clients may write.
    pub is_writable: bool,
    /// Clients may write to a device with a signature.
    pub overwrite: bool,
    /// Threads, or one for each processor.
    pub threads: Option<u32>,
    /// Connections at the same time.
    pub connections_max: Option<u32>,
}

/// A target that cannot be served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No socket.
    #[error("cannot listen on {place}: {source}")]
    Listen {
        /// The place.
        place: String,
        /// The cause.
        source: std::io::Error,
    },
    /// A certificate or key that cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Two exports with one name.
    #[error("two exports have the name {0:?}; name them with --export, once for each target")]
    SameName(String),
    /// More names than targets.
    #[error("{names} names for {targets} targets")]
    Names {
        /// Names.
        names: usize,
        /// Targets.
        targets: usize,
    },
    /// The server failed, or a flush at its end.
    #[error("the server ended with an error: {0}")]
    Server(std::io::Error),
}

/// Counters since the last report.
#[derive(Clone, Copy, Debug)]
pub struct ServeRates {
    /// Connections at present.
    pub connections: u32,
    /// Requests in a second.
    pub requests_per_s: f64,
    /// Bytes in a second.
    pub bytes_per_s: f64,
}

/// A running server.
#[derive(Debug)]
pub struct Serving {
    server: Server,
    /// A URI for each export.
    pub uris: Vec<String>,
    /// Set by the first signal.
    stop: Arc<AtomicBool>,
}

/// Opens the targets and starts to serve them.
///
/// # Errors
/// [`ServeError`]: a target cannot be opened, or the place is in use.
pub fn serve(request: &ServeRequest) -> Result<Serving, ServeError> {
    let names = names(request)?;
    let exports = request
        .targets
        .iter()
        .zip(&names)
        .map(|(target, name)| {
            let volume = open(target, request)?;
            let description = target.display().to_string();
            Ok(Served { name: name.clone(), description, volume, is_writable: request.is_writable })
        })
        .collect::<Result<Vec<_>, OpenError>>()?;
    let tls = request.tls.as_ref().map(load_tls).transpose()?;
    let is_tls = tls.is_some();
    let listen = request.listen.clone().unwrap_or_else(default_place);
    let default = ServeOptions::default();
    let options = ServeOptions {
        workers: request.threads.map_or(default.workers, |count| count as usize),
        connections_max: request.connections_max.unwrap_or(default.connections_max),
        tls,
        ..default
    };
    // Before the place is known to others, so that no signal is missed.
    let stop = Arc::new(AtomicBool::new(false));
    for signal in ending_signals() {
        // The order matters: the first action ends the process if an earlier signal has set `stop`.
        let _ = flag::register_conditional_default(signal, Arc::clone(&stop));
        let _ = flag::register(signal, Arc::clone(&stop));
    }
    let server = Server::start(&listen, &exports, &options)
        .map_err(|source| ServeError::Listen { place: text_of(&listen), source })?;
    let place = match server.listen() {
        Listen::Unix(path) => Place::Unix(path.clone()),
        Listen::Tcp(address) => Place::Tcp { host: address.ip().to_string(), port: address.port() },
    };
    let uri = |name: &String| NbdUri { place: place.clone(), is_tls, export: name.clone() }.to_string();
    Ok(Serving { uris: names.iter().map(uri).collect(), server, stop })
}

impl Serving {
    /// Serves until SIGINT, SIGTERM or SIGHUP. Requests in flight complete, and the volumes are flushed. A second signal ends
    /// the process at once. `report` is called every second, with messages about closed connections.
    ///
    /// # Errors
    /// [`ServeError::Server`]: a thread of the server failed, or the flush.
    pub fn run(self, mut report: impl FnMut(&ServeRates, &[String])) -> Result<ServeTotals, ServeError> {
        let (mut before, mut at) = (self.server.totals(), Instant::now());
        while !self.stop.load(Ordering::Acquire) {
            thread::sleep(POLL);
            let elapsed = at.elapsed();
            if elapsed < INTERVAL {
                continue;
            }
            let now = self.server.totals();
            let rate = |after: u64, before: u64| (after - before) as f64 / elapsed.as_secs_f64();
            let rates = ServeRates {
                connections: now.connections,
                requests_per_s: rate(now.requests, before.requests),
                bytes_per_s: rate(now.bytes, before.bytes),
            };
            report(&rates, &self.server.take_messages());
            (before, at) = (now, Instant::now());
        }
        let totals = self.server.totals();
        self.server.stop().map_err(ServeError::Server)?;
        Ok(totals)
    }
}

fn open(target: &Path, request: &ServeRequest) -> Result<Volume, OpenError> {
    let mut options = Options::new()
        .mode(request.mode.0)
        .write(request.is_writable)
        .overwrite(request.overwrite)
        .unaligned(Unaligned::Bounce)
        .depth(DEPTH);
    if let Some(elevator) = &request.elevator {
        options = options.elevator(elevator.to_string());
    }
    if let Some(bytes) = request.cache_bytes {
        options = options.cache_bytes(bytes);
    }
    Volume::open(target, &options)
}

fn load_tls(request: &ServeTlsRequest) -> Result<ServeTls, TlsError> {
    let files = TlsFiles { certificate: request.certificate.clone(), key: request.key.clone() };
    let server = TlsServer::load(&files, request.client_ca.as_deref())?;
    Ok(ServeTls { server, is_required: request.is_required })
}

fn names(request: &ServeRequest) -> Result<Vec<String>, ServeError> {
    let (names, targets) = (request.names.len(), request.targets.len());
    if names > targets {
        return Err(ServeError::Names { names, targets });
    }
    let of_file = |target: &PathBuf| target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut all = request.names.clone();
    all.extend(request.targets[names..].iter().map(of_file));
    for (index, name) in all.iter().enumerate() {
        if all[..index].contains(name) {
            return Err(ServeError::SameName(name.clone()));
        }
    }
    Ok(all)
}

/// A unix socket in the directory of the user's sockets, or else in that of temporary files.
fn default_place() -> Listen {
    let directory = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    Listen::Unix(directory.join(format!("iopath-{}.sock", std::process::id())))
}

fn text_of(listen: &Listen) -> String {
    match listen {
        Listen::Unix(path) => path.display().to_string(),
        Listen::Tcp(address) => address.to_string(),
    }
}

/// The place of a `HOST:PORT` or `PORT` of an option. A port alone is that of 127.0.0.1.
///
/// # Errors
/// A text that is neither.
pub fn parse_listen(text: &str) -> Result<Listen, String> {
    use std::net::ToSocketAddrs;
    if let Ok(port) = text.parse::<u16>() {
        return Ok(Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], port))));
    }
    let mut addresses =
        text.to_socket_addrs().map_err(|error| format!("{error}; expected HOST:PORT or PORT"))?;
    addresses.next().map(Listen::Tcp).ok_or_else(|| format!("{text} has no address"))
}
