//! A connected socket, without blocking, plain or with TLS. It has no knowledge of the protocol.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use crate::tls::{TlsServer, TlsSession};

/// A socket of a client.
#[derive(Debug)]
pub(super) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// A connection of a client.
#[derive(Debug)]
pub(super) struct Stream {
    socket: Socket,
    /// The encryption, once the client has asked for it.
    tls: Option<Box<TlsSession>>,
    /// The number of the connection, from 1: the stream of its I/O.
    pub(super) number: u32,
    /// Bytes in both directions.
    moved: u64,
}

impl Stream {
    pub(super) fn new(socket: Socket) -> Self {
        Self { socket, tls: None, number: 0, moved: 0 }
    }

    /// Prepares the socket: no blocking, and no delay of small replies.
    pub(super) fn prepare(&self) -> io::Result<()> {
        match &self.socket {
            Socket::Unix(stream) => stream.set_nonblocking(true),
            Socket::Tcp(stream) => {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)
            }
        }
    }

    /// Encrypts all further bytes.
    pub(super) fn start_tls(&mut self, server: &TlsServer) -> io::Result<()> {
        self.tls = Some(Box::new(server.accept()?));
        Ok(())
    }

    /// Receives bytes: `Ok(None)` if none have arrived, `Ok(Some(0))` if the client closed the connection.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let received = match &mut self.tls {
            None => retried(|| self.socket.read(buffer)),
            Some(tls) => tls.receive(&mut self.socket, buffer),
        }?;
        self.moved += received.unwrap_or(0) as u64;
        Ok(received)
    }

    /// Whether a receive of fewer bytes than there was room for shows that the socket is empty. Encrypted bytes may
    /// have arrived without the rest of their record, or wait in the TLS session.
    pub(super) fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    /// Sends bytes: `Ok(None)` if the socket is full.
    pub(super) fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        let sent = match &mut self.tls {
            None => retried(|| self.socket.write_vectored(parts)),
            Some(tls) => tls.send(&mut self.socket, parts),
        }?;
        self.moved += sent.unwrap_or(0) as u64;
        Ok(sent)
    }

    /// Sends encrypted bytes that the socket did not accept earlier. Returns their number.
    pub(super) fn flush(&mut self) -> io::Result<usize> {
        let sent = self.tls.as_mut().map_or(Ok(0), |tls| tls.flush(&mut self.socket))?;
        self.moved += sent as u64;
        Ok(sent)
    }

    /// Bytes that were received or sent.
    pub(super) fn moved(&self) -> u64 {
        self.moved
    }

    /// Whether encrypted bytes wait for the socket.
    pub(super) fn has_output(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_output())
    }

    /// States the end of the encrypted connection to the client.
    pub(super) fn close(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.close(&mut self.socket);
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Unix(stream) => stream.as_fd(),
            Socket::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buffer)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write_vectored(parts),
            Self::Tcp(stream) => stream.write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn retried(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match call() {
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}
