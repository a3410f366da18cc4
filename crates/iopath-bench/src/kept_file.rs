//! Files that iopath creates for the user and keeps, as fio does. A mark tells them from the user's own files, so that
//! a later run may write to them. Does not create the files: `scratch.rs` does.
//!
//! The mark is an extended attribute with the inode, the size and the time of the last change of the content. A copy
//! has another inode, and a file that another program has written to has another time: both are the user's.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, XattrFlags, fsetxattr, getxattr};
use rustix::io::Errno;

/// The extended attribute with the mark.
const MARK: &str = "user.iopath.created";

/// The longest mark in bytes.
const MARK_BYTES_MAX: usize = 96;

/// A file, under any name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// The file of a name now.
    ///
    /// # Errors
    /// The error of the system.
    pub fn of(file: &Path) -> io::Result<Self> {
        Ok(Self::from(&fs::metadata(file)?))
    }

    /// Marks this file as it is now as created by iopath.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`]: another file has the name now. Otherwise as [`mark_open`].
    pub fn mark(self, file: &Path) -> io::Result<()> {
        mark_open(&self.open(file)?)
    }

    /// Removes this file.
    ///
    /// # Errors
    /// As for [`Identity::mark`].
    pub fn remove(self, file: &Path) -> io::Result<()> {
        self.open(file)?;
        fs::remove_file(file)
    }

    fn open(self, file: &Path) -> io::Result<File> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let open = OpenOptions::new().read(true).custom_flags(flags).open(file)?;
        if Self::from(&open.metadata()?) == self { Ok(open) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

impl From<&Metadata> for Identity {
    fn from(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// Marks an open file as it is now as created by iopath.
///
/// # Errors
/// The error of the system; [`io::ErrorKind::Unsupported`] where the filesystem has no extended attributes.
pub fn mark_open(file: &File) -> io::Result<()> {
    let mark = mark_of(&file.metadata()?);
    Ok(fsetxattr(file, MARK, mark.as_bytes(), XattrFlags::empty())?)
}

/// Whether the filesystem of a file stores marks.
pub fn has_marks(file: &Path) -> bool {
    getxattr(file, MARK, &mut [0; MARK_BYTES_MAX]) != Err(Errno::OPNOTSUPP)
}

/// Whether iopath created a regular file, and no other program has changed its content since.
pub fn is_kept(file: &Path) -> bool {
    let Ok(metadata) = fs::metadata(file) else { return false };
    let mut found = [0; MARK_BYTES_MAX];
    let length = getxattr(file, MARK, &mut found);
    metadata.is_file() && length.is_ok_and(|length| found[..length] == *mark_of(&metadata).as_bytes())
}

fn mark_of(metadata: &Metadata) -> String {
    format!("{} {} {}.{:09}", metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_another_program_has_changed_is_the_users() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let file = directory.path().join("a");
        fs::write(&file, "content").unwrap();
        assert!(!is_kept(&file), "not marked");
        let identity = Identity::of(&file).unwrap();
        if let Err(error) = identity.mark(&file) {
            eprintln!("skipped: no extended attributes here: {error}");
            return;
        }
        assert!(is_kept(&file));
        let copy = directory.path().join("b");
        fs::copy(&file, &copy).unwrap();
        let of_file = mark_of(&fs::metadata(&file).unwrap());
        rustix::fs::setxattr(&copy, MARK, of_file.as_bytes(), XattrFlags::empty()).unwrap();
        assert!(!is_kept(&copy), "a copy with its attributes");
        fs::write(&file, "other content").unwrap();
        assert!(!is_kept(&file), "changed");
        fs::rename(&copy, &file).unwrap();
        identity.mark(&file).unwrap_err();
        identity.remove(&file).unwrap_err();
        assert!(file.exists() && !is_kept(&file), "another file has the name");
        assert!(!is_kept(directory.path()) && !is_kept(&directory.path().join("none")));
    }
}
