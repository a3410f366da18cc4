//! The requests of a queue: begins their I/O on a batch, and commits their results. Does not wait and makes no system
//! calls of its own: see `worker.rs`.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use iopath::{AlignedBuf, BatchOptions, LocalBatch, OpenError, Request, Volume};
use iopath_os::ublk::{UblkDescriptor, UblkEvent, UblkQueue};
use rustix::io::Errno;

use crate::params::SECTOR_BYTES;
use crate::request::{Disk, Work, decode};
use crate::state::SharedState;

/// The driver's side of a queue.
pub(crate) trait Driver {
    /// The next event that has arrived.
    fn next_event(&mut self) -> Option<UblkEvent>;

    /// Completes a request with its number of bytes or a negative error number.
    fn commit(&mut self, tag: u16, result: i32, buffer: AlignedBuf);
}

impl Driver for UblkQueue {
    fn next_event(&mut self) -> Option<UblkEvent> {
        Self::next_event(self)
    }

    fn commit(&mut self, tag: u16, result: i32, buffer: AlignedBuf) {
        Self::commit(self, tag, result, buffer);
    }
}

/// A queue and its I/O.
#[derive(Debug)]
pub(crate) struct Queue {
    index: u16,
    disk: Disk,
    batch: LocalBatch<AlignedBuf>,
    slots: Vec<Slot>,
    /// Tags that have not ended.
    live: u16,
    /// The descriptor of the batch was readable since the last poll.
    is_notified: bool,
    has_queued: bool,
    state: Arc<SharedState>,
}

/// A request in flight, by its tag.
#[derive(Debug, Default)]
struct Slot {
    work: Option<Work>,
    /// The buffer of work without data.
    buffer: Option<AlignedBuf>,
}

impl Queue {
    /// A queue of this many tags. Also returns the descriptor that is readable after completed I/O.
    ///
    /// # Errors
    /// No engine can be started.
    pub(crate) fn new(
        index: u16,
        depth: u16,
        volume: &Volume,
        disk: Disk,
        state: Arc<SharedState>,
    ) -> Result<(Self, OwnedFd), OpenError> {
        let mut batch = volume.local_batch_of(&BatchOptions::new(u32::from(depth), 0))?;
        let completed = batch.completion_fd().map_err(|source| OpenError::System {
            path: "eventfd".into(),
            what: "opened",
            source,
        })?;
        let slots = (0..depth).map(|_| Slot::default()).collect();
        let queue =
            Self { index, disk, batch, slots, live: depth, is_notified: false, has_queued: false, state };
        Ok((queue, completed))
    }

    /// Handles the events of the driver and completed I/O. Returns whether there was any.
    pub(crate) fn step(&mut self, driver: &mut impl Driver) -> bool {
        let mut has_worked = false;
        while let Some(event) = driver.next_event() {
            has_worked = true;
            match event {
                UblkEvent::Request { tag, descriptor, buffer } => self.begin(tag, descriptor, buffer, driver),
                UblkEvent::Ended { tag, errno } => self.end(tag, errno),
                UblkEvent::Readable => self.is_notified = true,
            }
        }
        if std::mem::take(&mut self.has_queued) {
            self.batch.submit();
        }
        while let Some(done) = self.poll() {
            has_worked = true;
            let bytes = done.result.as_ref().map_or(0, |bytes| *bytes);
            let error = done.result.err();
            if let Some(error) = &error {
                self.state.note(format!("queue {}: {error}", self.index));
            }
            let tag = done.token as u16;
            let slot = &mut self.slots[usize::from(tag)];
            let work = slot.work.take().expect("a completion belongs to a request in flight");
            let buffer = done.buffer.or_else(|| slot.buffer.take()).expect("no request is cancelled");
            let result = match error {
                Some(error) => Err(error.errno()),
                None => Ok(bytes),
            };
            self.commit(tag, work, result, buffer, driver);
        }
        has_worked
    }

    /// Whether the driver has no further requests, and no I/O is in flight.
    pub(crate) fn has_ended(&self) -> bool {
        self.live == 0 && self.batch.in_flight() == 0
    }

    /// Not all that a batch waits for makes its descriptor readable: called after a wait without an event.
    pub(crate) fn handle_timeout(&mut self) {
        self.is_notified = true;
    }

