//! The place of a sweep: its working directory, to which all its relative names belong, and the identity of its target.
//! A continued sweep measures the same storage, wherever the user continues it.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use iopath_report::sweep::{Identity, Place};

/// The working directory of this process and its target there; by default the directory itself.
///
/// # Errors
/// The system's error for the working directory.
pub fn current_place(target: Option<&Path>) -> io::Result<Place> {
    let directory = std::env::current_dir()?.to_string_lossy().into_owned();
    Ok(Place { directory, target: identity(target) })
}

/// Enters the working directory, and checks that the target there is the same one.
///
/// # Errors
/// In words: the problem and the remedy.
pub fn enter(place: &Place, target: Option<&Path>) -> Result<(), String> {
    enter_directory(place)?;
    let Place { directory, .. } = place;
    if identity(target) == place.target {
        return Ok(());
    }
    let target = target.unwrap_or(Path::new("."));
    let problem = if place.target.is_some() && !target.exists() {
        "does not exist now; mount or connect it"
    } else {
        "is not the file, directory or device with which it began; begin a new sweep"
    };
    Err(format!("its target {} in {directory} {problem}", target.display()))
}

/// Enters the working directory.
///
/// # Errors
/// In words: the problem.
pub fn enter_directory(Place { directory, .. }: &Place) -> Result<(), String> {
    std::env::set_current_dir(directory)
        .map_err(|error| format!("it began in {directory}, which cannot be entered: {error}"))
}

/// The identity of a target; none if it does not exist.
fn identity(target: Option<&Path>) -> Option<Identity> {
    let about = fs::metadata(target.unwrap_or(Path::new("."))).ok()?;
    let is_device = about.file_type().is_block_device();
    let device = if is_device { Metadata::rdev(&about) } else { about.dev() };
    Some(Identity { device, inode: (!is_device).then(|| about.ino()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_same_name_is_another_target() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "a").unwrap();
        let first = identity(Some(&file));
        assert!(first.is_some_and(|first| first.inode.is_some()));
        assert_eq!(first, identity(Some(&directory.path().join("./file"))));
        fs::write(directory.path().join("other"), "b").unwrap();
        fs::rename(directory.path().join("other"), &file).unwrap();
        assert_ne!(first, identity(Some(&file)));
        assert_eq!(identity(Some(Path::new("model:hdd-20tb"))), None);
    }
}
