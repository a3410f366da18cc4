//! A batch on a volume with a page cache: each I/O is registered with the cache while it is at the device, and a forced
//! write is followed by a flush of the device that the cache carries out. Why the batch does not flush the device itself
//! is said in `iopath_core::cache::forced`.
//!
//! ```text
//!   add ─▶ at the device ─▶ found to be over ─────────────────────────▶ over ─▶ take
//!                                └─ forced ─▶ flush of the device ──────▲
//! ```

use super::{Batch, Done, done};
use crate::error::{Error, ErrorKind};
use crate::volume::Volume;
use iopath_core::cache::{DirectTag, Forced};
use iopath_core::{Extent, IoError, Op};
use iopath_os::{Buffered, BufferedError};
use slab::Slab;
use std::collections::VecDeque;

/// The I/Os of a batch beside the page cache, from when they are added until they are taken.
#[derive(Debug)]
pub(super) struct BesideCache {
    io_depth: u32,
    /// By the tokens that the runner has for them.
    at_device: Slab<AtDevice>,
    /// Forced writes that the device has carried out, in the order of the flushes that cover them.
    unflushed: VecDeque<Unflushed>,
    over: VecDeque<Done>,
}

#[derive(Debug)]
struct AtDevice {
    token: u64,
    tag: Option<DirectTag>,
    is_forced: bool,
}

#[derive(Debug)]
struct Unflushed {
    /// Until the cache knows that the write has completed.
    tag: Option<DirectTag>,
    /// From then on.
    forced: Option<Forced>,
    extent: Extent,
    done: Done,
}

impl BesideCache {
    pub(super) fn new(io_depth: u32) -> Self {
        let io_depth_max = io_depth as usize;
        Self {
            io_depth,
            at_device: Slab::with_capacity(io_depth_max),
            unflushed: VecDeque::with_capacity(io_depth_max),
            over: VecDeque::with_capacity(io_depth_max),
        }
    }

    pub(super) fn take(&mut self) -> Option<Done> {
        self.over.pop_front()
    }

    pub(super) fn in_flight(&self) -> u32 {
        (self.at_device.len() + self.unflushed.len() + self.over.len()) as u32
    }

    /// Requests the flush of the device that those forced writes need for which none is requested yet.
    fn request_flush(&mut self, cache: &Buffered) {
        let mut new =
            self.unflushed.iter_mut().filter_map(|it| Some((it.tag.take()?, &mut it.forced))).peekable();
        if new.peek().is_some() {
            cache.end_forced(new);
        }
    }

    /// Moves forced writes whose outcome is known to those that have completed.
    fn end_flushed(&mut self, volume: &Volume, cache: &Buffered) {
        let mut last: Option<(Forced, Result<(), IoError>)> = None;
        while let Some(forced) = self.next_forced() {
            // Many share a flush: the cache is asked once.
            let known = last.filter(|(other, _)| *other == forced).map(|(_, result)| result);
            let Some(result) = known.or_else(|| cache.forced(forced)) else { return };
            last = Some((forced, result));
            let Some(Unflushed { extent, mut done, .. }) = self.unflushed.pop_front() else { return };
            if let Err(error) = result {
                done.result = Err(volume.failed(Op::Write, extent, error));
            }
            self.over.push_back(done);
        }
    }

    /// The oldest forced write that waits for a flush.
    fn next_forced(&self) -> Option<Forced> {
        self.unflushed.front()?.forced
    }
}

