//! Reads: look-ups under the lock, readahead, and callers that wait for pages.

use super::{Absent, Frame, Lookup, NO_WAITER, Outcome, PageCache, Ready, State, Waiting};
use crate::file::page::{Page, PageRange};

impl PageCache {
    /// Looks `page` up, and starts a read if it is absent. After [`Lookup::Wait`], [`PageCache::poll_ready`] returns
    /// `waiter` with the pinned page, with an error, or with [`Outcome::Retry`].
    pub fn read(&mut self, page: Page, waiter: u64) -> Lookup {
        match self.hot.try_pin(page) {
            Ok(pinned) => {
                self.stats.hits += 1;
                return Lookup::Hit(pinned);
            }
            Err(Absent { frees_frame: true }) => self.wake_starved(),
            Err(_) => {}
        }
        self.wait_for_page(page, waiter, true);
        Lookup::Wait
    }

    /// Whether `page` is cached or being read.
    pub fn is_cached(&self, page: Page) -> bool {
        self.hot.find(page).is_some()
    }

    /// Starts reads of the absent pages of a window, and returns their number. Stops when no frame is free. The first
    /// read that reaches a page for which `is_marked` is true reports the marker.
    pub fn read_ahead(&mut self, pages: PageRange, is_marked: impl Fn(Page) -> bool) -> u64 {
        /// Far enough that the memory arrives in time, near enough that it stays in the processor's cache.
        const PREFETCH_PAGES: u64 = 16;
        let mut taken = 0;
        for page in pages.iter() {
            self.prefetch(page + PREFETCH_PAGES);
            if self.hot.find(page).is_some() {
                continue;
            }
            let Some(frame) = self.spare_in_budget() else { break };
            self.place(page, State::ToRead, frame);
            let meta = self.meta(frame);
            meta.is_ahead = true;
            meta.is_marked = is_marked(page);
            self.links.push_back(&mut self.to_read, frame);
            taken += 1;
        }
        self.stats.readahead += taken;
        taken
    }

    /// Removes the marker of a page that is being read. Returns whether it had one; then call
    /// [`crate::file::readahead::Readahead::on_marker`].
    pub fn take_mark(&mut self, page: Page) -> bool {
        let Some(frame) = self.hot.find(page) else { return false };
        std::mem::take(&mut self.meta(frame).is_marked)
    }

    /// Whether `waiter` waits for any frame. If so, call [`PageCache::handle_unpinned`] from time to time: a reader
    /// that only copies a page ([`Hot::visit`](super::Hot::visit)) does not report that it has left the frame.
    pub fn is_starved(&self, waiter: u64) -> bool {
        self.starved.contains(&waiter)
    }

    /// Ends the wait of `waiter` for any frame. Returns whether it waited.
    pub fn stop_starving(&mut self, waiter: u64) -> bool {
        let Some(index) = self.starved.iter().position(|starved| *starved == waiter) else { return false };
        self.starved.remove(index);
        self.hot.set_starved(!self.starved.is_empty());
        true
    }

    /// Call this when [`super::Hot::unpin`] has reported that a frame lost its last pin while a caller waits for a
    /// frame.
    pub fn handle_unpinned(&mut self) {
        self.budget.free_up();
        self.wake_starved();
    }

    /// Waits for `page`, and starts a read if it is absent.
    pub(super) fn wait_for_page(&mut self, page: Page, waiter: u64, wants_pin: bool) {
        if let Some(frame) = self.hot.find(page) {
            self.stats.joins += 1;
            self.wait_for(frame, waiter, wants_pin);
            return;
        }
        self.stats.misses += 1;
        match self.take_frame(page, State::ToRead) {
            Some(frame) => {
                self.links.push_back(&mut self.to_read, frame);
                self.wait_for(frame, waiter, wants_pin);
            }
            None => self.wait_for_frame(waiter),
        }
    }

    pub(super) fn wait_for(&mut self, frame: u32, token: u64, wants_pin: bool) {
        let next = self.meta(frame).waiters;
        self.meta(frame).waiters = self.waiting.insert(Waiting { token, wants_pin, next }) as u32;
    }

    /// Admits readers to a frame, and sets the outcomes of its waiters.
    pub(super) fn publish(&mut self, frame: u32) {
        let waiters = std::mem::replace(&mut self.meta(frame).waiters, NO_WAITER);
        let is_marked = std::mem::take(&mut self.meta(frame).is_marked);
        let pins = self.complete(waiters, |waiting| {
            if waiting.wants_pin { Outcome::Pinned(Frame(frame)) } else { Outcome::Retry }
        });
        self.hot.publish(frame, pins, is_marked);
    }

    /// Assigns a page that has just been read to the first writer that waits for it, unless readers wait as well. If
    /// the writer had to retry, the page could be evicted before each retry, without end. During direct I/O the writer
    /// retries nevertheless, and waits for the end of the direct I/O. It also retries without room for a dirty page.
    pub(super) fn assign_to_writer(&mut self, frame: u32) -> bool {
        if self.directs.blocks(self.frames[frame as usize].page) || !self.has_room() {
            return false;
        }
        let first = self.meta(frame).waiters;
        let mut next = first;
        while next != NO_WAITER {
            let waiting = self.waiting[next as usize];
            if waiting.wants_pin {
                return false;
            }
            next = waiting.next;
        }
        if first == NO_WAITER {
            return false;
        }
        let Waiting { token, next, .. } = self.waiting.remove(first as usize);
        self.meta(frame).waiters = next;
        self.hold(frame);
        self.ready.push_back(Ready { waiter: token, outcome: Outcome::Writable(Frame(frame)) });
        true
    }

    /// Sets the outcome of all waiters of a frame whose page is not available.
    pub(super) fn dismiss(&mut self, frame: u32, outcome: Outcome) {
        let waiters = std::mem::replace(&mut self.meta(frame).waiters, NO_WAITER);
        self.complete(waiters, |_| outcome);
    }

    /// Sets the outcomes of a list of waiters. Returns the number of pins among them.
    fn complete(&mut self, mut waiter: u32, outcome: impl Fn(&Waiting) -> Outcome) -> u32 {
        let mut pins = 0;
        while waiter != NO_WAITER {
            let waiting = self.waiting.remove(waiter as usize);
            let outcome = outcome(&waiting);
            pins += u32::from(matches!(outcome, Outcome::Pinned(_)));
            self.ready.push_back(Ready { waiter: waiting.token, outcome });
            waiter = waiting.next;
        }
        pins
    }

    /// Waits for any frame.
    pub(super) fn wait_for_frame(&mut self, waiter: u64) {
        self.stats.starved += 1;
        self.starved.push_back(waiter);
        self.hot.set_starved(true);
        // A thread may have removed the last pin of a frame before it saw the new waiter.
        self.wake_starved();
    }

    /// If a frame is free, makes the callers that wait for a frame retry.
    pub(super) fn wake_starved(&mut self) {
        if self.starved.is_empty() {
            return;
        }
        if self.free_frames() == 0 && !self.budget.has_vacated() {
            let Some(frame) = self.reap_orphan().or_else(|| self.evict()) else { return };
            *self.meta(frame) = super::Meta::FREE;
            self.links.push_back(&mut self.free, frame);
        }
        self.hot.set_starved(false);
        let retry = |waiter| Ready { waiter, outcome: Outcome::Retry };
        self.ready.extend(self.starved.drain(..).map(retry));
    }
}
