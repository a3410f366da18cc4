//! The files of `cargo xtask fsx`: in `target/xtask/fsx/PID`, and in a folder on tmpfs. Also removes files and mounts
//! of killed runs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::mount::{mounted_below, unmount};
use super::variant::Medium;
use crate::workspace;

const TMPFS: &str = "/dev/shm";
const TMPFS_PREFIX: &str = "iopath-fsx-";
const MOUNT: &str = "mount";

/// The folders of this run. Drop removes the folder on tmpfs. `remove` or a later run removes the other folder.
#[derive(Debug)]
pub(super) struct Scratch {
    directory: PathBuf,
    tmpfs: Option<PathBuf>,
}

/// The folders of one job, which runs one round at a time.
#[derive(Debug)]
pub(super) struct JobFiles {
    directory: PathBuf,
    tmpfs: Option<PathBuf>,
}

impl Scratch {
    /// Creates the folders, after removing those of runs that have ended.
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

    /// The folders of one job.
    pub(super) fn job(&self, job: u64) -> Result<JobFiles> {
        let directory = self.directory.join(job.to_string());
        fs::create_dir_all(directory.join(MOUNT))?;
        let tmpfs = self.tmpfs.as_ref().map(|tmpfs| tmpfs.join(job.to_string()));
        if let Some(tmpfs) = &tmpfs {
            fs::create_dir_all(tmpfs)?;
        }
        Ok(JobFiles { directory, tmpfs })
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

impl JobFiles {
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The mount point of the volume.
    pub(super) fn mount(&self) -> PathBuf {
        self.directory.join(MOUNT)
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The backing file of the volume.
    pub(super) fn backing(&self, medium: Medium) -> Result<PathBuf> {
        let directory = match medium {
            Medium::Disk => &self.directory,
            Medium::Tmpfs => self.tmpfs.as_ref().with_context(|| format!("{TMPFS} cannot be written"))?,
        };
        Ok(directory.join("backing"))
    }
}

/// Unmounts and removes the folders in `parent` whose name is `prefix` and the number of a process that has ended.
fn remove_left_over(parent: &Path, prefix: &str) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str());
        let process = name.and_then(|name| name.strip_prefix(prefix)?.parse::<u32>().ok());
        let is_gone = process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists());
        // Never remove a mounted folder: that would remove the files of the volume.
        if is_gone && mounted_below(&path).iter().all(|mount| unmount(mount, true)) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_only_folders_of_ended_processes() {
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
