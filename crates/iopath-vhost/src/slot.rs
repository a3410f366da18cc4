//! A request in flight, and the begin of its I/O: on the guest's memory, with a buffer, or without data. The queue of
//! the requests: `running.rs`.

use std::sync::atomic::Ordering;
use std::time::Instant;

use iopath::{RangeLock, Request};

use crate::bounce::{BYTES_MAX, Bounce};
use crate::chain::Part;
use crate::fault::Fault;
use crate::io::{DEPTH, QueueIo};
use crate::memory::GuestMemory;
use crate::request::{ClearRange, Command, Header, Status, gather, scatter};
use crate::state::Disk;

/// A request. Its vector is used again.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) is_busy: bool,
    pub(crate) parts: Vec<Part>,
    pub(crate) header: Option<Header>,
    /// I/Os in flight.
    pub(crate) pending: u32,
    /// A flush follows them.
    pub(crate) needs_flush: bool,
    /// Excludes writers of parts of blocks while a write on the guest's memory is in flight.
    pub(crate) lock: Option<RangeLock>,
    /// Bytes that completed I/Os have transferred.
    pub(crate) transferred: u64,
    pub(crate) status: Option<Status>,
    /// When the queue took it.
    pub(crate) taken: Option<Instant>,
}

/// The begin of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    InFlight,
    Completed(Status),
    NoRoom,
}

impl Slot {
    /// Begins the I/O on the guest's own memory: one for each part. `None` if the device cannot transfer a part.
    pub(crate) fn begin_direct(
        &mut self,
        memory: &GuestMemory,
        bytes: u64,
        (offset, is_write, is_durable): (u64, bool, bool),
        token: u64,
        io: &mut QueueIo,
    ) -> Result<Option<Begun>, Fault> {
        let (mut count, mut transfers) = (0, io.is_whole(offset));
        for part in &self.parts {
            memory.for_parts(part.address, u64::from(part.bytes), |shared, at, bytes| {
                count += 1;
                transfers = transfers && io.transfers(shared, at, bytes);
            })?;
        }
        // More parts than a batch can ever have in flight are copied.
        if !transfers || count > DEPTH {
            return Ok(None);
        }
        if !io.has_direct_room(count) {
            return Ok(Some(Begun::NoRoom));
        }
        if is_write {
            self.lock = io.lock(offset, bytes);
            if self.lock.is_none() {
                return Ok(Some(Begun::NoRoom));
            }
        }
        let mut next = offset;
        let (mut pending, mut has_failed) = (0, false);
        for part in &self.parts {
            memory.for_parts(part.address, u64::from(part.bytes), |shared, at, bytes| {
                let place = (shared, at, bytes);
                match io.queue_direct(place, (next, is_write, is_durable), token) {
                    Ok(()) => pending += 1,
                    Err(_) => has_failed = true,
                }
                next += bytes;
            })?;
        }
        self.pending = pending;
        Ok(Some(self.after_queueing(has_failed)))
    }

    /// Begins the I/O with a buffer of this process.
    pub(crate) fn begin_copied(
        &mut self,
        memory: &GuestMemory,
        bytes: u64,
        (offset, is_write, is_durable): (u64, bool, bool),
        head: u16,
        (io, bounce): (&mut QueueIo, &mut Bounce),
        disk: &Disk,
    ) -> Result<Begun, Fault> {
        if bytes > BYTES_MAX {
            disk.state
                .note(format!("a request of {bytes} bytes that must be copied; at most {BYTES_MAX} are"));
            return Ok(Begun::Completed(Status::IoError));
        }
        let borrowed = if is_write { None } else { io.borrow(offset, bytes as usize) };
        if let Some(borrowed) = borrowed {
            scatter(memory, &self.parts, borrowed.slices())?;
            return Ok(Begun::Completed(Status::Ok));
        }
        if !bounce.has_room(bytes) || !io.has_copied_room(1) {
            return Ok(Begun::NoRoom);
        }
        // Before the buffer is taken: a batch that cannot be opened returns none.
        if let Err(error) = io.open_copied() {
            disk.state.note(error);
            return Ok(Begun::Completed(Status::IoError));
        }
        let Ok(mut buffer) = bounce.take(bytes) else { return Ok(Begun::Completed(Status::IoError)) };
        disk.state.copied.fetch_add(1, Ordering::Relaxed);
        let request = if is_write {
            if let Err(fault) = gather(memory, &self.parts, &mut buffer[..bytes as usize]) {
                bounce.put(buffer);
                return Err(fault);
            }
            Request::write_from(buffer, offset).durable(is_durable)
        } else {
            Request::read_into(buffer, offset)
        };
        match io.queue_copied(request.bytes(bytes as usize).token(u64::from(head))) {
            Ok(()) => {
                self.pending = 1;
                Ok(Begun::InFlight)
            }
            Err((buffer, error)) => {
                if let Some(buffer) = buffer {
                    bounce.put(buffer);
                }
                disk.state.note(error);
                Ok(Begun::Completed(Status::IoError))
            }
        }
    }

    pub(crate) fn begin_flush(&mut self, head: u16, io: &mut QueueIo, disk: &Disk) -> Begun {
        if !io.has_direct_room(1) && !io.has_copied_room(1) {
            return Begun::NoRoom;
        }
        let queued = io.queue_flush(u64::from(head));
        self.pending = u32::from(queued.is_ok());
        self.after_queueing(queued.map_err(|error| disk.state.note(error)).is_err())
    }

    /// Begins to free or zero ranges. By the batch that locks them, also if they are whole blocks.
    pub(crate) fn begin_clear(
        &mut self,
        ranges: &[ClearRange],
        command: Command,
        head: u16,
        io: &mut QueueIo,
        disk: &Disk,
    ) -> Begun {
        if !io.has_copied_room(ranges.len() as u32) {
            return Begun::NoRoom;
        }
        let (mut pending, mut has_failed) = (0, false);
        for &ClearRange { offset, bytes, unmaps } in ranges.iter().filter(|range| range.bytes > 0) {
            let frees = command == Command::Discard || unmaps && disk.discard_zeroes;
            let request =
                if frees { Request::discard(offset, bytes) } else { Request::write_zeroes(offset, bytes) };
            match io.queue_copied(request.token(u64::from(head))) {
                Ok(()) => pending += 1,
                Err((_, error)) => {
                    disk.state.note(error);
                    has_failed = true;
                }
            }
        }
        self.pending = pending;
        self.after_queueing(has_failed)
    }

    fn after_queueing(&mut self, has_failed: bool) -> Begun {
        self.status = has_failed.then_some(Status::IoError);
        match self.pending {
            0 => Begun::Completed(self.status.unwrap_or(Status::Ok)),
            _ => Begun::InFlight,
        }
    }
}
