//! Futures of reads and writes on a volume, without a runtime of their own. The tasks put requests into a table
//! (`futures/table.rs`); a driver moves them through a batch (`futures/driver.rs`), on a thread
//! (`driver_threads.rs`) or in a task of the program.
//!
//! ```text
//!   task ─ read_at ─▶ table: queued ─▶ driver ─▶ batch ─▶ device
//!     ▲                                  │ completion fd
//!     └──── wake ◀─ table: completed ◀───┘
//! ```

#[cfg(feature = "tokio")]
mod cursor;
mod driver;
mod object;
mod table;
#[cfg(all(test, feature = "testing"))]
mod tests;
#[cfg(feature = "tokio")]
mod tokio_task;

use crate::batch::{BatchOptions, Request};
use crate::driver_threads::{DriverThreads, Driving};
use crate::error::{OpenError, Result};
use crate::volume::Volume;
use iopath_os::{AnyBuf, IoBuf, IoBufMut};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use table::{Shared, Ticket};

pub use crate::driver_threads::Turn;
#[cfg(feature = "tokio")]
pub use cursor::AsyncCursor;
pub use driver::Driver;
pub use object::{BoxedIo, DynAsyncVolume};

/// A volume for tasks: each method returns a future. Any number of tasks on any number of threads can share it, in any
/// runtime. A clone is a cheap handle of the same driver.
///
/// A future owns its buffer, and returns it with the result: [`IoBuf`]. The request begins when the
/// future is first polled. **A dropped future does not stop its request**: the buffer stays with the driver until the
/// device has completed it, so a timeout of the runtime is safe.
///
/// | constructor | driver |
/// |---|---|
/// | [`AsyncVolume::new`] | a thread, which ends with the last handle of its volumes: works in every runtime |
/// | `AsyncVolume::on_tokio` (feature `tokio`) | a task of the tokio runtime: no thread and no switch to one |
/// | [`AsyncVolume::with_driver`] | a [`Driver`] that the program runs in an event loop of its own |
///
/// [`DynAsyncVolume`] is the form for trait objects.
///
/// The requests of all tasks share one batch ([`BatchOptions`]): requests that become ready together are submitted with
/// one system call. If two requests are in flight together and overlap, and at least one is a write, they are executed
/// in the order in which their futures were first polled. A cached read is ready at the first poll. A volume with a
/// page cache uses it, unless [`BatchOptions::buffered`] selects direct I/O; the driver waits then while such I/O waits
/// for the cache. On a volume with [`Unaligned::Bounce`](crate::Unaligned::Bounce), the driver executes a write of a
/// part of a block itself, and a write waits while another batch or thread writes to its blocks. So the thread of the
/// driver must not write there in another way, such as by a second driver, or it deadlocks: see
/// [`Batch`](crate::Batch). No future extends the volume.
///
/// If the driver panics, futures fail with [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled) as after its drop; a
/// read or write whose buffer the panic has lost panics as well. So does one that the kernel has begun, if the system
/// then refuses to wait for it.
///
/// ```
/// use iopath::{AlignedBuf, AsyncVolume, BatchOptions, Options, Volume};
/// use iopath::testing::{MemoryConfig, MemoryDisk};
///
/// # fn block_on<F: Future>(future: F) -> F::Output {
/// #     struct Unpark(std::thread::Thread);
/// #     impl std::task::Wake for Unpark {
/// #         fn wake(self: std::sync::Arc<Self>) {
/// #             self.0.unpark();
/// #         }
/// #     }
/// #     let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
/// #     let mut future = std::pin::pin!(future);
/// #     loop {
/// #         match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
/// #             std::task::Poll::Ready(output) => return output,
/// #             std::task::Poll::Pending => std::thread::park(),
/// #         }
/// #     }
/// # }
/// let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20))?;
/// let volume = Volume::memory(&disk, &Options::new().write(true))?;
/// let volume = AsyncVolume::new(&volume, &BatchOptions::new(64, 0))?;
/// let page = AlignedBuf::new(4096)?;
/// block_on(async {
///     let (written, page) = volume.write_at(page, 8192).await;
///     assert_eq!(written?, 4096);
///     volume.flush().await?;
///     let (read, _page) = volume.read_at(page, 8192).await;
///     assert_eq!(read?, 4096);
///     Ok::<(), iopath::Error>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct AsyncVolume {
    handle: Arc<Handle>,
}

