//! The buffered path as a state machine: page cache, readahead and the I/O between them and the device. It performs no
//! I/O, blocks no thread and reads no clock: see `poll_step`.
//!
//! ```text
//!   read, take_pages, begin_direct, flush ──▶ PageCache, Readahead        calls of the program, each with a waiter
//!                                                │ poll_io
//!                                                ▼
//!   poll_step  ◀── Submit, Zero, WriteTail ── pieces of page I/Os         work for the queue and the device
//!   handle_completion ──▶ in-flight table ──▶ PageCache, Readahead
//!   poll_ready ◀── outcomes of the waiters                                wake the callers that wait
//!   poll_timeout                                                          the next time at which poll_step has work
//! ```
//!
//! A driver repeats four actions until no work is left. It executes all steps of [`BufferedPath::poll_step`], unplugs
//! its queue, passes completions to [`BufferedPath::handle_completion`], and wakes the waiters that
//! [`BufferedPath::poll_ready`] names. If no I/O completes before [`BufferedPath::poll_timeout`], the driver starts
//! again at that time. The drivers are threads and batches under a lock (`Buffered` and `CacheQueue` in `iopath-os`),
//! the jobs of `iopath-bench` in virtual time, and the simulator.
//!
//! A call of the program is a state machine of its own ([`BufferedRead`], [`BufferedWrite`], [`Resize`]), with at most
//! one waiter at a time. A call that must wait returns a step for waiting, such as [`ReadStep::Wait`]. Later,
//! [`BufferedPath::poll_ready`] returns the [`Outcome`](super::cache::Outcome) of the waiter.

mod advice;
mod clear;
mod direct;
mod geometry;
mod in_flight;
mod inline;
mod read;
mod resize;
mod sizing;
mod starvation;
mod write;

use crate::error::IoError;
use crate::file::cache::{CacheConfig, Frame, IoTag, PageCache, Ready};
use crate::file::readahead::{Pattern, Readahead, ReadaheadConfig};
use crate::memory::Memory;
use crate::time::{Duration, Instant};
use in_flight::{InFlight, Queued};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

pub use advice::Advice;
pub use clear::ClearParts;
pub use geometry::Geometry;
pub use in_flight::{PageBio, Step};
pub use inline::InlineIo;
pub use read::{BufferedRead, ReadNext, ReadPiece, ReadStep, VolumeEnd};
pub use resize::{Resize, ResizeStep};
pub use starvation::{NoFrame, Starvation};
pub use write::{BufferedWrite, TakeStep, WritePiece};

/// The memory of the page cache's frames, as handles for the queue.
pub trait Frames {
    /// The type of the handle.
    type Memory: Memory;

    /// The first `bytes` bytes of `frame`. Called only for frames of I/Os. Until the I/O completes, no reader accesses
    /// a frame of a read, and no writer accesses a frame of a write.
    fn memory(&self, frame: Frame, bytes: u64) -> Self::Memory;
}

/// The state machine of the buffered path.
pub struct BufferedPath<F: Frames> {
    frames: F,
    cache: PageCache,
    readahead: Readahead,
    /// The access pattern without advice: random if readahead is off.
    own_pattern: Pattern,
    /// The configured maximum of bytes that are read ahead.
    readahead_bytes_max: u64,
    geometry: Geometry,
    /// The number of times that the end of the volume has moved.
    resizes: u64,
    /// [`VolumeEnd::failed_resizes`].
    failed_resizes: u64,
    /// Page I/Os that have not completed, indexed by tag.
    in_flight: Vec<InFlight>,
    writes_in_flight: u32,
    completed_ios: u64,
    /// Pieces of page I/Os, and other work of the driver, in the order of execution.
    queued: VecDeque<Queued<F::Memory>>,
    /// The queue has refused a bio. The next bio is submitted after a completion.
    is_queue_full: bool,
    /// Pauses that writers have not yet taken.
    pause_owed: Duration,
}

impl<F: Frames> fmt::Debug for BufferedPath<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferedPath")
            .field("cache", &self.cache)
            .field("geometry", &self.geometry)
            .field("in_flight", &self.in_flight.len())
            .field("queued", &self.queued.len())
            .field("completed_ios", &self.completed_ios)
            .finish_non_exhaustive()
    }
}

