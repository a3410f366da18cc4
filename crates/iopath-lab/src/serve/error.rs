//! The reasons why targets cannot be served.

use iopath::OpenError;
use iopath_log::LogError;
use iopath_nbd::TlsError;
use iopath_os::target::Refusal;
use iopath_ublk::UblkError;
use thiserror::Error;

use crate::modelled::ModelledError;
use iopath_bench::error::BenchError;
use iopath_bench::own_file::log_with_limit;

/// A target that cannot be served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Another program has locked the target.
    #[error("{0}, or serve it beside that program with --share")]
    Locked(Refusal),
    /// A model or NBD URI that does not exist or is not valid.
    #[error(transparent)]
    Model(Box<BenchError>),
    /// A model that cannot be served.
    #[error(transparent)]
    Modelled(#[from] ModelledError),
    /// No socket.
    #[error("cannot listen on {place}: {source}")]
    Listen {
        /// The place.
        place: String,
        /// The cause.
        source: std::io::Error,
    },
    /// Sockets of the service manager that cannot be used.
    #[error("the socket that the service manager passed (LISTEN_FDS) cannot be used: {0}")]
    Inherited(std::io::Error),
    /// A place beside the sockets of the service manager.
    #[error("the service manager passed sockets (LISTEN_FDS); omit --unix, --listen and --vhost-user")]
    TwoPlaces,
    /// A disk of a virtual machine has one target.
    #[error("{0} targets for one disk; start a server for each, or name one target")]
    OneDisk(usize),
    /// A build without disks of virtual machines.
    #[error("this build lacks the feature `vhost-user`; build with `--features vhost-user`")]
    NoVhost,
    /// A block device.
    #[error(transparent)]
    Ublk(#[from] UblkError),
    /// A device whose target is in no record.
    #[error("the target of device {0} is not known; name it: iopath attach --recover {0} TARGET")]
    NoTarget(u32),
    /// Something that is not a block device of iopath.
    #[error("{0} is not a device of iopath; name it by its number or as /dev/ublkbN")]
    NoDevice(String),
    /// The request log.
    #[error(transparent)]
    Log(LogError),
    /// A certificate or key that cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Two exports with one name.
    #[error("two exports have the name {0:?}; name them with --export, once for each target")]
    SameName(String),
    /// A name that no client can ask for.
    #[error("the name of an export has {0} bytes; the protocol allows 4096")]
    LongName(usize),
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

impl From<LogError> for ServeError {
    fn from(error: LogError) -> Self {
        Self::Log(log_with_limit(error))
    }
}

impl ServeError {
    /// Whether the arguments are invalid on every machine and target.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::TwoPlaces
            | Self::OneDisk(_)
            | Self::NoDevice(_)
            | Self::SameName(_)
            | Self::LongName(_)
            | Self::Names { .. } => true,
            Self::Model(error) => error.is_usage(),
            Self::Open(_)
            | Self::Locked(_)
            | Self::Modelled(_)
            | Self::Listen { .. }
            | Self::Inherited(_)
            | Self::NoVhost
            | Self::Ublk(_)
            | Self::NoTarget(_)
            | Self::Log(_)
            | Self::Tls(_)
            | Self::Server(_) => false,
        }
    }
}
