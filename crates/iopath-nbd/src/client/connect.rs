//! Opens the export of a URI as a remote device: resolves the address, and starts the connections. Sockets and threads
//! are in `iopath-os`.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use iopath::remote::{Remote, RemoteAddress, RemoteError, RemoteProtocol, RemoteSession};
use thiserror::Error;

use crate::client::coverage::Coverage;
use crate::client::encryption::{Encryption, TlsOptions};
use crate::client::link::{Common, Link};
use crate::client::patience::Patience;
use crate::tls::TlsError;
use crate::uri::{NbdUri, Place, UriError};

/// The options of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Connections, if the server states that they are consistent with each other (`NBD_FLAG_CAN_MULTI_CONN`); else
    /// one.
    pub connections: usize,
    /// Longest request in bytes; a whole number of blocks of the server, or less. `None`: as long as the server
    /// accepts.
    pub request_bytes_max: Option<u32>,
    /// Limits of attempts and times.
    pub patience: Patience,
    /// TLS; used only if the URI asks for it.
    pub tls: TlsOptions,
}

impl Default for ConnectOptions {
    /// A connection for each processor, at most 4.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            connections: processors.min(4),
            request_bytes_max: None,
            patience: Patience::default(),
            tls: TlsOptions::default(),
        }
    }
}

impl ConnectOptions {
    /// A URI and the options in its query: `connections=N`, `request-size=BYTES`, `connect-time=S`, `silence-time=S`,
    /// `reconnect-time=S`, `reconnect-attempts=N`, with times in seconds. Unless set, the default. Other programs
    /// refuse these parameters. Those of TLS are known to other programs: `tls-certificates=FOLDER`,
    /// `tls-verify-peer=0|1`, `tls-hostname=NAME`, `tls-type=x509`.
    ///
    /// # Errors
    /// [`UriError`]: not an NBD URI, or a parameter that is unknown or no number.
    ///
    /// ```
    /// let text = "nbd+unix:///disk?socket=/run/nbd&reconnect-time=5&connections=2&request-size=65536";
    /// let (uri, options) = iopath_nbd::ConnectOptions::parse(text)?;
    /// assert_eq!(uri.to_string(), "nbd+unix:///disk?socket=/run/nbd");
    /// assert_eq!((options.connections, options.patience.reconnect.as_secs()), (2, 5));
    /// assert_eq!(options.request_bytes_max, Some(65536));
    /// # Ok::<(), iopath_nbd::UriError>(())
    /// ```
    pub fn parse(text: &str) -> Result<(NbdUri, Self), UriError> {
        let (place, query) = text.split_once('?').map_or((text, ""), |(place, query)| (place, query));
        let mut has_tls = false;
        let mut options = Self::default();
        let mut others = Vec::new();
        let mut no_time = Duration::ZERO;
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let refused = || UriError::Parameter { uri: text.to_owned(), parameter: parameter.to_owned() };
            if name.starts_with("tls-") {
                options.tls.set(name, value).ok_or_else(refused)?;
                has_tls = true;
                continue;
            }
            let Patience { connect, silence, reconnect, reconnect_attempts } = &mut options.patience;
            let time = match name {
                "connect-time" => connect,
                "silence-time" => silence,
                "reconnect-time" => reconnect,
                "connections" | "request-size" | "reconnect-attempts" => &mut no_time,
                _ => {
                    others.push(parameter);
                    continue;
                }
            };
            let number: u32 = value.parse().map_err(|_| refused())?;
            *time = Duration::from_secs(number.into());
            match name {
                "reconnect-attempts" => *reconnect_attempts = number,
                "connections" => options.connections = number.max(1) as usize,
                "request-size" => options.request_bytes_max = Some(number),
                _ => {}
            }
        }
        let query = if others.is_empty() { String::new() } else { format!("?{}", others.join("&")) };
        let uri: NbdUri = format!("{place}{query}").parse()?;
        if has_tls && !uri.is_tls { Err(UriError::NoTls(text.to_owned())) } else { Ok((uri, options)) }
    }
}

