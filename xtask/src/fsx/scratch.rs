//! Where the files of `cargo xtask fsx` lie: `target/xtask/fsx/PID`, and a folder on tmpfs. Removes what a run that was
//! killed has left, mounts included.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::server::{mounted_below, unmount};
use super::variant::Medium;
use crate::workspace;

const TMPFS: &str = "/dev/shm";
const TMPFS_PREFIX: &str = "iopath-fsx-";
const MOUNT: &str = "mount";

/// The folders of this run. Dropping it removes the one on tmpfs; the other goes with `remove`, or at a later start.
#[derive(Debug)]
pub(super) struct Scratch {
    directory: PathBuf,
    tmpfs: Option<PathBuf>,
}

/// Where one round at a time has its files.
#[derive(Debug)]
pub(super) struct Place {
    directory: PathBuf,
    tmpfs: Option<PathBuf>,
}

impl Scratch {
    /// Makes the folders, after removing those of runs that are gone.
    pub(super) fn new() -> Result<Self> {
        let runs = workspace::target_dir().join("xtask/fsx");
        fs::create_dir_all(&runs).with_context(|| format!("cannot create {}", runs.display()))?;
        remove_left_over(&runs, "");
        remove_left_over(Path::new(TMPFS), TMPFS_PREFIX);
        let process = std::process::id();
        let directory = runs.join(process.to_string());
        fs::create_dir_all(&directory)?;
        let tmpfs = Path::new(TMPFS).join(format!("{TMPFS_PREFIX}{process}"));
        let tmpfs = fs::create_dir_all(&tmpfs).is_ok().then_some(tmpfs);
        Ok(Self { directory, tmpfs })
    }

    pub(super) fn has_tmpfs(&self) -> bool {
        self.tmpfs.is_some()
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The place of the rounds of one thread.
    pub(super) fn place(&self, job: u64) -> Result<Place> {
        let directory = self.directory.join(job.to_string());
        fs::create_dir_all(directory.join(MOUNT))?;
        let tmpfs = self.tmpfs.as_ref().map(|tmpfs| tmpfs.join(job.to_string()));
        if let Some(tmpfs) = &tmpfs {
            fs::create_dir_all(tmpfs)?;
        }
        Ok(Place { directory, tmpfs })
    }

    /// Removes the folder of logs as well.
    pub(super) fn remove(self) -> Result<()> {
        fs::remove_dir_all(&self.directory)
            .with_context(|| format!("cannot remove {}", self.directory.display()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(tmpfs) = &self.tmpfs {
            let _ = fs::remove_dir_all(tmpfs);
        }
    }
}

impl Place {
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where the volume is mounted.
    pub(super) fn mount(&self) -> PathBuf {
        self.directory.join(MOUNT)
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The file that holds the data of the volume.
    pub(super) fn backing(&self, medium: Medium) -> Result<PathBuf> {
        let directory = match medium {
            Medium::Disk => &self.directory,
            Medium::Tmpfs => self.tmpfs.as_ref().with_context(|| format!("{TMPFS} cannot be written"))?,
        };
        Ok(directory.join("backing"))
    }
}

/// Unmounts and removes the folders in `parent` that are named by `prefix` and a process that no longer runs.
fn remove_left_over(parent: &Path, prefix: &str) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str());
        let process = name.and_then(|name| name.strip_prefix(prefix)?.parse::<u32>().ok());
        let is_gone = process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists());
        // What cannot be unmounted is not to be removed: the files in it are the volume's.
        if is_gone && mounted_below(&path).iter().all(|mount| unmount(mount, true)) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_folders_of_processes_that_are_gone_and_no_others() {
        let parent = tempfile::tempdir().expect("a folder");
        let own = parent.path().join(format!("x-{}", std::process::id()));
        // Larger than any process number (pid_max is at most 2^22).
        let [gone, other] = ["x-4194305", "y-4194305"].map(|name| parent.path().join(name));
        for folder in [&own, &gone, &other] {
            fs::create_dir(folder).expect("a folder");
        }
        remove_left_over(parent.path(), "x-");
        assert!(own.exists() && other.exists() && !gone.exists());
    }
}
