//! A started queue: takes requests from the ring, begins their I/O, and completes them. Does not wait: see `worker.rs`.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use iopath::{LatencyCounts, Request};

use crate::bounce::{BYTES_MAX, Bounce};
use crate::chain::{Part, read_chain};
use crate::config::SECTOR_BYTES;
use crate::fault::Fault;
use crate::inflight::Inflight;
use crate::io::{DEPTH, Done, Plain, QueueIo};
use crate::memory::GuestMemory;
use crate::request::{
    ClearRange, Command, Header, ID_BYTES, Status, gather, is_inside, parse, ranges, scatter,
};
use crate::ring::Ring;
use crate::state::DeviceState;

/// What the driver has negotiated, as far as a queue needs it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Negotiated {
    pub(crate) has_indirect: bool,
    pub(crate) has_event_index: bool,
    /// The driver knows that writes need a flush. Otherwise, each change is durable when it completes.
    pub(crate) has_flush: bool,
}

/// The device of a queue.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) state: Arc<DeviceState>,
    pub(crate) is_writable: bool,
    pub(crate) id: [u8; ID_BYTES],
    pub(crate) discard_zeroes: bool,
    /// The latencies of the queue: reads, writes, and other requests.
    pub(crate) latencies: Arc<[LatencyCounts; 3]>,
}

/// A queue and its requests.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) index: u16,
    pub(crate) ring: Ring,
    pub(crate) memory: Arc<GuestMemory>,
    pub(crate) kick: File,
    pub(crate) call: Option<File>,
    negotiated: Negotiated,
    inflight: Option<Inflight>,
    /// The requests, by their first descriptor.
    slots: Vec<Slot>,
    /// Requests that a killed process had taken.
    recovered: VecDeque<u16>,
    /// A request that has no room yet.
    waiting: Option<u16>,
    /// Requests in flight.
    busy: u32,
    /// Completed requests that are not published yet.
    completed: Vec<u16>,
    /// The time of the present step, which requests have: a reading of the clock for each of them would cost more than
    /// the counts.
    now: Instant,
}

/// A request. Its vector is used again.
#[derive(Debug, Default)]
struct Slot {
    is_busy: bool,
    parts: Vec<Part>,
    header: Option<Header>,
    /// I/Os in flight.
    pending: u32,
    /// A flush follows them.
    needs_flush: bool,
    /// Bytes that completed I/Os have transferred.
    transferred: u64,
    status: Option<Status>,
    /// When the queue took it.
    taken: Option<Instant>,
}

/// The begin of a request.
#[derive(Debug, PartialEq, Eq)]
enum Begun {
    InFlight,
    Completed(Status),
    NoRoom,
}

impl Running {
    /// Starts a queue; `inflight` is the record of the front end. Requests that a killed process had taken come first.
    ///
    /// # Errors
    /// A record that does not belong to the queue.
    pub(crate) fn new(
        index: u16,
        mut ring: Ring,
        memory: Arc<GuestMemory>,
        negotiated: Negotiated,
        (kick, call): (File, Option<File>),
        mut inflight: Option<Inflight>,
    ) -> Result<Self, Fault> {
        let recovered = match &mut inflight {
            Some(inflight) => inflight.recover(&mut ring)?,
            None => Vec::new(),
        };
        Ok(Self {
            index,
            memory,
            kick,
            call,
            negotiated,
            inflight,
            slots: (0..ring.size()).map(|_| Slot::default()).collect(),
            recovered: recovered.into(),
            waiting: None,
            busy: 0,
            completed: Vec::with_capacity(usize::from(ring.size())),
            now: Instant::now(),
            ring,
        })
    }

    /// Takes requests and begins their I/O, as far as there is room: at most one for each descriptor, since none is
    /// free before [`Running::publish`]. Returns whether there was any.
    pub(crate) fn take(&mut self, io: &mut QueueIo, bounce: &mut Bounce, disk: &Disk) -> Result<bool, Fault> {
        let mut has_taken = false;
        self.now = Instant::now();
        loop {
            let head = match self.waiting.take() {
                Some(head) => head,
                None => match self.next_request()? {
                    Some(head) => head,
                    None => break,
                },
            };
            if !self.begin_one(head, io, bounce, disk)? {
                break;
            }
            has_taken = true;
        }
        io.submit();
        Ok(has_taken)
    }