    /// The longest wait for an event.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        self.batch.next_timeout()
    }

    /// A poll without a notification is a system call without a result.
    fn poll(&mut self) -> Option<iopath::Completion<AlignedBuf>> {
        if let Some(done) = self.batch.next_completed() {
            return Some(done);
        }
        let is_due = self.batch.next_timeout() == Some(Duration::ZERO);
        if std::mem::take(&mut self.is_notified) || is_due { self.batch.poll() } else { None }
    }

    fn begin(
        &mut self,
        tag: u16,
        descriptor: UblkDescriptor,
        mut buffer: AlignedBuf,
        driver: &mut impl Driver,
    ) {
        let work = match decode(&descriptor, &self.disk) {
            Ok(Work::Nothing) => return self.commit(tag, Work::Nothing, Ok(0), buffer, driver),
            Ok(work) => work,
            Err(errno) => {
                let UblkDescriptor { op_flags, start_sector, sectors, .. } = descriptor;
                self.state.note(format!(
                    "queue {}: refused operation {op_flags:#x} of {sectors} sectors at sector {start_sector}: {errno}",
                    self.index
                ));
                return self.commit(tag, Work::Nothing, Err(errno.raw_os_error()), buffer, driver);
            }
        };
        let slot = &mut self.slots[usize::from(tag)];
        let request = match work {
            Work::Read { offset, bytes } => {
                // A hit of the page cache is one copy, without a notification.
                if let Some(cached) = self.batch.borrow(offset, bytes as usize) {
                    let mut at = 0;
                    for part in cached.slices() {
                        buffer[at..at + part.len()].copy_from_slice(part);
                        at += part.len();
                    }
                    drop(cached);
                    return self.commit(tag, work, Ok(at), buffer, driver);
                }
                Request::read_into(buffer, offset).bytes(bytes as usize)
            }
            Work::Write { offset, bytes, is_durable } => {
                Request::write_from(buffer, offset).bytes(bytes as usize).durable(is_durable)
            }
            Work::Flush | Work::Nothing => slot.keep(buffer, Request::flush()),
            Work::Discard { offset, bytes } => slot.keep(buffer, Request::discard(offset, bytes)),
            Work::Zero { offset, bytes } => slot.keep(buffer, Request::write_zeroes(offset, bytes)),
        };
        slot.work = Some(work);
        self.has_queued = true;
        if let Err(refused) = self.batch.queue(request.token(u64::from(tag))) {
            let slot = &mut self.slots[usize::from(tag)];
            slot.work = None;
            let buffer = refused.buffer.or_else(|| slot.buffer.take()).expect("a refusal returns the buffer");
            self.state.note(format!("queue {}: {}", self.index, refused.error));
            self.commit(tag, work, Err(refused.error.errno()), buffer, driver);
        }
    }

    /// Completes a request.
    fn commit(
        &mut self,
        tag: u16,
        work: Work,
        result: Result<usize, i32>,
        buffer: AlignedBuf,
        driver: &mut impl Driver,
    ) {
        let result = match (result, work) {
            (Err(errno), _) => -errno.max(1),
            // The kernel asks for the rest of a short read again. It has whole sectors.
            (Ok(bytes), Work::Read { .. }) => match bytes as u64 / SECTOR_BYTES * SECTOR_BYTES {
                0 => -Errno::IO.raw_os_error(),
                whole => whole as i32,
            },
            (Ok(_), Work::Write { bytes, .. }) => bytes.cast_signed(),
            (Ok(_), _) => 0,
        };
        self.state.requests.fetch_add(1, Ordering::Relaxed);
        self.state.bytes.fetch_add(result.max(0) as u64, Ordering::Relaxed);
        driver.commit(tag, result, buffer);
    }

    fn end(&mut self, tag: u16, errno: i32) {
        self.live = self.live.saturating_sub(1);
        if errno != Errno::NODEV.raw_os_error() {
            let error = std::io::Error::from_raw_os_error(errno);
            self.state.note(format!("queue {}: the driver refused tag {tag}: {error}", self.index));
        }
    }
}

impl Slot {
    /// A request without data, whose buffer stays here.
    fn keep(&mut self, buffer: AlignedBuf, request: Request<AlignedBuf>) -> Request<AlignedBuf> {
        self.buffer = Some(buffer);
        request
    }
}

#[cfg(test)]
mod tests;
