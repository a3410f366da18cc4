//! TLS of connections, in builds with the feature `tls`: `tls/session.rs`. Other builds refuse it: `tls/absent.rs`.

#[cfg_attr(not(feature = "tls"), path = "tls/absent.rs")]
mod session;

use std::path::PathBuf;

use thiserror::Error;

pub use session::{TlsClient, TlsServer, TlsSession};

/// Certificates or keys that cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file that cannot be read, or that is not PEM.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// A file without a certificate.
    #[error("{0} contains no certificate; expected PEM (-----BEGIN CERTIFICATE-----)")]
    NoCertificate(PathBuf),
    /// Certificates or a key that do not fit together, or are not supported.
    #[error("{path}: {reason}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// Not the name of a host.
    #[error("{0:?} is not a name or address of a server, which its certificate must contain")]
    ServerName(String),
    /// This build has no TLS.
    #[error("this build lacks the feature `tls`; build with `--features tls`")]
    Absent,
}

/// The certificate and key of one end.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate of this end, followed by those of its issuers: PEM.
    pub certificate: PathBuf,
    /// The private key: PEM.
    pub key: PathBuf,
}
