//! What is under the lock: the page cache's state machine, readahead, and the queue and device that carry out what
//! both ask for. Waiting: `wait.rs`.

use std::collections::VecDeque;
use std::sync::Arc;

use iopath_core::cache::{CacheConfig, Frame, IoTag, PageCache, PageIo};
use iopath_core::readahead::{Readahead, Window};
use iopath_core::{Extent, Instant, IoError, Memory, Op, Page, PageRange, SECTOR_BYTES, SubmitError};
use slab::Slab;

use super::arena::Arena;
use super::wait::Waiter;
use crate::clock;
use crate::device::RealDevice;
use crate::memory::Segment;
use crate::runner::Runner;
use crate::sync::thread::Thread;
use crate::tail::Tail;

/// The cache, what feeds it, and who waits.
#[derive(Debug)]
pub(super) struct State {
    // The device goes first, and waits for the I/O on the arena.
    pub(super) runner: Runner<dyn RealDevice + Send>,
    pub(super) cache: PageCache,
    pub(super) readahead: Readahead,
    pub(super) arena: Arc<Arena>,
    /// I/Os of the cache at the device, by their tags.
    in_flight: Vec<InFlight>,
    /// Those that have completed, and not yet told to the cache.
    over: VecDeque<IoTag>,
    /// Writes of the cache at the device.
    pub(super) writes: u32,
    /// Bios that the queue has no room for.
    backlog: VecDeque<Piece>,
    /// Lists that keep their memory from one I/O to the next.
    frames: Vec<Frame>,
    pub(super) runs: Vec<(u64, Segment)>,
    pub(super) waiters: Slab<Waiter>,
    /// Waiters whose threads sleep.
    pub(super) asleep: u32,
    /// A thread waits for the device on behalf of all, without the lock.
    pub(super) is_polled: bool,
    /// The waiter whose thread polls, if it waits for an outcome of its own.
    pub(super) poller: Option<usize>,
    /// The waiter that was woken to poll, and has not had the lock since.
    pub(super) next_poller: Option<usize>,
    /// The system refuses to go on with I/O: the error number.
    pub(super) broken: Option<i32>,
    /// What writers owe in pauses.
    pub(super) debt: std::time::Duration,
    /// Times so far that somebody came by: whoever sees it stand still knows that nobody is about.
    pub(super) steps: u64,
    /// I/Os of the cache that have completed.
    pub(super) ended: u64,
    pub(super) is_closing: bool,
    /// The flusher's thread while it sleeps until it is woken, rather than look from time to time.
    pub(super) resting_flusher: Option<Thread>,
    pub(super) place: Place,
    pub(super) now: Instant,
}

/// Where the pages lie on the device.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) page_bytes: u64,
    pub(super) block_bytes: u64,
    /// Where the volume ends.
    pub(super) size_bytes: u64,
    /// How often the end has moved.
    pub(super) resizes: u64,
    /// For what direct I/O cannot write: the bytes of a file after its last whole block.
    pub(super) tail: Option<Tail>,
    /// The last block is written whole.
    pub(super) writes_last_block: bool,
}

/// An I/O of the cache, cut into as many bios as it has pieces of memory.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    op: Op,
    bytes: u64,
    bios_left: u32,
    error: Option<IoError>,
    /// [`Place::resizes`] when it was submitted.
    resizes: u64,
}

/// A part of an I/O of the cache: a bio.
#[derive(Debug, Clone, Copy)]
struct Piece {
    tag: IoTag,
    op: Op,
    extent: Extent,
    memory: Option<Segment>,
}

impl State {
    pub(super) fn new(
        runner: Runner<dyn RealDevice + Send>,
        cache: PageCache,
        readahead: Readahead,
        arena: Arc<Arena>,
        place: Place,
    ) -> Self {
        let CacheConfig { frames, io_pages_max, reads_max, writes_max, .. } = *cache.config();
        // An I/O has a frame of its own at least, but for a flush.
        let ios_max = reads_max.saturating_add(writes_max).min(frames).saturating_add(1);
        let io_pages_max = io_pages_max.min(frames) as usize;
        Self {
            writes: 0,
            backlog: VecDeque::with_capacity(io_pages_max),
            frames: Vec::with_capacity(io_pages_max),
            runs: Vec::with_capacity(io_pages_max),
            runner,
            cache,
            readahead,
            arena,
            in_flight: Vec::with_capacity(ios_max as usize),
            over: VecDeque::with_capacity(ios_max as usize),
            waiters: Slab::with_capacity(64),
            asleep: 0,
            is_polled: false,
            poller: None,
            next_poller: None,
            broken: None,
            debt: std::time::Duration::ZERO,
            steps: 0,
            ended: 0,
            is_closing: false,
            resting_flusher: None,
            place,
            now: clock::now(),
        }
    }

