//! The file of a unix socket: created, replaced after a server that was killed, and removed at the end. Does not accept
//! connections.
//!
//! All of this happens under a lock (flock(2)), so that of several servers that start at one path at the same time,
//! exactly one binds it. Without the lock, two servers that find an abandoned socket could both remove a file at its
//! path, and the second one would remove the new socket of the first. A socket that is bound but does not listen yet
//! would look abandoned.
//!
//! The lock is that of a file beside the socket, which only its owner may open. A lock of the directory would be
//! simpler, but every user who may read the directory can hold that, and so stop all servers there.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
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
        let lock = Lock::take(path)?;
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
    ///
    /// # Errors
    /// The system refuses. A socket that stays is replaced by the next server.
    pub fn remove(self) -> io::Result<()> {
        let _lock = Lock::take(&self.path)?;
        if is_at(&self.inode, &self.path)? {
            rustix::fs::unlink(&self.path)?;
        }
        Ok(())
    }
}

/// The lock of a socket. Its file is removed at the end.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    file: OwnedFd,
}

impl Lock {
    /// Waits for the lock. `None`: the directory has no locks, or this process may not write to it, or the file is that
    /// of another user. Then no server replaces a socket there.
    fn take(socket: &Path) -> io::Result<Option<Self>> {
        let Some(name) = socket.file_name() else { return Ok(None) };
        let path = socket.with_file_name([OsStr::new("."), name, OsStr::new(".lock")].join(OsStr::new("")));
        let limit = Instant::now() + WAIT;
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let Ok(file) = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR) else { return Ok(None) };
            if !is_private(&file)? {
                return Ok(None);
            }
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // The last owner may have removed the file since it was opened.
                Ok(()) if is_at(&file, &path)? => return Ok(Some(Self { path, file })),
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if Instant::now() < limit => std::thread::sleep(Duration::from_millis(1)),
                Err(Errno::AGAIN) => {
                    let message = format!(
                        "another process holds the lock {} for more than {} s",
                        path.display(),
                        WAIT.as_secs()
                    );
                    return Err(io::Error::new(io::ErrorKind::TimedOut, message));
                }
                // Network filesystems: ENOLCK or EOPNOTSUPP without locks.
                Err(_) => return Ok(None),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The file goes before the lock does, which ends when the file is closed. A file that stays is used again.
        if is_at(&self.file, &self.path).unwrap_or(false) {
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

/// Whether only this user can hold a lock of the file.
fn is_private(file: &OwnedFd) -> io::Result<bool> {
    let about = rustix::fs::fstat(file)?;
    let is_regular = FileType::from_raw_mode(about.st_mode) == FileType::RegularFile;
    let others = Mode::RWXG | Mode::RWXO;
    let is_closed = !Mode::from_raw_mode(about.st_mode).intersects(others);
    Ok(is_regular && is_closed && about.st_uid == rustix::process::geteuid().as_raw())
}

/// Whether the open file is the one at this path.
fn is_at(file: &OwnedFd, path: &Path) -> io::Result<bool> {
    let ours = rustix::fs::fstat(file)?;
    Ok(rustix::fs::lstat(path).is_ok_and(|found| (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)))
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
    use std::os::unix::fs::PermissionsExt;
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
    fn a_lock_of_the_directory_or_a_file_of_another_user_stops_no_server() {
        let folder = tempfile::tempdir().unwrap();
        let directory = rustix::fs::open(folder.path(), OFlags::RDONLY, Mode::empty()).unwrap();
        rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive).unwrap();
        let path = folder.path().join("socket");
        let files = || folder.path().read_dir().unwrap().count();
        let (listener, _) = SocketFile::bind(&path).unwrap();
        assert_eq!(files(), 1, "the lock is removed");
        drop(listener);
        let (listener, file) = SocketFile::bind(&path).expect("an abandoned socket is replaced");
        drop(listener);
        // As a file that another user has prepared: this one can open and lock it.
        let planted = folder.path().join(".socket.lock");
        std::fs::write(&planted, "").unwrap();
        std::fs::set_permissions(&planted, std::fs::Permissions::from_mode(0o666)).unwrap();
        let held = std::fs::File::open(&planted).unwrap();
        rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(is_in_use(SocketFile::bind(&path)), "no socket is replaced without a lock");
        file.remove().unwrap();
        SocketFile::bind(&path).expect("a free path needs no lock");
        assert!(planted.exists());
        let link = folder.path().join(".linked.lock");
        std::os::unix::fs::symlink(folder.path().join("victim"), &link).unwrap();
        SocketFile::bind(&folder.path().join("linked")).unwrap();
        assert!(!folder.path().join("victim").exists(), "a link is not followed");
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
