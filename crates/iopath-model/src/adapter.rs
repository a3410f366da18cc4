//! A host adapter that several devices share: it has a limited number of command slots, and an order in which waiting
//! devices get a freed slot. The time on the wire is in `link.rs`; the adapter itself takes no time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iopath_core::{BlockDevice, Busy, Completion, Extent, Instant, Io, Limits, Op, Priority, Stream, Tag};

/// Which of the waiting devices gets a freed slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotOrder {
    /// The device whose request has completed, or else the first waiting device in the order of attachment. So the
    /// devices at the end of the list wait longer. The SCSI layer of Linux 2.4 scans its devices this way
    /// (`scsi_queue_next_request` in `drivers/scsi/scsi_lib.c`).
    Scan,
    /// The devices in turn.
    RoundRobin,
}

/// The slots of an adapter. A clone refers to the same adapter.
///
/// A request holds a slot from submission to completion. Without a free slot, it waits in the line of its device.
#[derive(Debug, Clone)]
pub struct Adapter {
    slots: Arc<Mutex<Slots>>,
}

#[derive(Debug)]
struct Slots {
    free: u32,
    order: SlotOrder,
    /// The device after the one that got the latest slot.
    next: usize,
    devices: Vec<Line>,
}

/// The line of a device, as the adapter sees it.
#[derive(Debug, Default)]
struct Line {
    /// Requests without a slot.
    waiting: u32,
    /// Slots for the first of them, since this time.
    granted: u32,
    since: Instant,
}

impl Slots {
    /// Takes a free slot for a new request, or adds the request to the line of its device.
    fn take(&mut self, device: usize) -> bool {
        if self.free == 0 {
            self.devices[device].waiting += 1;
            return false;
        }
        self.free -= 1;
        self.next = (device + 1) % self.devices.len();
        true
    }

    /// Gives the slot of a completed request of `device` to the next waiting request.
    fn release(&mut self, device: usize, now: Instant) {
        let waits = |index: &usize| self.devices[*index].waiting > 0;
        let (all, next) = (0..self.devices.len(), self.next);
        let chosen = match self.order {
            SlotOrder::Scan => Some(device).filter(waits).or_else(|| all.clone().find(waits)),
            SlotOrder::RoundRobin => (next..all.end).chain(0..next).find(waits),
        };
        let Some(chosen) = chosen else {
            self.free += 1;
            return;
        };
        self.next = (chosen + 1) % self.devices.len();
        let line = &mut self.devices[chosen];
        line.waiting -= 1;
        line.granted += 1;
        line.since = now;
    }
}

impl Adapter {
    /// An adapter with `slots` slots, at least one.
    pub fn new(slots: u32, order: SlotOrder) -> Self {
        let slots = Slots { free: slots.max(1), order, next: 0, devices: Vec::new() };
        Self { slots: Arc::new(Mutex::new(slots)) }
    }

    /// Puts the adapter in front of `device`, as the last in the order of devices.
    pub fn attach<D: BlockDevice>(&self, device: D) -> Attached<D> {
        let mut slots = self.slots();
        slots.devices.push(Line::default());
        let index = slots.devices.len() - 1;
        drop(slots);
        let (adapter, waiting) = (self.clone(), VecDeque::new());
        Attached { inner: device, adapter, index, waiting, held: 0, spare: Vec::new() }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A device behind an [`Adapter`], with the limits of the device.
#[derive(Debug)]
pub struct Attached<D: BlockDevice> {
    inner: D,
    adapter: Adapter,
    /// Its place in the order of devices.
    index: usize,
    /// Requests without a slot, in the order of submission.
    waiting: VecDeque<Waiting<D::Memory>>,
    /// Requests with and without a slot: at most as many as the device accepts, so the device refuses none.
    held: u32,
    /// Lists of segments for further requests.
    spare: Vec<Vec<D::Memory>>,
}

/// A request without a slot.
#[derive(Debug)]
struct Waiting<M> {
    tag: Tag,
    op: Op,
    extent: Extent,
    fua: bool,
    stream: Stream,
    priority: Priority,
    segments: Vec<M>,
}

impl<D: BlockDevice> Attached<D> {
    /// Submits the requests that have got a slot.
    fn submit_granted(&mut self, now: Instant) {
        let mut has_submitted = false;
        loop {
            let mut slots = self.adapter.slots();
            let line = &mut slots.devices[self.index];
            if line.granted == 0 {
                break;
            }
            let Some(first) = self.waiting.front() else { break };
            let mut io = Io::new(first.tag, first.op, first.extent, &first.segments);
            (io.fua, io.stream, io.priority) = (first.fua, first.stream, first.priority);
            if self.inner.submit(&io, now).is_err() {
                break;
            }
            line.granted -= 1;
            has_submitted = true;
            drop(slots);
            if let Some(mut first) = self.waiting.pop_front() {
                first.segments.clear();
                self.spare.push(first.segments);
            }
        }
        if has_submitted {
            self.inner.commit(now);
        }
    }
}

impl<D: BlockDevice> BlockDevice for Attached<D> {
    type Memory = D::Memory;

    fn limits(&self) -> &Limits {
        self.inner.limits()
    }

    fn submit(&mut self, io: &Io<'_, D::Memory>, now: Instant) -> Result<(), Busy> {
        self.submit_granted(now);
        if self.held >= self.inner.limits().depth_max {
            return Err(Busy { tag: io.tag });
        }
        if self.adapter.slots().take(self.index) {
            let submitted = self.inner.submit(io, now);
            match submitted {
                Ok(()) => self.held += 1,
                Err(_) => self.adapter.slots().release(self.index, now),
            }
            return submitted;
        }
        self.held += 1;
        let mut segments = self.spare.pop().unwrap_or_default();
        segments.extend(io.segments());
        self.waiting.push_back(Waiting {
            tag: io.tag,
            op: io.op,
            extent: io.extent,
            fua: io.fua,
            stream: io.stream,
            priority: io.priority,
            segments,
        });
        Ok(())
    }

    fn commit(&mut self, now: Instant) {
        self.submit_granted(now);
        self.inner.commit(now);
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        self.submit_granted(now);
        let done = self.inner.poll_completion(now)?;
        self.held -= 1;
        self.adapter.slots().release(self.index, now);
        self.submit_granted(now);
        Some(done)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let slots = self.adapter.slots();
        let line = &slots.devices[self.index];
        let granted = (line.granted > 0).then_some(line.since);
        [granted, self.inner.poll_timeout()].into_iter().flatten().min()
    }
}
