//! Direct I/O on a volume with a page cache: the two see each other's bytes. And a volume that changes its size. What
//! waits for what is decided in `iopath_core::cache`.

use crate::error::{Cause, Error, ErrorKind};
use crate::open::Backing;
use crate::volume::Volume;
use iopath_core::{Extent, Op};
use iopath_os::Beside;
use iopath_os::target::Kind;
use std::io;

/// A volume's direct path, whichever its reads and writes take: what [`Volume::direct`] returns.
///
/// Coherent with the page cache, if there is one: a direct read sees what was written through it, and a buffered read
/// that starts after a direct write has returned sees the bytes of that. While a direct write goes on, buffered writes
/// to its pages wait; of a read at the same time each block is either old or new.
///
/// With a page cache, only the cache flushes the device. A forced write ([`Direct::write_durably_at`]) is then a plain
/// write followed by a flush of the device, also on a device with forced unit access: a flush that fails may lose what
/// the device took from others, and a failure that the cache does not know of yet would let [`Volume::flush`] succeed
/// over lost bytes. Forced writes that end at the same time share a flush.
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

    /// The same, on the medium when this returns: by forced unit access, beside a page cache by a flush.
    pub fn write_durably_at(&self, buffer: &[u8], offset: u64) -> Result<(), Error> {
        self.volume.write_direct(buffer, offset, true)
    }
}

impl Volume {
    /// The direct path of this volume.
    pub const fn direct(&self) -> Direct<'_> {
        Direct { volume: self }
    }

    /// Makes a file or a disk in memory longer or shorter. What it gains reads as zeroes; what it loses is gone, and
    /// what was written to it and not flushed is given up, even if this fails: then every flush fails until
    /// [`Volume::accept_loss`]. Threads that resize do so one after another; reads and writes may go on meanwhile. A read
    /// of what is cut off is short (in a batch on a mapped file it may fail), a write of it fails. Waits for the blocking
    /// I/O that is in flight.
    ///
    /// Writes of a [`Batch`](crate::Batch) to the page in which the old or the new end lies, or beyond, are to be over:
    /// the system zeroes the rest of that page in its own page cache, takes a direct write of it at the same time for
    /// damage and fails the next flush for it.
    ///
    /// Other devices have the size they have: refused.
    pub fn resize(&self, size_bytes: u64) -> Result<(), Error> {
        self.check_writable(Op::Write, size_bytes, 0)?;
        let failed = |source| self.error(ErrorKind::Resize { size_bytes }).because(Cause::System(source));
        if self.has_fixed_size() {
            // Before the cache gives up what is to be cut off.
            return Err(failed(io::ErrorKind::Unsupported.into()));
        }
        let _alone = self.lock_end();
        let kept = size_bytes.min(self.size_bytes());
        let _locked = self.bounce().map(|bounce| self.lock_blocks(bounce, kept, u64::MAX));
        let set_length = || match self.backing() {
            Backing::File(file) => file.set_len(size_bytes).map_err(failed),
            Backing::Memory(disk) => disk.resize(size_bytes).map_err(|error| failed(io::Error::other(error))),
            Backing::Stripe(_) => Err(failed(io::ErrorKind::Unsupported.into())),
            Backing::Mapped(mapped) => {
                let engine = self.source().mapped_engine(mapped);
                let mut engine = engine.map_err(|error| failed(io::Error::other(error)))?;
                engine.resize(size_bytes).map_err(|error| self.io_error(Op::Write, size_bytes, 0, error))
            }
        };
        let Some(cache) = self.cache_if_any() else {
            return self.alone(|| set_length().map(|()| self.set_size(size_bytes)));
        };
        let is_shorter = size_bytes < self.size_bytes();
        let cut = || {
            self.alone(|| {
                set_length().map(|()| {
                    if is_shorter {
                        self.set_size(size_bytes);
                    }
                })
            })
        };
        let resized = cache.resize(size_bytes, cut);
        resized.map_err(|error| self.uncached(Op::Write, size_bytes, 0, error))??;
        // What is gained can be used when the cache knows of it.
        self.set_size(size_bytes);
        Ok(())
    }

    fn has_fixed_size(&self) -> bool {
        match self.backing() {
            Backing::Mapped(mapped) => mapped.file.is_fixed(),
            Backing::Stripe(_) => true,
            Backing::File(_) | Backing::Memory(_) => self.facts().target.kind == Kind::BlockDevice,
        }
    }

    /// A direct I/O on `extent` may go when this returns; it has completed for the cache when what is returned is dropped.
    pub(crate) fn beside_cache(&self, op: Op, extent: Extent) -> Result<Option<Beside<'_>>, Error> {
        let Some(cache) = self.cache_if_any() else { return Ok(None) };
        let (offset, bytes) = (extent.offset(), extent.bytes());
        // Until the I/O has completed, a write to a mapped file keeps the write-back of all its blocks waiting, which a flush
        // would wait for.
        let unit_bytes = match self.backing() {
            Backing::Mapped(mapped) => u64::from(mapped.file.block_bytes()),
            Backing::File(_) | Backing::Memory(_) | Backing::Stripe(_) => 1,
        };
        let beside = cache.begin_direct_in_units(op, offset, bytes, unit_bytes);
        beside.map(Some).map_err(|error| self.uncached(op, offset, bytes, error))
    }
}
