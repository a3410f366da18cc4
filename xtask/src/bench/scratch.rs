//! The folder of scratch files, `target/bench-scratch`: created at the start, removed at the end or at the next start.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::side::TargetFile;
use crate::workspace;

/// The folder. Drop removes the folder and its content.
#[derive(Debug)]
pub(super) struct Scratch {
    dir: PathBuf,
}

impl Scratch {
    /// Creates the folder below target/. Removes the scratch file of a bench that was killed.
    pub(super) fn folder() -> Result<Self> {
        Self::at(workspace::target_dir().join("bench-scratch"))
    }

    fn at(dir: PathBuf) -> Result<Self> {
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let scratch = Self { dir };
        match fs::remove_file(scratch.file_path()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(scratch),
        }
    }

    fn file_path(&self) -> PathBuf {
        self.dir.join("scratch.dat")
    }

    /// The scratch file of `mib`, written once: incompressible, in written extents, on the medium.
    pub(super) fn file(&self, mib: u64) -> Result<TargetFile> {
        let target = TargetFile { path: self.file_path(), mib };
        if !target.path.exists() {
            eprintln!("writing {mib} MiB to {}", target.path.display());
            fill(&target)?;
        }
        Ok(target)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("cannot remove {}: {error}", self.dir.display());
        }
    }
}

/// Fills `target` with incompressible bytes, and waits until they are on the medium.
pub(super) fn fill(target: &TargetFile) -> Result<()> {
    let output = Command::new("fio")
        .args([
            "--name=fill",
            "--rw=write",
            "--bs=1m",
            "--refill_buffers",
            "--end_fsync=1",
            "--output=/dev/null",
        ])
        .arg(format!("--filename={}", target.path.display()))
        .arg(format!("--size={}m", target.mib))
        .stdin(Stdio::null())
        .output()
        .context("cannot run fio, which writes the scratch data (package fio)")?;
    if !output.status.success() {
        bail!(
            "fio cannot write {}: {}",
            target.path.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_killed_bench_are_removed() {
        let parent = tempfile::tempdir().expect("a folder");
        let dir = parent.path().join("bench-scratch");
        fs::create_dir(&dir).expect("a folder");
        fs::write(dir.join("scratch.dat"), "old").expect("a file");

        let scratch = Scratch::at(dir.clone()).expect("the folder can be used");
        assert!(!scratch.file_path().exists());
        fs::write(scratch.dir.join("more"), "x").expect("a file");
        drop(scratch);
        assert!(!dir.exists());
    }

    #[test]
    fn fills_a_file_with_bytes_that_do_not_repeat() {
        if workspace::find_program("fio").is_none() {
            println!("skipped: filling a scratch file (fio is not installed)");
            return;
        }
        let parent = tempfile::tempdir().expect("a folder");
        let target = TargetFile { path: parent.path().join("x"), mib: 2 };
        fill(&target).expect("fio writes it");
        let bytes = fs::read(&target.path).expect("the file");
        assert_eq!(bytes.len(), 2 << 20);
        assert_ne!(bytes[..1 << 20], bytes[1 << 20..]);
    }
}
