//! Files that iopath creates for the user and keeps, as fio does. A mark tells them from the user's own files, so that
//! a later run may write to them. Does not create the files: `scratch.rs` does.
//!
//! The mark is an extended attribute with the inode, the size and the time of the last change of the content. A copy
//! has another inode, and a file that another program has written to has another time: both are the user's.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{XattrFlags, getxattr, setxattr};

/// The extended attribute with the mark.
const MARK: &str = "user.iopath.created";

/// The longest mark in bytes.
const MARK_BYTES_MAX: usize = 96;

/// Marks a file as it is now as created by iopath.
///
/// # Errors
/// The error of the system; [`io::ErrorKind::Unsupported`] where the filesystem has no extended attributes.
pub fn mark(file: &Path) -> io::Result<()> {
    let mark = mark_of(&fs::metadata(file)?);
    Ok(setxattr(file, MARK, mark.as_bytes(), XattrFlags::empty())?)
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
        if let Err(error) = mark(&file) {
            eprintln!("skipped: no extended attributes here: {error}");
            return;
        }
        assert!(is_kept(&file));
        let copy = directory.path().join("b");
        fs::copy(&file, &copy).unwrap();
        let of_file = mark_of(&fs::metadata(&file).unwrap());
        setxattr(&copy, MARK, of_file.as_bytes(), XattrFlags::empty()).unwrap();
        assert!(!is_kept(&copy), "a copy with its attributes");
        fs::write(&file, "other content").unwrap();
        assert!(!is_kept(&file), "changed");
        assert!(!is_kept(directory.path()) && !is_kept(&directory.path().join("none")));
    }
}
