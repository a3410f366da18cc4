//! A batch of direct I/O on a volume with a page cache. Each request is registered with the cache while it is at the
//! device. After a forced write the cache flushes the device; `iopath_core::cache::forced` explains why the batch does
//! not.
//!
//! ```text
//!   queue ─▶ at the device ─▶ reaped ───────────────────────────▶ completed ─▶ next_completed
//!                               └─ forced ─▶ flush of the device ─▲
//! ```

use super::{Completion, DirectBatch, completion};
use crate::batch::io::BatchIo;
use crate::batch::threading::Threading;
use crate::error::{Error, Result};
use crate::volume::Volume;
use iopath_core::cache::{DirectTag, Forced};
use iopath_core::{Extent, IoError, Op};
use iopath_os::{Buffered, BufferedError, IoBuf};
use slab::Slab;
use std::collections::VecDeque;

/// The requests of a batch on a volume with a page cache, from queue to completion.
#[derive(Debug)]
pub(super) struct CoherentIos<B: IoBuf> {
    io_depth: u32,
    /// By the tokens of the runner.
    at_device: Slab<AtDevice>,
    /// Forced writes that the device has executed, in the order of the flushes that cover them.
    unflushed: VecDeque<Unflushed<B>>,
    completed: VecDeque<Completion<B>>,
}

#[derive(Debug)]
struct AtDevice {
    token: u64,
    tag: Option<DirectTag>,
    is_forced: bool,
    is_cancelled: bool,
}

#[derive(Debug)]
struct Unflushed<B: IoBuf> {
    /// Set until the completion is reported to the cache.
    tag: Option<DirectTag>,
    /// Set from then on.
    forced: Option<Forced>,
    extent: Extent,
    completion: Completion<B>,
    is_cancelled: bool,
}

impl<B: IoBuf> CoherentIos<B> {
    pub(super) fn new(io_depth: u32) -> Self {
        let io_depth_max = io_depth as usize;
        Self {
            io_depth,
            at_device: Slab::with_capacity(io_depth_max),
            unflushed: VecDeque::with_capacity(io_depth_max),
            completed: VecDeque::with_capacity(io_depth_max),
        }
    }

    pub(super) fn next_completed(&mut self) -> Option<Completion<B>> {
        self.completed.pop_front()
    }

    pub(super) fn in_flight(&self) -> u32 {
        (self.at_device.len() + self.unflushed.len() + self.completed.len()) as u32
    }

    /// Cancels a request with this token that has not completed.
    pub(super) fn cancel(&mut self, token: u64) -> bool {
        let at_device = self.at_device.iter_mut().map(|(_, it)| (it.token, &mut it.is_cancelled));
        let unflushed = self.unflushed.iter_mut().map(|it| (it.completion.token, &mut it.is_cancelled));
        let mut all = at_device.chain(unflushed);
        let found = all.find(|(other, is_cancelled)| *other == token && !**is_cancelled);
        found.map(|(_, is_cancelled)| *is_cancelled = true).is_some()
    }

    /// Whether forced writes wait for a flush.
    pub(super) fn is_flushing(&self) -> bool {
        !self.unflushed.is_empty()
    }

    /// Requests a flush of the device for the forced writes that have none yet.
    fn request_flush(&mut self, cache: &Buffered) {
        let mut new =
            self.unflushed.iter_mut().filter_map(|it| Some((it.tag.take()?, &mut it.forced))).peekable();
        if new.peek().is_some() {
            cache.end_forced(new);
        }
    }

    /// Completes the forced writes whose flush has ended.
    fn complete_flushed(&mut self, volume: &Volume, cache: &Buffered) {
        let mut last: Option<(Forced, Result<(), IoError>)> = None;
        while let Some(forced) = self.next_forced() {
            // Many writes share a flush: query the cache once for all of them.
            let known = last.filter(|(other, _)| *other == forced).map(|(_, result)| result);
            let Some(result) = known.or_else(|| cache.forced(forced)) else { return };
            last = Some((forced, result));
            let Some(unflushed) = self.unflushed.pop_front() else { return };
            let Unflushed { extent, mut completion, is_cancelled, .. } = unflushed;
            if is_cancelled {
                continue;
            }
            if let Err(error) = result {
                completion.result = Err(volume.failed(Op::Write, extent, error));
            }
            self.completed.push_back(completion);
        }
    }

    /// The oldest forced write that waits for a flush.
    fn next_forced(&self) -> Option<Forced> {
        self.unflushed.front()?.forced
    }
}

