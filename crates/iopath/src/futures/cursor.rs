//! A position in a volume for code that uses the traits of tokio. Reads through a buffer of its own, because those
//! traits borrow their buffers for one call only.

use super::{AsyncVolume, Transfer};
use crate::error::ErrorKind;
use iopath_os::AlignedBuf;
use std::fmt;
use std::future::Future;
use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncSeek, ReadBuf};

/// The bytes of one read: aligned, so that every volume accepts it.
const CHUNK_BYTES: u64 = 128 << 10;

/// Reads and seeks in a volume through the traits of tokio: [`AsyncVolume::cursor`].
///
/// It reads chunks of 128 KiB and copies from them. A chunk is kept until the cursor leaves it or seeks; later writes
/// to it are not seen. Code that can own its buffers uses [`AsyncVolume::read_at`] instead, without a copy.
pub struct AsyncCursor {
    volume: AsyncVolume,
    position: u64,
    chunk: Chunk,
}

enum Chunk {
    None(Option<AlignedBuf>),
    Reading { start: u64, read: Transfer<AlignedBuf> },
    Held { start: u64, bytes: usize, buffer: AlignedBuf },
}

impl fmt::Debug for AsyncCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncCursor")
            .field("volume", &self.volume)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl AsyncVolume {
    /// A cursor at the start of the volume. Cursors of one volume are independent.
    pub fn cursor(&self) -> AsyncCursor {
        AsyncCursor { volume: self.clone(), position: 0, chunk: Chunk::None(None) }
    }
}

impl AsyncCursor {
    /// The position in bytes; it may lie past the end.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Begins to read the chunk at the position. `None` at the end of the volume.
    fn begin(&self, buffer: Option<AlignedBuf>) -> io::Result<Option<Chunk>> {
        let volume = self.volume.volume();
        let size_bytes = volume.size_bytes();
        if self.position >= size_bytes {
            return Ok(None);
        }
        let start = self.position / CHUNK_BYTES * CHUNK_BYTES;
        let block = u64::from(volume.facts().block_bytes);
        let bytes = CHUNK_BYTES.min((size_bytes - start).next_multiple_of(block));
        let buffer = match buffer {
            Some(buffer) => buffer,
            None => AlignedBuf::new(CHUNK_BYTES as usize).map_err(io::Error::other)?,
        };
        let read = self.volume.read_bytes_at(buffer, start, bytes as usize);
        Ok(Some(Chunk::Reading { start, read }))
    }
}

impl AsyncRead for AsyncCursor {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut was_read = false;
        while to.remaining() > 0 {
            let position = self.position;
            match &mut self.chunk {
                Chunk::Held { start, bytes, buffer } => {
                    let at = position.checked_sub(*start).map_or(usize::MAX, |at| at as usize);
                    if at < *bytes {
                        let count = (*bytes - at).min(to.remaining());
                        to.put_slice(&buffer[at..at + count]);
                        self.position += count as u64;
                        return Poll::Ready(Ok(()));
                    }
                    if was_read {
                        // The volume ends before the position.
                        return Poll::Ready(Ok(()));
                    }
                    if let Chunk::Held { buffer, .. } = std::mem::replace(&mut self.chunk, Chunk::None(None))
                    {
                        self.chunk = Chunk::None(Some(buffer));
                    }
                }
                Chunk::Reading { start, read } => {
                    let start = *start;
                    let (result, buffer) = ready!(Pin::new(read).poll(cx));
                    let bytes = match result {
                        Ok(bytes) => bytes,
                        // The volume has become shorter since the read began.
                        Err(error) if matches!(error.kind(), ErrorKind::PastEnd { .. }) => 0,
                        Err(error) => {
                            self.chunk = Chunk::None(Some(buffer));
                            return Poll::Ready(Err(error.into()));
                        }
                    };
                    was_read = (start..start + CHUNK_BYTES).contains(&position);
                    self.chunk = Chunk::Held { start, bytes, buffer };
                }
                Chunk::None(buffer) => {
                    let buffer = buffer.take();
                    match self.begin(buffer)? {
                        Some(chunk) => self.chunk = chunk,
                        None => return Poll::Ready(Ok(())),
                    }
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncSeek for AsyncCursor {
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(step) => self.volume.volume().size_bytes().checked_add_signed(step),
            SeekFrom::Current(step) => self.position.checked_add_signed(step),
        };
        let outside = || {
            let reason = "the position would lie before the start of the volume or past 2^64 bytes";
            io::Error::new(io::ErrorKind::InvalidInput, reason)
        };
        self.position = position.ok_or_else(outside)?;
        if let Chunk::Held { buffer, .. } = std::mem::replace(&mut self.chunk, Chunk::None(None)) {
            self.chunk = Chunk::None(Some(buffer));
        }
        Ok(())
    }

    fn poll_complete(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Poll::Ready(Ok(self.position))
    }
}
