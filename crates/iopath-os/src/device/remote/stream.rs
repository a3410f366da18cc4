//! A stream socket without blocking: connect, send from many pieces of memory, receive into them. No protocol.
//!
//! An encrypted stream would be a further kind here: it encrypts on send, and decrypts into a buffer of its own.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, sockopt};

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteAddress {
    /// A unix socket.
    Unix(PathBuf),
    /// The addresses of a host, in the order of preference.
    Tcp(Vec<SocketAddr>),
}

impl RemoteAddress {
    /// The number of addresses to try, one after another.
    pub(super) fn choices(&self) -> usize {
        match self {
            Self::Unix(_) => 1,
            Self::Tcp(addresses) => addresses.len(),
        }
    }
}

/// Segments of one system call, as in `UIO_MAXIOV`, but fewer, so that the kernel keeps their list on its stack or in
/// one page.
pub(super) const IOVECS_MAX: usize = 256;

/// The result of a call.
#[derive(Debug)]
pub(super) enum Moved {
    /// Bytes moved, at least one.
    Bytes(usize),
    /// Wait for the socket.
    Blocked,
    /// The peer has closed the stream.
    End,
    /// The stream is of no further use.
    Failed(io::Error),
}

/// A connected or connecting socket.
#[derive(Debug)]
pub(super) struct Stream(OwnedFd);

impl Stream {
    /// Starts to connect to choice number `choice`. `true`: it is connected.
    pub(super) fn connect(address: &RemoteAddress, choice: usize) -> io::Result<(Self, bool)> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let open = |family| rustix::net::socket_with(family, SocketType::STREAM, flags, None);
        let (socket, connected) = match address {
            RemoteAddress::Unix(path) => {
                let socket = open(AddressFamily::UNIX)?;
                let connected = rustix::net::connect(&socket, &SocketAddrUnix::new(path)?);
                (socket, connected)
            }
            RemoteAddress::Tcp(addresses) => {
                let address = addresses.get(choice).ok_or(Errno::ADDRNOTAVAIL)?;
                let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let socket = open(family)?;
                // Requests are sent as whole batches, so a delay would only add latency.
                sockopt::set_tcp_nodelay(&socket, true)?;
                sockopt::set_socket_keepalive(&socket, true)?;
                let connected = rustix::net::connect(&socket, address);
                (socket, connected)
            }
        };
        match connected {
            Ok(()) => Ok((Self(socket), true)),
            Err(Errno::INPROGRESS) => Ok((Self(socket), false)),
            Err(error) => Err(error.into()),
        }
    }

    /// The result of a connect, after the socket has become writable.
    pub(super) fn connected(&self) -> io::Result<()> {
        Ok(sockopt::socket_error(&self.0)??)
    }

    /// Sends the bytes of `iovecs`.
    ///
    /// # Safety
    /// They describe memory that may be read now.
    pub(super) unsafe fn send(&self, iovecs: &mut [libc::iovec]) -> Moved {
        // SAFETY: all fields may be zero.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = iovecs.as_mut_ptr();
        message.msg_iovlen = iovecs.len() as _;
        // A peer that closed the socket is an error, not a signal.
        // SAFETY: the caller's promise covers the memory; the message lives during the call.
        let sent = unsafe { libc::sendmsg(self.0.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        moved(sent as i64, false)
    }

    /// Receives into `iovecs`.
    ///
    /// # Safety
    /// They describe memory that may be written now.
    pub(super) unsafe fn receive(&self, iovecs: &mut [libc::iovec]) -> Moved {
        // SAFETY: the caller's promise covers the memory.
        let received =
            unsafe { libc::readv(self.0.as_raw_fd(), iovecs.as_ptr(), i32::from(iovecs.len() as u16)) };
        moved(received as i64, true)
    }

    /// Ends the stream for both directions, so that the server drops requests of it that it has not started.
    pub(super) fn shut_down(&self) {
        // Fails only if the stream has ended already.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn moved(returned: i64, zero_is_end: bool) -> Moved {
    match usize::try_from(returned) {
        Ok(0) if zero_is_end => Moved::End,
        Ok(0) => Moved::Blocked,
        Ok(count) => Moved::Bytes(count),
        Err(_) => {
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Moved::Blocked,
                _ => Moved::Failed(error),
            }
        }
    }
}
