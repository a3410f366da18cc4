//! The I/O of a queue on its volume: a batch of the guest's own memory, where the kernel transfers it, and a batch of
//! buffers of this process for everything else. Does not know virtqueues.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use iopath::buffers::{BorrowedBytes, SharedBuf, SharedMemory};
use iopath::log::RequestLog;
use iopath::{AlignedBuf, BatchOptions, LocalBatch, OpenError, RangeLock, Request, Result, Stream, Volume};

/// I/Os in flight of each batch. The parts of a request that are not adjacent in memory are I/Os of their own, which
/// the request queue merges.
pub(crate) const DEPTH: u32 = 1024;

/// The batches of a queue.
#[derive(Debug)]
pub(crate) struct QueueIo {
    volume: Volume,
    /// `None` on a volume with a page cache, in memory, or of a server.
    direct: Option<Lane<SharedBuf>>,
    /// Made when the first request needs it, if there is a direct batch.
    copied: Option<Lane<AlignedBuf>>,
    /// The options of its batches.
    options: BatchOptions,
    log: Option<RequestLog>,
    block_bytes: u64,
    memory_align: usize,
    /// Descriptors that the event loop must watch.
    new_descriptors: Vec<OwnedFd>,
}

/// A batch.
#[derive(Debug)]
struct Lane<B: iopath::IoBuf> {
    batch: LocalBatch<B>,
    /// Its descriptor was readable since the last poll.
    is_notified: bool,
    has_queued: bool,
}

/// A completed I/O.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) token: u64,
    /// The buffer of a copied I/O.
    pub(crate) buffer: Option<AlignedBuf>,
    pub(crate) result: Result<usize>,
}

impl QueueIo {
    /// The batches of a volume for the queue with this index. They stay on this thread.
    ///
    /// # Errors
    /// No engine can be started.
    pub(crate) fn new(
        volume: &Volume,
        index: u16,
        log: Option<RequestLog>,
    ) -> std::result::Result<Self, OpenError> {
        // Stream 0 is the server itself.
        let options = BatchOptions::new(DEPTH, 0).stream(Stream(u32::from(index) + 1));
        let mut new_descriptors = Vec::new();
        let direct = match Lane::new(volume.local_batch_of(&options), log.as_ref(), &mut new_descriptors) {
            Ok(lane) => Some(lane),
            Err(OpenError::SharedMemory(_)) => None,
            Err(error) => return Err(error),
        };
        let copied = match &direct {
            Some(_) => None,
            None => Some(Lane::new(volume.local_batch_of(&options), log.as_ref(), &mut new_descriptors)?),
        };
        let facts = volume.facts();
        Ok(Self {
            volume: volume.clone(),
            direct,
            copied,
            options,
            log,
            block_bytes: u64::from(facts.block_bytes),
            memory_align: facts.memory_align_bytes as usize,
            new_descriptors,
        })
    }

