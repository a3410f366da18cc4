//! TLS of a client: its options, and the session of one connection as the encryption of a remote device. The handshake
//! of NBD asks for it (`handshake.rs`).

use std::io::{self, IoSlice};
use std::path::PathBuf;

use iopath::remote::{RemoteEncryption, RemoteSocket};
use percent_encoding::percent_decode_str;

use crate::tls::{TlsClient, TlsError, TlsFiles, TlsSession};

/// The options of TLS, for URIs with the schemes `nbds` and `nbds+unix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// A folder with `ca-cert.pem`, and for servers that ask for a certificate of the client `client-cert.pem` and
    /// `client-key.pem`.
    pub certificates: Option<PathBuf>,
    /// Whether the certificate of the server is verified. It must be signed by an authority of `ca-cert.pem`.
    pub verifies_peer: bool,
    /// The name that the certificate of the server must contain; by default the host of the URI, and `localhost` for a
    /// unix socket.
    pub hostname: Option<String>,
}

impl Default for TlsOptions {
    fn default() -> Self {
        Self { certificates: None, verifies_peer: true, hostname: None }
    }
}

impl TlsOptions {
    /// Sets the parameter of a URI. `None`: unknown, or without a valid value.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Option<()> {
        let value = percent_decode_str(value).decode_utf8().ok().filter(|value| !value.is_empty())?;
        match name {
            "tls-certificates" => self.certificates = Some(PathBuf::from(&*value)),
            "tls-hostname" => self.hostname = Some(value.into_owned()),
            "tls-verify-peer" => {
                self.verifies_peer = match &*value {
                    "0" | "false" => false,
                    "1" | "true" => true,
                    _ => return None,
                }
            }
            // Anonymous and pre-shared keys are not supported.
            "tls-type" if value == "x509" => {}
            _ => return None,
        }
        Some(())
    }

    /// Reads the certificates. `None`: the server must be verified, but no folder is stated.
    pub(super) fn load(&self) -> Result<Option<TlsClient>, TlsError> {
        let path = |name: &str| self.certificates.as_ref().map(|folder| folder.join(name));
        let files = path("client-cert.pem").zip(path("client-key.pem"));
        let files = files.filter(|(certificate, key)| certificate.exists() || key.exists());
        let files = files.map(|(certificate, key)| TlsFiles { certificate, key });
        if !self.verifies_peer {
            return TlsClient::without_verification(files.as_ref()).map(Some);
        }
        path("ca-cert.pem").map(|authorities| TlsClient::load(&authorities, files.as_ref())).transpose()
    }
}

/// Makes the encryption of each connection.
#[derive(Debug)]
pub(crate) struct Encryption {
    pub(crate) client: TlsClient,
    /// The name in the certificate of the server.
    pub(crate) hostname: String,
}

impl Encryption {
    /// The encryption of a new connection.
    pub(crate) fn start(&self) -> Result<Box<dyn RemoteEncryption>, TlsError> {
        Ok(Box::new(Encrypted(self.client.connect(&self.hostname)?)))
    }
}

#[derive(Debug)]
struct Encrypted(TlsSession);

impl RemoteEncryption for Encrypted {
    fn send(&mut self, mut socket: &mut dyn RemoteSocket, bytes: &[u8]) -> io::Result<Option<usize>> {
        self.0.send(&mut socket, &[IoSlice::new(bytes)])
    }

    fn receive(&mut self, mut socket: &mut dyn RemoteSocket, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        self.0.receive(&mut socket, buffer)
    }

    fn flush(&mut self, mut socket: &mut dyn RemoteSocket) -> io::Result<()> {
        self.0.flush(&mut socket).map(drop)
    }

    fn has_output(&self) -> bool {
        self.0.has_output()
    }

    fn has_input(&self) -> bool {
        self.0.has_input()
    }

    fn close(&mut self, mut socket: &mut dyn RemoteSocket) {
        self.0.close(&mut socket);
    }
}
