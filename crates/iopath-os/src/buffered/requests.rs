//! Many requests in flight in the page cache from one owner, without a thread for each. Blocks only in
//! [`CacheQueue::wait`] and on drop; the blocking calls are in `read.rs` and `write.rs` of the parent.
//!
//! ```text
//!   queue ─┬─ read, all pages cached ───────────────────────────────▶ completed    no lock
//!          ├─ write, pages free ────────────────────────────────────▶ completed
//!          └─ else: page I/Os, a waiter for each request ─▶ notify ─▶ poll, wait ─▶ completed
//! ```
//!
//! The owner copies the bytes itself, in [`CacheQueue::poll`] or [`CacheQueue::wait`], as soon as the pages are there.
//! Other threads never access its buffers. Pages are pinned for requests only until another thread lacks a frame
//! (`notify.rs`).
//!
//! If two requests overlap and at least one is not a read, they are executed in the order in which they were queued.

mod borrow;
mod clear;
mod order;
mod read;
mod request;
mod wait;
mod write;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;

use iopath_core::buffered::{BufferedRead, Starvation};
use iopath_core::cache::Outcome;
use iopath_core::{Instant, IoError, Op};
use slab::Slab;

use super::state::State;
use super::waiter::{Owner, RequestId};
use super::{Buffered, BufferedError, CacheShared};
use crate::clock;
use crate::device::Notifier;
use crate::io_buf::IoBuf;
use crate::pool::PoolBuf;
use borrow::Pins;
use request::{Request, Stage};

pub use borrow::BorrowedBytes;
pub use request::{CacheRequest, Completed};

/// The requests of one owner in a [`Buffered`]. It may move between threads.
///
/// Dropping it executes the queued writes, discards and flushes, and waits for them. Queued reads are abandoned.
pub struct CacheQueue<B: IoBuf = PoolBuf> {
    shared: Arc<CacheShared>,
    /// The pages that the owner has borrowed.
    pins: Arc<Pins>,
    /// The key of its [`Owner`].
    owner: usize,
    depth: u32,
    plug: u32,
    block_bytes: u64,
    requests: Slab<Request<B>>,
    /// A counter that numbers the requests in their order.
    queued: u64,
    /// The number of `requests` that are not reads.
    changes: u32,
    /// Reads that wait for [`CacheQueue::submit`].
    plugged: VecDeque<u32>,
    /// Requests that can continue.
    runnable: VecDeque<u32>,
    /// Reads that need a page which is not cached.
    missed: Vec<u32>,
    /// Writes that wait until `pause_end`.
    paused: VecDeque<u32>,
    pause_end: Option<Instant>,
    /// Requests that wait for any frame.
    starved: u32,
    starvation: Starvation,
    /// The time at which requests began to starve.
    starved_since: Option<Instant>,
    /// The time of the last check for starved requests, if no I/O was in flight at that time.
    idle_since: Option<Instant>,
    completed: VecDeque<Completed<B>>,
    /// An empty list, whose memory is reused: `collect_ready` exchanges it for the list of the [`Owner`].
    ready: Vec<(u32, Outcome)>,
    notifier: Option<Notifier>,
    /// The system has refused the thread that polls for event loops.
    polls_itself: bool,
}

impl<B: IoBuf> fmt::Debug for CacheQueue<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheQueue")
            .field("depth", &self.depth)
            .field("in_flight", &self.requests.len())
            .finish_non_exhaustive()
    }
}

impl Buffered {
    /// A queue for `depth` requests at once. Reads that miss are held back for [`CacheQueue::submit`] until more than
    /// `plug` have gathered.
    pub fn request_queue<B: IoBuf>(&self, depth: u32, plug: u32) -> CacheQueue<B> {
        let mut state = self.shared.lock();
        let block_bytes = u64::from(state.path.geometry().block_bytes);
        let owner = state.owners.insert(Owner::default());
        let pins = Pins::new(&self.shared, self.shared.arena.frames());
        drop(state);
        CacheQueue {
            pins,
            shared: Arc::clone(&self.shared),
            owner,
            depth,
            plug,
            block_bytes,
            requests: Slab::with_capacity(depth.min(4096) as usize),
            queued: 0,
            changes: 0,
            plugged: VecDeque::new(),
            runnable: VecDeque::new(),
            missed: Vec::new(),
            paused: VecDeque::new(),
            pause_end: None,
            starved: 0,
            starvation: Starvation::default(),
            starved_since: None,
            idle_since: None,
            completed: VecDeque::with_capacity(depth.min(4096) as usize),
            ready: Vec::new(),
            notifier: None,
            polls_itself: false,
        }
    }
}

