//! Scratch files: the only files that the lab writes without permission. Creates, fills and removes them.
//!
//! A scratch file is removed on drop, and on SIGINT, SIGTERM and SIGHUP (`signals.rs`). If SIGKILL or a crash leaves a file,
//! the next creation of a scratch file in the directory removes it.

use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, PoisonError};

use iopath_os::target::Target as TargetInfo;
use rand_xoshiro::rand_core::RngCore;
use rustix::fs::{FlockOperation, OFlags, flock, statvfs};

use crate::error::LabError;
use crate::random;
use crate::refusal::WorkloadError;
use crate::signals::{Interruption, before_end};

/// The prefix of a scratch file's name; the process id and a random number follow.
const PREFIX: &str = ".iopath-scratch-";

/// The file is written in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;

/// The maximum reserve that a scratch file leaves free, in bytes. On a small filesystem the reserve is 5%.
const MARGIN_BYTES_MAX: u64 = 1 << 30;

/// The scratch files of this process, for the thread that removes them on a signal.
static PRESENT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A file of incompressible bytes in written extents. Removed on drop.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// Holds the lock that marks the file as in use, for other processes.
    file: File,
}

impl Scratch {
    /// Creates a file of `size_bytes` in `directory` and fills it; the bytes are on the medium on return. `advance` is
    /// called with the bytes written so far. Scratch files of dead processes in the directory are removed first.
    ///
    /// # Errors
    /// [`LabError`]: the directory is missing, full, not writable, or stores no files.
    pub fn create(
        directory: &Path,
        size_bytes: u64,
        seed: u64,
        advance: &mut dyn FnMut(u64),
    ) -> Result<Self, LabError> {
        remove_leftovers(directory);
        check_space(directory, size_bytes)?;
        before_end(remove_present);
        let random = RandomState::new().build_hasher().finish();
        let path = directory.join(format!("{PREFIX}{}-{random:016x}", process::id()));
        present().push(path.clone());
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path)
            .inspect_err(|_| forget(&path))
            .map_err(|source| no_file(directory, source))?;
        let scratch = Self { path, file };
        // On a filesystem without locks, the process id in the name is the only mark.
        let _ = flock(&scratch.file, FlockOperation::NonBlockingLockExclusive);
        scratch.fill(size_bytes, seed, advance).map_err(|source| match source.kind() {
            io::ErrorKind::Interrupted => LabError::Interrupted,
            _ => LabError::io("write a scratch file in", directory)(source),
        })?;
        Ok(scratch)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn fill(&self, size_bytes: u64, seed: u64, advance: &mut dyn FnMut(u64)) -> io::Result<()> {
        let mut generator = random::generator(seed, [u64::MAX, 1]);
        let mut piece = vec![0; PIECE_BYTES];
        let mut offset = 0;
        while offset < size_bytes {
            let bytes = (size_bytes - offset).min(PIECE_BYTES as u64) as usize;
            generator.fill_bytes(&mut piece[..bytes]);
            if Interruption::is_requested() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            self.file.write_all_at(&piece[..bytes], offset)?;
            offset += bytes as u64;
            advance(offset);
        }
        self.file.sync_data()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If this fails, the next run in the directory tries again.
        let _ = fs::remove_file(&self.path);
        forget(&self.path);
    }
}

/// The error of a file that could not be created. Names the filesystem if it is the cause.
fn no_file(directory: &Path, source: io::Error) -> LabError {
    let target = directory.to_owned();
    if stores_no_files(directory) {
        let filesystem = TargetInfo::inspect(directory).ok().and_then(|info| info.filesystem);
        let filesystem = filesystem.map(|filesystem| filesystem.name);
        return LabError::NoScratch { directory: target, filesystem, source };
    }
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            LabError::NoPermission { target, access: "creating a scratch file" }
        }
        io::ErrorKind::NotFound => LabError::Missing { target },
        _ => LabError::NoScratch { directory: target, filesystem: None, source },
    }
}

/// Whether a filesystem has no blocks and stores no files, such as procfs and sysfs.
fn stores_no_files(directory: &Path) -> bool {
    statvfs(directory).is_ok_and(|stat| stat.f_blocks == 0)
}

fn present() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    PRESENT.lock().unwrap_or_else(PoisonError::into_inner)
}

