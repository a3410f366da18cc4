//! Reads: look-ups under the lock, readahead, and those who wait for pages.

use super::{Absent, Frame, Lookup, NOBODY, Outcome, PageCache, Ready, State, Waiting};
use crate::file::page::{Page, PageRange};

impl PageCache {
    /// Looks for `page`, and has it read if it is not there. [`Lookup::Wait`]: `waiter` comes back from
    /// [`PageCache::poll_ready`] with the page pinned, with an error, or to try again.
    pub fn read(&mut self, page: Page, waiter: u64) -> Lookup {
        match self.hot.try_pin(page) {
            Ok(pinned) => {
                self.stats.hits += 1;
                return Lookup::Hit(pinned);
            }
            Err(Absent { frees_frame: true }) => self.feed_starved(),
            Err(_) => {}
        }
        self.wait_for_page(page, waiter, true);
        Lookup::Wait
    }

    /// Whether `page` is there or on its way.
    pub fn is_cached(&self, page: Page) -> bool {
        self.hot.find(page).is_some()
    }

    /// Has the pages of a readahead window read that are neither there nor on their way; how many. Ends where no
    /// frame can be had. A page of which `is_marked` says so reports when it is reached first.
    pub fn read_ahead(&mut self, pages: PageRange, is_marked: impl Fn(Page) -> bool) -> u64 {
        /// Soon enough to be there in time, and not so soon as to be gone again.
        const FORESEEN: u64 = 16;
        let mut taken = 0;
        for page in pages.iter() {
            self.prefetch(page + FORESEEN);
            if self.hot.find(page).is_some() {
                continue;
            }
            let Some(frame) = self.take_frame(page, State::ToRead) else { break };
            let meta = self.meta(frame);
            meta.is_ahead = true;
            meta.is_marked = is_marked(page);
            self.links.push_back(&mut self.to_read, frame);
            taken += 1;
        }
        self.stats.readahead += taken;
        taken
    }

    /// Takes the mark off a page that is on its way: whether it has been reached while it bore one, which is for
    /// [`crate::file::readahead::Readahead::on_marker`].
    pub fn take_mark(&mut self, page: Page) -> bool {
        let Some(frame) = self.hot.find(page) else { return false };
        std::mem::take(&mut self.meta(frame).is_marked)
    }

    /// Whether `waiter` waits for any frame: then also from time to time for [`PageCache::handle_unpinned`], as a reader
    /// that only copies a page ([`Hot::visit`](super::Hot::visit)) does not report its end.
    pub fn is_starved(&self, waiter: u64) -> bool {
        self.starved.contains(&waiter)
    }

    /// `waiter` waits for any frame no longer; whether it did.
    pub fn stop_starving(&mut self, waiter: u64) -> bool {
        let Some(place) = self.starved.iter().position(|starved| *starved == waiter) else { return false };
        self.starved.remove(place);
        self.hot.set_starved(!self.starved.is_empty());
        true
    }

    /// A frame has lost its last pin while somebody waited for one: [`super::Hot::unpin`] said so.
    pub fn handle_unpinned(&mut self) {
        self.feed_starved();
    }

    /// Waits for `page`, and has it read if it is absent.
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
            None => self.starve(waiter),
        }
    }

    pub(super) fn wait_for(&mut self, frame: u32, token: u64, wants_pin: bool) {
        let next = self.meta(frame).waiters;
        self.meta(frame).waiters = self.waiting.insert(Waiting { token, wants_pin, next }) as u32;
    }

    /// Lets readers at a frame, and tells those who waited for it.
    pub(super) fn publish(&mut self, frame: u32) {
        let waiters = std::mem::replace(&mut self.meta(frame).waiters, NOBODY);
        let is_marked = std::mem::take(&mut self.meta(frame).is_marked);
        let pins = self.tell(waiters, |waiting| {
            if waiting.wants_pin { Outcome::Pinned(Frame(frame)) } else { Outcome::Retry }
        });
        self.hot.publish(frame, pins, is_marked);
    }

    /// Gives a page that has just been read to the writer who had it read, unless readers wait for it, too. Were the
    /// writer told to try again, the page might be gone by then, and so on for ever. Under direct I/O the writer tries
    /// again all the same, and waits for its end.
    pub(super) fn hand_to_writer(&mut self, frame: u32) -> bool {
        if self.directs.blocks(self.frames[frame as usize].page) {
            return false;
        }
        let first = self.meta(frame).waiters;
        let mut next = first;
        while next != NOBODY {
            let waiting = self.waiting[next as usize];
            if waiting.wants_pin {
                return false;
            }
            next = waiting.next;
        }
        if first == NOBODY {
            return false;
        }
        let Waiting { token, next, .. } = self.waiting.remove(first as usize);
        self.meta(frame).waiters = next;
        self.hold(frame);
        self.ready.push_back(Ready { waiter: token, outcome: Outcome::Writable(Frame(frame)) });
        true
    }

    /// Tells those who wait for a frame that they do so in vain.
    pub(super) fn dismiss(&mut self, frame: u32, outcome: Outcome) {
        let waiters = std::mem::replace(&mut self.meta(frame).waiters, NOBODY);
        self.tell(waiters, |_| outcome);
    }

    /// How many of them are told that they have a pin.
    fn tell(&mut self, mut waiter: u32, outcome: impl Fn(&Waiting) -> Outcome) -> u32 {
        let mut pins = 0;
        while waiter != NOBODY {
            let waiting = self.waiting.remove(waiter as usize);
            let outcome = outcome(&waiting);
            pins += u32::from(matches!(outcome, Outcome::Pinned(_)));
            self.ready.push_back(Ready { waiter: waiting.token, outcome });
            waiter = waiting.next;
        }
        pins
    }

    /// Waits for any frame.
    pub(super) fn starve(&mut self, waiter: u64) {
        self.stats.starved += 1;
        self.starved.push_back(waiter);
        self.hot.set_starved(true);
        // The last pin of a frame may have gone before that was seen.
        self.feed_starved();
    }

    /// Lets those try again who wait for a frame, if there is one.
    pub(super) fn feed_starved(&mut self) {
        if self.starved.is_empty() {
            return;
        }
        if self.free.is_empty() {
            let Some(frame) = self.reap_orphan().or_else(|| self.evict()) else { return };
            *self.meta(frame) = super::Meta::FREE;
            self.links.push_back(&mut self.free, frame);
        }
        self.hot.set_starved(false);
        let retry = |waiter| Ready { waiter, outcome: Outcome::Retry };
        self.ready.extend(self.starved.drain(..).map(retry));
    }
}
