//! Opens a volume on a stripe of several targets, and on a file with a block mapping of the program.

use super::Volume;
use crate::error::{OpenError, Result};
use crate::options::Options;
#[cfg(feature = "stripe")]
use crate::source::Member;
#[cfg(all(feature = "mapped", feature = "testing"))]
use crate::source::MemorySource;
use crate::storage::Storage;
#[cfg(feature = "mapped")]
use iopath_os::FileMap;
#[cfg(all(feature = "mapped", feature = "testing"))]
use iopath_os::MemoryDisk;
use std::path::Path;
#[cfg(all(feature = "mapped", feature = "testing"))]
use std::sync::Arc;

impl Volume {
    /// Opens several files or block devices as one volume, which distributes chunks of `chunk_bytes` bytes over the
    /// members, round robin (RAID 0). The size is the size of the smallest member, rounded down to whole chunks, times
    /// the number of members ([`Volume::size_bytes`]). The rest of each member is not used.
    ///
    /// To open the same data again, name the same members in the same order, with the same chunk. There is no
    /// redundancy: if a member fails, I/O on its chunks fails. `Options::create` sets the size of the volume; depth and
    /// elevator apply to the volume, the maximum request size to each member. [`Facts::path`](crate::Facts) has the
    /// paths of the members, separated by commas; [`Facts::target`](crate::Facts) describes the first member.
    ///
    /// # Errors
    /// Returns the errors of [`Volume::open`], for each member; [`OpenError::Chunk`] and [`OpenError::SameMember`].
    ///
    /// ```no_run
    /// use iopath::{Options, Volume};
    ///
    /// let volume = Volume::open_stripe(&["/dev/sdx", "/dev/sdy"], 512 << 10, &Options::new())?;
    /// println!("{} bytes", volume.size_bytes());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "stripe")]
    pub fn open_stripe(
        paths: &[impl AsRef<Path>],
        chunk_bytes: u64,
        options: &Options,
    ) -> Result<Self, OpenError> {
        Self::open_stripe_of(&members_of(paths), chunk_bytes, options)
    }

    /// Does the same as [`Volume::open_stripe`], of any members: files, block devices, remote exports, disks in memory,
    /// and storage of the program.
    ///
    /// # Errors
    /// Returns the errors of [`Volume::open_stripe`] and [`Volume::remote`].
    #[cfg(feature = "stripe")]
    pub fn open_stripe_of(
        members: &[Member<'_>],
        chunk_bytes: u64,
        options: &Options,
    ) -> Result<Self, OpenError> {
        Self::of(Storage::stripe(members, chunk_bytes, options)?)
    }

    /// Opens a mapped file as a volume. `path` is the file or block device with the blocks; `file` maps offsets of the
    /// volume to offsets in it. Any number of volumes can be open on one [`FileMap`]. At most one of them may have a
    /// page cache, because two caches are not coherent; this is not checked.
    ///
    /// Holes read as zeroes without I/O. A write to a hole allocates space, or fails with
    /// [`IoError::NoSpace`](iopath_core::IoError::NoSpace). [`Volume::discard`] frees space, and [`Volume::resize`]
    /// moves the end of the file. Stale bytes are never visible, not even after an error.
    ///
    /// **The mapping is in memory, and is lost with the last clone of `file`.** Without the mapping, and after a power
    /// failure, the data cannot be found. [`FileMap`] describes how to save it. A flush saves the data and the indirect
    /// blocks of an `indirect` map, but not the inode.
    ///
    /// A write that allocates, a discard and a resize hold claims on the blocks that they change until they are reaped.
    /// A thread must reap such writes of its own [`Batch`](crate::Batch) before it changes the same blocks in another
    /// way, or it deadlocks.
    ///
    /// `Options::create` applies to the target with the blocks. The elevator orders by offsets in the volume.
    /// `Options::boundary` sets the effect of indirect blocks on long transfers. Faults are injected on the device with
    /// the blocks.
    ///
    /// # Errors
    /// Returns the errors of [`Volume::open`], and [`OpenError::Mapped`] if the map does not fit the device.
    ///
    /// ```
    /// use iopath::{Options, Volume};
    /// use iopath::mapped::{FileLayout, FileMap};
    /// use iopath::testing::{MemoryConfig, MemoryDisk};
    ///
    /// let disk = MemoryDisk::new(&MemoryConfig::of_bytes(16 << 20))?;
    /// let layout = FileLayout { block_bytes: 4096, size_bytes: 64 << 20, capacity_bytes: disk.size_bytes() };
    /// let file = FileMap::fresh("extent", &layout)?;
    /// let volume = Volume::memory_mapped(&disk, &file, &Options::new().write(true))?;
    ///
    /// // The file is larger than the disk: most of it is a hole.
    /// volume.write_at(&[1; 4096], 60 << 20)?;
    /// let mut bytes = [2; 4096];
    /// volume.read_exact_at(&mut bytes, 20 << 20)?;
    /// assert_eq!(bytes, [0; 4096]);
    /// volume.discard(60 << 20, 4096)?;
    /// volume.read_exact_at(&mut bytes, 60 << 20)?;
    /// assert_eq!(bytes, [0; 4096]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "mapped")]
    pub fn open_mapped(path: impl AsRef<Path>, file: &FileMap, options: &Options) -> Result<Self, OpenError> {
        Self::of(Storage::open(path.as_ref(), options)?.mapped(file)?)
    }

    /// Does the same as [`Volume::open_mapped`], on a disk in memory.
    ///
    /// # Errors
    /// Returns the errors of [`Volume::open_mapped`].
    #[cfg(all(feature = "mapped", feature = "testing"))]
    pub fn memory_mapped(disk: &MemoryDisk, file: &FileMap, options: &Options) -> Result<Self, OpenError> {
        Self::of(Storage::of(Arc::new(MemorySource::new(disk, options)), options)?.mapped(file)?)
    }

    /// Does the same as [`Volume::open_mapped`], on a stripe ([`Volume::open_stripe`]).
    ///
    /// # Errors
    /// Returns the errors of [`Volume::open_mapped`] and [`Volume::open_stripe`].
    #[cfg(all(feature = "mapped", feature = "stripe"))]
    pub fn open_mapped_stripe(
        paths: &[impl AsRef<Path>],
        chunk_bytes: u64,
        file: &FileMap,
        options: &Options,
    ) -> Result<Self, OpenError> {
        Self::of(Storage::stripe(&members_of(paths), chunk_bytes, options)?.mapped(file)?)
    }
}

#[cfg(feature = "stripe")]
fn members_of(paths: &[impl AsRef<Path>]) -> Vec<Member<'_>> {
    paths.iter().map(|path| Member::Path(path.as_ref())).collect()
}
