//! A volume that is a file of a mapping of one's own, on a file, device, stripe or disk in memory. What is read and
//! written where is the device's (`iopath_os::Mapped`); here the two are put together.

use crate::error::OpenError;
use crate::open::{Backing, Source};
use crate::options::Options;
use crate::volume::Volume;
use iopath_os::target::Target;
use iopath_os::{FileMap, MemoryDisk};
use std::path::Path;

/// What a mapped file lies on.
#[derive(Debug)]
pub(crate) struct MappedOn {
    pub(crate) below: Box<Backing>,
    pub(crate) file: FileMap,
}

impl Volume {
    /// Opens a mapped file as a volume: `path` is the file or block device that it lies on, `file` says where. Any
    /// number of volumes can be open on one [`FileMap`]. One of them at most may have a page cache, which is not
    /// checked: two do not see each other's writes.
    ///
    /// Holes and what was never written read as zeroes, without I/O; a write takes space where there is none
    /// ([`IoError::NoSpace`](iopath_core::IoError::NoSpace) if it is all taken), [`Volume::discard`] gives it back, and
    /// [`Volume::resize`] moves the file's end. Neither makes stale bytes visible, also not after an error.
    ///
    /// **The mapping lasts as long as `file` does**, in memory: after that, and after a power failure, nobody knows
    /// what lay where. [`FileMap`] says how to keep it. A flush saves the data, and the indirect blocks of an
    /// `indirect` map, but not the inode.
    ///
    /// A write that takes space, a discard and a resize keep others away from the blocks that they change, until they
    /// are taken: a thread takes such writes of a [`Batch`](crate::Batch) of its own before it changes the same blocks
    /// by another way.
    ///
    /// Of the options, `create` is for what the file lies on, `elevator` orders by offsets in the file, `boundary` says
    /// what indirect blocks do to long transfers. What is injected with `faults` goes wrong on the device below.
    ///
    /// ```
    /// use iopath::{FileLayout, FileMap, MemoryConfig, MemoryDisk, Options, Volume};
    ///
    /// let disk = MemoryDisk::new(&MemoryConfig::of_bytes(16 << 20))?;
    /// let layout = FileLayout { block_bytes: 4096, size_bytes: 64 << 20, capacity_bytes: disk.size_bytes() };
    /// let file = FileMap::fresh("extent", &layout)?;
    /// let volume = Volume::memory_mapped(&disk, &file, &Options::new().write(true))?;
    ///
    /// // Larger than the disk, since most of it is a hole.
    /// volume.write_at(&[1; 4096], 60 << 20)?;
    /// let mut bytes = [2; 4096];
    /// volume.read_at(&mut bytes, 20 << 20)?;
    /// assert_eq!(bytes, [0; 4096]);
    /// volume.discard(60 << 20, 4096)?;
    /// volume.read_at(&mut bytes, 60 << 20)?;
    /// assert_eq!(bytes, [0; 4096]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_mapped(path: impl AsRef<Path>, file: &FileMap, options: &Options) -> Result<Self, OpenError> {
        Self::mapped(Source::open(path.as_ref(), options)?, file)
    }

    /// The same on a disk in memory.
    pub fn memory_mapped(disk: &MemoryDisk, file: &FileMap, options: &Options) -> Result<Self, OpenError> {
        Self::mapped(Source::memory(disk, options)?, file)
    }

    /// The same on several files or block devices ([`Volume::open_stripe`]).
    pub fn open_mapped_stripe(
        paths: &[impl AsRef<Path>],
        chunk_bytes: u64,
        file: &FileMap,
        options: &Options,
    ) -> Result<Self, OpenError> {
        Self::mapped(Source::stripe(paths, chunk_bytes, options)?, file)
    }

    fn mapped((source, target): (Source, Target), file: &FileMap) -> Result<Self, OpenError> {
        // What does not fit is refused before an engine is opened.
        file.limits_on(&source.limits)?;
        let mapped = MappedOn { below: Box::new(source.backing), file: file.clone() };
        let target = Target { size_bytes: file.size_bytes(), ..target };
        Self::of(Source { backing: Backing::Mapped(mapped), ..source }, target)
    }
}
