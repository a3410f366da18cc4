//! The command line of `iopath serve`.

use super::values::{count, log_file, size};
use super::{JsonArgs, MetricsArgs, VolumeArgs};
use clap::{Args, ValueEnum};
use iopath_lab::serve::{Listen, parse_listen};
use std::path::PathBuf;

/// Whether connections are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TlsMode {
    /// Refuse clients without TLS
    Require,
    /// The client chooses
    Allow,
    /// Refuse TLS
    Off,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Files, block devices and modelled disks (model:NAME, in real time). The first one is also the default export
    #[arg(required = true)]
    pub(crate) target: Vec<PathBuf>,
    /// Listen on a unix socket, with mode 0600; default: the sockets of the service manager, or else a socket of its
    /// own in the directory of temporary files
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    pub(crate) unix: Option<PathBuf>,
    /// Be a disk of a virtual machine instead of an NBD server: a vhost-user-blk device at this socket, for one target
    #[arg(long, value_name = "PATH", conflicts_with_all = ["unix", "listen", "export", "tls_cert", "threads", "connections", "exit_with_parent", "json"])]
    pub(crate) vhost_user: Option<PathBuf>,
    /// Queues of the disk, each with a thread, at most 256; default: one for each processor, at most 8
    #[arg(long, value_name = "N", requires = "vhost_user", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) queues: Option<u16>,
    /// Listen on a TCP port, encrypted only with --tls-cert. A port alone is that of 127.0.0.1; port 0 selects a free
    /// one
    #[arg(long, value_name = "[HOST:]PORT", value_parser = parse_listen)]
    pub(crate) listen: Option<Listen>,
    /// Name of an export, once for each target; default: the name of the file
    #[arg(long, value_name = "NAME")]
    pub(crate) export: Vec<String>,
    /// Certificate of the server, followed by those of its issuers (PEM). Encrypts the connections
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Authorities of clients (PEM): refuse clients without a certificate of one of them
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Whether clients must use TLS; default with a certificate: require
    #[arg(long, value_name = "MODE", requires_ifs = [("require", "tls_cert"), ("allow", "tls_cert")])]
    pub(crate) tls: Option<TlsMode>,
    #[command(flatten)]
    pub(crate) volume: VolumeArgs,
    /// Allow clients to write. A device that is mounted, in use, or has a recognised signature is refused
    #[arg(long)]
    pub(crate) writable: bool,
    /// With --writable: serve a device with a recognised signature, such as that of a filesystem
    #[arg(long, requires = "writable")]
    pub(crate) overwrite: bool,
    /// Write the request log to a file, for `iopath log`. Each connection is a stream, numbered from 1; with
    /// --vhost-user, each queue
    #[arg(long, value_name = "FILE", value_parser = log_file)]
    pub(crate) log: Option<PathBuf>,
    /// Maximum size of the request log
    #[arg(long, value_parser = size, value_name = "SIZE", requires = "log")]
    pub(crate) log_limit: Option<u64>,
    /// Threads; default: one for each processor, at most 8
    #[arg(long, value_parser = count, value_name = "N")]
    pub(crate) threads: Option<u32>,
    /// Clients at the same time; further ones are closed at once; default: 1024
    #[arg(long, value_parser = count, value_name = "N")]
    pub(crate) connections: Option<u32>,
    /// End when the parent process has ended. Default only if a program other than a service manager passed the sockets
    #[arg(long)]
    pub(crate) exit_with_parent: bool,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}
