//! A socket that accepts connections: bound here, or inherited from a service manager.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

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
                let listener = bind_unix(path);
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

/// Binds a socket. A socket at this path that no process listens on is left from a killed server, and is removed.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_abandoned(path) => {
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        bound => bound,
    }
}

/// Whether the path is a socket that refuses connections.
fn is_abandoned(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket())
        && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
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
