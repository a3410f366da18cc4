//! A copy of the tree with all changes that are not committed, and a target folder for all mutants. A file is written
//! only if its contents differ, so cargo builds only crates that a mutant changes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::mutant::Mutant;
use crate::workspace;

/// The top-level paths that a build of the simulator reads.
const NEEDED: &[&str] = &["Cargo.toml", "Cargo.lock", "crates", "xtask"];

#[derive(Debug)]
pub(super) struct Scratch {
    folder: PathBuf,
}

/// The original text of changed files.
#[must_use = "the copy stays changed until it is restored"]
pub(super) struct Restore(Vec<(PathBuf, Vec<u8>)>);

impl Scratch {
    /// Makes the copy, or brings an existing one up to date.
    pub(super) fn new() -> Result<Self> {
        let folder = workspace::target_dir().join("mutants");
        let scratch = Self { folder };
        let names = files(workspace::root())?;
        for name in &names {
            let (from, to) = (workspace::root().join(name), scratch.root().join(name));
            let Ok(bytes) = std::fs::read(&from) else { continue }; // deleted, not yet committed
            if std::fs::read(&to).is_ok_and(|old| old == bytes) {
                continue;
            }
            let parent = to.parent().context("a file of the copy has a folder")?;
            std::fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
            std::fs::write(&to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
        }
        remove_others(&scratch.root(), Path::new(""), &names)?;
        Ok(scratch)
    }

    /// The root of the copy.
    pub(super) fn root(&self) -> PathBuf {
        self.folder.join("tree")
    }

    /// The target folder of the copy.
    pub(super) fn target(&self) -> PathBuf {
        self.folder.join("target")
    }

    /// Copies the program that was built, so that it can run while the next is built. Returns its path; its output goes
    /// to a file beside it.
    pub(super) fn keep_simulator(&self, mutant: &Mutant) -> Result<PathBuf> {
        let built = self.target().join("checked").join(mutant.simulator().path);
        let folder = self.folder.join("programs");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let program = folder.join(&mutant.name);
        std::fs::copy(&built, &program).with_context(|| format!("cannot copy {}", built.display()))?;
        Ok(program)
    }

    /// Changes the files of a mutant.
    pub(super) fn apply(&self, mutant: &Mutant) -> Result<Restore> {
        let mut originals = Vec::new();
        for (path, text) in mutant.edited(&self.root())? {
            originals.push((path.clone(), std::fs::read(&path)?));
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(Restore(originals))
    }

    /// Undoes [`Scratch::apply`].
    #[expect(clippy::unused_self, reason = "the files are those of this copy")]
    pub(super) fn restore(&self, Restore(originals): Restore) -> Result<()> {
        for (path, bytes) in originals {
            std::fs::write(&path, bytes).with_context(|| format!("cannot restore {}", path.display()))?;
        }
        Ok(())
    }
}

/// The needed files that git tracks or does not ignore.
fn files(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]);
    let output = git.args(NEEDED).output().context("cannot run git")?;
    ensure!(output.status.success(), "git ls-files fails: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    Ok(names.split_terminator('\0').map(PathBuf::from).collect())
}

/// Removes files that the tree no longer has.
fn remove_others(root: &Path, folder: &Path, names: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            remove_others(root, &name, names)?;
        } else if !names.contains(&name) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_the_tree_no_longer_has_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        for name in ["a/kept", "a/old", "new"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let names = ["a/kept", "new"].map(PathBuf::from).into();
        remove_others(folder.path(), Path::new(""), &names).unwrap();
        let left = |name| folder.path().join(name).exists();
        assert_eq!((left("a/kept"), left("a/old"), left("new")), (true, false, true));
    }

    #[test]
    fn the_copy_has_the_crates_and_no_build_output() {
        let files = files(workspace::root()).unwrap();
        assert!(files.contains(Path::new("crates/iopath-core/src/lib.rs")));
        assert!(files.iter().all(|file| !file.starts_with("target")));
    }
}
