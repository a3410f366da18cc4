//! A connected socket, without blocking, plain or with TLS. It has no knowledge of the protocol.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use super::transport::Transport;
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
}

impl Stream {
    pub(super) fn new(socket: Socket) -> Self {
        Self { socket, tls: None, number: 0 }
    }
}

impl Transport for Stream {
    type Tls = TlsServer;

    fn number(&self) -> u32 {
        self.number
    }

    fn prepare(&self) -> io::Result<()> {
        match &self.socket {
            Socket::Unix(stream) => stream.set_nonblocking(true),
            Socket::Tcp(stream) => {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)
            }
        }
    }

    fn start_tls(&mut self, tls: &TlsServer) -> io::Result<()> {
        self.tls = Some(Box::new(tls.accept()?));
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match &mut self.tls {
            None => retried(|| self.socket.read(buffer)),
            Some(tls) => tls.receive(&mut self.socket, buffer),
        }
    }

    fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        match &mut self.tls {
            None => retried(|| self.socket.write_vectored(parts)),
            Some(tls) => tls.send(&mut self.socket, parts),
        }
    }

    fn flush(&mut self) -> io::Result<usize> {
        self.tls.as_mut().map_or(Ok(0), |tls| tls.flush(&mut self.socket))
    }

    fn has_output(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_output())
    }

    fn close(&mut self) {
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
