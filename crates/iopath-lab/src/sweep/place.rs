//! The place of a sweep: its working directory, to which all its relative names belong, and the identity of its target.
//! A continued sweep measures the same storage, wherever the user continues it.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a sweep began.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Place {
    /// The working directory.
    pub directory: String,
    /// The target; none of a model and of a server.
    pub target: Option<Identity>,
}

/// The identity of a file, a directory or a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Identity {
    /// The number of the block device, or of the filesystem of a file or directory.
    pub device: u64,
    /// The inode of a file or directory; none of a block device.
    pub inode: Option<u64>,
}

impl Place {
    /// The working directory of this process and its target there; by default the directory itself.
    ///
    /// # Errors
    /// The system's error for the working directory.
    pub fn here(target: Option<&Path>) -> io::Result<Self> {
        let directory = std::env::current_dir()?.to_string_lossy().into_owned();
        Ok(Self { directory, target: Identity::of(target) })
    }

    /// Enters the working directory, and checks that the target there is the same one.
    ///
    /// # Errors
    /// In words: the problem and the remedy.
    pub fn enter(&self, target: Option<&Path>) -> Result<(), String> {
        let Self { directory, .. } = self;
        std::env::set_current_dir(directory)
            .map_err(|error| format!("it began in {directory}, which cannot be entered: {error}"))?;
        if Identity::of(target) == self.target {
            return Ok(());
        }
        let target = target.unwrap_or(Path::new("."));
        let problem = if self.target.is_some() && !target.exists() {
            "does not exist now; mount or connect it"
        } else {
            "is not the file, directory or device with which it began; begin a new sweep"
        };
        Err(format!("its target {} in {directory} {problem}", target.display()))
    }
}

impl Identity {
    fn of(target: Option<&Path>) -> Option<Self> {
        let about = fs::metadata(target.unwrap_or(Path::new("."))).ok()?;
        let is_device = about.file_type().is_block_device();
        let device = if is_device { Metadata::rdev(&about) } else { about.dev() };
        Some(Self { device, inode: (!is_device).then(|| about.ino()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_same_name_is_another_target() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "a").unwrap();
        let first = Identity::of(Some(&file));
        assert!(first.is_some_and(|first| first.inode.is_some()));
        assert_eq!(first, Identity::of(Some(&directory.path().join("./file"))));
        fs::write(directory.path().join("other"), "b").unwrap();
        fs::rename(directory.path().join("other"), &file).unwrap();
        assert_ne!(first, Identity::of(Some(&file)));
        assert_eq!(Identity::of(Some(Path::new("model:hdd-20tb"))), None);
    }
}
