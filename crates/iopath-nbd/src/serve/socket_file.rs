//! The file of a unix socket: created, replaced after a server that was killed, and removed at the end. Does not accept
//! connections.
//!
//! All of this happens under a lock of the directory (flock(2)), so that of several servers that start at one path at the same
//! time, exactly one binds it. Without the lock, two servers that find an abandoned socket could both remove a file at its path,
//! and the second one would remove the new socket of the first. A socket that is bound but does not listen yet would look
//! abandoned.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Longest wait for the lock, which servers hold for some system calls.
const WAIT: Duration = Duration::from_secs(5);

/// Connections that the kernel accepts ahead of the server; it limits them to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// The file of a socket that this process listens on.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// The file, so that the filesystem does not use its inode number for another one.
    inode: OwnedFd,
}

impl SocketFile {
    /// Binds a socket with mode 0600, and listens on it. A socket at this path that no process listens on is replaced.
    pub(super) fn bind(path: &Path) -> io::Result<(UnixListener, Self)> {
        let lock = lock_directory(path)?;
        if lock.is_some() && is_abandoned(path)? {
            rustix::fs::unlink(path)?;
        }
        let socket = new_socket()?;
        // Linux creates the file with the mode of the socket.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        net::listen(&socket, BACKLOG)?;
        let inode = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        Ok((UnixListener::from(socket), Self { path: path.to_owned(), inode }))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file, if it is still at its path. The socket of a later server stays.
    pub(super) fn remove(self) -> io::Result<()> {
        let _lock = lock_directory(&self.path)?;
        let ours = rustix::fs::fstat(&self.inode)?;
        match rustix::fs::lstat(&self.path) {
            Ok(found) if (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino) => {
                Ok(rustix::fs::unlink(&self.path)?)
            }
            _ => Ok(()),
        }
    }
}

/// Locks the directory of a socket until the result is dropped. `None`: the directory has no locks, or this process may not
/// read it. Then no server replaces a socket there.
fn lock_directory(path: &Path) -> io::Result<Option<OwnedFd>> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = match rustix::fs::openat(CWD, directory, flags, Mode::empty()) {
        Err(Errno::ACCESS) => return Ok(None),
        opened => opened?,
    };
    let limit = Instant::now() + WAIT;
    loop {
        match rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(opened)),
            Err(Errno::AGAIN) if Instant::now() < limit => std::thread::sleep(Duration::from_millis(1)),
            Err(Errno::AGAIN) => {
                let message = format!(
                    "another process holds a lock of the directory {} for more than {} s",
                    directory.display(),
                    WAIT.as_secs()
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            Err(Errno::INTR) => {}
            // Network filesystems: EBADF without write access to the directory, ENOLCK or EOPNOTSUPP without locks.
            Err(_) => return Ok(None),
        }
    }
}

/// Whether the path is a socket that refuses connections. The connection does not wait for a server with many clients.
fn is_abandoned(path: &Path) -> io::Result<bool> {
    let is_socket =
        rustix::fs::lstat(path).is_ok_and(|about| FileType::from_raw_mode(about.st_mode) == FileType::Socket);
    Ok(is_socket && net::connect(new_socket()?, &SocketAddrUnix::new(path)?) == Err(Errno::CONNREFUSED))
}

fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::Barrier;

    use super::*;

    const PAIRS: usize = 2000;

    fn is_in_use(bound: io::Result<(UnixListener, SocketFile)>) -> bool {
        bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
    }

    #[test]
    fn of_two_servers_that_start_at_once_on_an_abandoned_socket_one_serves() {
        let folder = tempfile::tempdir().unwrap();
        for pair in 0..PAIRS {
            let path = folder.path().join("socket");
            if pair == 0 {
                drop(SocketFile::bind(&path).unwrap());
            }
            assert!(is_abandoned(&path).unwrap(), "pair {pair} starts on an abandoned socket");
            let start = Barrier::new(2);
            let bind = || {
                start.wait();
                SocketFile::bind(&path)
            };
            let [one, other] = std::thread::scope(|scope| {
                [scope.spawn(bind), scope.spawn(bind)].map(|thread| thread.join().unwrap())
            });
            assert!(one.is_ok() != other.is_ok(), "pair {pair}: {one:?}, {other:?}");
            let (won, lost) = if one.is_ok() { (one, other) } else { (other, one) };
            assert!(is_in_use(lost), "pair {pair}");
            let (listener, _file) = won.unwrap();
            let client = UnixStream::connect(&path);
            assert!(
                client.is_ok() && listener.accept().is_ok(),
                "pair {pair}: {client:?} reaches the winner"
            );
        }
    }

    #[test]
    fn a_server_that_ends_removes_its_own_socket_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let (listener, file) = SocketFile::bind(&path).unwrap();
        let mode = Mode::from_raw_mode(rustix::fs::lstat(&path).unwrap().st_mode);
        assert_eq!(mode, Mode::RUSR | Mode::WUSR);
        drop(listener);
        // Between the end of the listener and the removal of its file, another server starts.
        let (later, later_file) = SocketFile::bind(&path).unwrap();
        file.remove().unwrap();
        assert!(UnixStream::connect(&path).is_ok(), "the socket of the later server");
        drop(later);
        later_file.remove().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_server_with_a_full_backlog_is_not_abandoned() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let (listener, _file) = SocketFile::bind(&path).unwrap();
        net::listen(&listener, 0).unwrap();
        let address = SocketAddrUnix::new(path.as_path()).unwrap();
        let clients: Vec<_> = std::iter::repeat_with(|| new_socket().unwrap())
            .take_while(|client| net::connect(client, &address).is_ok())
            .collect();
        assert!(!clients.is_empty());
        assert!(is_in_use(SocketFile::bind(&path)));
    }
}
