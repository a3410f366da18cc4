//! The object-safe form of the futures, for programs that select their storage at run time.

use super::AsyncVolume;
use crate::error::Result;
use iopath_os::AnyBuf;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

/// A future of a [`DynAsyncVolume`].
pub type BoxedIo<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The calls of an [`AsyncVolume`] without type parameters, for `Arc<dyn DynAsyncVolume>`: a program can have other
/// implementations beside a volume, such as one for its tests. The semantics are those of the methods of
/// [`AsyncVolume`] with the same names.
///
/// A buffer is an [`AnyBuf`], which [`AnyBuf::downcast`] turns into the buffer again. Each call allocates its future:
/// the methods of [`AsyncVolume`] itself do not.
///
/// ```
/// use iopath::{AlignedBuf, AsyncVolume, BatchOptions};
/// use iopath::futures::DynAsyncVolume;
/// use iopath::buffers::AnyBuf;
/// use iopath::{Options, Volume};
/// use iopath::testing::{MemoryConfig, MemoryDisk};
/// use std::sync::Arc;
///
/// async fn first_block(storage: Arc<dyn DynAsyncVolume>) -> iopath::Result<AlignedBuf> {
///     let page = AnyBuf::new(AlignedBuf::new(4096).expect("memory for a page"));
///     let (result, page) = storage.read_at(page, 0).await;
///     result.map(|_| page.downcast().expect("the buffer of the call"))
/// }
///
/// let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20))?;
/// let volume = AsyncVolume::new(&Volume::memory(&disk, &Options::new())?, &BatchOptions::new(8, 0))?;
/// let page = smol::block_on(first_block(Arc::new(volume)))?;
/// assert_eq!(page[..], [0; 4096]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait DynAsyncVolume: Debug + Send + Sync {
    /// The size in bytes.
    fn size_bytes(&self) -> u64;

    /// [`AsyncVolume::read_at`].
    fn read_at(&self, buffer: AnyBuf, offset: u64) -> BoxedIo<(Result<usize>, AnyBuf)>;

    /// [`AsyncVolume::read_bytes_at`].
    fn read_bytes_at(&self, buffer: AnyBuf, offset: u64, bytes: usize) -> BoxedIo<(Result<usize>, AnyBuf)>;

    /// [`AsyncVolume::write_at`].
    fn write_at(&self, buffer: AnyBuf, offset: u64) -> BoxedIo<(Result<usize>, AnyBuf)>;

    /// [`AsyncVolume::write_durably_at`].
    fn write_durably_at(&self, buffer: AnyBuf, offset: u64) -> BoxedIo<(Result<usize>, AnyBuf)>;

    /// [`AsyncVolume::flush`].
    fn flush(&self) -> BoxedIo<Result<()>>;

    /// [`AsyncVolume::discard`].
    fn discard(&self, offset: u64, bytes: u64) -> BoxedIo<Result<()>>;

    /// [`AsyncVolume::write_zeroes`].
    fn write_zeroes(&self, offset: u64, bytes: u64) -> BoxedIo<Result<()>>;
}

impl DynAsyncVolume for AsyncVolume {
    fn size_bytes(&self) -> u64 {
        self.volume().size_bytes()
    }

    fn read_at(&self, buffer: AnyBuf, offset: u64) -> BoxedIo<(Result<usize>, AnyBuf)> {
        Box::pin(Self::read_at(self, buffer, offset))
    }

    fn read_bytes_at(&self, buffer: AnyBuf, offset: u64, bytes: usize) -> BoxedIo<(Result<usize>, AnyBuf)> {
        Box::pin(Self::read_bytes_at(self, buffer, offset, bytes))
    }

    fn write_at(&self, buffer: AnyBuf, offset: u64) -> BoxedIo<(Result<usize>, AnyBuf)> {
        Box::pin(Self::write_at(self, buffer, offset))
    }

    fn write_durably_at(&self, buffer: AnyBuf, offset: u64) -> BoxedIo<(Result<usize>, AnyBuf)> {
        Box::pin(Self::write_durably_at(self, buffer, offset))
    }

    fn flush(&self) -> BoxedIo<Result<()>> {
        Box::pin(Self::flush(self))
    }

    fn discard(&self, offset: u64, bytes: u64) -> BoxedIo<Result<()>> {
        Box::pin(Self::discard(self, offset, bytes))
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> BoxedIo<Result<()>> {
        Box::pin(Self::write_zeroes(self, offset, bytes))
    }
}
