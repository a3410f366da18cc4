//! Direct I/O, on a volume with or without a page cache. With a page cache, direct and buffered I/O are coherent:
//! `iopath_core::cache` decides their order.

use super::Volume;
use crate::error::{Error, ErrorKind, Result};
use crate::queues::SharedDevice;
use iopath_core::{Extent, IoError, Op};
use iopath_os::{DirectGuard, RunError, ThreadQueue};

/// The direct path of a volume of any mode: [`Volume::direct`].
///
/// It is coherent with the page cache, if there is one. A direct read returns the bytes written through the cache. A
/// buffered read that starts after the return of a direct write returns the bytes of that write. During a direct write,
/// buffered writes to its pages wait, and a concurrent read returns either the old or the new content of each block.
///
/// On a volume with a page cache, only the cache flushes the device. A forced write ([`Direct::write_durably_at`]) is a
/// plain write, followed by a flush by the cache, even on a device with forced unit access. The reason: a failed flush
/// may lose bytes of other writers. Without a record of the failure in the cache, [`Volume::flush`] would succeed
/// although bytes are lost. Forced writes that complete at the same time share a flush.
#[derive(Debug, Clone, Copy)]
pub struct Direct<'a> {
    volume: &'a Volume,
}

impl Direct<'_> {
    /// Does the same as [`Volume::read_at`] of a direct volume: offset, length and memory are aligned.
    ///
    /// # Errors
    /// Returns the errors of [`Volume::read_at`].
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.volume.read_direct(buffer, offset)
    }

    /// Does the same as [`Volume::write_at`] of a direct volume: offset, length and memory are aligned.
    ///
    /// # Errors
    /// Returns the errors of [`Volume::write_at`].
    pub fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        self.volume.write_direct(buffer, offset, false)
    }

    /// Does the same as [`Direct::write_at`]; on return the bytes are durable. Uses forced unit access, or a flush on a
    /// volume with a page cache.
    ///
    /// # Errors
    /// Returns the errors of [`Volume::write_durably_at`].
    pub fn write_durably_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        self.volume.write_direct(buffer, offset, true)
    }
}

