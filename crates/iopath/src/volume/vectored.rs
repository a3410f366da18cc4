//! Reads and writes of one range from and to several buffers. Aligned direct I/O is one request for as many buffers as
//! the device accepts; all other I/O is one call for each buffer.

use super::Volume;
use crate::error::Result;
use iopath_core::Op;
use iopath_core::volume::Route;
use std::io::{IoSlice, IoSliceMut};

impl Volume {
    /// Reads into several buffers, one after another, starting at byte `offset`. Returns the number of bytes read: the
    /// length of all buffers, or fewer at the end of the volume, as for [`Volume::read_at`].
    ///
    /// On a direct volume each buffer must be aligned, in its address and its length.
    ///
    /// # Errors
    /// Returns the errors of [`Volume::read_at`].
    pub fn read_vectored_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        let parts = buffers.iter().map(|buffer| (buffer.as_ptr().addr(), buffer.len()));
        if self.is_direct_in_parts(Op::Read, offset, parts)? {
            return self.read_direct_vectored(buffers, offset);
        }
        let mut done = 0;
        for buffer in buffers {
            let bytes = self.read_at(buffer, offset.saturating_add(done as u64))?;
            done += bytes;
            if bytes < buffer.len() {
                break;
            }
        }
        Ok(done)
    }

    /// Writes several buffers, one after another, starting at byte `offset`, as [`Volume::write_at`] does.
    ///
    /// On a direct volume each buffer must be aligned, in its address and its length.
    ///
    /// # Errors
    /// Returns the errors of [`Volume::write_at`]. After an error, a part of the range may be written.
    pub fn write_vectored_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let bytes = total(buffers.iter().map(|buffer| buffer.len()));
        let parts = buffers.iter().map(|buffer| (buffer.as_ptr().addr(), buffer.len()));
        let extends = self.is_extending(offset, bytes);
        if !extends && self.is_direct_in_parts(Op::Write, offset, parts)? {
            let extent = self.writable(Op::Write, offset, bytes as u64)?;
            if extent.is_empty() {
                return Ok(());
            }
            let _locked = self.bounce().map(|bounce| self.lock_blocks(bounce, offset, bytes as u64));
            return self.run(Op::Write, extent, |runner| runner.write_vectored(extent, buffers, false));
        }
        if !extends {
            self.check_writable(Op::Write, offset, bytes as u64)?;
            self.check_within(Op::Write, offset, bytes as u64)?;
        }
        let mut done = 0;
        for buffer in buffers {
            self.write_at(buffer, offset.saturating_add(done))?;
            done += buffer.len() as u64;
        }
        Ok(())
    }

    fn read_direct_vectored(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        let total_bytes = total(buffers.iter().map(|buffer| buffer.len())) as u64;
        self.read_despite_resize(|volume| {
            let (extent, bytes) = volume.readable(offset, total_bytes)?;
            if extent.is_empty() {
                return Ok(0);
            }
            let (mut parts, mut left) = (Vec::with_capacity(buffers.len()), extent.bytes() as usize);
            for buffer in buffers.iter_mut() {
                let bytes = buffer.len().min(left);
                left -= bytes;
                if bytes > 0 {
                    parts.push(IoSliceMut::new(&mut buffer[..bytes]));
                }
            }
            volume.run(Op::Read, extent, |runner| runner.read_vectored(extent, &mut parts))?;
            if !volume.cuts_off_at_end() {
                return Ok(bytes as usize);
            }
            Ok(bytes.min(volume.size_bytes().saturating_sub(offset)) as usize)
        })
    }

    /// Whether buffers with these addresses and lengths take the direct path.
    ///
    /// # Errors
    /// `Unaligned` or `UnalignedMemory` if one does not, and the volume refuses such I/O.
    fn is_direct_in_parts(
        &self,
        op: Op,
        offset: u64,
        parts: impl Iterator<Item = (usize, usize)> + Clone,
    ) -> Result<bool> {
        if self.shape().route_parts(offset, parts.clone()) != Route::Direct {
            return Ok(false);
        }
        let mut at = offset;
        for (address, bytes) in parts {
            self.whole_blocks(op, at, bytes as u64)?;
            self.check_memory(op, address, at, bytes as u64)?;
            at = at.saturating_add(bytes as u64);
        }
        Ok(true)
    }
}

fn total(lengths: impl Iterator<Item = usize>) -> usize {
    lengths.fold(0, usize::saturating_add)
}