    /// Descriptors to watch, since the last call.
    pub(crate) fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.new_descriptors)
    }

    /// Whether an offset or length is one of whole blocks.
    pub(crate) fn is_whole(&self, bytes: u64) -> bool {
        bytes.is_multiple_of(self.block_bytes)
    }

    /// Whether the device can transfer the guest's own memory at this place.
    pub(crate) fn transfers(&self, memory: &SharedMemory, at: u64, bytes: u64) -> bool {
        self.direct.is_some() && self.is_whole(bytes) && memory.address(at).is_multiple_of(self.memory_align)
    }

    /// Whether there is room for this many I/Os on the guest's memory.
    pub(crate) fn has_direct_room(&self, count: u32) -> bool {
        self.direct.as_ref().is_some_and(|lane| lane.batch.in_flight() + count <= DEPTH)
    }

    /// Whether there is room for this many other I/Os.
    pub(crate) fn has_copied_room(&self, count: u32) -> bool {
        self.copied.as_ref().is_none_or(|lane| lane.batch.in_flight() + count <= DEPTH)
    }

    /// Locks a range for a write on the guest's memory: see [`Volume::try_lock_range`]. `None` while it is locked.
    pub(crate) fn lock(&self, offset: u64, bytes: u64) -> Option<RangeLock> {
        self.volume.try_lock_range(offset, bytes)
    }

    /// Whether no I/O is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.direct.as_ref().is_none_or(|lane| lane.batch.in_flight() == 0)
            && self.copied.as_ref().is_none_or(|lane| lane.batch.in_flight() == 0)
    }

    /// Queues I/O on the guest's memory, for which there is room and which the device can transfer.
    pub(crate) fn queue_direct(
        &mut self,
        (memory, at, bytes): (&Arc<SharedMemory>, u64, u64),
        (offset, is_write, is_durable): (u64, bool, bool),
        token: u64,
    ) -> Result<(), Option<iopath::Error>> {
        let lane = self.direct.as_mut().ok_or(None)?;
        let buffer = memory.buffer(at, bytes as usize).ok_or(None)?;
        let request = if is_write {
            Request::write_from(buffer, offset).durable(is_durable)
        } else {
            Request::read_into(buffer, offset)
        };
        lane.has_queued = true;
        lane.batch.queue(request.token(token)).map_err(|refused| Some(refused.error))
    }

    /// Opens the batch of copied I/O, if there is none.
    ///
    /// # Errors
    /// The system refuses an engine or a descriptor.
    pub(crate) fn open_copied(&mut self) -> Result<(), String> {
        self.copied_lane().map(drop)
    }

    fn copied_lane(&mut self) -> Result<&mut Lane<AlignedBuf>, String> {
        let lane = if let Some(lane) = self.copied.take() {
            lane
        } else {
            let batch = self.volume.local_batch_of(&self.options);
            let lane = Lane::new(batch, self.log.as_ref(), &mut self.new_descriptors);
            lane.map_err(|error| error.to_string())?
        };
        Ok(self.copied.insert(lane))
    }

    /// Queues I/O with a buffer of this process, or without one. A change waits for the lock of its range: no write on
    /// the guest's memory may be in flight. Returns the buffer of a refused request, if the batch is open.
    pub(crate) fn queue_copied(
        &mut self,
        request: Request<AlignedBuf>,
    ) -> Result<(), (Option<AlignedBuf>, String)> {
        let lane = self.copied_lane().map_err(|error| (None, error))?;
        lane.has_queued = true;
        lane.batch.queue(request).map_err(|refused| (refused.buffer, refused.error.to_string()))
    }

    /// Queues a flush on the batch that exists and has room.
    pub(crate) fn queue_flush(&mut self, token: u64) -> Result<(), String> {
        let is_direct = self.has_direct_room(1);
        let Some(lane) = self.direct.as_mut().filter(|_| is_direct) else {
            return self.queue_copied(Request::flush().token(token)).map_err(|(_, error)| error);
        };
        lane.has_queued = true;
        lane.batch.queue(Request::flush().token(token)).map_err(|refused| refused.error.to_string())
    }

    /// Bytes of the page cache, without a copy or system call, if all are cached.
    pub(crate) fn borrow(&self, offset: u64, bytes: usize) -> Option<BorrowedBytes> {
        self.copied.as_ref()?.batch.borrow(offset, bytes)
    }

    /// Submits the queued I/O.
    pub(crate) fn submit(&mut self) {
        self.direct.iter_mut().for_each(Lane::submit);
        self.copied.iter_mut().for_each(Lane::submit);
    }

    /// A descriptor is readable.
    pub(crate) fn handle_notification(&mut self) {
        self.direct.iter_mut().for_each(|lane| lane.is_notified = true);
        self.copied.iter_mut().for_each(|lane| lane.is_notified = true);
    }

    /// The next completed I/O.
    pub(crate) fn poll(&mut self) -> Option<Done> {
        if let Some(done) = self.direct.as_mut().and_then(Lane::poll) {
            return Some(Done { token: done.token, buffer: None, result: done.result });
        }
        let done = self.copied.as_mut().and_then(Lane::poll)?;
        Some(Done { token: done.token, buffer: done.buffer, result: done.result })
    }

    /// The longest wait for a descriptor.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        let direct = self.direct.as_ref().and_then(|lane| lane.batch.next_timeout());
        let copied = self.copied.as_ref().and_then(|lane| lane.batch.next_timeout());
        [direct, copied].into_iter().flatten().min()
    }
}

impl<B: iopath::IoBuf> Lane<B> {
    fn new(
        batch: std::result::Result<LocalBatch<B>, OpenError>,
        log: Option<&RequestLog>,
        descriptors: &mut Vec<OwnedFd>,
    ) -> std::result::Result<Self, OpenError> {
        let mut batch = batch?;
        if let Some(log) = log {
            batch.start_log(log.sink());
        }
        let watched = batch.completion_fd().map_err(no_descriptor)?;
        descriptors.push(watched);
        Ok(Self { batch, is_notified: false, has_queued: false })
    }

    fn submit(&mut self) {
        if std::mem::take(&mut self.has_queued) {
            self.batch.submit();
        }
    }

    fn poll(&mut self) -> Option<iopath::Completion<B>> {
        if let Some(done) = self.batch.next_completed() {
            return Some(done);
        }
        // A poll without a notification is a system call without a result.
        let is_due = self.batch.next_timeout() == Some(Duration::ZERO);
        if std::mem::take(&mut self.is_notified) || is_due { self.batch.poll() } else { None }
    }
}

fn no_descriptor(source: io::Error) -> OpenError {
    OpenError::System { path: "eventfd".into(), what: "opened", source }
}
