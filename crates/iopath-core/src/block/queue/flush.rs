//! Flushes: one covers every write completed before it was submitted, so flushes that wait go together.

use crate::block::request::Tag;

/// Bios that wait for a flush of the device: flushes, and writes with forced unit access on a device that
/// has none.
#[derive(Debug)]
pub(crate) struct Flush {
    /// The request slot kept for flushes: there is never more than one at the device.
    pub(crate) tag: Tag,
    waiting: Vec<u32>,
    /// Bios that the flush at the device covers.
    covered: Vec<u32>,
    is_running: bool,
}

impl Flush {
    pub(crate) fn new(tag: Tag, bios_max: usize) -> Self {
        Self {
            tag,
            waiting: Vec::with_capacity(bios_max),
            covered: Vec::with_capacity(bios_max),
            is_running: false,
        }
    }

    /// Adds a bio to those that the next flush covers.
    pub(crate) fn wait(&mut self, slot: u32) {
        self.waiting.push(slot);
    }

    /// Starts a flush for all that wait, unless one is running or nothing waits.
    pub(crate) fn start(&mut self) -> Option<Tag> {
        if self.is_running || self.waiting.is_empty() {
            return None;
        }
        self.is_running = true;
        std::mem::swap(&mut self.waiting, &mut self.covered);
        Some(self.tag)
    }

    /// The running flush has completed.
    pub(crate) fn finish(&mut self) {
        assert!(self.is_running, "a flush completed that was not at the device");
        self.is_running = false;
    }

    /// The next bio that the finished flush covered.
    pub(crate) fn poll_covered(&mut self) -> Option<u32> {
        if self.is_running { None } else { self.covered.pop() }
    }
}
