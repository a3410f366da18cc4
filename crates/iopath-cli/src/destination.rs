//! Where a command may write what it makes: looked at before it begins, so that no measurement is lost and nothing of the
//! user's is written over. Writes nothing itself.

use anyhow::{Context, ensure};
use std::fs::{self, Metadata, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A file to be made, and the option that names it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Destination<'a> {
    path: &'a Path,
    what: &'static str,
    option: &'static str,
}

impl<'a> Destination<'a> {
    /// What was measured or found.
    pub(crate) fn results(path: &'a Path) -> Self {
        Self { path, what: "the results", option: "--json" }
    }

    /// The request log.
    pub(crate) fn log(path: &'a Path) -> Self {
        Self { path, what: "the log", option: "--log" }
    }

    /// What to say where it cannot be written.
    pub(crate) fn cannot_write(&self) -> String {
        let Self { path, what, option } = self;
        format!("cannot write {what} to {}; name another file ({option})", path.display())
    }

    /// Whether it can be written to and may be. Makes it if it is not there.
    fn try_out(&self, target: Option<&Path>, others: &[Trial]) -> anyhow::Result<Trial<'a>> {
        let Self { path, what, option } = *self;
        let about = fs::metadata(path).ok();
        let is = |other: &Path| about.as_ref().is_some_and(|about| is_same(about, other));
        ensure!(
            !target.is_some_and(is),
            "{} is the target: name another file for {what} ({option})",
            path.display()
        );
        let kind = about.as_ref().map(Metadata::file_type);
        ensure!(
            !kind.is_some_and(|kind| kind.is_block_device()),
            "{} is a block device: name a file for {what} ({option})",
            path.display()
        );
        // What is no file keeps nothing that could be written over: /dev/null may have both.
        let other = others.iter().find(|other| kind.is_some_and(|kind| kind.is_file()) && is(other.of.path));
        if let Some(Trial { of: other, .. }) = other {
            anyhow::bail!(
                "{} is the file for {} ({}): name another file for {what} ({option})",
                path.display(),
                other.what,
                other.option
            );
        }
        // Whoever reads a FIFO would take this for the whole of it.
        if !kind.is_some_and(|kind| kind.is_fifo()) {
            OpenOptions::new().append(true).create(true).open(path).with_context(|| self.cannot_write())?;
        }
        // A link that led nowhere stays.
        Ok(Trial { of: *self, made: path.canonicalize().ok().filter(|_| about.is_none()) })
    }
}

/// A destination that was found good.
#[derive(Debug)]
struct Trial<'a> {
    of: Destination<'a>,
    /// The file, if it was not there before.
    made: Option<PathBuf>,
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if let Some(made) = &self.made {
            let _ = fs::remove_file(made);
        }
    }
}

/// Fails if one of them could not be written, or would be written over the target or over one before it. Leaves no file
/// behind that was not there.
pub(crate) fn check(wanted: &[Destination], target: Option<&Path>) -> anyhow::Result<()> {
    let mut found = Vec::new();
    for destination in wanted {
        found.push(destination.try_out(target, &found)?);
    }
    Ok(())
}

fn is_same(about: &Metadata, other: &Path) -> bool {
    fs::metadata(other).is_ok_and(|other| (about.dev(), about.ino()) == (other.dev(), other.ino()))
}
