//! Many I/Os in flight from one thread: buffers go in with an I/O and come back with its completion. What a page cache
//! on the volume adds to that is `batch/beside.rs`.

mod beside;

use crate::error::{Cause, Error, ErrorKind, OpenError};
use crate::io_options::IoOptions;
use crate::open::{OwnRunner, Source};
use crate::volume::Volume;
use beside::BesideCache;
use iopath_core::{Extent, IoError, LogSink, Op, Priority, QueueStats, Stream, SubmitError};
use iopath_os::{BufferPool, Finished, Job, PoolBuf, RealDevice, Runner, WaitError};

/// How large a batch is.
#[derive(Debug, Clone)]
pub struct BatchOptions {
    io_depth: u32,
    buffer_bytes: usize,
    gather: u32,
    plug: u32,
    stream: Stream,
    priority: Priority,
}

impl BatchOptions {
    pub(crate) const PLUG: u32 = 32;

    /// Room for `io_depth` I/Os at once, each of up to `buffer_bytes` bytes.
    pub const fn new(io_depth: u32, buffer_bytes: usize) -> Self {
        let io_depth = if io_depth == 0 { 1 } else { io_depth };
        let (stream, priority) = (Stream(0), Priority::BestEffort);
        Self { io_depth, buffer_bytes, gather: 1, plug: Self::PLUG, stream, priority }
    }

    /// How many completions a wait gathers before it returns: 1 unless set, so that the first is there as soon
    /// as can be. A quarter of the depth costs the least CPU for each, where throughput is what counts.
    #[must_use]
    pub const fn gather(mut self, completions: u32) -> Self {
        self.gather = completions;
        self
    }

    /// How many requests the batch holds back for others to join them: 32 unless set, as in Linux. When there
    /// are more, which is when they are no neighbours, they go off, so that the device has work while the rest is
    /// added. More costs fewer system calls.
    #[must_use]
    pub const fn plug(mut self, requests: u32) -> Self {
        self.plug = requests;
        self
    }

    /// Whose I/Os these are unless one says otherwise, for elevators that share the device out.
    #[must_use]
    pub const fn stream(mut self, stream: Stream) -> Self {
        self.stream = stream;
        self
    }

    /// How urgent they are unless one says otherwise, for elevators that go by it.
    #[must_use]
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }
}

/// A queue of its own for the thread that made it, with buffers that the engine knows beforehand.
///
/// I/Os are collected until [`Batch::submit`] or [`Batch::wait`] and then go off together, neighbours merged,
/// with one system call. I/Os of one batch that overlap, one of them a write, are carried out in the order in
/// which they were added; all others in any order. Dropping a batch waits for what is in flight.
///
/// A batch is direct I/O. On a volume with a page cache both see each other's bytes, as told at
/// [`Direct`](crate::Direct): from when a write is added until a poll or wait finds it to be over, buffered writes to its
/// pages, or to the blocks of a mapped file that it touches, wait. A thread that has added one takes it before it writes
/// there itself.
///
/// With a page cache, a forced write is a write and then a flush of the device that the cache carries out; it begins when
/// a poll or wait finds the write to be over. A flush of the volume never waits for a batch, nor for a thread that does
/// not poll its own, so it may be called with forced writes in flight; it need not cover those.
///
/// A volume on a mapped file without a page cache has a queue for each thread and batch. A flush that saves metadata there
/// waits until every flush and forced write that began before has completed, those of batches included: a thread takes its own
/// before it flushes the volume.
///
/// ```no_run
/// use iopath::{BatchOptions, Options, Volume};
///
/// let volume = Volume::open("data.bin", &Options::new())?;
/// let mut batch = volume.batch(&BatchOptions::new(32, 4096))?;
/// for token in 0..32 {
///     let buffer = batch.buffer().expect("one buffer for each I/O that there is room for");
///     batch.read(buffer, 4096, token * 4096, token)?;
/// }
/// while let Some(done) = batch.wait()? {
///     println!("{} bytes for {}", done.result?, done.token);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Batch {
    volume: Volume,
    runner: OwnRunner,
    pool: BufferPool,
    engine: &'static str,
    gather: u32,
    stream: Stream,
    priority: Priority,
    /// On a volume with a page cache: the I/Os added and not yet taken.
    beside: Option<Box<BesideCache>>,
}