impl<B: IoBuf> CacheQueue<B> {
    /// Begins a request, or queues it behind those that it must follow. Never waits for I/O. A read whose pages are
    /// cached and a write whose pages are free complete at once. Other reads begin with [`CacheQueue::submit`].
    ///
    /// # Errors
    /// The request, if the queue is full.
    ///
    /// # Panics
    /// If the buffer is absent or shorter than the bytes to transfer: a bug of the caller.
    pub fn queue(&mut self, mut request: CacheRequest<B>) -> Result<(), CacheRequest<B>> {
        if self.in_flight() >= self.depth {
            return Err(request);
        }
        request.check();
        if request.op.is_write() && request.offset.checked_add(request.bytes).is_none() {
            self.completed.push_back(request.completed(Err(IoError::EndOfDevice.into())));
            self.notify_owner();
            return Ok(());
        }
        let before = self.completed.len();
        let after = self.conflict(request.op, request.offset, request.bytes, self.queued);
        if after.is_none() && request.op == Op::Read {
            self.begin_read(request);
        } else {
            let key = self.insert(request, None);
            match after {
                Some(earlier) => self.follow(key, earlier),
                None => self.runnable.push_back(key),
            }
            self.run();
        }
        if self.plugged.len() > self.plug as usize {
            self.submit();
        } else if self.completed.len() > before {
            self.notify_owner();
        }
        Ok(())
    }

    /// Begins the reads that were held back. Does not wait.
    pub fn submit(&mut self) {
        if self.plugged.is_empty() {
            return;
        }
        let before = self.completed.len();
        self.missed.extend(self.plugged.drain(..));
        self.start_missed();
        self.run();
        if self.completed.len() > before {
            self.notify_owner();
        }
    }

    /// Continues the requests that can continue. Does not wait. Reads that are held back stay held back.
    pub fn poll(&mut self) {
        self.clear_notifier();
        if self.requests.is_empty() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        if self.starved > 0 {
            state.path.handle_unpinned();
        }
        state.poll(clock::now());
        self.collect(&mut state);
        drop(state);
        self.run();
    }

    /// The next request that has completed. [`CacheQueue::poll`] and [`CacheQueue::wait`] complete more.
    pub fn next_completed(&mut self) -> Option<Completed<B>> {
        self.completed.pop_front()
    }

    /// Cancels a request with this token that has not completed: [`CacheQueue::next_completed`] will not return it. A
    /// read ends when its page has arrived, a write is executed. `false` if there is none.
    pub fn cancel(&mut self, token: u64) -> bool {
        let mut requests = self.requests.iter_mut();
        let found = requests.find(|(_, request)| request.token == token && !request.is_cancelled);
        found.map(|(_, request)| request.is_cancelled = true).is_some()
    }

    /// Requests queued and not yet returned by [`CacheQueue::next_completed`].
    pub fn in_flight(&self) -> u32 {
        (self.requests.len() + self.completed.len()) as u32
    }

    /// From now on, notifies `notifier` when a request has completed or can continue. A thread in the background then
    /// polls the device while no other thread does and such requests wait. If the system refuses the thread, the owner
    /// polls: [`CacheQueue::next_timeout`].
    ///
    /// # Errors
    /// If requests are in flight.
    pub fn set_notifier(&mut self, notifier: &Notifier) -> io::Result<()> {
        if !self.requests.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.shared.lock().owners[self.owner].notifier = Some(notifier.clone());
        self.notifier = Some(notifier.clone());
        Ok(())
    }