impl Batch {
    /// An I/O may go when this returns: the page cache, if there is one, and the I/O see each other's bytes. The token
    /// that the runner is to have for it; `None` if it has completed already.
    pub(super) fn begin_beside(
        &mut self,
        op: Op,
        extent: Extent,
        token: u64,
        is_forced: bool,
    ) -> Result<Option<u64>, Error> {
        let Some(beside) = &mut self.beside else { return Ok(Some(token)) };
        if beside.in_flight() >= beside.io_depth {
            let depth = beside.in_flight();
            return Err(self.volume.error(ErrorKind::BatchFull { depth }));
        }
        if self.volume.source().writes_last_block() && !beside.at_device.is_empty() {
            // What the cache writes back below may share a block of the mapping with a write of this batch, and waits
            // for that: it has to be over, though nobody has taken it.
            let settled = self.runner.as_is_mut().drain();
            settled.map_err(|source| self.wait_error(source))?;
        }
        if op == Op::Flush {
            // The cache flushes the device, and with it what the batch has written.
            if let Some(cache) = self.volume.cache_if_any() {
                self.volume.flush_cached(cache)?;
            }
            if let Some(beside) = &mut self.beside {
                beside.over.push_back(Done { token, buffer: None, result: Ok(0) });
            }
            return Ok(None);
        }
        let tag = match self.volume.beside_cache(op, extent)? {
            Some(registered) => registered.into_tag(),
            None => None,
        };
        let at_device = AtDevice { token, tag, is_forced };
        Ok(self.beside.as_mut().map(|beside| beside.at_device.insert(at_device) as u64))
    }

    /// The runner has not taken an I/O that the cache has let go.
    pub(super) fn abandon_beside(&mut self, token: u64) {
        if let (Some(beside), Some(cache)) = (&mut self.beside, self.volume.cache_if_any()) {
            cache.end_direct(beside.at_device.remove(token as usize).tag);
        }
    }

    /// Tells the page cache, if there is one, which I/Os the runner has found to be over, and sees which forced writes
    /// are on the medium. Waits for nothing.
    pub(super) fn collect_beside(&mut self) {
        let (Some(beside), Some(cache)) = (&mut self.beside, self.volume.cache_if_any()) else { return };
        while let Some(mut finished) = self.runner.as_is_mut().poll_completion() {
            let AtDevice { token, tag, is_forced } = beside.at_device.remove(finished.token as usize);
            finished.token = token;
            let extent = finished.extent;
            let done = done(&self.volume, finished);
            if is_forced && done.result.is_ok() {
                beside.unflushed.push_back(Unflushed { tag, forced: None, extent, done });
            } else {
                cache.end_direct(tag);
                beside.over.push_back(done);
            }
        }
        beside.request_flush(cache);
        beside.end_flushed(&self.volume, cache);
    }

    /// [`Batch::wait`] where nothing is to be taken.
    pub(super) fn wait_beside(&mut self) -> Result<Option<Done>, Error> {
        while self.in_flight() > 0 {
            if let Some(forced) = self.beside.as_ref().and_then(|beside| beside.next_forced()) {
                // The device has work while the flush is waited for.
                self.runner().submit();
                self.wait_forced(forced)?;
                self.runner().reap();
            } else {
                let gather = self.gather;
                let waited = self.runner().wait(gather);
                waited.map_err(|source| self.wait_error(source))?;
            }
            self.collect_beside();
            if let Some(done) = self.take() {
                return Ok(Some(done));
            }
        }
        Ok(None)
    }

    /// Waits until nothing of the batch is at the device or on its way to the medium.
    pub(super) fn settle_beside(&mut self) {
        if self.beside.is_none() || self.runner.as_is_mut().drain().is_err() {
            return;
        }
        self.collect_beside();
        while let Some(forced) = self.beside.as_ref().and_then(|beside| beside.next_forced()) {
            if self.wait_forced(forced).is_err() {
                return;
            }
            self.collect_beside();
        }
    }

    /// Waits until it is known whether a forced write is on the medium; [`Batch::collect_beside`] asks how it ended.
    fn wait_forced(&self, forced: Forced) -> Result<(), Error> {
        match self.volume.cache_if_any().map(|cache| cache.wait_forced(forced)) {
            Some(Err(BufferedError::Wait(source))) => Err(self.wait_error(source)),
            _ => Ok(()),
        }
    }
}