/// Ends the driver when the last clone of the volume and the last future are dropped.
struct Handle {
    volume: Volume,
    shared: Arc<Shared>,
    /// Requests go through the page cache.
    uses_cache: bool,
    driving: Option<Driving>,
}

impl Handle {
    fn open(volume: &Volume, options: &BatchOptions) -> Result<(Self, Driver), OpenError> {
        let (shared, driver) = driver::open(volume, options)?;
        let uses_cache = driver.uses_cache();
        Ok((Self { volume: volume.clone(), shared, uses_cache, driving: None }, driver))
    }

    /// The threads of its context; `None` without one, and for a driver that may wait for I/O of another one. A device
    /// of the program may execute its I/O in the call, bounced writes wait for others to the same blocks, and direct
    /// I/O waits for a page cache.
    fn common_threads(&self) -> Option<&DriverThreads> {
        let volume = &self.volume;
        let waits = !volume.is_file_or_memory()
            || volume.shape().batch_bounces()
            || (volume.has_cache() && !self.uses_cache);
        if waits { None } else { volume.context().map(crate::context::Context::driver_threads) }
    }

    /// Executes a cached read without the driver, unless a change that began earlier is in flight.
    fn read_cached(&self, request: &mut Request<AnyBuf>) -> Option<usize> {
        let cache = self.volume.cache_if_any().filter(|_| self.uses_cache)?;
        if self.shared.has_only_reads() { request.read_cached(cache) } else { None }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.end();
        if let Some(driving) = self.driving.take() {
            driving.drop_after(self.volume.clone());
        }
    }
}

impl fmt::Debug for AsyncVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncVolume")
            .field("volume", &self.handle.volume)
            .field("in_flight", &self.handle.shared.in_flight())
            .finish_non_exhaustive()
    }
}

impl AsyncVolume {
    /// Futures on a volume, with a thread as their driver. The depth of the options is the number of requests of all
    /// tasks in the batch; further ones wait. [`Options::depth`](crate::Options::depth) limits those at the device.
    ///
    /// The regular files and disks in memory of a [context](crate::Context) share at most one thread for each
    /// processor. A driver that may wait for I/O of another one has a thread of its own: on other volumes, with
    /// [`Unaligned::Bounce`](crate::Unaligned::Bounce), and for direct I/O on a volume with a page cache.
    ///
    /// # Errors
    /// Returns the errors of [`Volume::batch`], and [`OpenError::System`] if the system refuses the thread or the
    /// descriptor.
    pub fn new(volume: &Volume, options: &BatchOptions) -> Result<Self, OpenError> {
        let (mut handle, driver) = Handle::open(volume, options)?;
        let own = DriverThreads::default();
        let threads = handle.common_threads().unwrap_or(&own);
        let driving = threads
            .drive(Box::new(driver))
            .map_err(|source| driver::refused(volume, "driven by a thread", source))?;
        handle.driving = Some(driving);
        Ok(Self { handle: Arc::new(handle) })
    }

    /// Futures on a volume, and the driver that the program runs. Without it, no future completes.
    ///
    /// # Errors
    /// Returns the errors of [`AsyncVolume::new`].
    pub fn with_driver(volume: &Volume, options: &BatchOptions) -> Result<(Self, Driver), OpenError> {
        let (handle, driver) = Handle::open(volume, options)?;
        Ok((Self { handle: Arc::new(handle) }, driver))
    }

    /// The volume: its size and facts, and the calls that have no future. A call may block the thread.
    pub fn volume(&self) -> &Volume {
        &self.handle.volume
    }

    /// Reads into the whole space of `buffer`, starting at byte `offset`, as [`Request::read_into`] does. Returns the
    /// number of bytes, and the buffer.
    pub fn read_at<B: IoBufMut + Send>(&self, buffer: B, offset: u64) -> Transfer<B> {
        self.transfer(Request::read_into(AnyBuf::new(buffer), offset))
    }

    /// Reads `bytes` bytes into `buffer`, starting at byte `offset`; fewer at the end of the volume.
    pub fn read_bytes_at<B: IoBufMut + Send>(&self, buffer: B, offset: u64, bytes: usize) -> Transfer<B> {
        self.transfer(Request::read_into(AnyBuf::new(buffer), offset).bytes(bytes))
    }

