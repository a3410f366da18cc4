//! The storage of an export as the state machines of the server use it: requests in, completions out, and buffers. A
//! volume implements it in `backing.rs`.

use std::fmt;
use std::ops::{DerefMut, Range};
use std::time::Duration;

use iopath::Stream;

use crate::errno::Errno;

/// Bytes of a buffer. Longer requests are transferred in pieces of this size.
pub(crate) const PIECE: usize = 128 << 10;

/// Requests in flight, and buffers, for each worker and export.
pub(crate) const DEPTH: u32 = 256;

/// An export as one worker uses it.
pub(crate) trait Storage: Sized + fmt::Debug {
    /// A buffer of [`PIECE`] bytes, free again when it is dropped.
    type Buffer: DerefMut<Target = [u8]> + fmt::Debug;
    /// Bytes of the page cache.
    type Pages: Pages;
    /// All exports, of which it opens one.
    type Source: fmt::Debug;

    /// Opens an export at its first use.
    fn open(source: &mut Self::Source, export: usize) -> Result<Self, String>;

    /// An unused buffer.
    fn buffer(&self) -> Option<Self::Buffer>;

    /// Completes a read from the page cache, without a copy, if all of its pages are cached.
    fn read_cached(&mut self, offset: u64, length: usize, token: u64) -> bool;

    /// Queues an I/O, which may complete at once. The caller has checked [`Storage::has_room`].
    fn queue(&mut self, io: Io<Self::Buffer>, token: u64, stream: Stream);

    /// Whether it accepts a further request.
    fn has_room(&self) -> bool;

    /// A completion was announced: the next [`Storage::poll`] looks for it.
    fn handle_notification(&mut self);

    /// Submits queued I/O.
    fn submit(&mut self);

    /// The next completed I/O.
    fn poll(&mut self) -> Option<Done<Self>>;

    /// The longest time until the next [`Storage::poll`].
    fn next_timeout(&self) -> Option<Duration>;

    /// How it writes zeroes.
    fn zeroing(&self) -> Zeroing;

    /// The first ranges of data within a range, at most `ranges_max`.
    fn data_ranges(&self, offset: u64, length: u64, ranges_max: usize) -> Result<Vec<Range<u64>>, String>;

    /// A hint: the range will be read.
    fn prefetch(&self, offset: u64, length: u64);
}

/// Borrowed bytes of a page cache.
pub(crate) trait Pages: fmt::Debug {
    fn len(&self) -> usize;

    /// The parts, in order.
    fn slices(&self) -> impl Iterator<Item = &[u8]>;
}

/// How a storage writes zeroes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zeroing {
    /// A discarded range reads as zeroes.
    pub(crate) punches: bool,
    /// Space is that of a file: both kinds only change metadata.
    pub(crate) is_file: bool,
    /// The ends inside of blocks of this size are written.
    pub(crate) block_bytes: u32,
}

/// An I/O.
#[derive(Debug)]
pub(crate) enum Io<B> {
    Read { buffer: B, offset: u64, length: usize },
    Write { buffer: B, offset: u64, length: usize, is_durable: bool },
    Flush,
    Discard { offset: u64, length: u64 },
    Zeroes { offset: u64, length: u64 },
}

/// Bytes for a reply.
#[derive(Debug)]
pub(crate) enum Data<S: Storage> {
    /// The first bytes of a buffer that the device read into.
    Buffer(S::Buffer, usize),
    /// Pages of the page cache.
    Pages(S::Pages),
    /// A copy of a buffer that other connections needed.
    Parked(Box<[u8]>),
}

impl<S: Storage> Data<S> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Buffer(_, length) => *length,
            Self::Pages(pages) => pages.len(),
            Self::Parked(bytes) => bytes.len(),
        }
    }

    /// Frees the buffer, if there is one.
    pub(super) fn park(&mut self) -> bool {
        let Self::Buffer(buffer, length) = self else { return false };
        *self = Self::Parked(buffer[..*length].into());
        true
    }
}

/// The result of an I/O.
#[derive(Debug)]
pub(crate) struct Done<S: Storage> {
    pub(crate) token: u64,
    /// The bytes of a read.
    pub(crate) data: Option<Data<S>>,
    pub(crate) result: Result<usize, (Errno, String)>,
}
