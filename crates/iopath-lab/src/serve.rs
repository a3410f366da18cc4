//! Serves targets over NBD: opens them, starts the server, and stops it on a signal. The server itself: `iopath-nbd`.
//! How a target is opened: `serve/volume.rs`.
//! Disks of virtual machines: `serve/vhost.rs`. Block devices of the kernel: `serve/attach.rs`.

mod attach;
mod error;
mod log;
mod parent;
mod service;
#[cfg_attr(not(feature = "vhost-user"), path = "serve/no_vhost.rs")]
mod vhost;
mod volume;
mod watch;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use iopath_log::{LogWriter, Totals};
pub use iopath_nbd::Listen;
use iopath_nbd::{
    EXPORT_NAME_MAX, Listener, NbdUri, Place, ServeOptions, ServeTls, ServeTotals, Served, Server, TlsError,
    TlsFiles, TlsServer, raise_descriptor_limit,
};
use signal_hook::flag;

pub use attach::{AttachEnd, AttachRequest, AttachedDevice, Attaching, attach, attached, detach, recover};
pub use error::ServeError;
pub use vhost::{VhostServing, serve_vhost};
pub use volume::{ServeMode, VolumeRequest};

use self::parent::Parent;
use self::volume::{model_of, volume_of};
use self::watch::{Watched, watch};
pub use crate::modelled::ModelledError;
use iopath_bench::model::ModelTarget;
use iopath_bench::signals::{ending_signals, leave_first_to_server};
use iopath_bench::workload::LogSettings;

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
    /// Files, block devices and models (`model:NAME`).
    pub targets: Vec<PathBuf>,
    /// Names of the exports, in the order of the targets; a target without a name has that of its file.
    pub names: Vec<String>,
    /// The place; `None` for the sockets of the service manager, or else for a unix socket of its own.
    pub listen: Option<Listen>,
    /// The encryption of connections; `None`: the server refuses TLS.
    pub tls: Option<ServeTlsRequest>,
    /// How the targets are opened.
    pub volume: VolumeRequest,
    /// The request log.
    pub log: Option<LogSettings>,
    /// Threads; by default one for each processor, or one for a model: requests of one queue are ordered and merged.
    pub threads: Option<u32>,
    /// Connections at the same time.
    pub connections_max: Option<u32>,
    /// The server ends when its parent process has ended. It always does if a program that is not a service manager
    /// passed the sockets: that program started it for itself.
    pub exits_with_parent: bool,
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
    /// Counters since the start.
    pub totals: ServeTotals,
}

impl std::fmt::Display for ServeRates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { connections, requests_per_s, bytes_per_s, .. } = self;
        write!(f, "{connections} clients, {requests_per_s:.0} IOPS, {:.1} MB/s", bytes_per_s / 1e6)
    }
}

impl ServeRates {
    /// Those of a server that has ended.
    #[must_use]
    pub fn at_end(totals: ServeTotals) -> Self {
        Self { connections: 0, requests_per_s: 0.0, bytes_per_s: 0.0, totals }
    }
}

/// The end of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServeEnd {
    /// Counters since the start.
    pub totals: ServeTotals,
    /// Records of the request log.
    pub log: Option<Totals>,
}

/// A running server.
#[derive(Debug)]
pub struct Serving {
    server: Server,
    log: Option<Arc<LogWriter>>,
    /// A URI for each place and export.
    pub uris: Vec<String>,
    /// The service manager opened the sockets, so that clients have their address already.
    pub is_activated: bool,
    /// Set by the first signal.
    stop: Arc<AtomicBool>,
    /// The server ends with it.
    parent: Option<Parent>,
}

/// Opens the targets and starts to serve them.
///
/// # Errors
/// [`ServeError`]: a target cannot be opened, or the place is in use.
pub fn serve(request: &ServeRequest) -> Result<Serving, ServeError> {
    // Before anything that takes time, in which the parent could end.
    let parent = Parent::current();
    let models = request.targets.iter().map(|target| model_of(target)).collect::<Result<Vec<_>, _>>()?;
    let names = names(request, &models)?;
    let exports = request
        .targets
        .iter()
        .zip(&names)
        .zip(&models)
        .map(|((target, name), model)| {
            let volume = volume_of(target, model.as_ref(), &request.volume)?;
            let description = target.display().to_string();
            let is_writable = request.volume.is_writable;
            Ok(Served { name: name.clone(), description, volume, is_writable })
        })
        .collect::<Result<Vec<_>, ServeError>>()?;
    let tls = request.tls.as_ref().map(load_tls).transpose()?;
    let is_tls = tls.is_some();
    let log = request.log.as_ref().map(|settings| log::create(settings, request)).transpose()?;
    let (listeners, is_activated) = listeners(request)?;
    let default = ServeOptions::default();
    let workers = if models.iter().any(Option::is_some) { 1 } else { default.workers };
    let options = ServeOptions {
        workers: request.threads.map_or(workers, |count| count as usize),
        connections_max: request.connections_max.unwrap_or(default.connections_max),
        tls,
        log: log.as_ref().map(log::sinks),
        ..default
    };
    // Before the place is known to others, so that no signal is missed.
    let stop = stop_on_signals();
    raise_descriptor_limit();
    let server = Server::start_on(listeners, &exports, &options).map_err(ServeError::Server)?;
    let uri = |place: &Listen, name: &String| {
        let place = match place {
            Listen::Unix(path) => Place::Unix(path.clone()),
            Listen::Tcp(address) => Place::Tcp { host: address.ip().to_string(), port: address.port() },
        };
        NbdUri { place, is_tls, export: name.clone() }.to_string()
    };
    let uris: Vec<String> =
        server.places().iter().flat_map(|place| names.iter().map(move |name| uri(place, name))).collect();
    let ends_with =
        |parent: &Parent| request.exits_with_parent || is_activated && !parent.is_service_manager();
    let parent = parent.filter(ends_with);
    service::is_ready(&format!("serving {}", uris.join(" ")));
    Ok(Serving { server, log, uris, is_activated, stop, parent })
}