impl Volume {
    /// The direct path of this volume.
    pub const fn direct(&self) -> Direct<'_> {
        Direct { volume: self }
    }

    pub(crate) fn read_direct(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.read_despite_resize(|volume| {
            let (extent, bytes) = volume.readable(offset, buffer.len() as u64)?;
            volume.read_extent(buffer, extent, bytes, volume.cuts_off_at_end())
        })
    }

    /// Reads blocks that begin in the volume, in every mode. The last block may end past its end: the result then has
    /// only the bytes before the end.
    pub(super) fn read_blocks(&self, blocks: &mut [u8], offset: u64) -> Result<usize> {
        self.read_despite_resize(|volume| {
            let (extent, bytes) = volume.readable_to_end(offset, blocks.len() as u64)?;
            volume.read_extent(blocks, extent, bytes, true)
        })
    }

    /// During a [`Volume::resize`], reads up to the old or the new end.
    pub(super) fn read_despite_resize(&self, mut read: impl FnMut(&Self) -> Result<usize>) -> Result<usize> {
        loop {
            let resizes = self.resizes();
            let read = read(self);
            let is_past_end = read.as_ref().is_err_and(|error| {
                matches!(error.kind(), ErrorKind::PastEnd { .. } | ErrorKind::Io(IoError::EndOfDevice))
            });
            if !is_past_end || self.resizes() == resizes {
                return read;
            }
        }
    }

    /// Reads the blocks of `extent`, of which `bytes` bytes lie in the volume.
    fn read_extent(&self, buffer: &mut [u8], extent: Extent, bytes: u64, cuts_off: bool) -> Result<usize> {
        if extent.is_empty() {
            return Ok(0);
        }
        let offset = extent.offset();
        self.check_memory(Op::Read, buffer.as_ptr().addr(), offset, buffer.len() as u64)?;
        let memory = &mut buffer[..extent.bytes() as usize];
        self.run(Op::Read, extent, |runner| runner.read(extent, memory))?;
        if !cuts_off {
            return Ok(bytes as usize);
        }
        // The end may have moved during the read: bytes past the new end are zeroes.
        Ok(bytes.min(self.size_bytes().saturating_sub(offset)) as usize)
    }

    pub(super) fn write_direct(&self, buffer: &[u8], offset: u64, fua: bool) -> Result<()> {
        let extent = self.writable(Op::Write, offset, buffer.len() as u64)?;
        if extent.is_empty() {
            return Ok(());
        }
        self.check_memory(Op::Write, buffer.as_ptr().addr(), offset, buffer.len() as u64)?;
        // On a volume with a page cache, only the cache flushes the device.
        let is_cached = self.has_cache();
        let guard =
            self.run_guarded(Op::Write, extent, |runner| runner.write(extent, buffer, fua && !is_cached))?;
        match guard.filter(|_| fua) {
            Some(guard) => guard
                .end_forced()
                .map_err(|error| self.uncached(Op::Write, extent.offset(), extent.bytes(), error)),
            None => Ok(()),
        }
    }

    /// Writes blocks that begin in the volume. The last block may end past its end.
    pub(super) fn write_blocks(&self, blocks: &[u8], offset: u64) -> Result<()> {
        let extent = self.whole_blocks(Op::Write, offset, blocks.len() as u64)?;
        if extent.is_empty() {
            return Ok(());
        }
        self.run(Op::Write, extent, |runner| runner.write(extent, blocks, false))
    }

    pub(super) fn flush_device(&self) -> Result<()> {
        self.command(Op::Flush, Extent::EMPTY)
    }

    /// Runs an operation without memory.
    pub(super) fn command(&self, op: Op, extent: Extent) -> Result<()> {
        self.run(op, extent, |runner| runner.command(op, extent))
    }

    pub(super) fn run(
        &self,
        op: Op,
        extent: Extent,
        act: impl FnOnce(&mut ThreadQueue<SharedDevice, SharedDevice>) -> Result<(), RunError>,
    ) -> Result<()> {
        self.run_guarded(op, extent, act).map(drop)
    }

    /// Runs an I/O on the queue of the calling thread. For the page cache, if there is one, the I/O is in flight until
    /// the guard is dropped.
    fn run_guarded(
        &self,
        op: Op,
        extent: Extent,
        act: impl FnOnce(&mut ThreadQueue<SharedDevice, SharedDevice>) -> Result<(), RunError>,
    ) -> Result<Option<DirectGuard<'_>>> {
        let make = || Ok(self.shared.storage.thread_queue()?.queue);
        let guard = self.begin_direct(op, extent)?;
        let ran = self
            .shared
            .shards
            .with(make, |shard| {
                // The end may have moved since the first check; it cannot move while a shard is in use. A write of the
                // last block must not extend the file.
                if op.is_write() && !self.storage().writes_last_block {
                    self.check_within(op, extent.offset(), extent.bytes())?;
                }
                let queue = shard.for_io(self.storage());
                queue.set_capacity(self.sectors());
                Ok::<_, Error>(act(queue))
            })
            .map_err(|error| self.thread_error(error).of_range(op, extent.offset(), extent.bytes()))??;
        match ran {
            Ok(()) => Ok(guard),
            Err(RunError::Io(source)) => Err(self.failed(op, extent, source)),
            Err(RunError::Refused(error)) => Err(self.refused(&error)),
        }
    }

    /// Registers a direct I/O with the page cache, if there is one, and waits until it may begin.
    pub(crate) fn begin_direct(&self, op: Op, extent: Extent) -> Result<Option<DirectGuard<'_>>> {
        let Some(cache) = self.cache_for_io()? else { return Ok(None) };
        let (offset, bytes) = (extent.offset(), extent.bytes());
        let guard = cache.begin_direct_in_units(op, offset, bytes, self.unit_bytes());
        guard.map(Some).map_err(|error| self.uncached(op, offset, bytes, error))
    }

    /// Units in which writes exclude each other: those that share a unit wait for each other.
    pub(crate) fn unit_bytes(&self) -> u64 {
        self.storage().write_unit_bytes
    }
}
