//! A disk in memory that completes each request at the time at which a modelled device would. It moves the bytes at
//! submission. The model has no bytes, and may come from any crate.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;

use iopath_core::{BlockDevice, Busy, Completion, Duration, Instant, Io, IoError, LengthOnly, Limits, Tag};
use slab::Slab;

use super::{MemoryDevice, Notifier, RealDevice, WaitError, Watch};
use crate::clock;
use crate::memory::Segment;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// A modelled device, which only determines times and errors.
type Model = dyn BlockDevice<Memory = LengthOnly> + Send;

/// The times of one modelled device, for all engines of a disk in memory. Clones are the same device. One second of the
/// model is one second of the real clock.
#[derive(Clone)]
pub struct Timing {
    shared: Arc<Mutex<Shared>>,
    limits: Limits,
}

struct Shared {
    model: Box<Model>,
    /// Requests at the model.
    requests: Slab<Pending>,
    /// Completed requests of each engine.
    finished: Slab<VecDeque<Completion>>,
    /// The latest time that the model has seen: threads read the clock before they get the lock.
    now: Instant,
}

struct Pending {
    /// `None` when the engine is gone.
    engine: Option<usize>,
    tag: Tag,
    /// The result of the transfer.
    result: Result<(), IoError>,
}

impl Timing {
    /// The times of `model`.
    pub fn new(model: Box<Model>) -> Self {
        let limits = model.limits().clone();
        let shared = Shared { model, requests: Slab::new(), finished: Slab::new(), now: Instant::ZERO };
        Self { shared: Arc::new(Mutex::new(shared)), limits }
    }

    /// The limits of the modelled device, within those of the disk that holds the bytes.
    pub fn limits_on(&self, disk: &Limits) -> Limits {
        let block = self.limits.logical_block_bytes.max(disk.logical_block_bytes);
        let request_bytes_max = self.limits.request_bytes_max.min(disk.request_bytes_max);
        Limits {
            capacity: self.limits.capacity.min(disk.capacity),
            logical_block_bytes: block,
            memory_align_bytes: disk.memory_align_bytes,
            request_bytes_max: (request_bytes_max / u64::from(block) * u64::from(block)).max(block.into()),
            depth_max: self.limits.depth_max.min(disk.depth_max),
            ..self.limits.clone()
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl fmt::Debug for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timing").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Shared {
    /// Collects what has completed by `now`, for all engines.
    fn advance(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        while let Some(done) = self.model.poll_completion(self.now) {
            let Pending { engine, tag, result } = self.requests.remove(done.tag.to_bits() as usize);
            if let Some(engine) = engine {
                self.finished[engine].push_back(Completion { tag, result: result.and(done.result) });
            }
        }
        self.now
    }

    /// The time of the next event for an engine.
    fn next(&self, engine: usize) -> Option<Instant> {
        if self.finished[engine].is_empty() { self.model.poll_timeout() } else { Some(self.now) }
    }
}

/// An engine on a disk in memory with the times of a modelled device.
pub struct Timed {
    inner: MemoryDevice,
    timing: Timing,
    engine: usize,
    limits: Limits,
    in_flight: u32,
    has_submitted: bool,
    notifier: Option<Notifier>,
    watch: Arc<TimedWatch>,
}

impl fmt::Debug for Timed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timed")
            .field("inner", &self.inner)
            .field("timing", &self.timing)
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

impl Timed {
    /// An engine that moves bytes with `inner` at the times of `timing`.
    pub fn new(inner: MemoryDevice, timing: &Timing) -> Self {
        let limits = timing.limits_on(inner.limits());
        let engine = timing.lock().finished.insert(VecDeque::new());
        let watch = TimedWatch {
            timing: timing.clone(),
            engine,
            has_ended: Mutex::new(false),
            ended: Condvar::new(),
        };
        Self {
            inner,
            timing: timing.clone(),
            engine,
            limits,
            in_flight: 0,
            has_submitted: false,
            notifier: None,
            watch: Arc::new(watch),
        }
    }
}

impl BlockDevice for Timed {
    type Memory = Segment;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, Segment>, now: Instant) -> Result<(), Busy> {
        let mut shared = self.timing.lock();
        let now = shared.advance(now);
        let pending = Pending { engine: Some(self.engine), tag: io.tag, result: Ok(()) };
        let key = shared.requests.insert(pending);
        let length = [LengthOnly::new(io.extent.bytes())];
        let memory = if io.op.has_memory() { &length[..] } else { &[] };
        let mut modelled = Io::new(Tag::from_bits(key as u32), io.op, io.extent, memory);
        (modelled.fua, modelled.stream, modelled.priority) = (io.fua, io.stream, io.priority);
        if shared.model.submit(&modelled, now).is_err() {
            shared.requests.remove(key);
            return Err(Busy { tag: io.tag });
        }
        if let Err(busy) = self.inner.submit(io, now) {
            shared.requests[key].engine = None;
            return Err(busy);
        }
        let moved = self.inner.poll_completion(now).expect("a disk in memory executes at submission");
        shared.requests[key].result = moved.result;
        self.in_flight += 1;
        self.has_submitted = true;
        Ok(())
    }

    fn commit(&mut self, now: Instant) {
        let mut shared = self.timing.lock();
        let now = shared.advance(now);
        shared.model.commit(now);
        shared.advance(now);
        let is_ready = !shared.finished[self.engine].is_empty();
        drop(shared);
        if let Some(notifier) = self.notifier.as_ref().filter(|_| is_ready) {
            notifier.notify();
        }
        // A waiting thread does not know the times of the new requests.
        if std::mem::take(&mut self.has_submitted) || is_ready {
            self.watch.end();
        }
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        let mut shared = self.timing.lock();
        shared.advance(now);
        let done = shared.finished[self.engine].pop_front()?;
        self.in_flight -= 1;
        Some(done)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.in_flight == 0 { None } else { self.timing.lock().next(self.engine) }
    }
}

// SAFETY: the inner device moves the bytes during submission and keeps no memory. A request counts in `in_flight` until
// its completion is returned.
unsafe impl RealDevice for Timed {
    fn commit_and_wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        let wanted = completions.min(self.in_flight) as usize;
        let end = timeout.map(|timeout| clock::now() + timeout);
        loop {
            let now = clock::now();
            self.commit(now);
            let shared = self.timing.lock();
            let is_late = end.is_some_and(|end| end <= now);
            let next = shared.model.poll_timeout();
            if shared.finished[self.engine].len() >= wanted || is_late {
                return Ok(());
            }
            drop(shared);
            // Without an event of the model and without an end, nothing is to be awaited.
            let Some(until) = [next, end].into_iter().flatten().min() else { return Ok(()) };
            crate::sync::thread::sleep(until.saturating_since(now));
        }
    }