    /// Writes the initialised bytes of `buffer`, starting at byte `offset`. Returns the number of bytes, and the
    /// buffer.
    pub fn write_at<B: IoBuf + Send>(&self, buffer: B, offset: u64) -> Transfer<B> {
        self.transfer(Request::write_from(AnyBuf::new(buffer), offset))
    }

    /// Does the same as [`AsyncVolume::write_at`]; on completion the bytes are on the medium.
    pub fn write_durably_at<B: IoBuf + Send>(&self, buffer: B, offset: u64) -> Transfer<B> {
        self.transfer(Request::write_from(AnyBuf::new(buffer), offset).durable(true))
    }

    /// Makes all writes durable whose futures have completed.
    pub fn flush(&self) -> Command {
        self.command(Request::flush())
    }

    /// Frees the space of whole blocks: see [`Volume::discard`].
    pub fn discard(&self, offset: u64, bytes: u64) -> Command {
        self.command(Request::discard(offset, bytes))
    }

    /// Makes whole blocks read as zeroes: see [`Volume::write_zeroes`].
    pub fn write_zeroes(&self, offset: u64, bytes: u64) -> Command {
        self.command(Request::write_zeroes(offset, bytes))
    }

    fn transfer<B>(&self, request: Request<AnyBuf>) -> Transfer<B> {
        Transfer { io: Io::new(self, request), buffer: PhantomData }
    }

    fn command(&self, request: Request<AnyBuf>) -> Command {
        Command { io: Io::new(self, request) }
    }
}

/// The future of a read or write: its result, with the number of bytes, and its buffer.
#[must_use = "a future does nothing until it is polled"]
pub struct Transfer<B> {
    io: Io,
    buffer: PhantomData<fn() -> B>,
}

/// The future of a flush, discard or write of zeroes.
#[must_use = "a future does nothing until it is polled"]
pub struct Command {
    io: Io,
}

impl<B: IoBuf> Future for Transfer<B> {
    type Output = (Result<usize>, B);

    /// # Panics
    /// If a panic of the driver has lost the buffer, or the system refuses to wait for the device.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.io.poll(cx).map(|(result, buffer)| {
            let buffer = buffer.and_then(|buffer| buffer.downcast::<B>().ok());
            (
                result,
                buffer.expect("the driver has lost the buffer of the request, by a panic or a refused wait"),
            )
        })
    }
}

impl Future for Command {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.io.poll(cx).map(|(result, _)| result.map(drop))
    }
}

/// A request: not begun, or with a place in the table.
struct Io {
    handle: Arc<Handle>,
    state: State,
}

enum State {
    New(Request<AnyBuf>),
    Begun(Ticket),
    Completed,
}

impl Io {
    fn new(volume: &AsyncVolume, request: Request<AnyBuf>) -> Self {
        Self { handle: Arc::clone(&volume.handle), state: State::New(request) }
    }

    /// # Panics
    /// If it is polled after it has completed: a bug of the caller.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(Result<usize>, Option<AnyBuf>)> {
        match std::mem::replace(&mut self.state, State::Completed) {
            State::New(mut request) => {
                if let Some(bytes) = self.handle.read_cached(&mut request) {
                    return Poll::Ready((Ok(bytes), request.into_buffer()));
                }
                let ticket = self.handle.shared.begin(request, cx.waker());
                self.state = State::Begun(ticket);
                Poll::Pending
            }
            State::Begun(ticket) => {
                let done = self.handle.shared.poll(ticket, cx.waker());
                if done.is_none() {
                    self.state = State::Begun(ticket);
                }
                done.map_or(Poll::Pending, Poll::Ready)
            }
            State::Completed => panic!("the future has returned its result before"),
        }
    }
}

impl Drop for Io {
    fn drop(&mut self) {
        if let State::Begun(ticket) = self.state {
            self.handle.shared.abandon(ticket);
        }
    }
}

impl<B> fmt::Debug for Transfer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer").field("state", &self.io.state).finish_non_exhaustive()
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command").field("state", &self.io.state).finish_non_exhaustive()
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New(request) => request.fmt(f),
            Self::Begun(_) => f.write_str("begun"),
            Self::Completed => f.write_str("completed"),
        }
    }
}