impl<F: Frames> BufferedPath<F> {
    /// An empty cache in front of a device of that geometry. Its frames have the memory `frames`. Without `readahead`,
    /// no page is read ahead.
    ///
    /// # Panics
    /// If pages are not whole blocks: a bug of the caller.
    pub fn new(
        cache: CacheConfig,
        readahead: Option<ReadaheadConfig>,
        geometry: Geometry,
        frames: F,
    ) -> Self {
        let CacheConfig { frames: frame_count, io_pages_max, reads_max, writes_max, .. } = cache;
        geometry.check();
        assert_eq!(
            cache.page_bytes, geometry.page_bytes,
            "the cache and the geometry differ in the page size"
        );
        // An I/O has at least one frame of its own, except a flush.
        let ios_max = reads_max.saturating_add(writes_max).min(frame_count).saturating_add(1);
        let own_pattern = if readahead.is_some() { Pattern::Normal } else { Pattern::Random };
        let readahead_config = readahead.unwrap_or_default();
        let mut readahead = Readahead::new(readahead_config, geometry.end());
        readahead.set_pattern(own_pattern);
        Self {
            frames,
            cache: PageCache::new(cache),
            readahead,
            own_pattern,
            readahead_bytes_max: readahead_config.budget_bytes,
            geometry,
            resizes: 0,
            failed_resizes: 0,
            in_flight: Vec::with_capacity(ios_max as usize),
            writes_in_flight: 0,
            completed_ios: 0,
            queued: VecDeque::with_capacity(io_pages_max.min(frame_count) as usize),
            is_queue_full: false,
            pause_owed: Duration::ZERO,
        }
    }

    /// The page cache.
    pub const fn cache(&self) -> &PageCache {
        &self.cache
    }

    /// The readahead policy.
    pub const fn readahead(&self) -> &Readahead {
        &self.readahead
    }

    /// The readahead policy, to select the open file.
    pub const fn readahead_mut(&mut self) -> &mut Readahead {
        &mut self.readahead
    }

    /// Sizes of pages and blocks, and the end of the volume.
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Sets the number of frames that may have memory, as [`PageCache::set_budget`]. Readahead takes a part of them.
    pub fn set_budget(&mut self, frames: u32) {
        self.cache.set_budget(frames);
        let bytes = u64::from(self.cache.budget()) * u64::from(self.geometry.page_bytes);
        self.readahead.set_budget(ReadaheadConfig::budget_of(bytes).min(self.readahead_bytes_max));
    }

    /// The next frame whose memory the driver may release: [`PageCache::poll_vacated`].
    pub fn poll_vacated(&mut self) -> Option<Frame> {
        self.cache.poll_vacated()
    }

    /// Counts the demand for a larger budget anew: [`PageCache::reset_pressure`].
    pub const fn reset_pressure(&mut self) {
        self.cache.reset_pressure();
    }

    /// Whether no caller and no I/O uses the path, and every cached page has the bytes that are on the medium
    /// ([`PageCache::is_settled`]). Then its pages can serve another owner on the same, unchanged device.
    pub fn is_settled(&self) -> bool {
        self.queued.is_empty() && self.cache.is_settled()
    }

    /// Prepares the path for another owner: cancels the advice of the last one. Counts continue.
    ///
    /// # Panics
    /// If the path is in use ([`BufferedPath::is_settled`]): a bug of the caller.
    pub fn change_owner(&mut self) {
        assert!(self.is_settled(), "a path in use has no other owner");
        self.cache.set_keep(true);
        self.cache.reset_pressure();
        self.readahead.set_pattern(self.own_pattern);
        self.pause_owed = Duration::ZERO;
    }

    /// Page I/Os that have completed so far.
    pub const fn completed_ios(&self) -> u64 {
        self.completed_ios
    }

    /// The next waiter whose outcome is known.
    pub fn poll_ready(&mut self) -> Option<Ready> {
        self.cache.poll_ready()
    }

    /// The time at which [`BufferedPath::poll_step`] has work without a completion: a dirty page reaches its age, or a
    /// failed write-back is due for a retry. The retry is due sooner while a caller lacks a frame. Includes every time
    /// limit of the buffered path except those of single callers: the pause of a writer ([`TakeStep::Done`])
    /// and the timeout of a caller that lacks a frame ([`Starvation`]).
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.is_queue_full { None } else { self.cache.poll_timeout() }
    }

    /// A frame has lost its last pin while a caller waited for one: `Hot::unpin` has reported it.
    pub fn handle_unpinned(&mut self) {
        self.cache.handle_unpinned();
    }

    /// The error that lost bytes already reported as written back. While there is one, every flush fails.
    pub const fn loss(&self) -> Option<IoError> {
        self.cache.loss()
    }

    /// The device has bytes of `unflushed` that were written before there was a cache, and are not flushed. An earlier
    /// flush of them has failed with `lost`, if it is an error.
    pub fn handle_earlier_writes(&mut self, unflushed: Range<u64>, lost: Option<IoError>) {
        let Range { start, end } = unflushed;
        self.cache.handle_earlier_writes(self.geometry.pages(start, end - start), lost);
    }

    /// Returns and clears the loss, so that flushes can succeed again. The caller thereby accepts the loss.
    pub fn accept_loss(&mut self) -> Option<IoError> {
        let loss = self.cache.loss();
        self.cache.forget_loss();
        loss
    }

    fn slot(&mut self, tag: IoTag) -> &mut InFlight {
        &mut self.in_flight[tag.0 as usize]
    }
}
