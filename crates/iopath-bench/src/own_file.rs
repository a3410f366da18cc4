//! Files that iopath creates for itself: a random name, created exclusively, never through a symbolic link, removed on
//! drop and on a signal. Results replace a file of the user by a rename of such a file. Does not decide which files may
//! be replaced.
//!
//! The names are those of no existing file, so a link that another user has planted under an expected name is never
//! followed. If SIGKILL or a crash leaves a file, the next creation of the same kind in the directory removes it.

use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

use iopath_log::LogError;
use iopath_os::file_size_limit;
use iopath_report::size::format_size;
use rustix::fs::{CWD, FlockOperation, OFlags, RenameFlags, flock, renameat_with};
use rustix::io::Errno;

use crate::kept_file;
use crate::signals::{before_end, is_ending};

/// The files of this process, for the thread that removes them on a signal.
static PRESENT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The directories in which this process has created files.
static USED: Mutex<Vec<(PathBuf, Kind)>> = Mutex::new(Vec::new());

/// What a file is for. The name of a file is `.iopath-KIND-PID-RANDOM`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The target of a measurement.
    Scratch,
    /// The content that replaces a file.
    New,
    /// A request log that is read and then removed.
    Log,
    /// A file that the user keeps: the target of a job.
    Kept,
}

impl Kind {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Scratch => ".iopath-scratch-",
            Self::New => ".iopath-new-",
            Self::Log => ".iopath-log-",
            Self::Kept => ".iopath-kept-",
        }
    }

    /// The permissions at creation, before the umask. Results are as readable as any other new file, and the files of
    /// jobs as those of fio.
    const fn mode(self) -> u32 {
        match self {
            Self::Scratch | Self::Log => 0o600,
            Self::New => 0o666,
            Self::Kept => 0o644,
        }
    }
}

/// A file of this process. Removed on drop.
#[derive(Debug)]
pub struct OwnFile {
    path: PathBuf,
    /// Holds the lock that marks the file as in use, for other processes.
    file: File,
}

impl OwnFile {
    /// Creates an empty file in a directory. Files of dead processes of the same kind are removed first.
    ///
    /// # Errors
    /// The error of the system.
    pub fn create(directory: &Path, kind: Kind) -> io::Result<Self> {
        remove_leftovers(directory, kind);
        before_end(remove_present);
        use_directory(directory, kind);
        let random = RandomState::new().build_hasher().finish();
        let path = directory.join(format!("{}{}-{random:016x}", kind.prefix(), process::id()));
        // Before the creation: a signal in between must not leave the file.
        present().push(path.clone());
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(kind.mode())
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path)
            .inspect_err(|_| forget(&path))?;
        let own = Self { path, file };
        // The removal of all files may have come before this one existed.
        if is_ending() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        // On a filesystem without locks, the process id in the name is the only mark.
        let _ = flock(&own.file, FlockOperation::NonBlockingLockExclusive);
        Ok(own)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file a name of the user. Replaces a file or a link of that name.
    ///
    /// # Errors
    /// The error of the system. The file is removed, and a file of the name is unchanged.
    pub fn persist(self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        // The drop must not remove another file that has taken the name.
        forget(&self.path);
        Ok(())
    }

    /// As [`OwnFile::persist`], but replaces nothing.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`], also for a dangling link of the name; or another error of the system.
    pub fn persist_new(self, path: &Path) -> io::Result<()> {
        match renameat_with(CWD, &self.path, CWD, path, RenameFlags::NOREPLACE) {
            // The filesystem lacks the flag. A hard link replaces nothing, too.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                fs::hard_link(&self.path, path)?;
                fs::remove_file(&self.path)?;
            }
            renamed => renamed?,
        }
        forget(&self.path);
        Ok(())
    }

    /// As [`OwnFile::persist`], with the mark of files that iopath has created if the filesystem stores it. Replaces
    /// a file of the user only if `overwrite`.
    ///
    /// # Errors
    /// As for [`OwnFile::persist_new`].
    pub fn persist_marked(self, path: &Path, overwrite: bool) -> io::Result<()> {
        // Without the mark, the next run takes the file for one of the user, which is safe.
        let _ = kept_file::mark_open(&self.file);
        if overwrite || kept_file::is_kept(path) { self.persist(path) } else { self.persist_new(path) }
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if is_present(&self.path) {
            // If this fails, the next creation in the directory tries again.
            let _ = fs::remove_file(&self.path);
            forget(&self.path);
        }
    }
}

