//! The storage of this crate as sources for a program: members of stripes, storage below a mapping or below a source of
//! the program.

#[cfg(feature = "testing")]
use super::MemorySource;
#[cfg(feature = "remote")]
use super::RemoteSource;
#[cfg(feature = "mapped")]
use super::{DeviceSetup, MappedSource, limits_of};
use super::{FileSource, Source};
#[cfg(feature = "stripe")]
use super::{Member, StripeSource};
use crate::error::OpenError;
use crate::options::Options;
#[cfg(feature = "mapped")]
use iopath_os::FileMap;
#[cfg(feature = "testing")]
use iopath_os::MemoryDisk;
#[cfg(feature = "remote")]
use iopath_os::Remote;
use std::path::Path;
use std::sync::Arc;

/// A file or block device as a source, with its size at this time. The options of its creation, lock, alignment and
/// engine apply; the volume on it has options of its own.
///
/// # Errors
/// Returns the errors of [`Volume::open`](crate::Volume::open).
///
/// ```no_run
/// use iopath::stripe::Member;
/// use iopath::{Options, Volume, source};
///
/// let options = Options::new().write(true);
/// let file = source::open("data.bin", &options)?;
/// let device = source::open("/dev/sdx", &options)?;
/// let volume = Volume::open_stripe_of(&[Member::Source(&file), Member::Source(&device)], 1 << 20, &options)?;
/// # Ok::<(), iopath::OpenError>(())
/// ```
pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Arc<dyn Source>, OpenError> {
    Ok(Arc::new(FileSource::open(path.as_ref(), options)?))
}

/// A disk in memory as a source, with the times of [`Options::timing`].
#[cfg(feature = "testing")]
pub fn memory(disk: &MemoryDisk, options: &Options) -> Arc<dyn Source> {
    Arc::new(MemorySource::new(disk, options))
}

/// An export of a server as a source.
///
/// # Errors
/// [`OpenError::ReadOnlyExport`].
#[cfg(feature = "remote")]
pub fn remote(remote: &Remote, options: &Options) -> Result<Arc<dyn Source>, OpenError> {
    Ok(Arc::new(RemoteSource::new(remote, options)?))
}

/// A stripe of any members as a source, for a stripe of stripes, or a mapped file on one.
///
/// # Errors
/// Returns the errors of [`Volume::open_stripe_of`](crate::Volume::open_stripe_of).
#[cfg(feature = "stripe")]
pub fn stripe(
    members: &[Member<'_>],
    chunk_bytes: u64,
    options: &Options,
) -> Result<Arc<dyn Source>, OpenError> {
    Ok(Arc::new(StripeSource::open(members, chunk_bytes, options)?))
}

/// A file with a block mapping as a source, with its blocks on the source `below`:
/// [`Volume::open_mapped`](crate::Volume::open_mapped).
///
/// # Errors
/// [`OpenError::Mapped`] if the map does not fit, and [`OpenError::Limits`].
///
/// ```
/// use iopath::mapped::{FileLayout, FileMap};
/// use iopath::testing::{MemoryConfig, MemoryDisk};
/// use iopath::{Options, Volume, source};
///
/// let options = Options::new().write(true);
/// let disk = source::memory(&MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20))?, &options);
/// let layout = FileLayout { block_bytes: 4096, size_bytes: 64 << 20, capacity_bytes: disk.size_bytes() };
/// let volume = Volume::of_source(source::mapped(disk, &FileMap::fresh("extent", &layout)?, &options)?, &options)?;
/// volume.write_at(&[1; 4096], 60 << 20)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "mapped")]
pub fn mapped(
    below: Arc<dyn Source>,
    file: &FileMap,
    options: &Options,
) -> Result<Arc<dyn Source>, OpenError> {
    let limits = limits_of(&below, &below.target(), options)?;
    let depth = options.depth.clamp(1, limits.depth_max);
    let setup = DeviceSetup { limits, depth, pool: None, rings: None };
    Ok(Arc::new(MappedSource::new(below, None, file, options.boundary, setup)?))
}
