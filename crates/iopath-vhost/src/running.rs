//! A started queue: takes requests from the ring, begins their I/O (`slot.rs`), and completes them. Does not wait: see
//! `worker.rs`.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::bounce::Bounce;
use crate::chain::read_chain;
use crate::config::SECTOR_BYTES;
use crate::fault::Fault;
use crate::inflight::Inflight;
use crate::io::{Done, QueueIo};
use crate::memory::GuestMemory;
use crate::request::{Command, ID_BYTES, Status, is_inside, parse, ranges, scatter};
use crate::ring::Ring;
use crate::slot::{Begun, Slot};
use crate::state::Disk;

/// What the driver has negotiated, as far as a queue needs it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Negotiated {
    pub(crate) has_indirect: bool,
    pub(crate) has_event_index: bool,
    /// The driver knows that writes need a flush. Otherwise, each change is durable when it completes.
    pub(crate) has_flush: bool,
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
    /// Those of them that hold a lock.
    locks: u32,
    /// Completed requests that are not published yet.
    completed: Vec<u16>,
    /// The time of the present step, which requests have: a reading of the clock for each of them would cost more than
    /// the counts.
    now: Instant,
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
            locks: 0,
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
        let begun = self.begin(head, io, bounce, disk)?;
        if begun == Begun::NoRoom {
            self.waiting = Some(head);
            return Ok(false);
        }
        self.busy += 1;
        self.locks += u32::from(self.slots[usize::from(head)].lock.is_some());
        if let Begun::Completed(status) = begun {
            self.complete(head, status, disk)?;
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
        // A copied change waits for the lock of its range. A thread that waits must hold none, since another one may
        // wait for that.
        let may_change = self.locks == 0;
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
                match slot.begin_direct(memory, header.bytes, target, u64::from(head), io)? {
                    Some(begun) => Ok(begun),
                    None if is_write && !may_change => Ok(Begun::NoRoom),
                    None => slot.begin_copied(memory, header.bytes, target, head, (io, bounce), disk),
                }
            }
            Command::Flush if !disk.is_writable => Ok(Begun::Completed(Status::Ok)),
            Command::Flush => Ok(slot.begin_flush(head, io, disk)),
            Command::Discard if !disk.has_discard => Ok(Begun::Completed(Status::Unsupported)),
            Command::WriteZeroes if !disk.has_zeroes => Ok(Begun::Completed(Status::Unsupported)),
            Command::Discard | Command::WriteZeroes if !may_change => Ok(Begun::NoRoom),
            Command::Discard | Command::WriteZeroes => {
                slot.needs_flush = is_durable;
                match ranges(memory, &header, &slot.parts, capacity)? {
                    Ok(ranges) => Ok(slot.begin_clear(&ranges, header.command, head, io, disk)),
                    Err(status) => Ok(Begun::Completed(status)),
                }
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
        let scattered = match (&result, &buffer, slot.header.map(|header| header.command)) {
            (Ok(bytes), Some(buffer), Some(Command::Read(_))) => {
                scatter(&self.memory, &slot.parts, [&buffer[..*bytes]])
            }
            _ => Ok(()),
        };
        // Also after a mistake, or the buffer would count for all later front ends.
        if let Some(buffer) = buffer {
            bounce.put(buffer);
        }
        scattered?;
        let Some(header) = slot.header else { return Ok(()) };
        match result {
            Ok(bytes) => slot.transferred += bytes as u64,
            Err(error) => {
                disk.state.note(format!("queue {}: {error}", self.index));
                slot.status = Some(Status::IoError);
            }
        }
        slot.pending -= 1;
        if slot.pending == 0 && slot.status.is_none() && std::mem::take(&mut slot.needs_flush) {
            // There is room: the request has just left a batch.
            match io.queue_flush(token) {
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

    /// Handles a completed I/O of a device that has stopped. The request does not complete, but another queue must not
    /// wait for its range. This queue begins no other request, so its count of locks has no more use.
    pub(crate) fn drop_done(&mut self, token: u64) {
        let slot = &mut self.slots[usize::from(token as u16)];
        slot.pending = slot.pending.saturating_sub(1);
        if slot.pending == 0 {
            slot.lock = None;
        }
    }

    fn complete(&mut self, head: u16, status: Status, disk: &Disk) -> Result<(), Fault> {
        let slot = &mut self.slots[usize::from(head)];
        let Some(header) = slot.header.take() else { return Ok(()) };
        self.busy -= 1;
        self.locks -= u32::from(slot.lock.take().is_some());
        self.memory.write(header.status, &[status as u8])?;
        // A request that failed may have written a part, which the driver must not use.
        let data_bytes = match (header.command, status) {
            (Command::Read(_), Status::Ok) => header.bytes,
            (Command::GetId, Status::Ok) => header.bytes.min(ID_BYTES as u64),
            _ => 0,
        };
        let written = (data_bytes as u32).saturating_add(1);
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
    ///
    /// # Errors
    /// The front end has truncated the memory: the device may have transferred zeroes for bytes of a lost page.
    pub(crate) fn publish(&mut self) -> Result<(), Fault> {
        if self.completed.is_empty() {
            return Ok(());
        }
        if self.memory.has_faulted() {
            return Err(Fault::Truncated);
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

    /// Notifies the driver. A full counter has notified it already. A front end can make the descriptor block again, so
    /// a write to a full counter could wait for its reader. This check makes that unlikely, not impossible: a front end
    /// can fill the counter after it. It then holds its own queue until someone reads the counter. The kernel has no
    /// write to an eventfd that never waits (`RWF_NOWAIT` is not supported).
    pub(crate) fn notify(&self) {
        let Some(call) = &self.call else { return };
        let mut room = [PollFd::new(call, PollFlags::OUT)];
        let _ = poll(&mut room, Some(&Timespec::default()));
        if room[0].revents().contains(PollFlags::OUT) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::{region, region_and_file};
    use crate::ring::RingPlaces;
    use crate::state::tests::disk;
    use iopath::testing::{MemoryConfig, MemoryDisk};
    use iopath::{Options, Volume};
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn no_completion_is_published_after_a_page_was_lost() {
        let volume = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20)).unwrap();
        let volume = Volume::memory(&volume, &Options::new()).unwrap();
        let (mut io, mut bounce, disk) =
            (QueueIo::new(&volume, 0, None).unwrap(), Bounce::default(), disk(&volume));
        // The ring and the request lie in one region, and the lost page in another.
        let (first, (lost, file)) = (region(0, 0x2000), region_and_file(0x2000, 0x1000));
        let places = RingPlaces {
            size: 4,
            descriptors: first.user,
            available: first.user + 0x100,
            used: first.user + 0x200,
        };
        let memory = Arc::new(GuestMemory::new(vec![first, lost]).unwrap());
        let descriptor = |at: u64, address: u64, bytes: u32, flags: u16, next: u16| {
            let rest = u64::from(bytes) | u64::from(flags) << 32 | u64::from(next) << 48;
            memory.write(at, &[address.to_le_bytes(), rest.to_le_bytes()].concat()).unwrap();
        };
        descriptor(0, 0x1000, 16, 1, 1);
        descriptor(16, 0x1100, 21, 2, 0);
        // The name of the disk.
        memory.write(0x1000, &8u32.to_le_bytes()).unwrap();
        memory.write(0x100, &[0, 0, 1, 0, 0, 0]).unwrap();
        let ring = Ring::new(places, &memory, 0, false).unwrap();
        let kick = || File::from(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let mut running =
            Running::new(0, ring, Arc::clone(&memory), Negotiated::default(), (kick(), None), None).unwrap();
        assert_eq!(running.take(&mut io, &mut bounce, &disk), Ok(true));
        assert_eq!(running.completed.len(), 1);
        // As another queue, which finds the page lost while this one's request is in flight.
        file.set_len(0).unwrap();
        assert_eq!(memory.read(0x2000, &mut [0]), Err(Fault::Truncated));
        assert_eq!(running.publish(), Err(Fault::Truncated));
        assert_eq!(running.ring.published(), Ok(0));
    }
}
