//! A position in a volume, for code that uses the traits of `std::io`. Has no buffer.

use super::Volume;
use crate::error::{Error, ErrorKind};
use iopath_core::Op;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// Reads, writes and seeks in a volume through the traits of `std::io`: [`Volume::cursor`].
///
/// Each read and write is one [`Volume::read_at`] or [`Volume::write_at`]. On a direct volume, positions and lengths
/// must therefore be aligned; a buffered or bounced volume accepts any. Reads end at the end of the volume. With
/// [`Options::extend`](crate::Options::extend), a write past the end extends the volume. Otherwise, a write at the end
/// fails, and a write across the end writes only the part before it.
///
/// ```
/// use iopath::{Options, Volume};
/// use iopath::testing::{MemoryConfig, MemoryDisk};
/// use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
///
/// let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20))?;
/// let volume = Volume::memory(&disk, &Options::new().write(true).direct(false).cache_bytes(1 << 20))?;
/// let mut cursor = volume.cursor();
/// writeln!(cursor, "first line")?;
/// writeln!(cursor, "second line")?;
/// cursor.seek(SeekFrom::Start(6))?;
/// let mut line = String::new();
/// BufReader::new(cursor).read_line(&mut line)?;
/// assert_eq!(line, "line\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Cursor {
    volume: Volume,
    position: u64,
}

impl Volume {
    /// A cursor at the start of the volume. Cursors of one volume are independent.
    pub fn cursor(&self) -> Cursor {
        Cursor { volume: self.clone(), position: 0 }
    }
}

impl Cursor {
    /// The volume.
    pub const fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The position in bytes; it may lie past the end.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Moves to a position in bytes.
    pub const fn set_position(&mut self, position: u64) {
        self.position = position;
    }

    /// The number of bytes, up to `bytes`, that a write at the position can write.
    fn writable(&self, bytes: usize) -> Result<usize, Error> {
        let size_bytes = self.volume.size_bytes();
        if self.volume.shape().can_extend() {
            return Ok(bytes);
        }
        let left = size_bytes.saturating_sub(self.position);
        if bytes > 0 && left == 0 {
            let error = self.volume.error(ErrorKind::PastEnd { size_bytes });
            return Err(error.of_range(Op::Write, self.position, bytes as u64));
        }
        Ok(left.min(bytes as u64) as usize)
    }
}

impl Read for Cursor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.position >= self.volume.size_bytes() {
            return Ok(0);
        }
        let bytes = self.volume.read_at(buffer, self.position)?;
        self.position += bytes as u64;
        Ok(bytes)
    }
}

impl Write for Cursor {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let bytes = self.writable(buffer.len())?;
        self.volume.write_at(&buffer[..bytes], self.position)?;
        self.position += bytes as u64;
        Ok(bytes)
    }

    /// Does the same as [`Volume::flush`]: on return, the bytes are durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(self.volume.flush()?)
    }
}

impl Seek for Cursor {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(step) => self.volume.size_bytes().checked_add_signed(step),
            SeekFrom::Current(step) => self.position.checked_add_signed(step),
        };
        let outside = || {
            let reason = "the position would lie before the start of the volume or past 2^64 bytes";
            io::Error::new(io::ErrorKind::InvalidInput, reason)
        };
        self.position = position.ok_or_else(outside)?;
        Ok(self.position)
    }
}
