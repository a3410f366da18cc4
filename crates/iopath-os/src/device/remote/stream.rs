//! A stream socket without blocking: connect, send from many pieces of memory, receive into them. No protocol.
//!
//! The bytes of an encrypted stream pass through its encryption, which keeps those that wait for the socket.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use super::session::RemoteEncryption;
use iopath_core::debug;

/// The address of a server.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoteAddress {
    /// A unix socket.
    Unix(PathBuf),
    /// The addresses of a host, in the order of preference.
    Tcp(Vec<SocketAddr>),
}

impl fmt::Debug for RemoteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => f.debug_tuple("Unix").field(&debug::Text(path)).finish(),
            Self::Tcp(addresses) => f.debug_tuple("Tcp").field(&debug::List(addresses)).finish(),
        }
    }
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
pub(super) struct Stream {
    socket: OwnedFd,
    encryption: Option<Box<dyn RemoteEncryption>>,
}

/// The socket below an encryption.
struct Socket<'a>(BorrowedFd<'a>);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.0, buffer)?)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A peer that closed the socket is an error, not a signal.
        Ok(rustix::net::send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

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
            Ok(()) => Ok((Self { socket, encryption: None }, true)),
            Err(Errno::INPROGRESS) => Ok((Self { socket, encryption: None }, false)),
            Err(error) => Err(error.into()),
        }
    }

    /// The result of a connect, after the socket has become writable.
    pub(super) fn connected(&self) -> io::Result<()> {
        Ok(sockopt::socket_error(&self.socket)??)
    }

    /// Encrypts all further bytes.
    pub(super) fn encrypt(&mut self, encryption: Box<dyn RemoteEncryption>) {
        self.encryption = Some(encryption);
    }

    /// Whether bytes pass through [`Stream::send_encrypted`] and [`Stream::receive_encrypted`] only.
    pub(super) fn is_encrypted(&self) -> bool {
        self.encryption.is_some()
    }

    /// Whether bytes that were sent still wait for the socket.
    pub(super) fn has_output(&self) -> bool {
        self.encryption.as_ref().is_some_and(|encryption| encryption.has_output())
    }

    /// Whether bytes can be received that no wait for the socket announces.
    pub(super) fn has_input(&self) -> bool {
        self.encryption.as_ref().is_some_and(|encryption| encryption.has_input())
    }

    /// Sends the bytes that wait for the socket.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match &mut self.encryption {
            Some(encryption) => encryption.flush(&mut Socket(self.socket.as_fd())),
            None => Ok(()),
        }
    }

    /// Encrypts and sends `bytes`. The socket may not have accepted all of them: [`Stream::has_output`].
    pub(super) fn send_encrypted(&mut self, bytes: &[u8]) -> Moved {
        let Some(encryption) = &mut self.encryption else { return Moved::Blocked };
        match encryption.send(&mut Socket(self.socket.as_fd()), bytes) {
            Ok(Some(count)) => Moved::Bytes(count),
            Ok(None) => Moved::Blocked,
            Err(error) => Moved::Failed(error),
        }
    }

    /// Receives until `buffer` is full, or the socket is empty.
    pub(super) fn receive_encrypted(&mut self, buffer: &mut [u8]) -> Moved {
        let Some(encryption) = &mut self.encryption else { return Moved::Blocked };
        let mut socket = Socket(self.socket.as_fd());
        let mut total = 0;
        while total < buffer.len() {
            match encryption.receive(&mut socket, &mut buffer[total..]) {
                Ok(Some(count)) if count > 0 => total += count,
                // The next call reports an end or an error again.
                _ if total > 0 => break,
                Ok(Some(_)) => return Moved::End,
                Ok(None) => return Moved::Blocked,
                Err(error) => return Moved::Failed(error),
            }
        }
        Moved::Bytes(total)
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
        let sent = unsafe { libc::sendmsg(self.socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        moved(sent as i64, false)
    }

    /// Receives into `iovecs`.
    ///
    /// # Safety
    /// They describe memory that may be written now.
    pub(super) unsafe fn receive(&self, iovecs: &mut [libc::iovec]) -> Moved {
        // SAFETY: the caller's promise covers the memory.
        let received =
            unsafe { libc::readv(self.socket.as_raw_fd(), iovecs.as_ptr(), i32::from(iovecs.len() as u16)) };
        moved(received as i64, true)
    }

    /// Ends the stream for both directions, so that the server drops requests of it that it has not started.
    pub(super) fn shut_down(&mut self) {
        if let Some(encryption) = &mut self.encryption {
            encryption.close(&mut Socket(self.socket.as_fd()));
        }
        // Fails only if the stream has ended already.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
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