    /// Hands the cache's I/O over, and wakes the waiters that have their outcome.
    pub(super) fn settle(&mut self) {
        self.steps += 1;
        loop {
            self.issue();
            // The queue ends some bios by itself: flushes of a device without a cache. The device is not asked.
            self.end_bios();
            let Some(tag) = self.over.pop_front() else { break };
            self.end(tag);
        }
        while let Some(page) = self.cache.poll_evicted_unused() {
            self.readahead.on_evicted_unused(page);
        }
        while let Some(ready) = self.cache.poll_ready() {
            self.waiters[ready.waiter as usize].outcome = Some(ready.outcome);
            self.wake(ready.waiter as usize);
        }
    }

    /// Sees what has completed at the device, and settles.
    pub(super) fn collect(&mut self) {
        self.now = clock::now();
        self.collect_now();
    }

    /// The same, at the time that it is already known to be.
    pub(super) fn collect_now(&mut self) {
        self.runner.reap();
        self.end_bios();
        if !self.backlog.is_empty() {
            self.work_off();
            self.runner.submit();
        }
        self.settle();
    }

    /// Settles, after it has seen what has completed unless a thread polls the device.
    pub(super) fn come_by(&mut self) {
        if self.is_polled {
            self.settle();
        } else {
            self.collect_now();
        }
    }

    /// A read finds `range.start()` neither cached nor on its way, but for what it has just asked for itself. Whether
    /// it reads nothing but what was asked for.
    pub(super) fn on_miss(&mut self, range: PageRange) -> bool {
        let cache = &self.cache;
        let window = self.readahead.on_miss(range, |page| cache.is_cached(page), self.now);
        self.read_ahead(&window);
        window.async_pages() == 0
    }

    /// A read reaches a marked page, the first of `range`.
    pub(super) fn on_marker(&mut self, range: PageRange) {
        let cache = &self.cache;
        if let Some(window) = self.readahead.on_marker(range, |page| cache.is_cached(page), self.now) {
            self.read_ahead(&window);
        }
    }

    fn read_ahead(&mut self, window: &Window) {
        for range in window.ranges() {
            self.cache.read_ahead(range, |page| window.is_marked(page));
        }
    }

    /// Hands over what the cache wants to read, write and flush.
    fn issue(&mut self) {
        let mut any = false;
        while let Some(io) = self.cache.poll_io(self.now) {
            self.start(io);
            any = true;
        }
        if any {
            self.runner.submit();
        }
    }

    pub(super) fn start(&mut self, io: PageIo) {
        self.begin(io);
        match io.op {
            Op::Flush => self.submit(io.tag, Op::Flush, Extent::EMPTY, None),
            _ => self.transfer(io),
        }
        self.end_bio(io.tag, Ok(()));
    }

    /// Counts an I/O in, with one bio that is ours until all are submitted.
    pub(super) fn begin(&mut self, io: PageIo) {
        let tag = io.tag.0 as usize;
        if self.in_flight.len() <= tag {
            let none = InFlight { op: Op::Flush, bytes: 0, bios_left: 0, error: None, resizes: 0 };
            self.in_flight.resize(tag + 1, none);
        }
        let bytes = io.pages.pages() * self.place.page_bytes;
        self.in_flight[tag] =
            InFlight { op: io.op, bytes, bios_left: 1, error: None, resizes: self.place.resizes };
        self.writes += u32::from(io.op == Op::Write);
        if io.op == Op::Read {
            self.readahead.on_issued(bytes, self.now);
        }
    }

    /// Submits a bio for each run of frames that lie side by side.
    fn transfer(&mut self, io: PageIo) {
        let runs = self.find_runs(io);
        for (offset, memory) in &runs {
            let extent = Extent::from_bytes(*offset, memory.bytes()).expect("pages are whole sectors");
            self.submit(io.tag, io.op, extent, Some(*memory));
        }
        self.runs = runs;
    }

    /// The runs of frames of an I/O that lie side by side, each with its place on the device. The list is
    /// [`State::runs`], to be given back.
    pub(super) fn find_runs(&mut self, io: PageIo) -> Vec<(u64, Segment)> {
        let Place { page_bytes, .. } = self.place;
        let first = io.pages.start().0 * page_bytes;
        let end = self.place.end_of(io.op);
        let (mut frames, mut runs) = (std::mem::take(&mut self.frames), std::mem::take(&mut self.runs));
        frames.clear();
        runs.clear();
        frames.extend(self.cache.frames_of(io.tag));
        for (frame, number) in frames.iter().zip(0..) {
            let offset = first + number * page_bytes;
            let there = end.saturating_sub(offset).min(page_bytes);
            if there < page_bytes {
                self.meet_end(io, *frame, offset, there);
            }
            if there == 0 {
                continue;
            }
            // SAFETY: the page cache lets nobody at a frame that is being read, and no writer at one that is being
            // written, until the completion; the arena outlives the runner.
            let segment = unsafe { self.arena.segment(*frame, there as usize) };
            let joined = runs.last().and_then(|(_, memory): &(u64, Segment)| memory.join(segment));
            match (runs.last_mut(), joined) {
                (Some(last), Some(joined)) => last.1 = joined,
                _ => runs.push((offset, segment)),
            }
        }
        self.frames = frames;
        runs
    }

