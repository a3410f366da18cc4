//! TLS of one connection, for both ends, without blocking: plain bytes on one side, a socket on the other. It does not
//! negotiate `STARTTLS` (see the handshakes of `server` and `client`), and it waits for nothing.

use std::io::{self, IoSlice, Read, Write};
use std::path::Path;
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};

use super::{TlsError, TlsFiles};

/// Bytes that a connection encrypts before the socket accepts them.
const BUFFER_MAX: usize = 128 << 10;

/// The server's end: accepts TLS 1.2 and 1.3.
#[derive(Clone, Debug)]
pub struct TlsServer(Arc<ServerConfig>);

/// The client's end: verifies the certificate of the server.
#[derive(Clone, Debug)]
pub struct TlsClient(Arc<ClientConfig>);

impl TlsServer {
    /// A server with this certificate. With `client_ca`, it accepts only clients whose certificate an authority of that
    /// file (PEM) has signed.
    ///
    /// # Errors
    /// [`TlsError`]: a file cannot be read, has no certificate, or does not fit the key.
    pub fn load(files: &TlsFiles, client_ca: Option<&Path>) -> Result<Self, TlsError> {
        let (chain, key) = files.read()?;
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&files.certificate, &error))?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(authorities(path)?);
                let provider = Arc::new(default_provider());
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| unusable(path, &error))?)
            }
        };
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|error| unusable(&files.certificate, &error))?;
        // A connection lives for hours: resumed sessions would save little, and their storage is shared by all threads.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }

    /// The state of a new connection.
    ///
    /// # Errors
    /// The configuration does not allow a connection.
    pub fn accept(&self) -> io::Result<TlsSession> {
        let mut connection = ServerConnection::new(Arc::clone(&self.0)).map_err(io::Error::other)?;
        connection.set_buffer_limit(Some(BUFFER_MAX));
        Ok(TlsSession(Connection::Server(connection)))
    }
}

impl TlsClient {
    /// A client that trusts the authorities in `ca` (PEM). `files` is its own certificate, for servers that ask for
    /// one.
    ///
    /// # Errors
    /// Returns the errors of [`TlsServer::load`].
    pub fn load(ca: &Path, files: Option<&TlsFiles>) -> Result<Self, TlsError> {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(ca, &error))?
            .with_root_certificates(authorities(ca)?);
        Self::build(builder, files)
    }

    /// A client that accepts every certificate of a server. The connection is encrypted, but an attacker in the network
    /// can read and change it. `files` as in [`TlsClient::load`].
    ///
    /// # Errors
    /// Returns the errors of [`TlsServer::load`].
    pub fn without_verification(files: Option<&TlsFiles>) -> Result<Self, TlsError> {
        let provider = Arc::new(default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("the provider has cipher suites of each version")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Unverified(provider)));
        Self::build(builder, files)
    }

    fn build(
        builder: rustls::ConfigBuilder<ClientConfig, WantsClientCert>,
        files: Option<&TlsFiles>,
    ) -> Result<Self, TlsError> {
        let config = match files {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let (chain, key) = files.read()?;
                let config = builder.with_client_auth_cert(chain, key);
                config.map_err(|error| unusable(&files.certificate, &error))?
            }
        };
        Ok(Self(Arc::new(config)))
    }

    /// The state of a new connection to `server`: a name or address that the certificate of the server contains. Call
    /// [`TlsSession::flush`] to send the first message.
    ///
    /// # Errors
    /// [`TlsError::ServerName`].
    pub fn connect(&self, server: &str) -> Result<TlsSession, TlsError> {
        let refused = || TlsError::ServerName(server.to_owned());
        let name = ServerName::try_from(server.to_owned()).map_err(|_| refused())?;
        let mut connection = ClientConnection::new(Arc::clone(&self.0), name).map_err(|_| refused())?;
        connection.set_buffer_limit(Some(BUFFER_MAX));
        Ok(TlsSession(Connection::Client(connection)))
    }
}

/// TLS of one connection. The socket is an argument, so that its owner keeps it; it may block or not.
///
/// It holds at most about 200 KiB: one record that arrives, and 128 KiB that wait for the socket.
#[derive(Debug)]
pub struct TlsSession(Connection);

impl TlsSession {
    /// Receives plain bytes, and continues the handshake as far as that is possible: `Ok(None)` if the socket has no
    /// more bytes for now, `Ok(Some(0))` if the peer closed the connection. `buffer` must not be empty.
    ///
    /// # Errors
    /// The error of the socket, or [`io::ErrorKind::InvalidData`]: the peer violates TLS, or its certificate is
    /// refused.
    pub fn receive(
        &mut self,
        socket: &mut (impl Read + Write),
        buffer: &mut [u8],
    ) -> io::Result<Option<usize>> {
        loop {
            match self.0.reader().read(buffer) {
                Ok(count) => return Ok(Some(count)),
                // The peer closed the socket without an end of TLS. Messages of NBD have a length, so none is cut
                // unnoticed.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Some(0)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            match self.0.read_tls(socket) {
                Ok(0) => return Ok(Some(0)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
            let processed = self.0.process_new_packets();
            // The next message of the handshake, or the alert that states the reason for its end.
            let flushed = self.flush(socket);
            processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {error}")))?;
            flushed?;
        }
    }

    /// Encrypts and sends bytes: `Ok(None)` if the socket is full. The number of accepted bytes may exceed those that
    /// the socket has accepted: see [`TlsSession::has_output`].
    ///
    /// # Errors
    /// The error of the socket.
    pub fn send(&mut self, socket: &mut impl Write, parts: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        self.flush(socket)?;
        if self.has_output() {
            return Ok(None);
        }
        let count = self.0.writer().write_vectored(parts)?;
        self.flush(socket)?;
        Ok((count > 0).then_some(count))
    }

    /// Sends encrypted bytes that the socket did not accept earlier. Returns their number.
    ///
    /// # Errors
    /// The error of the socket.
    pub fn flush(&mut self, socket: &mut impl Write) -> io::Result<usize> {
        let mut total = 0;
        while self.0.wants_write() {
            match self.0.write_tls(socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => total += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    /// Whether encrypted bytes wait for the socket.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.0.wants_write()
    }

    /// Whether plain bytes can be received without the socket.
    #[must_use]
    pub fn has_input(&self) -> bool {
        !self.0.is_handshaking() && !self.0.wants_read()
    }

    /// Whether the handshake is incomplete.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// States the end of the connection to the peer, as far as the socket accepts it.
    pub fn close(&mut self, socket: &mut impl Write) {
        self.0.send_close_notify();
        let _ = self.flush(socket);
    }
}

/// Accepts every certificate; checks that the server has its key.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

impl TlsFiles {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| file(&self.key, &error))?;
        Ok((certificates(&self.certificate)?, key))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| file(path, &error))?;
    if found.is_empty() { Err(TlsError::NoCertificate(path.to_owned())) } else { Ok(found) }
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| unusable(path, &error))?;
    }
    Ok(roots)
}

fn file(path: &Path, error: &rustls::pki_types::pem::Error) -> TlsError {
    use rustls::pki_types::pem::Error;
    let reason = match error {
        Error::Io(error) => error.to_string(),
        Error::NoItemsFound => "no private key or certificate; expected PEM".to_owned(),
        other => other.to_string(),
    };
    TlsError::File { path: path.to_owned(), reason }
}

fn unusable(path: &Path, error: &impl ToString) -> TlsError {
    TlsError::Unusable { path: path.to_owned(), reason: error.to_string() }
}