impl<T: Threading, B: IoBuf> DirectBatch<T, B> {
    /// Registers a request with the page cache, if there is one, and waits until it may begin. Returns the token for
    /// the runner; `None` if the request is complete already.
    pub(super) fn begin(
        &mut self,
        op: Op,
        extent: Extent,
        token: u64,
        is_forced: bool,
    ) -> Result<Option<u64>> {
        let Some(coherent) = &self.coherent else { return Ok(Some(token)) };
        if coherent.in_flight() >= coherent.io_depth {
            return Err(self.full());
        }
        if self.volume.unit_bytes() > 1 && !coherent.at_device.is_empty() {
            // Write-back of the cache may share a block of the mapping with a write of this batch and then waits for
            // it. Complete that write, although its owner has not reaped it.
            let drained = self.runner.as_is_mut().drain();
            drained.map_err(|source| self.wait_error(source))?;
        }
        if op == Op::Flush {
            // The cache flushes the device, and with it the writes of the batch.
            if let Some(cache) = self.volume.cache_if_any() {
                self.volume.flush_cached(cache)?;
            }
            if let Some(coherent) = &mut self.coherent {
                coherent.completed.push_back(Completion { token, buffer: None, result: Ok(0) });
            }
            return Ok(None);
        }
        let tag = match self.volume.begin_direct(op, extent)? {
            Some(guard) => guard.into_tag(),
            None => None,
        };
        let at_device = AtDevice { token, tag, is_forced, is_cancelled: false };
        Ok(self.coherent.as_mut().map(|coherent| coherent.at_device.insert(at_device) as u64))
    }

    /// Removes a request that the cache has admitted and the runner has refused.
    pub(super) fn abandon(&mut self, token: u64) {
        if let (Some(coherent), Some(cache)) = (&mut self.coherent, self.volume.cache_if_any()) {
            cache.end_direct(coherent.at_device.remove(token as usize).tag);
        }
    }

    /// Ends the requests that the runner has reaped for the page cache, and completes forced writes that are on the
    /// medium. Does not wait.
    pub(super) fn reap_coherent(&mut self) {
        let (Some(coherent), Some(cache)) = (&mut self.coherent, self.volume.cache_if_any()) else { return };
        while let Some(mut finished) = self.runner.as_is_mut().poll_completion() {
            let at_device = coherent.at_device.remove(finished.token as usize);
            let AtDevice { token, tag, is_forced, is_cancelled } = at_device;
            finished.token = token;
            let extent = finished.extent;
            let completion = completion(&self.volume, finished);
            if is_forced && completion.result.is_ok() {
                let unflushed = Unflushed { tag, forced: None, extent, completion, is_cancelled };
                coherent.unflushed.push_back(unflushed);
            } else {
                cache.end_direct(tag);
                if !is_cancelled {
                    coherent.completed.push_back(completion);
                }
            }
        }
        coherent.request_flush(cache);
        coherent.complete_flushed(&self.volume, cache);
    }

    /// `Batch::wait` where nothing has completed.
    pub(super) fn wait_coherent(&mut self) -> Result<Option<Completion<B>>> {
        while self.in_flight() > 0 {
            if let Some(forced) = self.coherent.as_ref().and_then(|coherent| coherent.next_forced()) {
                // The device has work during the wait for the flush.
                self.runner().submit();
                self.wait_forced(forced)?;
                self.runner().reap();
            } else {
                let gather = self.gather;
                let waited = self.runner().wait(gather);
                waited.map_err(|source| self.wait_error(source))?;
            }
            self.reap_coherent();
            if let Some(done) = self.next_completed() {
                return Ok(Some(done));
            }
        }
        Ok(None)
    }

    /// Waits until no request of the batch is at the device or waits for a flush.
    pub(super) fn drain_coherent(&mut self) {
        if self.coherent.is_none() || self.runner.as_is_mut().drain().is_err() {
            return;
        }
        self.reap_coherent();
        while let Some(forced) = self.coherent.as_ref().and_then(|coherent| coherent.next_forced()) {
            if self.wait_forced(forced).is_err() {
                return;
            }
            self.reap_coherent();
        }
    }

    /// Waits until a forced write is on the medium or has failed; [`DirectBatch::reap_coherent`] gets the result.
    fn wait_forced(&self, forced: Forced) -> Result<(), Error> {
        match self.volume.cache_if_any().map(|cache| cache.wait_forced(forced)) {
            Some(Err(BufferedError::Wait(source))) => Err(self.wait_error(source)),
            _ => Ok(()),
        }
    }
}