    /// Begins a request, or completes it at once. Returns false if it waits for room.
    fn begin_one(
        &mut self,
        head: u16,
        io: &mut QueueIo,
        bounce: &mut Bounce,
        disk: &Disk,
    ) -> Result<bool, Fault> {
        match self.begin(head, io, bounce, disk)? {
            Begun::InFlight => self.busy += 1,
            Begun::Completed(status) => {
                self.busy += 1;
                self.complete(head, status, disk)?;
            }
            Begun::NoRoom => {
                self.waiting = Some(head);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Begins requests that were taken from the ring before, and takes no others.
    pub(crate) fn continue_taken(
        &mut self,
        io: &mut QueueIo,
        bounce: &mut Bounce,
        disk: &Disk,
    ) -> Result<(), Fault> {
        while self.waiting.is_some() || !self.recovered.is_empty() {
            let Some(head) =
                self.waiting.take().map_or_else(|| self.next_request(), |head| Ok(Some(head)))?
            else {
                break;
            };
            if !self.begin_one(head, io, bounce, disk)? {
                break;
            }
        }
        io.submit();
        Ok(())
    }

    /// The next request, whose chain is in its slot.
    fn next_request(&mut self) -> Result<Option<u16>, Fault> {
        let recovered = self.recovered.pop_front();
        let Some(head) = recovered.map_or_else(|| self.ring.pop(), |head| Ok(Some(head)))? else {
            return Ok(None);
        };
        let slot = &mut self.slots[usize::from(head)];
        if std::mem::replace(&mut slot.is_busy, true) {
            return Err(Fault::Busy { head });
        }
        if let Some(inflight) = self.inflight.as_mut().filter(|_| recovered.is_none()) {
            inflight.begin(head)?;
        }
        slot.parts.clear();
        read_chain(&self.ring, &self.memory, head, self.negotiated.has_indirect, &mut slot.parts)?;
        slot.header = Some(parse(&self.memory, head, &mut slot.parts)?);
        (slot.pending, slot.needs_flush, slot.transferred, slot.status) = (0, false, 0, None);
        slot.taken = Some(self.now);
        Ok(Some(head))
    }

    fn begin(
        &mut self,
        head: u16,
        io: &mut QueueIo,
        bounce: &mut Bounce,
        disk: &Disk,
    ) -> Result<Begun, Fault> {
        let capacity = disk.state.capacity.load(Ordering::Relaxed);
        let is_durable = !self.negotiated.has_flush;
        let slot = &mut self.slots[usize::from(head)];
        let Some(header) = slot.header else { return Ok(Begun::Completed(Status::IoError)) };
        let memory = &*self.memory;
        match header.command {
            Command::Read(sector) | Command::Write(sector) => {
                let is_write = matches!(header.command, Command::Write(_));
                let is_valid = header.bytes.is_multiple_of(SECTOR_BYTES)
                    && is_inside(sector, header.bytes / SECTOR_BYTES, capacity);
                if !is_valid || is_write && !disk.is_writable {
                    return Ok(Begun::Completed(Status::IoError));
                }
                if header.bytes == 0 {
                    return Ok(Begun::Completed(Status::Ok));
                }
                let target = (sector * SECTOR_BYTES, is_write, is_durable);
                match slot.begin_direct(memory, target, u64::from(head), io)? {
                    Some(begun) => Ok(begun),
                    None => slot.begin_copied(memory, header.bytes, target, head, (io, bounce), disk),
                }
            }
            Command::Flush if !disk.is_writable => Ok(Begun::Completed(Status::Ok)),
            Command::Flush => Ok(slot.begin_plain(&[Plain::Flush], head, io, disk)),
            Command::Discard | Command::WriteZeroes if !disk.is_writable => {
                Ok(Begun::Completed(Status::IoError))
            }
            Command::Discard | Command::WriteZeroes => {
                let ranges = match ranges(memory, &header, &slot.parts, capacity) {
                    Ok(ranges) => ranges,
                    Err(status) => return Ok(Begun::Completed(status)),
                };
                let plain: Vec<Plain> =
                    ranges.iter().filter_map(|range| plain(range, header, disk)).collect();
                slot.needs_flush = is_durable;
                Ok(slot.begin_plain(&plain, head, io, disk))
            }
            Command::GetId => {
                scatter(memory, &slot.parts, [&disk.id[..]])?;
                Ok(Begun::Completed(Status::Ok))
            }
            Command::Unknown => Ok(Begun::Completed(Status::Unsupported)),
        }
    }

    /// Handles the completed I/O. Returns whether there was any.
    pub(crate) fn reap(&mut self, io: &mut QueueIo, bounce: &mut Bounce, disk: &Disk) -> Result<bool, Fault> {
        let mut has_reaped = false;
        while let Some(done) = io.poll() {
            if !has_reaped {
                self.now = Instant::now();
            }
            has_reaped = true;
            self.handle_done(done, io, bounce, disk)?;
        }
        // The flushes that follow other I/O.
        io.submit();
        Ok(has_reaped)
    }

    fn handle_done(
        &mut self,
        done: Done,
        io: &mut QueueIo,
        bounce: &mut Bounce,
        disk: &Disk,
    ) -> Result<(), Fault> {
        let Done { token, buffer, result } = done;
        let head = token as u16;
        let slot = &mut self.slots[usize::from(head)];
        let Some(header) = slot.header else { return Ok(()) };
        match &result {
            Ok(bytes) => {
                slot.transferred += *bytes as u64;
                if let (Some(buffer), Command::Read(_)) = (&buffer, header.command) {
                    scatter(&self.memory, &slot.parts, [&buffer[..*bytes]])?;
                }
            }
            Err(error) => {
                disk.state.note(format!("queue {}: {error}", self.index));
                slot.status = Some(Status::IoError);
            }
        }
        if let Some(buffer) = buffer {
            bounce.put(buffer);
        }
        slot.pending -= 1;
        if slot.pending == 0 && slot.status.is_none() && std::mem::take(&mut slot.needs_flush) {
            // There is room: the request has just left a batch.
            match io.queue_plain(Plain::Flush, token) {
                Ok(()) => slot.pending = 1,
                Err(error) => {
                    disk.state.note(format!("queue {}: {error}", self.index));
                    slot.status = Some(Status::IoError);
                }
            }
        }
        if slot.pending == 0 {
            // The volume has become shorter.
            let is_short = matches!(header.command, Command::Read(_)) && slot.transferred != header.bytes;
            let status = slot.status.unwrap_or(if is_short { Status::IoError } else { Status::Ok });
            self.complete(head, status, disk)?;
        }
        Ok(())
    }

    fn complete(&mut self, head: u16, status: Status, disk: &Disk) -> Result<(), Fault> {
        let slot = &mut self.slots[usize::from(head)];
        let Some(header) = slot.header.take() else { return Ok(()) };
        self.busy -= 1;
        self.memory.write(header.status, &[status as u8])?;
        let written = match header.command {
            Command::Read(_) | Command::GetId => (header.bytes as u32).saturating_add(1),
            _ => 1,
        };
        disk.state.requests.fetch_add(1, Ordering::Relaxed);
        let direction = match header.command {
            Command::Read(_) => 0,
            Command::Write(_) => 1,
            _ => 2,
        };
        let latency = slot.taken.map(|taken| self.now.saturating_duration_since(taken));
        disk.latencies[direction].record(latency.unwrap_or_default());
        if matches!(header.command, Command::Read(_) | Command::Write(_)) {
            disk.state.bytes.fetch_add(header.bytes, Ordering::Relaxed);
        }
        self.ring.push(head, written)?;
        if let Some(inflight) = &self.inflight {
            inflight.complete(head)?;
        }
        self.completed.push(head);
        Ok(())
    }

    /// Shows the driver the completed requests, and notifies it if it wants to know.
    pub(crate) fn publish(&mut self) -> Result<(), Fault> {
        if self.completed.is_empty() {
            return Ok(());
        }
        self.ring.publish()?;
        if let Some(inflight) = &self.inflight {
            inflight.publish(&self.completed, self.ring.next_used())?;
        }
        // Not before: a driver that offers a request again at once could fill the used ring with unpublished entries.
        for head in self.completed.drain(..) {
            self.slots[usize::from(head)].is_busy = false;
        }
        if self.ring.needs_notification()? {
            self.notify();
        }
        Ok(())
    }

    /// Notifies the driver. A full counter has notified it already.
    pub(crate) fn notify(&self) {
        if let Some(call) = &self.call {
            let _ = rustix::io::write(call, &1u64.to_ne_bytes());
        }
    }

    /// Whether no request is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.busy == 0 && self.waiting.is_none() && self.recovered.is_empty()
    }

    /// Whether a request waits for room.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }
}

/// The operation of a range; `None` if it is empty.
fn plain(range: &ClearRange, header: Header, disk: &Disk) -> Option<Plain> {
    let ClearRange { offset, bytes, unmaps } = *range;
    let frees = header.command == Command::Discard || unmaps && disk.discard_zeroes;
    let plain = if frees { Plain::Discard { offset, bytes } } else { Plain::Zero { offset, bytes } };
    (bytes > 0).then_some(plain)
}

impl Slot {
    /// Begins the I/O on the guest's own memory: one for each part. `None` if the device cannot transfer a part.
    fn begin_direct(
        &mut self,
        memory: &GuestMemory,
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
    fn begin_copied(
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
        let Ok(mut buffer) = bounce.take(bytes) else { return Ok(Begun::Completed(Status::IoError)) };
        disk.state.copied.fetch_add(1, Ordering::Relaxed);
        let request = if is_write {
            gather(memory, &self.parts, &mut buffer[..bytes as usize])?;
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

    /// Begins operations without data.
    fn begin_plain(&mut self, operations: &[Plain], head: u16, io: &mut QueueIo, disk: &Disk) -> Begun {
        if !io.has_plain_room(operations.len() as u32) {
            return Begun::NoRoom;
        }
        let (mut pending, mut has_failed) = (0, false);
        for &operation in operations {
            match io.queue_plain(operation, u64::from(head)) {
                Ok(()) => pending += 1,
                Err(error) => {
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
