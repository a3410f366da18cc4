//! The end of a device: no memory of a request is used after it, and the ring may serve another device.

use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;

use super::enter::{enter, passes};
use super::{LoneFlush, RealDevice, Uring, entries};

impl<T> Uring<T> {
    /// Waits until the kernel uses no memory of a request. Uncommitted requests are not begun.
    fn end_requests(&mut self) {
        let not_begun = (self.untaken.len() + self.failed.len()) as u32;
        // A lone flush has no entry.
        let lone = u32::from(self.lone_flush != LoneFlush::None);
        let mut in_kernel = self.in_flight() + u32::from(self.ends_watch) - not_begun - lone;
        loop {
            in_kernel -= self.ring.completion().count() as u32;
            if in_kernel == 0 {
                return;
            }
            let entered = enter(self.ring.as_raw_fd(), 0, in_kernel, None);
            if matches!(entered, Err(error) if !passes(&error)) {
                // Other code closed our descriptor. The kernel would write to memory after it is freed.
                std::process::abort();
            }
        }
    }

    /// Whether the ring is as it was set up, except for its file and the positions in it. Call it after
    /// [`Uring::end_requests`].
    fn is_as_new(&mut self) -> bool {
        let is_idle = self.in_flight() == 0 && !self.ends_watch && self.retry_at.is_none();
        let has_no_entry = self.ring.submission().is_empty() && !self.ring.submission().cq_overflow();
        let is_usable = self.refused.is_none();
        is_usable && is_idle && has_no_entry && self.notifier.is_none() && self.registered.is_none()
    }
}

impl<T> Drop for Uring<T> {
    /// Waits for the requests in flight.
    fn drop(&mut self) {
        self.end_requests();
        let rings = self.rings.take().filter(|_| self.is_as_new());
        let entries = entries(self.slots.len() as u32, self.is_of_one_thread);
        // SAFETY: this is its last use.
        let ring = unsafe { ManuallyDrop::take(&mut self.ring) };
        match rings {
            Some(rings) => rings.pool.put(ring, entries),
            None => drop(ring),
        }
    }
}