impl Serving {
    /// Serves until SIGINT, SIGTERM or SIGHUP, or the end of the parent that started the server for itself. Requests in
    /// flight complete, and the volumes are flushed. A second signal ends the process at once. `report` is called every
    /// second, with messages about closed connections.
    ///
    /// # Errors
    /// [`ServeError::Server`]: a thread of the server failed, or the flush. [`ServeError::Log`]: the log is incomplete.
    pub fn run(self, report: impl FnMut(&ServeRates, &[String])) -> Result<ServeEnd, ServeError> {
        watch(&self, report);
        let Self { server, log, .. } = self;
        let totals = server.stop_with(&mut service::extends_stop).map_err(ServeError::Server);
        let log = log::finish(log)?;
        Ok(ServeEnd { totals: totals?, log })
    }
}

impl Watched for Serving {
    fn is_to_end(&self) -> bool {
        self.stop.load(Ordering::Acquire) || self.parent.is_some_and(Parent::has_ended)
    }

    fn totals(&self) -> ServeTotals {
        self.server.totals()
    }

    fn take_messages(&self) -> Vec<String> {
        self.server.take_messages()
    }
}

/// A flag that the first signal sets. The second one ends the process.
fn stop_on_signals() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    leave_first_to_server();
    for signal in ending_signals() {
        // The order matters: the first action ends the process if an earlier signal has set `stop`.
        let _ = flag::register_conditional_default(signal, Arc::clone(&stop));
        let _ = flag::register(signal, Arc::clone(&stop));
    }
    stop
}

fn load_tls(request: &ServeTlsRequest) -> Result<ServeTls, TlsError> {
    let files = TlsFiles { certificate: request.certificate.clone(), key: request.key.clone() };
    let server = TlsServer::load(&files, request.client_ca.as_deref())?;
    Ok(ServeTls { server, is_required: request.is_required })
}

fn names(request: &ServeRequest, models: &[Option<ModelTarget>]) -> Result<Vec<String>, ServeError> {
    let (names, targets) = (request.names.len(), request.targets.len());
    if names > targets {
        return Err(ServeError::Names { names, targets });
    }
    let of_target = |(target, model): (&PathBuf, &Option<ModelTarget>)| match model {
        Some(model) => model.model().name().to_owned(),
        None => target.file_name().unwrap_or_default().to_string_lossy().into_owned(),
    };
    let mut all = request.names.clone();
    all.extend(request.targets[names..].iter().zip(&models[names..]).map(of_target));
    if let Some(name) = all.iter().find(|name| name.len() > EXPORT_NAME_MAX) {
        return Err(ServeError::LongName(name.len()));
    }
    for (index, name) in all.iter().enumerate() {
        if all[..index].contains(name) {
            return Err(ServeError::SameName(name.clone()));
        }
    }
    Ok(all)
}

/// The sockets, and whether the service manager opened them.
fn listeners(request: &ServeRequest) -> Result<(Vec<Listener>, bool), ServeError> {
    let inherited = service::sockets().map_err(ServeError::Inherited)?;
    match (&request.listen, inherited.is_empty()) {
        (Some(_), false) => Err(ServeError::TwoPlaces),
        (None, false) => Ok((inherited, true)),
        (listen, true) => {
            let listen = listen.clone().unwrap_or_else(default_place);
            let bound = Listener::bind(&listen);
            let bound = bound.map_err(|source| ServeError::Listen { place: text_of(&listen), source })?;
            Ok((vec![bound], false))
        }
    }
}

/// A unix socket in the directory of the user's sockets, or else in that of temporary files.
fn default_place() -> Listen {
    let directory = socket_directory(std::env::var_os("XDG_RUNTIME_DIR"));
    Listen::Unix(directory.join(format!("iopath-{}.sock", std::process::id())))
}

/// The variable is empty or names no directory in some containers and after `su`.
fn socket_directory(runtime: Option<OsString>) -> PathBuf {
    let directory = runtime.map(PathBuf::from).filter(|path| path.is_absolute() && path.is_dir());
    directory.unwrap_or_else(std::env::temp_dir)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_without_a_directory_of_the_user_is_a_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(socket_directory(Some(folder.path().into())), folder.path());
        for absent in [None, Some(""), Some("."), Some("/nonexistent/directory")] {
            assert_eq!(socket_directory(absent.map(OsString::from)), std::env::temp_dir(), "{absent:?}");
        }
    }
}