/// Writes a file as a whole, through a new file beside it: after an error, for example of a full disk, its former
/// content is unchanged, and a new file does not exist. The bytes are on the medium on return. A link of that name is
/// replaced and not followed. The permissions of a former file remain.
///
/// # Errors
/// The error of the system. That of the limit of file sizes names the limit.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    fill(OwnFile::create(directory_of(path), Kind::New)?, path, content, false)
}

/// As [`replace`], with the mark of files that iopath has created. Replaces a file of the user only if `overwrite`.
///
/// # Errors
/// As for [`replace`], and [`io::ErrorKind::AlreadyExists`].
pub fn replace_own(path: &Path, content: &[u8], overwrite: bool) -> io::Result<()> {
    let mut new = OwnFile::create(directory_of(path), Kind::New)?;
    new.file.write_all(content).and_then(|()| new.file.sync_all()).map_err(with_limit)?;
    new.persist_marked(path, overwrite)
}

fn fill(mut new: OwnFile, path: &Path, content: &[u8], marks: bool) -> io::Result<()> {
    let former = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file);
    new.file.write_all(content).and_then(|()| new.file.sync_all()).map_err(with_limit)?;
    if marks {
        let _ = kept_file::mark_open(&new.file);
    }
    if let Some(former) = former {
        new.file.set_permissions(former.permissions())?;
    }
    new.persist(path)
}

/// Writes a file that the user has named. As [`replace`], but a FIFO, a device, a link and a file in a directory that
/// cannot be changed are written in place.
///
/// # Errors
/// As for [`replace`].
pub fn replace_named(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_where_possible(path, content, false)
}

/// As [`replace_named`]. A new file has the mark of files that iopath has created ([`kept_file`]).
///
/// # Errors
/// As for [`replace`].
pub fn replace_named_marked(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_where_possible(path, content, true)
}

fn replace_where_possible(path: &Path, content: &[u8], marks: bool) -> io::Result<()> {
    let in_place = || fs::write(path, content).map_err(with_limit);
    match fs::symlink_metadata(path) {
        Ok(former) if !former.is_file() || former.nlink() > 1 => return in_place(),
        _ => {}
    }
    match OwnFile::create(directory_of(path), Kind::New) {
        Ok(new) => fill(new, path, content, marks),
        // Any other error, such as a full filesystem, would leave the named file empty.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => in_place(),
        Err(error) => Err(error),
    }
}

/// The directory of a file; the current one for a name alone.
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Adds the limit and the remedy to the error of a write beyond the largest size of a file.
pub fn with_limit(error: io::Error) -> io::Error {
    if error.raw_os_error() != Some(Errno::FBIG.raw_os_error()) {
        return error;
    }
    let message = match file_size_limit() {
        u64::MAX => "the filesystem has no larger files; use another filesystem".to_owned(),
        limit => format!("the limit of file sizes is {} (ulimit -f); raise the limit", format_size(limit)),
    };
    io::Error::new(io::ErrorKind::FileTooLarge, message)
}

/// As [`with_limit`], for the file of a log.
pub fn log_with_limit(error: LogError) -> LogError {
    match error {
        LogError::Write { path, records, source } => {
            LogError::Write { path, records, source: with_limit(source) }
        }
        other => other,
    }
}

fn present() -> MutexGuard<'static, Vec<PathBuf>> {
    PRESENT.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_present(path: &Path) -> bool {
    present().iter().any(|present| present == path)
}

fn forget(path: &Path) {
    present().retain(|present| present != path);
}

/// Removes the files of this process.
fn remove_present() {
    for path in present().iter() {
        let _ = fs::remove_file(path);
    }
}

fn use_directory(directory: &Path, kind: Kind) {
    let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    if !used.iter().any(|(known, of)| known == directory && *of == kind) {
        used.push((directory.to_owned(), kind));
    }
}

