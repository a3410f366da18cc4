//! Direct I/O on a volume with a page cache: the two see each other's bytes. And a volume that changes its size. What
//! waits for what is decided in `iopath_core::cache`.

use crate::error::Error;
use crate::open::Backing;
use crate::volume::Volume;
use iopath_core::{Extent, IoError, Op};
use iopath_os::Beside;
use iopath_os::target::Kind;
use std::io;

/// A volume's direct path, whichever its reads and writes take: what [`Volume::direct`] returns.
///
/// Coherent with the page cache, if there is one: a direct read sees what was written through it, and a buffered read
/// that starts after a direct write has returned sees the bytes of that. While a direct write goes on, buffered writes
/// to its pages wait; of a read at the same time each block is either old or new.
#[derive(Debug, Clone, Copy)]
pub struct Direct<'a> {
    volume: &'a Volume,
}

impl Direct<'_> {
    /// As [`Volume::read_at`] of a volume that is open for direct I/O: offset, length and memory are aligned.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Error> {
        self.volume.read_direct(buffer, offset)
    }

    /// As [`Volume::write_at`] of a volume that is open for direct I/O: offset, length and memory are aligned.
    pub fn write_at(&self, buffer: &[u8], offset: u64) -> Result<(), Error> {
        self.volume.write_direct(buffer, offset, false)
    }

    /// The same, on the medium when this returns (forced unit access).
    pub fn write_durably_at(&self, buffer: &[u8], offset: u64) -> Result<(), Error> {
        self.volume.write_direct(buffer, offset, true)
    }
}

impl Volume {
    /// The direct path of this volume.
    pub const fn direct(&self) -> Direct<'_> {
        Direct { volume: self }
    }

    /// Makes a file or a disk in memory longer or shorter. What it gains reads as zeroes; what it loses is gone, and what was written to it
    /// and not flushed is given up. One thread at a time; reads and writes may go on meanwhile, and those of what is cut
    /// off may fail.
    ///
    /// Other devices have the size they have: refused.
    pub fn resize(&self, size_bytes: u64) -> Result<(), Error> {
        self.check_writable(Op::Write, size_bytes)?;
        let failed = |source| Error::Resize { path: self.facts().path.clone(), size_bytes, source };
        if self.has_fixed_size() {
            // Before the cache gives up what is to be cut off.
            return Err(failed(io::ErrorKind::Unsupported.into()));
        }
        let cut = || match self.backing() {
            Backing::File(file) => file.set_len(size_bytes),
            Backing::Memory(disk) => disk.resize(size_bytes).map_err(io::Error::other),
            Backing::Stripe(_) => Err(io::ErrorKind::Unsupported.into()),
        };
        let resized = match self.cache_if_any() {
            Some(cache) => cache
                .resize(size_bytes, cut)
                .map_err(|error| self.uncached(Op::Write, size_bytes, 0, error))?,
            None => cut(),
        };
        match resized {
            Ok(()) => {
                self.set_size(size_bytes);
                Ok(())
            }
            Err(source) => Err(failed(source)),
        }
    }

    fn has_fixed_size(&self) -> bool {
        matches!(self.backing(), Backing::Stripe(_)) || self.facts().target.kind == Kind::BlockDevice
    }

    /// A flush or a write that was to be on the medium has failed beside the page cache: if it may have been the device's
    /// flush, what the device took from the cache may be lost, and the cache is told.
    pub(crate) fn durable_write_failed(&self, error: IoError) {
        let may_be_the_flush = matches!(error, IoError::Media | IoError::Gone | IoError::Os(_));
        if let Some(cache) = self.cache_if_any().filter(|_| may_be_the_flush) {
            cache.handle_failed_flush(error);
        }
    }

    /// A direct I/O on `extent` may go when this returns; it is over for the cache when what is returned is dropped.
    pub(crate) fn beside_cache(&self, op: Op, extent: Extent) -> Result<Option<Beside<'_>>, Error> {
        let Some(cache) = self.cache_if_any() else { return Ok(None) };
        let (offset, bytes) = (extent.offset(), extent.bytes());
        let beside = cache.begin_direct(op, offset, bytes);
        beside.map(Some).map_err(|error| self.uncached(op, offset, bytes, error))
    }
}
