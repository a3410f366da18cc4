//! A connected socket, without blocking. It has no knowledge of the protocol.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// A connection of a client.
#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    /// Prepares the socket: no blocking, and no delay of small replies.
    pub(super) fn prepare(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_nonblocking(true),
            Self::Tcp(stream) => {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)
            }
        }
    }

    /// Receives bytes: `Ok(None)` if none have arrived, `Ok(Some(0))` if the client closed the connection.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        retried(|| match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Tcp(stream) => stream.read(buffer),
        })
    }

    /// Sends bytes: `Ok(None)` if the socket is full.
    pub(super) fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        retried(|| match self {
            Self::Unix(stream) => stream.write_vectored(parts),
            Self::Tcp(stream) => stream.write_vectored(parts),
        })
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
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