    fn submit(&mut self, tag: IoTag, op: Op, extent: Extent, memory: Option<Segment>) {
        self.in_flight[tag.0 as usize].bios_left += 1;
        let piece = Piece { tag, op, extent, memory };
        if !self.backlog.is_empty() || !self.try_submit(piece) {
            self.backlog.push_back(piece);
        }
    }

    /// Whether the queue has taken it, or refuses it for good; if not, there is no room at the moment.
    fn try_submit(&mut self, piece: Piece) -> bool {
        let Piece { tag, op, extent, memory } = piece;
        match self.runner.queue_segment(op, extent, memory, u64::from(tag.0)) {
            Ok(()) => true,
            Err(SubmitError::QueueFull(_)) => false,
            Err(_) => {
                // The volume has become shorter, or the device knows no such operation.
                let error = if op == Op::Flush { IoError::Unsupported } else { IoError::EndOfDevice };
                self.end_bio(tag, Err(error));
                true
            }
        }
    }

    /// Submits what there was no room for.
    fn work_off(&mut self) {
        while let Some(piece) = self.backlog.front().copied()
            && self.try_submit(piece)
        {
            self.backlog.pop_front();
        }
    }

    /// Only `there` bytes of a page are before the end of what direct I/O reaches. Writes the rest here and now, through
    /// the system's page cache, which takes a direct write of the same page at the same time for damage. There is none:
    /// the cache has one write of a page at the device at a time, and this one's bios are submitted later.
    fn meet_end(&mut self, io: PageIo, frame: Frame, offset: u64, there: u64) {
        if io.op == Op::Read {
            // SAFETY: being read, so nobody looks at it, and the device reads into the part before.
            unsafe { self.arena.zero(frame, there as usize) };
            return;
        }
        let left = self.place.size_bytes.saturating_sub(offset + there).min(self.place.page_bytes - there);
        if left == 0 {
            return;
        }
        // SAFETY: being written, so nobody writes to it.
        let bytes = unsafe { self.arena.bytes(frame, there as usize, left as usize) };
        let written = match &self.place.tail {
            Some(tail) => tail.write_all_at(bytes, offset + there),
            None => Err(IoError::Alignment),
        };
        let io = &mut self.in_flight[io.tag.0 as usize];
        io.error = io.error.or(written.err());
    }

    fn end_bios(&mut self) {
        while let Some(done) = self.runner.poll_completion() {
            self.end_bio(IoTag(done.token as u32), done.result);
        }
    }

    pub(super) fn end_bio(&mut self, tag: IoTag, result: Result<(), IoError>) {
        let io = &mut self.in_flight[tag.0 as usize];
        io.error = io.error.or(result.err());
        io.bios_left -= 1;
        if io.bios_left == 0 {
            self.over.push_back(tag);
        }
    }

    fn end(&mut self, tag: IoTag) {
        self.ended += 1;
        let InFlight { op, bytes, error, resizes, .. } = self.in_flight[tag.0 as usize];
        self.writes -= u32::from(op == Op::Write);
        if op == Op::Read {
            let moved = if error.is_none() { bytes } else { 0 };
            self.readahead.on_completed(bytes, moved, self.now);
        }
        if op == Op::Read && error == Some(IoError::EndOfDevice) && resizes != self.place.resizes {
            self.cache.handle_cut_off(tag);
        } else {
            self.cache.handle_completion(tag, error.map_or(Ok(()), Err), self.now);
        }
        if op == Op::Flush && error.is_some() {
            // Pages are dirty again.
            self.wake_flusher();
        }
    }
}

impl Place {
    /// Where direct I/O ends: reads take the last block whole, writes must not write beyond the end of most devices.
    const fn end_of(&self, op: Op) -> u64 {
        if self.writes_last_block || matches!(op, Op::Read) {
            self.whole_blocks_end()
        } else {
            self.size_bytes / self.block_bytes * self.block_bytes
        }
    }

    /// The pages that `bytes` bytes at byte `offset` touch.
    pub(super) fn pages(&self, offset: u64, bytes: u64) -> PageRange {
        PageRange::touched_by(offset, bytes, self.page_bytes as u32)
    }

    /// The page after the last.
    pub(super) const fn end(&self) -> Page {
        Page(self.size_bytes.div_ceil(self.page_bytes))
    }

    /// The capacity of the device, in sectors.
    pub(super) const fn sectors(&self) -> u64 {
        self.whole_blocks_end() / SECTOR_BYTES
    }

    /// Where the block ends in which the volume does; the last there are offsets for, if it ends behind that.
    const fn whole_blocks_end(&self) -> u64 {
        match self.size_bytes.checked_next_multiple_of(self.block_bytes) {
            Some(end) => end,
            None => u64::MAX / self.block_bytes * self.block_bytes,
        }
    }
}
