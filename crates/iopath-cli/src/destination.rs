//! Files that a command may write. Checks them before the command begins, so that a measurement does not lose its
//! results and the command does not destroy a file of the user. Does not write the files.

use crate::args::JsonArgs;
use anyhow::{Context, bail, ensure};
use iopath_bench::kept_file::is_kept;
use iopath_lab::fit::FILE_START;
use iopath_report::html::PAGE_START;
use iopath_report::whatif::LINES_START;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The option of most commands that permits them to replace a file.
const FORCE: &str = "--force";

/// A file to be written, and the option that names it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Destination<'a> {
    path: &'a Path,
    /// The content, as messages name it.
    content: &'static str,
    option: &'static str,
    /// Whether an existing file has such content: the command may replace it.
    is_ours: fn(&Path) -> io::Result<bool>,
    /// The option that permits the command to replace any other file.
    force_option: &'static str,
    /// Whether it may be a FIFO. The open of a FIFO blocks until a process reads it.
    takes_fifo: bool,
    force: bool,
}

impl<'a> Destination<'a> {
    /// A file of this content, named by this option. It may be a FIFO.
    fn new(
        path: &'a Path,
        [content, option]: [&'static str; 2],
        is_ours: fn(&Path) -> io::Result<bool>,
        force: bool,
    ) -> Self {
        Self { path, content, option, is_ours, force_option: FORCE, takes_fifo: true, force }
    }

    /// The results, if these arguments name a file.
    pub(crate) fn results(args: &'a JsonArgs) -> Option<Self> {
        let path = args.json.as_deref().filter(|path| !is_stdout(path))?;
        let force = args.force;
        Some(Self::new(path, ["the results", "--json"], is_result, force))
    }

    /// The request log.
    pub(crate) fn log(path: &'a Path, force: bool) -> Self {
        Self::new(path, ["the log", "--log"], iopath_log::is_log, force)
    }

    /// The request log of a recording.
    pub(crate) fn recording(path: &'a Path, force: bool) -> Self {
        Self::new(path, ["the log", "--output"], iopath_log::is_log, force)
    }

    /// A log or trace in another format. No existing file is replaced: it may be a recording.
    pub(crate) fn converted(path: &'a Path, force: bool) -> Self {
        Self::new(path, ["the output", "OUT"], |_| Ok(false), force)
    }

    /// The file of a fitted model.
    pub(crate) fn model(path: &'a Path, force: bool) -> Self {
        Self { takes_fifo: false, ..Self::new(path, ["the model", "--output"], is_fitted, force) }
    }

    /// The lines of JSON of a study.
    pub(crate) fn lines(path: &'a Path, force: bool) -> Self {
        Self::new(path, ["the lines", "--json-lines"], |path| starts_with(path, LINES_START), force)
    }

    /// The page of a report.
    pub(crate) fn page(path: &'a Path, force: bool) -> Self {
        Self::new(path, ["the page", "--output"], is_page, force)
    }

    /// The results of a command line of fio.
    pub(crate) fn of_fio(path: &'a Path, force: bool) -> Self {
        Self {
            force_option: "--allow-overwrite",
            ..Self::new(path, ["the results", "--output"], is_result_of_fio, force)
        }
    }

    /// The message for a file that cannot be written.
    pub(crate) fn cannot_write(&self) -> String {
        let Self { path, content, option, .. } = self;
        format!("cannot write {content} to {}; name another file ({option})", path.display())
    }

    /// Checks that the file may be written. Creates it if it does not exist.
    fn check(&self, targets: &[&Path], others: &[Checked]) -> anyhow::Result<Checked<'a>> {
        let Self { path, content, option, .. } = *self;
        let metadata = fs::metadata(path).ok();
        let is = |other: &Path| metadata.as_ref().is_some_and(|metadata| is_same(metadata, other));
        ensure!(
            !targets.iter().any(|target| is(target)),
            "{} is the target: name another file for {content} ({option})",
            path.display()
        );
        let kind = metadata.as_ref().map(Metadata::file_type);
        ensure!(
            !kind.is_some_and(|kind| kind.is_block_device()),
            "{} is a block device: name a file for {content} ({option})",
            path.display()
        );
        ensure!(
            self.takes_fifo || !kind.is_some_and(|kind| kind.is_fifo()),
            "{} is a FIFO, which blocks until a process reads it: name a file for {content} ({option})",
            path.display()
        );
        // Only regular files can lose data: /dev/null may be named twice.
        let is_file = kind.is_some_and(|kind| kind.is_file());
        let other = others.iter().find(|other| is_file && is(other.destination.path));
        if let Some(Checked { destination: other, .. }) = other {
            bail!(
                "{} is the file for {} ({}): name another file for {content} ({option})",
                path.display(),
                other.content,
                other.option
            );
        }
        self.check_before_write()?;
        // The close of a FIFO would signal the end of the data to its reader.
        if !kind.is_some_and(|kind| kind.is_fifo()) {
            OpenOptions::new().append(true).create(true).open(path).with_context(|| self.cannot_write())?;
        }
        // Drop removes the new target of a dangling symbolic link, not the link.
        Ok(Checked { destination: *self, created: path.canonicalize().ok().filter(|_| kind.is_none()) })
    }