    /// Adds a request that is in no list yet.
    fn insert(&mut self, request: CacheRequest<B>, read: Option<BufferedRead>) -> u32 {
        self.changes += u32::from(request.op != Op::Read);
        self.queued += 1;
        self.requests.insert(Request::new(request, self.queued, read)) as u32
    }

    /// Runs requests until none can continue.
    fn run(&mut self) {
        loop {
            while let Some(key) = self.runnable.pop_front() {
                match self.requests[key as usize].stage {
                    Stage::Read => self.continue_read(key),
                    Stage::Write | Stage::ZeroHead | Stage::ZeroTail => self.continue_write(key),
                    Stage::Clear => self.begin_clear(key),
                    Stage::Flush => self.begin_flush(key),
                }
            }
            if self.missed.is_empty() {
                break;
            }
            self.start_missed();
        }
    }

    /// Collects the outcomes of requests: each can continue, or has failed. On return no outcome is left, so if a
    /// request has a waiter, that waiter is registered.
    fn collect(&mut self, state: &mut State) {
        self.collect_ready(state);
        self.check_starved(state);
        // The check may have freed frames, and requests of this queue can continue then.
        self.collect_ready(state);
        if self.pause_end.is_some_and(|end| end <= clock::now()) {
            self.pause_end = None;
            self.runnable.extend(self.paused.drain(..));
        }
    }

    fn collect_ready(&mut self, state: &mut State) {
        std::mem::swap(&mut state.owners[self.owner].ready, &mut self.ready);
        for at in 0..self.ready.len() {
            let (key, outcome) = self.ready[at];
            self.stops_waiting(key);
            match outcome {
                Outcome::Failed(error) => self.complete(key, Err(error.into())),
                Outcome::Unwritable { pages, source } => {
                    self.complete(key, Err(BufferedError::Unwritable { pages, source }));
                }
                Outcome::Done => self.end_stage(key),
                Outcome::Pinned(frame) => {
                    self.requests[key as usize].pinned = Some(frame);
                    self.runnable.push_back(key);
                }
                _ => self.runnable.push_back(key),
            }
        }
        self.ready.clear();
    }

    /// The stage of a request has ended, and the next begins.
    fn end_stage(&mut self, key: u32) {
        let request = &mut self.requests[key as usize];
        if let Some(stage) = request.next_stage() {
            request.stage = stage;
            self.runnable.push_back(key);
        } else {
            let bytes = request.transferred();
            self.complete(key, Ok(bytes));
        }
    }

    /// A request has completed. Requests that had to follow it can begin.
    fn complete(&mut self, key: u32, result: Result<usize, BufferedError>) {
        let request = self.requests.remove(key as usize);
        self.changes -= u32::from(request.op != Op::Read);
        let followers = request.first_follower;
        if !request.is_cancelled {
            self.completed.push_back(request.completed(result));
        }
        self.release_followers(followers);
    }

    const fn id(&self, request: u32) -> RequestId {
        RequestId { owner: self.owner, request }
    }

    /// Makes a waiting event loop poll: completions were added without a notification.
    fn notify_owner(&self) {
        if let Some(notifier) = &self.notifier {
            notifier.notify();
        }
    }

    fn clear_notifier(&self) {
        if let Some(notifier) = &self.notifier {
            // An error leaves the descriptor readable: the owner polls again.
            let _ = notifier.clear();
        }
    }
}

impl<B: IoBuf> Drop for CacheQueue<B> {
    fn drop(&mut self) {
        if self.shared.state.is_poisoned() {
            return;
        }
        self.abandon_reads();
        while !self.requests.is_empty() {
            self.completed.clear();
            if self.wait(1).is_err() {
                break;
            }
        }
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        self.collect(&mut state);
        for (_, request) in &self.requests {
            if let Some(waiter) = request.waiter {
                state.abandon_request(waiter);
            }
            if let Some(frame) = request.pinned {
                state.path.cache().hot().unpin(frame);
            }
        }
        state.path.handle_unpinned();
        state.remove_owner(self.owner);
    }
}