/// An I/O of a batch that has completed.
#[derive(Debug)]
pub struct Done {
    /// The token it was added with.
    pub token: u64,
    /// The buffer it was added with; after a read its first bytes are what was read.
    pub buffer: Option<PoolBuf>,
    /// How many bytes: all, or for a read on any path but raw those up to the end of the volume.
    pub result: Result<usize, Error>,
}

/// An I/O that was not added. Refusing gives ownership back: the buffer is inside.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    /// Why.
    #[source]
    pub error: Error,
    /// The buffer it came with.
    pub buffer: Option<PoolBuf>,
}

impl Batch {
    pub(crate) fn new(volume: Volume, source: &Source, options: &BatchOptions) -> Result<Self, OpenError> {
        let pool = BufferPool::new(options.io_depth, options.buffer_bytes)?;
        let opened = source.own_runner(options.io_depth, options.plug, pool.clone())?;
        let beside = volume.cache_if_any().map(|_| Box::new(BesideCache::new(options.io_depth)));
        Ok(Self {
            volume,
            runner: opened.runner,
            pool,
            engine: opened.engine,
            gather: options.gather,
            stream: options.stream,
            priority: options.priority,
            beside,
        })
    }

    /// A buffer that nobody has. There are as many as I/Os that the batch has room for.
    pub fn buffer(&self) -> Option<PoolBuf> {
        self.pool.take()
    }

    /// Adds a read of `bytes` bytes from byte `offset` on into the start of `buffer`.
    pub fn read(&mut self, buffer: PoolBuf, bytes: usize, offset: u64, token: u64) -> Result<(), Refused> {
        self.read_with(buffer, bytes, offset, token, &IoOptions::new())
    }

    /// The same with options of its own.
    pub fn read_with(
        &mut self,
        buffer: PoolBuf,
        bytes: usize,
        offset: u64,
        token: u64,
        options: &IoOptions,
    ) -> Result<(), Refused> {
        let mut buffer = Some(buffer);
        let mut refused_for = None;
        loop {
            let extent = match self.volume.readable(offset, bytes as u64) {
                Ok((extent, _)) => extent,
                Err(error) => return Err(Refused { error, buffer }),
            };
            let refused = match self.add(Op::Read, extent, buffer, token, options) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
            // The end has moved since it was looked at.
            let may_fit =
                matches!(refused.error.kind(), ErrorKind::PastEnd { .. }) && refused_for != Some(extent);
            if !may_fit || !self.volume.cuts_off_at_end() {
                return Err(refused);
            }
            (buffer, refused_for) = (refused.buffer, Some(extent));
        }
    }

    /// Adds a write of the first `bytes` bytes of `buffer` to byte `offset` on.
    pub fn write(&mut self, buffer: PoolBuf, bytes: usize, offset: u64, token: u64) -> Result<(), Refused> {
        self.write_with(buffer, bytes, offset, token, &IoOptions::new())
    }

    /// The same with options of its own.
    pub fn write_with(
        &mut self,
        buffer: PoolBuf,
        bytes: usize,
        offset: u64,
        token: u64,
        options: &IoOptions,
    ) -> Result<(), Refused> {
        match self.volume.writable(Op::Write, offset, bytes as u64) {
            Ok(extent) => self.add(Op::Write, extent, Some(buffer), token, options),
            Err(error) => Err(Refused { error, buffer: Some(buffer) }),
        }
    }

    /// Adds a flush: it sends every write to the medium that had completed when it was added.
    pub fn flush(&mut self, token: u64) -> Result<(), Refused> {
        match self.volume.check_writable(Op::Flush, 0, 0) {
            Ok(()) => self.add(Op::Flush, Extent::EMPTY, None, token, &IoOptions::new()),
            Err(error) => Err(Refused { error, buffer: None }),
        }
    }

    /// Adds a discard of `bytes` bytes from byte `offset` on.
    pub fn discard(&mut self, offset: u64, bytes: u64, token: u64) -> Result<(), Refused> {
        match self.volume.writable(Op::Discard, offset, bytes) {
            Ok(extent) => self.add(Op::Discard, extent, None, token, &IoOptions::new()),
            Err(error) => Err(Refused { error, buffer: None }),
        }
    }

    /// Sends off what was added, without waiting.
    pub fn submit(&mut self) {
        self.runner().submit();
    }

