//! A socket that accepts connections: bound here, or inherited from a service manager.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use super::socket_file::SocketFile;
use super::stream::{Socket, Stream};

/// The place at which a server accepts connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A unix socket, created with mode 0600 and removed at the end. Replaces the socket of a server that was killed.
    Unix(PathBuf),
    /// A TCP port; port 0 selects a free one.
    Tcp(SocketAddr),
}

/// A socket that accepts connections.
#[derive(Debug)]
pub enum Listener {
    /// A unix socket, and its file if the server removes that at its end.
    Unix(UnixListener, Option<SocketFile>),
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
                let (listener, file) = SocketFile::bind(path)?;
                Self::Unix(listener, Some(file))
            }
            Listen::Tcp(address) => Self::Tcp(TcpListener::bind(address)?),
        })
    }

    /// The place, with the port that the system selected; `None` for a unix socket without a file.
    #[must_use]
    pub fn place(&self) -> Option<Listen> {
        match self {
            Self::Unix(_, Some(file)) => Some(Listen::Unix(file.path().to_owned())),
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
    pub(super) fn take_file(&mut self) -> Option<SocketFile> {
        match self {
            Self::Unix(_, file) => file.take(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_without_a_process_is_replaced_and_other_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let bind = || Listener::bind(&Listen::Unix(path.clone()));
        let refused = |what| assert_eq!(bind().unwrap_err().kind(), io::ErrorKind::AddrInUse, "{what}");
        let listening = bind().unwrap();
        refused("a process listens");
        drop(listening);
        assert!(path.exists(), "as after SIGKILL");
        drop(bind().unwrap());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "data").unwrap();
        refused("a file");
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        std::fs::remove_file(&path).unwrap();
        let error = Listener::bind(&Listen::Unix(link)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "a link is not followed");
    }
}