/// As [`remove_leftovers`], in each directory and for each kind of which this process has created a file: other
/// processes of the same command, which have died, used them, too.
pub fn remove_leftovers_of_others() {
    let used = USED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for (directory, kind) in &used {
        remove_leftovers(directory, *kind);
    }
}

/// Removes files of a kind whose process has no entry in `/proc` and that are not locked. The lock protects files of
/// processes in other namespaces.
pub fn remove_leftovers(directory: &Path, kind: Kind) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| owner(name, kind)) else { continue };
        if !Path::new(&format!("/proc/{process}")).exists() {
            let _ = remove_if_unlocked(&entry.path());
        }
    }
}

/// The process id in the name of a file of a kind; none for any other name.
fn owner(name: &str, kind: Kind) -> Option<u32> {
    let (process, random) = name.strip_prefix(kind.prefix())?.split_once('-')?;
    let random_fits = random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    process.parse().ok().filter(|_| random_fits)
}

fn remove_if_unlocked(path: &Path) -> io::Result<()> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    // NFS locks only files that are open for writing.
    let file =
        OpenOptions::new().read(true).write(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let about = file.metadata()?;
    if !about.is_file() || about.uid() != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn only_files_of_dead_processes_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path_of = |name: &str| directory.path().join(name);
        // Process ids end below 2^22.
        let dead = path_of(".iopath-scratch-4194399-0123456789abcdef");
        let alive = path_of(&format!(".iopath-scratch-{}-0123456789abcdef", process::id()));
        let other = path_of(".iopath-scratch-4194399-notes");
        let new = path_of(".iopath-new-4194399-0123456789abcdef");
        let locked = path_of(".iopath-scratch-4194399-00000000000000ff");
        for path in [&dead, &alive, &other, &new, &locked] {
            fs::write(path, "x").unwrap();
        }
        let lock = File::open(&locked).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        let link = path_of(".iopath-scratch-4194399-aaaaaaaaaaaaaaaa");
        symlink(&other, &link).unwrap();
        remove_leftovers(directory.path(), Kind::Scratch);
        assert!(!dead.exists());
        assert!(alive.exists() && other.exists() && new.exists() && locked.exists() && link.is_symlink());
        remove_leftovers(directory.path(), Kind::New);
        assert!(!new.exists());
    }

    #[test]
    fn a_link_of_the_name_is_replaced_and_its_file_is_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let (victim, link) = (directory.path().join("victim"), directory.path().join("results"));
        fs::write(&victim, "mine").unwrap();
        symlink(&victim, &link).unwrap();
        replace(&link, b"results").unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"mine");
        assert!(!link.is_symlink() && fs::read(&link).unwrap() == b"results");
        assert_eq!(names(directory.path()).len(), 2, "no new file stays");
    }

    #[test]
    fn the_permissions_of_a_former_file_remain_and_an_error_leaves_it_unchanged() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results");
        fs::write(&path, "former").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        replace(&path, b"later").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        replace(&directory.path().join("missing/results"), b"later").unwrap_err();
        fs::create_dir(directory.path().join("folder")).unwrap();
        replace(&directory.path().join("folder"), b"later").unwrap_err();
        assert_eq!(names(directory.path()).len(), 2);
    }

    #[test]
    fn a_file_of_the_user_is_replaced_with_permission_only() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = directory.path().join("a");
        let new = || OwnFile::create(directory.path(), Kind::Kept).unwrap();
        new().persist_new(&path).unwrap();
        fs::write(&path, "mine").unwrap();
        let error = new().persist_new(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        let error = replace_own(&path, b"ours", false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        replace_own(&path, b"ours", true).unwrap();
        if kept_file::is_kept(&path) {
            replace_own(&path, b"later", false).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"later");
        }
        assert_eq!(names(directory.path()), ["a"]);
    }

    #[test]
    fn a_file_is_removed_when_dropped_unless_it_has_a_name_of_the_user() {
        let directory = tempfile::tempdir().unwrap();
        drop(OwnFile::create(directory.path(), Kind::Log).unwrap());
        assert_eq!(names(directory.path()), [""; 0]);
        let file = OwnFile::create(directory.path(), Kind::New).unwrap();
        file.persist(&directory.path().join("kept")).unwrap();
        assert_eq!(names(directory.path()), ["kept"]);
    }
}
