//! The filesystems that were inspected before, so that opening many files reads sysfs and the mount table once. Facts
//! of single files are read each time.

use std::fmt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{
    Backing, DeviceNumber, FileId, Filesystem, Kind, Roots, Target, TargetError, kind_of, mount_id,
    path_and_stat,
};

/// The time for which the facts of a filesystem are used. A filesystem that was unmounted can have its numbers again,
/// and settings of its disk can change.
const FRESH: Duration = Duration::from_secs(5);

/// The maximum number of filesystems. Further ones are inspected each time.
const FILESYSTEMS_MAX: usize = 64;

/// Filesystems with their disks, as they were when a file of theirs was inspected.
#[derive(Default)]
pub struct KnownFilesystems {
    known: Mutex<Vec<Known>>,
}

impl fmt::Debug for KnownFilesystems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownFilesystems").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Known {
    since: Instant,
    mount: u64,
    device: DeviceNumber,
    filesystem: Option<Filesystem>,
    backing: Backing,
}

impl KnownFilesystems {
    /// None are known.
    pub const fn new() -> Self {
        Self { known: Mutex::new(Vec::new()) }
    }

    /// [`Target::inspect`], with the filesystem and the disk as they were up to five seconds ago, and without the free
    /// space.
    ///
    /// # Errors
    /// Returns the errors of [`Target::inspect`].
    pub fn inspect(&self, given: &Path) -> Result<Target, TargetError> {
        let (path, stat) = path_and_stat(given)?;
        let (id, mount) = (FileId::from(&stat), mount_id(&stat));
        let is_of = |known: &&Known| {
            Some(known.mount) == mount && known.device == id.device && known.since.elapsed() < FRESH
        };
        if kind_of(&stat) == Ok(Kind::RegularFile)
            && let Some(known) = self.lock().iter().find(is_of)
        {
            let (filesystem, backing) = (known.filesystem.clone(), known.backing.clone());
            return Ok(Target::on_filesystem(path, Kind::RegularFile, &stat, filesystem, backing));
        }
        let target = Target::of_stat(&Roots::live(), given, path, &stat)?;
        // The disk beneath a file of an overlay depends on the file.
        let is_overlay = target.filesystem.as_ref().is_none_or(|filesystem| filesystem.name == "overlay");
        if target.kind == Kind::RegularFile
            && !is_overlay
            && let Some(mount) = mount
        {
            let mut known = self.lock();
            known.retain(|known| known.since.elapsed() < FRESH);
            if known.len() < FILESYSTEMS_MAX && !known.iter().any(|known| is_of(&known)) {
                // The free space changes with each write.
                let filesystem =
                    target.filesystem.clone().map(|known| Filesystem { available_bytes: None, ..known });
                let (since, backing) = (Instant::now(), target.backing.clone());
                known.push(Known { since, mount, device: id.device, filesystem, backing });
            }
        }
        Ok(target)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_filesystem_gives_the_same_facts() {
        let directory = tempfile::tempdir().unwrap();
        let known = KnownFilesystems::default();
        for (name, bytes) in [("a", 100), ("b", 5000), ("c", 0)] {
            let path = directory.path().join(name);
            std::fs::write(&path, vec![1; bytes]).unwrap();
            let (found, expected) = (known.inspect(&path).unwrap(), Target::inspect(&path).unwrap());
            let without_space = |target: Target| {
                let filesystem =
                    target.filesystem.map(|filesystem| Filesystem { available_bytes: None, ..filesystem });
                Target { filesystem, ..target }
            };
            assert_eq!(without_space(found), without_space(expected), "{name}");
        }
        let found = known.inspect(directory.path()).unwrap();
        assert_eq!(found.kind, Kind::Directory);
        assert!(known.inspect(&directory.path().join("missing")).is_err());
    }
}