    fn watch(&self) -> Arc<dyn Watch> {
        Arc::clone(&self.watch) as Arc<dyn Watch>
    }

    fn end_watch(&mut self) {
        self.watch.end();
    }

    fn in_flight(&self) -> u32 {
        self.in_flight
    }

    fn syscalls(&self) -> u64 {
        0
    }

    /// Notifies in `commit` of requests that have completed by then. For later ones, [`BlockDevice::poll_timeout`] has
    /// the time.
    fn set_notifier(&mut self, notifier: &Notifier) -> io::Result<()> {
        self.notifier = Some(notifier.clone());
        Ok(())
    }
}

impl Drop for Timed {
    /// The requests in flight go on at the model, and occupy it.
    fn drop(&mut self) {
        let mut shared = self.timing.lock();
        for (_, pending) in &mut shared.requests {
            if pending.engine == Some(self.engine) {
                pending.engine = None;
            }
        }
        shared.finished.remove(self.engine);
    }
}

/// Waits for the next event of the model.
#[derive(Debug)]
struct TimedWatch {
    timing: Timing,
    engine: usize,
    has_ended: Mutex<bool>,
    ended: Condvar,
}

impl TimedWatch {
    fn end(&self) {
        *self.has_ended.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = true;
        self.ended.notify_all();
    }
}

impl Watch for TimedWatch {
    fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        let next = self.timing.lock().next(self.engine).map(|next| next.saturating_since(clock::now()));
        let mut has_ended = self.has_ended.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let (false, Some(time)) = (*has_ended, [next, timeout].into_iter().flatten().min()) {
            let waited = self.ended.wait_timeout(has_ended, time);
            has_ended = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        *has_ended = false;
        Ok(())
    }
}
