//! The types of `session.rs` in a build without TLS: none of them has a value, and the functions that would make one
//! return [`TlsError::Absent`].

use std::convert::Infallible;
use std::io::{self, IoSlice, Read, Write};
use std::path::Path;

use super::{TlsError, TlsFiles};

/// The server's end.
#[derive(Clone, Debug)]
pub struct TlsServer(Infallible);

/// The client's end.
#[derive(Clone, Debug)]
pub struct TlsClient(Infallible);

/// TLS of one connection.
#[derive(Debug)]
pub struct TlsSession(Infallible);

impl TlsServer {
    /// # Errors
    /// [`TlsError::Absent`].
    pub fn load(_: &TlsFiles, _: Option<&Path>) -> Result<Self, TlsError> {
        Err(TlsError::Absent)
    }

    /// # Errors
    /// None.
    pub fn accept(&self) -> io::Result<TlsSession> {
        match self.0 {}
    }
}

impl TlsClient {
    /// # Errors
    /// [`TlsError::Absent`].
    pub fn load(_: &Path, _: Option<&TlsFiles>) -> Result<Self, TlsError> {
        Err(TlsError::Absent)
    }

    /// # Errors
    /// [`TlsError::Absent`].
    pub fn without_verification(_: Option<&TlsFiles>) -> Result<Self, TlsError> {
        Err(TlsError::Absent)
    }

    /// # Errors
    /// None.
    pub fn connect(&self, _: &str) -> Result<TlsSession, TlsError> {
        match self.0 {}
    }
}

impl TlsSession {
    /// # Errors
    /// None.
    pub fn receive(&mut self, _: &mut (impl Read + Write), _: &mut [u8]) -> io::Result<Option<usize>> {
        match self.0 {}
    }

    /// # Errors
    /// None.
    pub fn send(&mut self, _: &mut impl Write, _: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        match self.0 {}
    }

    /// # Errors
    /// None.
    pub fn flush(&mut self, _: &mut impl Write) -> io::Result<usize> {
        match self.0 {}
    }

    /// Not called.
    #[must_use]
    pub fn has_output(&self) -> bool {
        match self.0 {}
    }

    /// Not called.
    #[must_use]
    pub fn has_input(&self) -> bool {
        match self.0 {}
    }

    /// Not called.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        match self.0 {}
    }

    /// Not called.
    pub fn close(&mut self, _: &mut impl Write) {
        match self.0 {}
    }
}