    /// Fails if another program wrote the file, unless `--force` is set. A file without content is replaceable.
    pub(crate) fn check_before_write(&self) -> anyhow::Result<()> {
        let is_used = fs::metadata(self.path).is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0);
        if is_used { self.check_replaceable() } else { Ok(()) }
    }

    /// Fails if another program wrote the file, unless `--force` is set.
    fn check_replaceable(&self) -> anyhow::Result<()> {
        let Self { path, content, option, is_ours, force, .. } = *self;
        if force || is_ours(path).with_context(|| self.cannot_write())? {
            return Ok(());
        }
        bail!(
            "{} exists and was not written by iopath: name another file for {content} ({option}), or replace it with {}",
            path.display(),
            self.force_option
        )
    }
}

/// A destination that may be written.
#[derive(Debug)]
struct Checked<'a> {
    destination: Destination<'a>,
    /// The file, if the check created it.
    created: Option<PathBuf>,
}

impl Drop for Checked<'_> {
    fn drop(&mut self) {
        if let Some(created) = &self.created {
            let _ = fs::remove_file(created);
        }
    }
}

/// Fails if a file cannot be written, is a target, is named twice, or holds data of the user. Removes the files that it
/// creates.
pub(crate) fn check(destinations: &[Destination], targets: &[&Path]) -> anyhow::Result<()> {
    let mut checked = Vec::new();
    for destination in destinations {
        checked.push(destination.check(targets, &checked)?);
    }
    Ok(())
}

/// Whether the name means stdout.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Whether the file begins like a JSON result of iopath.
fn is_result(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    File::open(path)?.take(64).read_to_end(&mut start)?;
    let compact: Vec<u8> = start.into_iter().filter(|byte| !byte.is_ascii_whitespace()).collect();
    Ok(compact.starts_with(b"{\"schema\":\"iopath."))
}

/// Whether iopath has written the results of a command line of fio to this file, and no other program since: it has the
/// mark, which a filesystem without extended attributes does not store.
#[expect(clippy::unnecessary_wraps, reason = "as the checks of other contents")]
fn is_result_of_fio(path: &Path) -> io::Result<bool> {
    Ok(is_kept(path))
}

/// Whether the file begins like a fitted model.
fn is_fitted(path: &Path) -> io::Result<bool> {
    starts_with(path, FILE_START)
}

/// Whether the file begins like a page of a report.
fn is_page(path: &Path) -> io::Result<bool> {
    starts_with(path, PAGE_START)
}

fn starts_with(path: &Path, text: &str) -> io::Result<bool> {
    let mut start = Vec::new();
    File::open(path)?.take(text.len() as u64).read_to_end(&mut start)?;
    Ok(start == text.as_bytes())
}

fn is_same(metadata: &Metadata, other: &Path) -> bool {
    fs::metadata(other).is_ok_and(|other| (metadata.dev(), metadata.ino()) == (other.dev(), other.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_recognised_by_their_schema() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (content, expected) in [
            ("{\n  \"schema\": \"iopath.result/1\",\n", true),
            ("{\"schema\":\"iopath.log-summary/2\"}", true),
            ("{\"schema\":\"other\"}", false),
            ("my notes", false),
            ("", false),
        ] {
            fs::write(file.path(), content).unwrap();
            assert_eq!(is_result(file.path()).unwrap(), expected, "{content}");
        }
    }

    #[test]
    fn only_results_of_iopath_are_replaced_by_those_of_fio() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = directory.path().join("results");
        for mine in
            ["job notes\n", "a: (g=0): my own list\n", "{ \"fio version\": \"fio-3.33\", \"mine\": 1 }"]
        {
            fs::write(&path, mine).unwrap();
            let error = check(&[Destination::of_fio(&path, false)], &[]).unwrap_err().to_string();
            assert!(error.contains("was not written by iopath"), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), mine);
        }
        iopath_bench::own_file::replace_named_marked(&path, b"results").unwrap();
        if iopath_bench::kept_file::has_marks(&path) {
            check(&[Destination::of_fio(&path, false)], &[]).unwrap();
            fs::write(&path, "changed").unwrap();
            check(&[Destination::of_fio(&path, false)], &[]).unwrap_err();
        }
    }
}
