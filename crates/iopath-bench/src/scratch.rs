//! Scratch files: the only targets that the lab writes without permission. Creates and fills them; `own_file.rs`
//! removes them.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use iopath_os::file_size_limit;
use iopath_os::target::Target as TargetInfo;
use iopath_report::random;
use rand_xoshiro::rand_core::RngCore;
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

use crate::error::BenchError;
use crate::kept_file;
use crate::own_file::{Kind, OwnFile, with_limit};
use crate::refusal::WorkloadError;
use crate::signals::Interruption;

/// The file is written in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;

/// The maximum reserve that a scratch file leaves free, in bytes. On a small filesystem the reserve is 5%.
const MARGIN_BYTES_MAX: u64 = 1 << 30;

/// The content of a new file. The greater of two serves the uses of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NewContent {
    /// One hole.
    Hole,
    /// Unwritten extents: the first write of each block also changes the metadata of the file.
    Allocated,
    /// Incompressible bytes in written extents.
    Written,
}

/// A file of incompressible bytes in written extents. Removed on drop.
#[derive(Debug)]
pub struct Scratch(OwnFile);

impl Scratch {
    /// Creates a file of `size_bytes` in `directory` and fills it; the bytes are on the medium on return. `advance` is
    /// called with the bytes written so far. Scratch files of dead processes in the directory are removed first.
    ///
    /// # Errors
    /// [`BenchError`]: the directory is missing, full, not writable, or stores no files.
    pub fn create(
        directory: &Path,
        size_bytes: u64,
        seed: u64,
        advance: &mut dyn FnMut(u64),
    ) -> Result<Self, BenchError> {
        Self::of_kind(Kind::Scratch, directory, size_bytes, NewContent::Written, seed, advance)
    }

    /// As [`Scratch::create`], with another content.
    ///
    /// # Errors
    /// As for [`Scratch::create`].
    pub fn with_content(
        directory: &Path,
        size_bytes: u64,
        content: NewContent,
        seed: u64,
        advance: &mut dyn FnMut(u64),
    ) -> Result<Self, BenchError> {
        Self::of_kind(Kind::Scratch, directory, size_bytes, content, seed, advance)
    }

    /// As [`Scratch::with_content`], for a file to keep: with the permissions of a file of the user.
    ///
    /// # Errors
    /// As for [`Scratch::create`].
    pub fn to_keep(
        directory: &Path,
        size_bytes: u64,
        content: NewContent,
        seed: u64,
        advance: &mut dyn FnMut(u64),
    ) -> Result<Self, BenchError> {
        Self::of_kind(Kind::Kept, directory, size_bytes, content, seed, advance)
    }

    fn of_kind(
        kind: Kind,
        directory: &Path,
        size_bytes: u64,
        content: NewContent,
        seed: u64,
        advance: &mut dyn FnMut(u64),
    ) -> Result<Self, BenchError> {
        check_space(directory, size_bytes)?;
        check_limit(directory, size_bytes)?;
        let file = OwnFile::create(directory, kind).map_err(|source| no_file(directory, source))?;
        let scratch = Self(file);
        let created = match content {
            NewContent::Written => scratch.fill(size_bytes, seed, advance),
            NewContent::Allocated => scratch.allocate(size_bytes),
            NewContent::Hole => {
                scratch.0.file().set_len(size_bytes).and_then(|()| scratch.0.file().sync_all())
            }
        };
        created.map_err(|source| match source.kind() {
            io::ErrorKind::Interrupted => BenchError::Interrupted,
            _ => BenchError::io("write a scratch file in", directory)(with_limit(source)),
        })?;
        Ok(scratch)
    }

    /// Gives the file a name of the user, with the mark of files that iopath has created, and keeps it. Replaces only a
    /// file with the mark. Returns whether the filesystem stores the mark; otherwise the file stays a scratch file.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`]: a file of the user has the name. Otherwise the error of the system.
    pub fn keep(self, path: &Path) -> io::Result<Result<(), Self>> {
        if kept_file::mark_open(self.0.file()).is_err() {
            return Ok(Err(self));
        }
        self.0.persist_marked(path, false).map(Ok)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// On a filesystem without unwritten extents, the file is a hole, as of fio.
    fn allocate(&self, size_bytes: u64) -> io::Result<()> {
        match fallocate(self.0.file(), FallocateFlags::empty(), 0, size_bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.0.file().set_len(size_bytes)?,
            allocated => allocated?,
        }
        self.0.file().sync_all()
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
            self.0.file().write_all_at(&piece[..bytes], offset)?;
            offset += bytes as u64;
            advance(offset);
        }
        self.0.file().sync_data()
    }
}

/// The error of a file that could not be created. Names the filesystem if it is the cause.
fn no_file(directory: &Path, source: io::Error) -> BenchError {
    let target = directory.to_owned();
    if stores_no_files(directory) {
        let filesystem = TargetInfo::inspect(directory).ok().and_then(|info| info.filesystem);
        let filesystem = filesystem.map(|filesystem| filesystem.name);
        return BenchError::NoScratch { directory: target, filesystem, source };
    }
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            BenchError::NoPermission { target, access: "creating a scratch file" }
        }
        io::ErrorKind::NotFound => BenchError::Missing { target },
        _ => BenchError::NoScratch { directory: target, filesystem: None, source },
    }
}

/// Whether a filesystem has no blocks and stores no files, such as procfs and sysfs.
fn stores_no_files(directory: &Path) -> bool {
    statvfs(directory).is_ok_and(|stat| stat.f_blocks == 0)
}

/// Refuses a file that would fill the filesystem. Does not refuse a filesystem without blocks: the creation of the file
/// decides.
fn check_space(directory: &Path, needed: u64) -> Result<(), BenchError> {
    let stat = statvfs(directory)
        .map_err(|errno| BenchError::io("read the free space of", directory)(errno.into()))?;
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

/// Refuses a file above the limit of file sizes before it is filled, which takes minutes.
fn check_limit(directory: &Path, needed: u64) -> Result<(), WorkloadError> {
    let limit = file_size_limit();
    if needed <= limit {
        return Ok(());
    }
    Err(WorkloadError::FileLimit { directory: directory.to_owned(), needed, limit })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn create(directory: &Path, size_bytes: u64) -> Result<Scratch, BenchError> {
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
    fn an_allocated_file_has_its_size_and_reads_as_zeroes() {
        let directory = tempfile::tempdir().unwrap();
        for content in [NewContent::Allocated, NewContent::Hole] {
            let scratch =
                Scratch::with_content(directory.path(), MIB + 100, content, 1, &mut |_| ()).unwrap();
            let bytes = fs::read(scratch.path()).unwrap();
            assert!(bytes.len() as u64 == MIB + 100 && bytes.iter().all(|byte| *byte == 0), "{content:?}");
        }
        assert!(NewContent::Written > NewContent::Allocated && NewContent::Allocated > NewContent::Hole);
    }

    #[test]
    fn a_file_that_does_not_fit_is_refused_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let error = create(directory.path(), 1 << 60).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, BenchError::Workload(WorkloadError::NoSpace { .. })), "{text}");
        assert!(text.contains(directory.path().to_str().unwrap()) && text.contains("1048576 TiB"), "{text}");
        assert_eq!(names(directory.path()), 0);
    }

    #[test]
    fn a_directory_that_is_missing_is_named() {
        let text = create(Path::new("/no/such/place"), MIB).unwrap_err().to_string();
        assert!(text.starts_with("/no/such/place does not exist"), "{text}");
    }
}
