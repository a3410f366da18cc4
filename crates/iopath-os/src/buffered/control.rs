//! Flushes and advice: what is neither a read nor a write.

use iopath_core::cache::Outcome;
use iopath_core::readahead::Pattern;
use iopath_core::{IoError, Page, PageRange};

use super::wait::Locked;
use super::{Buffered, BufferedError, Shared};
use crate::clock;

/// What a program says of its reads to come (`posix_fadvise(2)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Nothing: patterns are found. What it takes back.
    Normal,
    /// One after another: the first read starts a full window.
    Sequential,
    /// At random: nothing is read ahead.
    Random,
    /// The range will be read soon: it is read now, as far as a part of the cache holds it.
    WillNeed,
    /// The range will not be read soon: its clean pages go.
    DontNeed,
    /// What is read is not read again: it makes room before all else.
    NoReuse,
}

impl Buffered {
    /// Every write that has returned goes to the medium.
    pub fn flush(&self) -> Result<(), BufferedError> {
        let mut state = self.shared.lock();
        let waiter = state.enlist();
        state.cache.flush(waiter as u64);
        self.shared.finish(state, waiter)
    }

    /// Every write to the `bytes` bytes from `offset` on that has returned goes to the medium. What is dirty elsewhere
    /// may stay so.
    pub fn flush_range(&self, offset: u64, bytes: u64) -> Result<(), BufferedError> {
        let range = PageRange::touched_by(offset, bytes, self.shared.page_bytes as u32);
        let mut state = self.shared.lock();
        let waiter = state.enlist();
        state.cache.flush_range(range, waiter as u64);
        self.shared.finish(state, waiter)
    }

    /// The caller knows that bytes were lost that a flush of the device should have saved, and has seen to it: flushes
    /// may succeed again. What was lost, as the device said; `None` if nothing was.
    pub fn accept_loss(&self) -> Option<IoError> {
        let mut state = self.shared.lock();
        let loss = state.cache.loss();
        state.cache.forget_loss();
        loss
    }

    /// Every write that has returned goes to the device, if not to the medium.
    pub fn write_back(&self) -> Result<(), BufferedError> {
        let mut state = self.shared.lock();
        let waiter = state.enlist();
        state.cache.write_back(PageRange::ALL, waiter as u64);
        self.shared.finish(state, waiter)
    }

    /// How the `bytes` bytes from `offset` on will be used; patterns are for all of the volume.
    pub fn advise(&self, offset: u64, bytes: u64, advice: Advice) {
        let mut state = self.shared.lock();
        state.now = clock::now();
        // What lies behind the end would take frames from what does not.
        let pages = state.place.pages(offset, bytes).and(PageRange::between(Page(0), state.place.end()));
        match advice {
            Advice::Normal => {
                state.readahead.set_pattern(Pattern::Normal);
                state.cache.set_keep(true);
            }
            Advice::Sequential => state.readahead.set_pattern(Pattern::Sequential),
            Advice::Random => state.readahead.set_pattern(Pattern::Random),
            Advice::NoReuse => state.cache.set_keep(false),
            Advice::WillNeed => {
                let half = u64::from(state.cache.config().frames / 2);
                let first = PageRange::new(pages.start(), pages.pages().min(half));
                state.cache.read_ahead(first, |_| false);
            }
            Advice::DontNeed => {
                state.cache.invalidate(pages);
            }
        }
        state.settle();
    }
}

impl Shared {
    /// Waits for something that is done or fails.
    pub(super) fn finish(&self, mut state: Locked<'_>, waiter: usize) -> Result<(), BufferedError> {
        state.now = clock::now();
        state.settle();
        match self.wait(state, waiter)?.1 {
            Outcome::Done => Ok(()),
            Outcome::Failed(error) => Err(error.into()),
            other => unreachable!("a flush is told {other:?}"),
        }
    }
}
