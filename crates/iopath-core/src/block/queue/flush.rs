//! Flushes of the device. A flush covers every write that completed before its submission, so one flush serves all bios
//! that wait for one.

use crate::block::request::Tag;

/// Bios that wait for a flush of the device: flushes, and writes with forced unit access if the device does not support
/// it.
#[derive(Debug)]
pub(crate) struct Flush {
    /// The request slot reserved for flushes: at most one is in flight.
    pub(crate) tag: Tag,
    waiting: Vec<u32>,
    /// The bios that the flush in flight covers.
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

    /// Adds a bio for the next flush to cover.
    pub(crate) fn wait(&mut self, slot: u32) {
        self.waiting.push(slot);
    }

    /// Starts a flush for all waiting bios, unless one is in flight or no bio waits.
    pub(crate) fn start(&mut self) -> Option<Tag> {
        if self.is_running || self.waiting.is_empty() {
            return None;
        }
        self.is_running = true;
        // A bio that comes from now on waits for the next flush: this one may not cover the writes before it.
        std::mem::swap(&mut self.waiting, &mut self.covered);
        Some(self.tag)
    }

    /// The flush in flight has completed.
    pub(crate) fn finish(&mut self) {
        assert!(self.is_running, "the completed flush was not in flight");
        self.is_running = false;
    }

    /// The next bio that the completed flush covered.
    pub(crate) fn poll_covered(&mut self) -> Option<u32> {
        if self.is_running { None } else { self.covered.pop() }
    }
}
