//! The bytes of one client as the server moves them. A socket implements it in `stream.rs`.

use std::io::{self, IoSlice};

/// A connection that moves bytes. No function waits.
pub(crate) trait Transport: std::fmt::Debug {
    /// What TLS needs of the server.
    type Tls;

    /// The number of the connection, from 1: the stream of its I/O.
    fn number(&self) -> u32;

    /// Prepares a new connection.
    fn prepare(&self) -> io::Result<()>;

    /// Encrypts all further bytes.
    fn start_tls(&mut self, tls: &Self::Tls) -> io::Result<()>;

    /// Receives bytes: `Ok(None)` if none have arrived, `Ok(Some(0))` if the client closed the connection.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>>;

    /// Whether a receive of fewer bytes than there was room for shows that the connection is empty. Encrypted bytes may
    /// have arrived without the rest of their record, or wait in the TLS session.
    fn is_plain(&self) -> bool;

    /// Sends bytes: `Ok(None)` if the connection is full.
    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<Option<usize>>;

    /// Sends encrypted bytes that were not accepted earlier. Returns their number.
    fn flush(&mut self) -> io::Result<usize>;

    /// Whether encrypted bytes wait.
    fn has_output(&self) -> bool;

    /// States the end of the encrypted connection to the client.
    fn close(&mut self);
}
