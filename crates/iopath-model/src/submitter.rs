//! A thread that submits requests to a device: one after another, each after its CPU work. The memory of a request
//! consists of pages that are not adjacent. The thread does not wait for completions.

use std::collections::VecDeque;

use iopath_core::{BlockDevice, Busy, Completion, Instant, Io, Limits, Memory, ModelMemory, OwnedIo};

use crate::host::{Host, Work};

/// A device behind the thread that submits to it. The thread executes the work of all earlier requests, then that of
/// the bio and the pages of this request. Then the request reaches the device. So requests that are submitted at the
/// same time reach the device one after another.
///
/// The work of the device's own stages on the same CPU delays the following requests.
#[derive(Debug)]
pub struct Submitter<D: BlockDevice> {
    inner: D,
    limits: Limits,
    cpu: Host,
    page_bytes: u64,
    /// Requests that the thread has not submitted, the oldest first.
    waiting: VecDeque<OwnedIo<D::Memory>>,
    /// The time at which the work for the first of them is done.
    done_at: Option<Instant>,
    /// Whether the device has refused that request. The thread submits it again after the next completion.
    is_refused: bool,
    in_flight: u32,
    spare: Vec<Vec<D::Memory>>,
}

impl<D: BlockDevice<Memory: ModelMemory>> Submitter<D> {
    /// Puts a thread in front of `inner`, which must have no request in flight. The thread executes its work on `cpu`.
    /// Requests have at most `bio_bytes_max` bytes; each segment begins at the start of a page.
    pub fn new(inner: D, cpu: Host, page_bytes: u64, bio_bytes_max: u64) -> Self {
        let below = inner.limits();
        let limits = Limits {
            request_bytes_max: below.request_bytes_max.min(bio_bytes_max),
            segments_max: u16::MAX,
            ..below.clone()
        };
        Self {
            inner,
            limits,
            cpu,
            page_bytes,
            waiting: VecDeque::new(),
            done_at: None,
            is_refused: false,
            in_flight: 0,
            spare: Vec::new(),
        }
    }

    /// The device.
    pub const fn inner(&self) -> &D {
        &self.inner
    }

    /// Submits the requests for which the work is done, and begins the work for the next.
    fn advance(&mut self, now: Instant) {
        while !self.is_refused {
            let Some(first) = self.waiting.front() else { return };
            let segments = first.segments.len() as u32;
            let work = Work { bios: 1, segments, ..Work::default() };
            let done_at = *self.done_at.get_or_insert_with(|| self.cpu.run(&work, now));
            if done_at > now {
                return;
            }
            if self.inner.submit(&first.io(first.tag), now).is_err() {
                self.is_refused = true;
                return;
            }
            self.inner.commit(now);
            self.done_at = None;
            self.spare.extend(self.waiting.pop_front().map(|first| first.segments));
        }
    }
}

impl<D: BlockDevice<Memory: ModelMemory>> BlockDevice for Submitter<D> {
    type Memory = D::Memory;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, D::Memory>, _now: Instant) -> Result<(), Busy> {
        if self.in_flight >= self.limits.depth_max {
            return Err(Busy { tag: io.tag });
        }
        self.in_flight += 1;
        let mut pages = self.spare.pop().unwrap_or_default();
        pages.clear();
        for segment in io.segments() {
            let mut rest = segment.bytes();
            while rest > 0 {
                let page = rest.min(self.page_bytes);
                pages.push(D::Memory::of_length(page));
                rest -= page;
            }
        }
        let Io { tag, op, extent, fua, stream, priority, .. } = *io;
        self.waiting.push_back(OwnedIo { tag, op, extent, fua, stream, priority, segments: pages });
        Ok(())
    }

    fn commit(&mut self, now: Instant) {
        self.advance(now);
        self.inner.commit(now);
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        let done = self.inner.poll_completion(now);
        if done.is_some() {
            self.in_flight -= 1;
            self.is_refused = false;
        } else {
            self.advance(now);
        }
        done
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let done_at = self.done_at.filter(|_| !self.is_refused);
        [done_at, self.inner.poll_timeout()].into_iter().flatten().min()
    }
}
