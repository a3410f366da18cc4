//! Makes the directory entries of the files of a volume durable. Their bytes: `Volume::flush`.

use super::Volume;
use crate::error::{Cause, ErrorKind, Result};
use iopath_core::Op;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

impl Volume {
    /// Makes the directory entry of the file durable: without it, a file that was just created or renamed may be
    /// missing after a power failure, with all bytes that were flushed ([`Volume::flush`] syncs the file, not its
    /// directory). Call it once after each of
    ///
    /// - the creation of the file ([`Options::create`](crate::Options::create)), before the program relies on it;
    /// - a rename of the file while the volume is open: it syncs the directory that has the entry now. A rename from
    ///   another directory, and the removal of a file, also need a sync of the directory that had the entry
    ///   (`File::open(directory)?.sync_all()`).
    ///
    /// A directory that was created with the file needs a sync of its parent. The members of a stripe, and the file
    /// below a mapping, are synced, too. Does not sync the bytes of the file.
    ///
    /// # Errors
    /// [`ErrorKind::Directory`] for block devices, remote exports and memory, which have no entry of their own; if no
    /// entry of the file is at its path; and if the system refuses.
    ///
    /// ```no_run
    /// use iopath::{Options, Volume};
    ///
    /// let volume = Volume::open("new.db", &Options::new().create_new(1 << 20))?;
    /// volume.write_durably_at(&[0; 4096], 0)?;
    /// volume.sync_directory()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sync_directory(&self) -> Result<()> {
        let failed = |source| {
            self.error(ErrorKind::Directory).of_range(Op::Flush, 0, 0).because(Cause::System(source))
        };
        let files = self.source().files();
        if files.is_empty() {
            return Err(failed(no_entry()));
        }
        files.iter().try_for_each(|file| sync_directory_of(file, &self.facts().path)).map_err(failed)
    }
}

/// Syncs the directory with the entry of `file`. `opened` is its path at open, for systems without `/proc`.
fn sync_directory_of(file: &File, opened: &Path) -> io::Result<()> {
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(no_entry());
    }
    let now = std::fs::read_link(PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
    let path = now.unwrap_or_else(|_| opened.to_owned());
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return Err(no_entry()) };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    // The file may have been removed, or its path lead to another file by now.
    let entry = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if (entry.st_dev, entry.st_ino) != (about.dev(), about.ino()) {
        return Err(Errno::STALE.into());
    }
    Ok(rustix::fs::fsync(&directory)?)
}

fn no_entry() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "only a regular file has a directory entry of its own")
}
