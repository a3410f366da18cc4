//! A request queue in front of its device, and the pump between the two.
//!
//! The pump decides nothing: the queue splits, merges and orders bios (`queue.rs`), the device executes requests
//! (`device.rs`). The pump never waits: a caller in real time waits in the device; a caller in virtual time advances
//! its clock to [`QueuedDevice::poll_timeout`].

use crate::block::bio::{Bio, BioDone};
use crate::block::device::BlockDevice;
use crate::block::queue::{QueueConfig, RequestQueue, SubmitError};
use crate::time::Instant;

/// A [`BlockDevice`] behind a [`RequestQueue`] of its own.
///
/// ```text
/// submit_bio ──▶ plug ── unplug ──▶ elevator ── dispatch ──▶ device.submit ── commit ──▶ device executes
///                                       ▲                        │ busy                        │
///                                       └─────── requeue ────────┘                             │
/// poll_completion ◀──── completed bios ◀──────── collect ◀──────── device.poll_completion ◀────┘
/// ```
///
/// One round of calls is: `submit_bio` for each bio, `unplug`, `dispatch`, `commit`, wait, `collect`, `poll_completion`
/// until it returns `None`. Nothing is allocated for an I/O.
///
/// A dropped `QueuedDevice` drops the device first. A real device waits for its requests in flight; bios that are still
/// in the queue were never begun.
///
/// ```
/// use iopath_core::{Bio, Extent, Instant, LengthOnly, QueueConfig, QueuedDevice, Sector};
/// # use iopath_core::{BlockDevice, Busy, Completion, Io, Limits, Tag};
/// # use std::collections::VecDeque;
/// # struct Disk(Limits, VecDeque<Tag>);
/// # impl Disk { fn new(sectors: u64) -> Self { Self(Limits::with_capacity(sectors), VecDeque::new()) } }
/// # impl BlockDevice for Disk {
/// #     type Memory = LengthOnly;
/// #     fn limits(&self) -> &Limits { &self.0 }
/// #     fn submit(&mut self, io: &Io<'_, LengthOnly>, _: Instant) -> Result<(), Busy> {
/// #         self.1.push_back(io.tag);
/// #         Ok(())
/// #     }
/// #     fn commit(&mut self, _: Instant) {}
/// #     fn poll_completion(&mut self, _: Instant) -> Option<Completion> {
/// #         Some(Completion { tag: self.1.pop_front()?, result: Ok(()) })
/// #     }
/// # }
///
/// let (mut disk, now) = (QueuedDevice::new(Disk::new(10_000), &QueueConfig::default()), Instant::ZERO);
/// for block in 0..2 {
///     let extent = Extent::new(Sector(8 * block), 8).expect("within the address space");
///     disk.submit_bio(Bio::read(extent, LengthOnly::new(4096), block), now)?;
/// }
/// disk.unplug(now);
/// disk.dispatch(now);
/// disk.commit(now);
/// disk.collect(now);
/// assert_eq!(disk.queue().stats().dispatched, 1, "the two bios became one request");
/// assert_eq!(std::iter::from_fn(|| disk.poll_completion()).count(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct QueuedDevice<D: BlockDevice> {
    // Dropped in this order: the device waits for its I/O on the memory of the queue's bios.
    device: D,
    queue: RequestQueue<D::Memory>,
    is_plugged: bool,
}

impl<D: BlockDevice> QueuedDevice<D> {
    /// A queue with this configuration in front of `device`. The queue takes the device's limits.
    ///
    /// The device must have no request in flight, since the queue would mistake its completion for one of its own.
    pub fn new(device: D, config: &QueueConfig) -> Self {
        let queue = RequestQueue::new(device.limits().clone(), config);
        Self { device, queue, is_plugged: false }
    }

    /// The device.
    pub const fn device(&self) -> &D {
        &self.device
    }

    /// The device, to wait in it. Do not submit to it or poll its completions: the queue would miss them.
    pub const fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// The queue: its statistics, limits and counters.
    pub const fn queue(&self) -> &RequestQueue<D::Memory> {
        &self.queue
    }

    /// The queue, to set its elevator, its log or its capacity. I/O goes through the methods of this type.
    pub const fn queue_mut(&mut self) -> &mut RequestQueue<D::Memory> {
        &mut self.queue
    }

    /// Whether the queue is plugged.
    pub const fn is_plugged(&self) -> bool {
        self.is_plugged
    }

    /// Plugs the queue until [`QueuedDevice::unplug`]. Does nothing if it is plugged.
    #[inline]
    pub fn plug(&mut self) {
        if !self.is_plugged {
            self.is_plugged = true;
            self.queue.plug();
        }
    }

    /// Submits a bio to the queue. Plugs the queue if it is not plugged, so that the bio can merge with others until
    /// [`QueuedDevice::unplug`].
    ///
    /// # Errors
    /// The queue's: see [`RequestQueue::submit_bio`]. The bio is in the error.
    #[inline]
    pub fn submit_bio(&mut self, bio: Bio<D::Memory>, now: Instant) -> Result<(), SubmitError<D::Memory>> {
        self.plug();
        self.queue.submit_bio(bio, now)
    }

    /// Moves plugged requests to the elevator. Does nothing if the queue is not plugged.
    #[inline]
    pub fn unplug(&mut self, now: Instant) {
        if std::mem::take(&mut self.is_plugged) {
            self.queue.unplug(now);
        }
    }

    /// Moves plugged requests to the elevator, and leaves the queue plugged.
    pub fn empty_plug(&mut self, now: Instant) {
        if self.is_plugged {
            self.queue.empty_plug(now);
        }
    }