/// An export cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No server, or it refuses the export.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The name of the host has no address.
    #[error(
        "{server} cannot be opened: the host has no address: {source}; check the name, or use an address"
    )]
    Host {
        /// The server, as a URI.
        server: String,
        /// The error of the resolver.
        source: io::Error,
    },
    /// The certificates cannot be used.
    #[error("{server} cannot be opened: {source}")]
    Tls {
        /// The server, as a URI.
        server: String,
        /// The file and the cause.
        source: TlsError,
    },
    /// No authority to verify the server with.
    #[error(
        "{server} cannot be opened: add tls-certificates=FOLDER to the URI, a folder with ca-cert.pem and for client \
         certificates client-cert.pem and client-key.pem; or tls-verify-peer=0, which accepts every server"
    )]
    NoCertificates {
        /// The server, as a URI.
        server: String,
    },
}

/// The protocol of the connections of one device.
#[derive(Debug)]
struct Nbd(Arc<Common>);

impl RemoteProtocol for Nbd {
    fn session(&self, number: usize) -> Box<dyn RemoteSession> {
        Box::new(Link::new(number, &self.0))
    }

    fn route_flush(&self) -> Option<usize> {
        self.0.coverage.candidate()
    }

    fn name(&self) -> &str {
        &self.0.server
    }
}

/// Opens an export. [`iopath::Volume::remote`] makes a volume of it.
///
/// The addresses of a host are resolved once. A connection that ends is made anew, and its unfinished requests are sent
/// again, within the limits of [`Patience`]; then they fail with [`iopath::IoError::Disconnected`].
///
/// **Writes that were not flushed** may be lost if the server was restarted. A client cannot see the difference between
/// a restart and a disturbed network. So the next flush fails if writes have completed since the last flush, and no
/// connection has existed since before them.
///
/// # Errors
/// The server cannot be reached, refuses the export, or violates the protocol.
///
/// ```no_run
/// use iopath::{Options, Volume};
/// use iopath_nbd::{ConnectOptions, connect};
///
/// let export = connect(&"nbd://server/disk".parse()?, &ConnectOptions::default())?;
/// let volume = Volume::remote(&export, &Options::new())?;
/// println!("{} bytes", volume.size_bytes());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn connect(uri: &NbdUri, options: &ConnectOptions) -> Result<Remote, ConnectError> {
    let server = uri.to_string();
    let address = match &uri.place {
        Place::Unix(path) => RemoteAddress::Unix(path.clone()),
        Place::Tcp { host, port } => match resolve(host, *port, options.patience.connect) {
            Ok(addresses) => RemoteAddress::Tcp(addresses),
            Err(source) => return Err(ConnectError::Host { server, source }),
        },
    };
    let encryption = if uri.is_tls { Some(encryption(uri, &options.tls, &server)?) } else { None };
    let common = Common {
        encryption,
        server,
        export: uri.export.clone(),
        request_bytes_max: options.request_bytes_max.unwrap_or(u32::MAX),
        patience: options.patience,
        coverage: Coverage::new(options.connections.max(1)),
        negotiated: OnceLock::new(),
    };
    Ok(Remote::open(Arc::new(Nbd(Arc::new(common))), address, options.connections)?)
}

/// The addresses of a host. The resolver has no time limit of ours, so a thread of its own waits for it.
fn resolve(host: &str, port: u16, limit: Duration) -> io::Result<Vec<SocketAddr>> {
    let (sender, resolved) = mpsc::sync_channel(1);
    let host = host.to_owned();
    let look_up = move || {
        let addresses = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
        // Fails only if the answer came too late.
        let _ = sender.send(addresses);
    };
    std::thread::Builder::new().name("iopath-resolve".to_owned()).spawn(look_up)?;
    let late =
        || io::Error::new(io::ErrorKind::TimedOut, format!("no answer of the resolver within {limit:?}"));
    resolved.recv_timeout(limit).unwrap_or_else(|_| Err(late()))
}

/// The encryption of the connections to `uri`.
fn encryption(uri: &NbdUri, options: &TlsOptions, server: &str) -> Result<Encryption, ConnectError> {
    let server = || server.to_owned();
    let failed = |source| ConnectError::Tls { server: server(), source };
    let client = options.load().map_err(failed)?;
    let client = client.ok_or_else(|| ConnectError::NoCertificates { server: server() })?;
    let host = match &uri.place {
        Place::Tcp { host, .. } => host,
        Place::Unix(_) => "localhost",
    };
    let hostname = options.hostname.as_deref().unwrap_or(host).to_owned();
    let encryption = Encryption { client, hostname };
    // A wrong name is an error now, not after the connect.
    encryption.start().map_err(failed)?;
    Ok(encryption)
}
