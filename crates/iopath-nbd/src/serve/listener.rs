//! A socket that accepts connections: bound here, or inherited from a service manager.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::fs::Mode;

use super::stream::{Socket, Stream};

/// The place at which a server accepts connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A unix socket, created with mode 0600 and removed at the end.
    Unix(PathBuf),
    /// A TCP port; port 0 selects a free one.
    Tcp(SocketAddr),
}

/// A socket that accepts connections.
#[derive(Debug)]
pub enum Listener {
    /// A unix socket, and its file if the server removes that at its end.
    Unix(UnixListener, Option<PathBuf>),
    /// A TCP port.
    Tcp(TcpListener),
}

impl Listener {
    /// Binds a socket.
    ///
    /// # Errors
    /// The place is in use, or the system refuses a socket.
    pub fn bind(listen: &Listen) -> io::Result<Self> {
        Ok(match listen {
            Listen::Unix(path) => {
                // The mask applies to the whole process, and only for the time of this call.
                let mask = rustix::process::umask(Mode::from_raw_mode(0o177));
                let listener = UnixListener::bind(path);
                rustix::process::umask(mask);
                Self::Unix(listener?, Some(path.clone()))
            }
            Listen::Tcp(address) => Self::Tcp(TcpListener::bind(address)?),
        })
    }

    /// The place, with the port that the system selected; `None` for a unix socket without a file.
    #[must_use]
    pub fn place(&self) -> Option<Listen> {
        match self {
            Self::Unix(_, Some(path)) => Some(Listen::Unix(path.clone())),
            Self::Unix(listener, None) => {
                listener.local_addr().ok()?.as_pathname().map(|path| Listen::Unix(path.to_owned()))
            }
            Self::Tcp(listener) => listener.local_addr().ok().map(Listen::Tcp),
        }
    }

    /// Prepares the socket for an event loop: an accept does not block.
    pub(super) fn prepare(&self) -> io::Result<()> {
        match self {
            Self::Unix(listener, _) => listener.set_nonblocking(true),
            Self::Tcp(listener) => listener.set_nonblocking(true),
        }
    }

    pub(super) fn accept(&self) -> io::Result<Stream> {
        Ok(Stream::new(match self {
            Self::Unix(listener, _) => Socket::Unix(listener.accept()?.0),
            Self::Tcp(listener) => Socket::Tcp(listener.accept()?.0),
        }))
    }

    /// The file to remove at the end of the server.
    pub(super) fn file(&self) -> Option<PathBuf> {
        match self {
            Self::Unix(_, file) => file.clone(),
            Self::Tcp(_) => None,
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener, _) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}