    /// The next I/O that has completed. Sends off what was added and waits if it must; `None` when nothing is under
    /// way.
    pub fn wait(&mut self) -> Result<Option<Done>, Error> {
        if let Some(done) = self.take() {
            return Ok(Some(done));
        }
        if self.beside.is_some() {
            return self.wait_beside();
        }
        let waited = self.runner.runner(self.volume.tuning()).wait(self.gather);
        waited.map_err(|source| self.wait_error(source))?;
        Ok(self.take())
    }

    /// The next I/O that has completed, without waiting. What has been sent off goes on; what was added since stays until
    /// [`Batch::submit`] or [`Batch::wait`].
    pub fn poll(&mut self) -> Option<Done> {
        self.take().or_else(|| {
            self.runner().reap();
            self.collect_beside();
            self.take()
        })
    }

    /// The next I/O that the last wait or poll found to be over: costs no system call.
    pub fn take(&mut self) -> Option<Done> {
        if let Some(beside) = &mut self.beside {
            return beside.take();
        }
        let finished = self.runner.as_is_mut().poll_completion()?;
        Some(done(&self.volume, finished))
    }

    /// Tells `sink` of every step of every I/O from now on: crate `iopath-log` has one that writes a file.
    pub fn start_log(&mut self, sink: Box<dyn LogSink>) {
        self.runner().start_log(sink);
    }

    /// I/Os added and not yet given back.
    pub fn in_flight(&self) -> u32 {
        self.beside.as_ref().map_or_else(|| self.runner.as_is().in_flight(), |beside| beside.in_flight())
    }

    /// What carries out the I/O: `uring`, `threads` or `memory`.
    pub const fn engine(&self) -> &'static str {
        self.engine
    }

    /// What the queue has done so far.
    pub const fn stats(&self) -> &QueueStats {
        self.runner.as_is().stats()
    }

    /// System calls made for I/O so far.
    pub fn syscalls(&self) -> u64 {
        self.runner.as_is().syscalls()
    }

    fn add(
        &mut self,
        op: Op,
        extent: Extent,
        buffer: Option<PoolBuf>,
        token: u64,
        options: &IoOptions,
    ) -> Result<(), Refused> {
        let IoOptions { stream, priority, durable } = *options;
        let is_forced = durable && op == Op::Write;
        let token = match self.begin_beside(op, extent, token, is_forced) {
            Ok(Some(token)) => token,
            Ok(None) => return Ok(()),
            Err(error) => return Err(Refused { error, buffer }),
        };
        let job = Job {
            op,
            extent,
            buffer,
            fua: is_forced && self.beside.is_none(),
            stream: stream.unwrap_or(self.stream),
            priority: priority.unwrap_or(self.priority),
            token,
        };
        self.runner().queue(job).map_err(|iopath_os::Refused { error, buffer }| {
            self.abandon_beside(token);
            let error = match &error {
                SubmitError::QueueFull(_) => {
                    self.volume.error(ErrorKind::BatchFull { depth: self.in_flight() })
                }
                other => self.volume.refused(other),
            };
            Refused { error, buffer }
        })
    }

    fn wait_error(&self, source: WaitError) -> Error {
        self.volume.error(ErrorKind::Wait).because(Cause::Wait(source))
    }

    /// The runner with the elevator and the end that the volume has now.
    pub(crate) fn runner(&mut self) -> &mut Runner<dyn RealDevice> {
        self.runner.runner(self.volume.tuning()).set_capacity(self.volume.sectors())
    }
}

impl Drop for Batch {
    /// Waits for what is in flight, so that nobody is kept out by an I/O that nobody will take.
    fn drop(&mut self) {
        self.settle_beside();
    }
}

/// An I/O that the runner has finished, as its owner gets it.
fn done(volume: &Volume, finished: Finished) -> Done {
    let Finished { token, op, extent, mut buffer, result } = finished;
    let result = match (op, result, &mut buffer) {
        // As much of it as lies before the end of the volume.
        (_, Ok(()), _) => {
            Ok(extent.bytes().min(volume.size_bytes().saturating_sub(extent.offset())) as usize)
        }
        // The volume has been made shorter, perhaps: the bytes before the new end are read again. Not of a mapped file,
        // where this could wait for writes of the batch that only its owner takes.
        (Op::Read, Err(IoError::EndOfDevice), Some(buffer)) if !volume.source().writes_last_block() => {
            volume.read_direct(&mut buffer[..extent.bytes() as usize], extent.offset())
        }
        (_, Err(error), _) => Err(volume.failed(op, extent, error)),
    };
    Done { token, buffer, result }
}
