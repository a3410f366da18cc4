//! The I/O of a queue on its volume: a batch of the guest's own memory, where the kernel transfers it, and a batch of
//! buffers of this process for everything else. Does not know virtqueues.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use iopath::{
    AlignedBuf, BatchOptions, BorrowedBytes, LocalBatch, OpenError, Request, Result, SharedBuf, SharedMemory,
    Volume,
};

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
    /// The batches of a volume. They stay on this thread.
    ///
    /// # Errors
    /// No engine can be started.
    pub(crate) fn new(volume: &Volume) -> std::result::Result<Self, OpenError> {
        let mut new_descriptors = Vec::new();
        let direct = match Lane::new(volume.local_batch_of(&options()), &mut new_descriptors) {
            Ok(lane) => Some(lane),
            Err(OpenError::SharedMemory(_)) => None,
            Err(error) => return Err(error),
        };
        let copied = match &direct {
            Some(_) => None,
            None => Some(Lane::new(volume.local_batch_of(&options()), &mut new_descriptors)?),
        };
        let facts = volume.facts();
        Ok(Self {
            volume: volume.clone(),
            direct,
            copied,
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

    /// Whether there is room for this many operations without data, on either batch.
    pub(crate) fn has_plain_room(&self, count: u32) -> bool {
        (self.direct.is_none() || self.has_direct_room(count)) && self.has_copied_room(count)
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

    /// Queues I/O with a buffer of this process, or without one. Returns the buffer of a refused request.
    pub(crate) fn queue_copied(
        &mut self,
        request: Request<AlignedBuf>,
    ) -> Result<(), (Option<AlignedBuf>, String)> {
        if self.copied.is_none() {
            match Lane::new(self.volume.local_batch_of(&options()), &mut self.new_descriptors) {
                Ok(lane) => self.copied = Some(lane),
                Err(error) => return Err((None, error.to_string())),
            }
        }
        let Some(lane) = &mut self.copied else { return Ok(()) };
        lane.has_queued = true;
        lane.batch.queue(request).map_err(|refused| (refused.buffer, refused.error.to_string()))
    }

    /// Queues a flush, or I/O of whole blocks without data, on the batch that exists and has room.
    pub(crate) fn queue_plain(&mut self, kind: Plain, token: u64) -> Result<(), String> {
        let is_direct = self.has_direct_room(1) && kind.is_whole(self.block_bytes);
        let Some(lane) = self.direct.as_mut().filter(|_| is_direct) else {
            return self.queue_copied(kind.request().token(token)).map_err(|(_, error)| error);
        };
        lane.has_queued = true;
        lane.batch.queue(kind.request().token(token)).map_err(|refused| refused.error.to_string())
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

/// An operation without data.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Plain {
    Flush,
    Discard { offset: u64, bytes: u64 },
    Zero { offset: u64, bytes: u64 },
}

impl Plain {
    fn is_whole(self, block_bytes: u64) -> bool {
        match self {
            Self::Flush => true,
            Self::Discard { offset, bytes } | Self::Zero { offset, bytes } => {
                offset.is_multiple_of(block_bytes) && bytes.is_multiple_of(block_bytes)
            }
        }
    }

    fn request<B>(self) -> Request<B>
    where
        B: iopath::IoBuf,
    {
        match self {
            Self::Flush => Request::flush(),
            Self::Discard { offset, bytes } => Request::discard(offset, bytes),
            Self::Zero { offset, bytes } => Request::write_zeroes(offset, bytes),
        }
    }
}

impl<B: iopath::IoBuf> Lane<B> {
    fn new(
        batch: std::result::Result<LocalBatch<B>, OpenError>,
        descriptors: &mut Vec<OwnedFd>,
    ) -> std::result::Result<Self, OpenError> {
        let mut batch = batch?;
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

fn options() -> BatchOptions {
    BatchOptions::new(DEPTH, 0)
}