fn forget(path: &Path) {
    present().retain(|present| present != path);
}

/// Refuses a file that would fill the filesystem. Does not refuse a filesystem without blocks: the creation of the file
/// decides.
fn check_space(directory: &Path, needed: u64) -> Result<(), LabError> {
    let stat = statvfs(directory)
        .map_err(|errno| LabError::io("read the free space of", directory)(errno.into()))?;
    if stat.f_blocks == 0 {
        return Ok(());
    }
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let margin = (stat.f_blocks.saturating_mul(stat.f_frsize) / 20).min(MARGIN_BYTES_MAX);
    if needed.saturating_add(margin) <= free {
        return Ok(());
    }
    Err(WorkloadError::NoSpace { directory: directory.to_owned(), needed, margin, free }.into())
}

/// Removes the scratch files of this process.
fn remove_present() {
    for path in present().iter() {
        let _ = fs::remove_file(path);
    }
}

/// Removes scratch files whose process has no entry in `/proc` and that are not locked. The lock protects files of
/// processes in other namespaces.
fn remove_leftovers(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let Some(process) = entry.file_name().to_str().and_then(owner) else { continue };
        if !Path::new(&format!("/proc/{process}")).exists() {
            let _ = remove_if_unlocked(&entry.path());
        }
    }
}

/// The process id in a scratch file's name; none for any other name.
fn owner(name: &str) -> Option<u32> {
    let (process, random) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let random_fits = random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    process.parse().ok().filter(|_| random_fits)
}

fn remove_if_unlocked(path: &Path) -> io::Result<()> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let about = file.metadata()?;
    if !about.is_file() || about.uid() != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn create(directory: &Path, size_bytes: u64) -> Result<Scratch, LabError> {
        Scratch::create(directory, size_bytes, 1, &mut |_| ())
    }

    fn names(directory: &Path) -> usize {
        fs::read_dir(directory).unwrap().count()
    }

    #[test]
    fn holds_written_random_bytes_and_is_removed_when_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let mut seen = 0;
        let scratch = Scratch::create(directory.path(), 2 * MIB + 100, 1, &mut |done| seen = done).unwrap();
        assert_eq!(seen, 2 * MIB + 100);
        let bytes = fs::read(scratch.path()).unwrap();
        assert_eq!(bytes.len() as u64, 2 * MIB + 100);
        let mut counts = [0u32; 256];
        for byte in &bytes {
            counts[usize::from(*byte)] += 1;
        }
        let expected = bytes.len() as u32 / 256;
        assert!(
            counts.iter().all(|count| count.abs_diff(expected) < expected / 10),
            "all byte values are equally frequent"
        );
        drop(scratch);
        assert_eq!(names(directory.path()), 0);
    }

    #[test]
    fn a_file_that_does_not_fit_is_refused_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let error = create(directory.path(), 1 << 60).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, LabError::Workload(WorkloadError::NoSpace { .. })), "{text}");
        assert!(text.contains(directory.path().to_str().unwrap()) && text.contains("1048576 TiB"), "{text}");
        assert_eq!(names(directory.path()), 0);
    }

    #[test]
    fn a_directory_that_is_missing_is_named() {
        let text = create(Path::new("/no/such/place"), MIB).unwrap_err().to_string();
        assert!(text.starts_with("/no/such/place does not exist"), "{text}");
    }

    #[test]
    fn only_files_of_dead_processes_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path_of = |name: &str| directory.path().join(name);
        // Process ids end below 2^22.
        let dead = path_of(".iopath-scratch-4194399-0123456789abcdef");
        let alive = path_of(&format!(".iopath-scratch-{}-0123456789abcdef", process::id()));
        let other = path_of(".iopath-scratch-4194399-notes");
        let locked = path_of(".iopath-scratch-4194399-00000000000000ff");
        for path in [&dead, &alive, &other, &locked] {
            fs::write(path, "x").unwrap();
        }
        let lock = File::open(&locked).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        let link = path_of(".iopath-scratch-4194399-aaaaaaaaaaaaaaaa");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        remove_leftovers(directory.path());
        assert!(!dead.exists());
        assert!(alive.exists() && other.exists() && locked.exists() && link.is_symlink());
    }
}