    /// Submits requests to the device until the device is busy or at its depth, or no request is due. The device may
    /// delay their start until [`QueuedDevice::commit`].
    #[inline]
    pub fn dispatch(&mut self, now: Instant) {
        // Opens the gate of a busy device whose retry is due.
        self.queue.handle_timeout(now);
        while let Some(io) = self.queue.poll_dispatch(now) {
            let tag = io.tag;
            if let Err(busy) = self.device.submit(&io, now) {
                debug_assert_eq!(busy.tag, tag, "the device refuses another request than the submitted one");
                self.queue.requeue(busy.tag, now);
            }
        }
    }

    /// Makes the device start the submitted requests: see [`BlockDevice::commit`].
    #[inline]
    pub fn commit(&mut self, now: Instant) {
        self.device.commit(now);
    }

    /// Moves completions from the device to the queue, without waiting. Call [`QueuedDevice::dispatch`] and
    /// [`QueuedDevice::commit`] afterwards: a completion makes room at the device, and a polled device may have to
    /// continue a short transfer.
    #[inline]
    pub fn collect(&mut self, now: Instant) {
        while let Some(done) = self.device.poll_completion(now) {
            self.queue.handle_completion(done.tag, done.result, now);
        }
    }

    /// The next bio that has completed, as of the last [`QueuedDevice::collect`].
    #[inline]
    pub fn poll_completion(&mut self) -> Option<BioDone> {
        self.queue.poll_completion()
    }

    /// The latest time at which to call `collect`, `dispatch` and `commit` again: the earlier of the queue's time and
    /// the device's. The queue has a time while its elevator holds requests back, or to retry a busy device.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match (self.queue.poll_timeout(), self.device.poll_timeout()) {
            (Some(queue), Some(device)) => Some(queue.min(device)),
            (queue, device) => queue.or(device),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::bio::Op;
    use crate::block::request::Tag;
    use crate::block::timed_disk::{SERVICE, TimedDisk};
    use crate::memory::LengthOnly;
    use crate::sector::{Extent, Sector};

    fn read(block: u64) -> Bio<LengthOnly> {
        Bio::read(Extent::new(Sector(16 * block), 8).unwrap(), LengthOnly::new(4096), block)
    }

    #[test]
    fn a_virtual_clock_that_follows_the_timeout_completes_every_bio() {
        let (mut disk, mut now) =
            (QueuedDevice::new(TimedDisk::new(2, 512), &QueueConfig::default()), Instant::ZERO);
        for block in 0..6 {
            disk.submit_bio(read(block), now).unwrap();
        }
        assert!(disk.is_plugged() && disk.device().submitted.is_empty());
        disk.unplug(now);
        let mut completed = Vec::new();
        while disk.queue().bios_in() > 0 {
            disk.dispatch(now);
            disk.commit(now);
            now = disk.poll_timeout().expect("the device has requests in flight");
            disk.collect(now);
            completed.extend(std::iter::from_fn(|| disk.poll_completion()).map(|done| done.token));
        }
        assert_eq!(completed, [0, 1, 2, 3, 4, 5]);
        assert_eq!(now, Instant::ZERO + SERVICE * 3, "two at a time");
        assert!(disk.queue().stats().requeued > 0, "the device had no room for a request and refused it");
    }

    #[test]
    fn the_timeout_is_the_earlier_of_queue_and_device() {
        let mut disk = QueuedDevice::new(TimedDisk::new(0, 512), &QueueConfig::default());
        disk.submit_bio(read(0), Instant::ZERO).unwrap();
        disk.unplug(Instant::ZERO);
        disk.dispatch(Instant::ZERO);
        let retry = disk.poll_timeout().expect("a busy device without requests in flight is tried again");
        assert_eq!(Some(retry), disk.queue().poll_timeout());
        for (due, expected) in [(retry + SERVICE, retry), (Instant::ZERO, Instant::ZERO)] {
            disk.device_mut().in_flight = [(due, Tag::from_bits(9))].into();
            assert_eq!(disk.poll_timeout(), Some(expected));
        }
        disk.device_mut().in_flight.clear();
        disk.device_mut().depth = 1;
        disk.dispatch(retry);
        assert_eq!(disk.device().submitted.len(), 1, "the retry is due");
    }

    #[test]
    fn emptying_the_plug_keeps_the_queue_plugged() {
        let (mut disk, now) =
            (QueuedDevice::new(TimedDisk::new(4, 512), &QueueConfig::default()), Instant::ZERO);
        disk.submit_bio(read(0), now).unwrap();
        disk.empty_plug(now);
        disk.dispatch(now);
        assert_eq!((disk.device().submitted.len(), disk.is_plugged()), (1, true));
        disk.submit_bio(read(1), now).unwrap();
        disk.dispatch(now);
        assert_eq!(disk.device().submitted.len(), 1, "the second bio is plugged");
        disk.unplug(now);
        disk.dispatch(now);
        assert_eq!((disk.device().submitted.len(), disk.is_plugged()), (2, false));
    }

    #[test]
    fn a_refused_bio_is_returned_and_the_queue_stays_usable() {
        let (mut disk, now) =
            (QueuedDevice::new(TimedDisk::new(4, 512), &QueueConfig::default()), Instant::ZERO);
        let beyond = Bio { extent: Extent::new(Sector(1 << 20), 8).unwrap(), ..read(0) };
        assert!(matches!(disk.submit_bio(beyond, now), Err(SubmitError::OutOfRange { .. })));
        assert_eq!(disk.queue().bios_in(), 0);
        let flush = Bio { op: Op::Flush, extent: Extent::EMPTY, memory: None, ..read(7) };
        disk.submit_bio(flush, now).unwrap();
        disk.unplug(now);
        assert_eq!(
            disk.poll_completion().map(|done| done.token),
            Some(7),
            "a device without a cache needs no flush"
        );
    }
}
