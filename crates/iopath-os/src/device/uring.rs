//! A file or block device through `io_uring`: requests are collected in the submission ring and handed over with one
//! system call, which also waits. How a ring is set up: `uring/setup.rs`. What becomes of short transfers:
//! `transfer.rs`.

mod enter;
mod entry;
mod setup;
mod watch;

use std::fmt;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, opcode};
use iopath_core::{BlockDevice, Busy, Completion, Instant, Io, IoError, Limits};

use super::transfer::{Step, Transfer, skip};
use super::{Bell, RealDevice, WaitError, Watch};
use crate::clock;
use crate::memory::Segment;
use crate::pool::BufferPool;
use enter::{RETRY_AFTER, enter, passes};
use entry::Slot;

pub(crate) use setup::{Refused, Stage};
use watch::RingWatch;

/// The most bytes of one request: its length has to fit into 31 bits, whole blocks of any size.
const REQUEST_BYTES_MAX: u64 = 1 << 30;

/// Marks the entry that ends a watch: the number of no slot.
const END_OF_WATCH: u64 = u64::MAX;

/// The most segments of one request (`UIO_MAXIOV`).
const SEGMENTS_MAX: u16 = 1024;

/// A ring that one thread makes and uses: the kernel then runs completions in that thread's own calls, without
/// interrupting it. Not `Send`.
#[derive(Debug)]
pub struct OneThread(PhantomData<*const ()>);

/// A ring that several threads use in turn, at some more cost for each completion.
#[derive(Debug)]
pub struct AnyThread(());

/// How large a ring is, and what it knows beforehand.
#[derive(Debug, Clone)]
pub struct UringConfig {
    /// Requests in flight at once, 1 to 32,767.
    pub depth: u32,
    /// Buffers to register. They count against `RLIMIT_MEMLOCK` (see `io_uring_register(2)`).
    pub pool: Option<BufferPool>,
}

/// A file or block device through `io_uring`. `T` says from which threads: [`OneThread`] or [`AnyThread`].
///
/// Dropping it waits for what is in flight.
pub struct Uring<T> {
    ring: IoUring,
    /// Number 0 of the ring's registered files.
    file: Arc<File>,
    /// Kept so that registered memory is not given back while the kernel knows it.
    pool: Option<BufferPool>,
    /// Where the registered buffers lie: first address and the one after the last.
    registered: Box<[(usize, usize)]>,
    limits: Limits,
    slots: Box<[Slot]>,
    /// Numbers of unused slots; the one used last, still in the cache, first.
    free: Vec<u32>,
    /// `segments_max` for each slot; used by requests of more than one segment.
    iovecs: Box<[libc::iovec]>,
    /// Rung by the kernel at each completion.
    bell: Option<Bell>,
    syscalls: u64,
    watch: Arc<RingWatch>,
    /// The completions of the last system call have not been asked for to the end.
    fresh: bool,
    /// Entries were handed over that the kernel did not take: when to submit them again at the latest.
    retry_at: Option<Instant>,
    /// The entry that ends a watch is in the ring or in the kernel.
    ends_watch: bool,
    #[cfg(test)]
    shortage: Option<Arc<tests::Shortage>>,
    threads: PhantomData<T>,
}

impl Uring<OneThread> {
    /// A ring for the calling thread.
    pub fn new(file: Arc<File>, limits: &Limits, config: &UringConfig) -> io::Result<Self> {
        Ok(Self::open(file, limits, config, true)?)
    }

    pub(crate) fn try_new(file: Arc<File>, limits: &Limits, config: &UringConfig) -> Result<Self, Refused> {
        Self::open(file, limits, config, true)
    }
}

impl Uring<AnyThread> {
    /// A ring for several threads, one after another.
    pub fn new(file: Arc<File>, limits: &Limits, config: &UringConfig) -> io::Result<Self> {
        Ok(Self::open(file, limits, config, false)?)
    }

    pub(crate) fn try_new(file: Arc<File>, limits: &Limits, config: &UringConfig) -> Result<Self, Refused> {
        Self::open(file, limits, config, false)
    }
}

// SAFETY: the ring was set up without `SINGLE_ISSUER`, so any thread may enter it; the raw pointers in slots and
// iovecs point to memory that may be accessed from any thread, as the makers of the segments promised.
unsafe impl Send for Uring<AnyThread> {}

impl<T> Uring<T> {
    fn open(file: Arc<File>, limits: &Limits, config: &UringConfig, one: bool) -> Result<Self, Refused> {
        let depth = config.depth.clamp(1, setup::ENTRIES_MAX - 1);
        // One entry more for the end of a watch, which a ring of one thread has no use for.
        let ring = setup::ring(if one { depth } else { depth + 1 }, one)?;
        setup::register_file(&ring, &file)?;
        let watch = Arc::new(RingWatch::new(&ring).map_err(|source| Refused { stage: Stage::Ring, source })?);
        let registered = match &config.pool {
            Some(pool) => setup::register_buffers(&ring, pool)?,
            None => Box::default(),
        };
        let segments_max = limits.segments_max.clamp(1, SEGMENTS_MAX);
        let limits = Limits {
            depth_max: depth,
            segments_max,
            request_bytes_max: limits.request_bytes_max.min(REQUEST_BYTES_MAX),
            ..limits.clone()
        };
        let no_memory = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Ok(Self {
            ring,
            file,
            pool: config.pool.clone(),
            registered,
            limits,
            slots: (0..depth).map(|_| Slot::default()).collect(),
            free: (0..depth).rev().collect(),
            iovecs: vec![no_memory; depth as usize * usize::from(segments_max)].into(),
            bell: None,
            syscalls: 0,
            watch,
            fresh: false,
            retry_at: None,
            ends_watch: false,
            #[cfg(test)]
            shortage: None,
            threads: PhantomData,
        })
    }

    /// Puts the request's memory into its slot, or into the slot's iovecs if there is more than one segment.
    ///
    /// # Panics
    /// If the memory is not as long as the extent or in too many segments: the kernel must not be let beyond it.
    fn take_memory(&mut self, slot: u32, io: &Io<'_, Segment>) {
        let mut segments = io.segments();
        let first = segments.next();
        let mut bytes = first.map_or(0, Segment::len);
        let mut count = u16::from(first.is_some());
        if let (Some(first), Some(second)) = (first, segments.next()) {
            let iovecs = &mut self.iovecs[entry::iovec_range(slot, self.limits.segments_max)];
            iovecs[0] = first.iovec();
            for segment in std::iter::once(second).chain(segments) {
                iovecs[usize::from(count)] = segment.iovec();
                bytes += segment.len();
                count += 1;
            }
        }
        let owed = if io.op.has_memory() { io.extent.bytes() } else { 0 };
        assert!(bytes as u64 == owed, "{} of {} came with {bytes} bytes of memory", io.op, io.extent);
        let buffer = first.filter(|_| count == 1).and_then(|first| self.registered_buffer(first));
        self.slots[slot as usize].set_memory(first.map(Segment::iovec), count, buffer);
    }

    /// The number of the registered buffer that the whole segment lies in, if that is so.
    fn registered_buffer(&self, segment: Segment) -> Option<u16> {
        let number = segment.registered()?;
        let &(start, end) = self.registered.get(usize::from(number))?;
        (start <= segment.address() && segment.address() + segment.len() <= end).then_some(number)
    }

    /// Writes the next call of a slot's request into the submission ring.
    fn push(&mut self, slot: u32) {
        let iovecs = &self.iovecs[entry::iovec_range(slot, self.limits.segments_max)];
        let entry = self.slots[slot as usize].entry(slot, iovecs);
        // SAFETY: what the entry points to lives until its completion: the memory as its makers promised, the iovecs
        // as long as this device, which waits for all completions before it goes, and the file is registered.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the ring has an entry for each slot, and a slot has one call at a time");
    }

    /// Enters the kernel: submits all that is in the ring, then waits for `completions` of them.
    ///
    /// Where the kernel takes no more for now, for lack of memory or of room for completions, the rest stays in the
    /// ring: then this waits for one completion of those before, no longer than [`RETRY_AFTER`], and returns early.
    /// [`Uring::retry_at`] remembers it, and each later call tries again.
    fn enter(&mut self, completions: u32, timeout: Option<Duration>) -> io::Result<()> {
        let mut left = self.ring.submission().len() as u32;
        loop {
            self.enter_once(left, completions, timeout)?;
            let left_before = std::mem::replace(&mut left, self.ring.submission().len() as u32);
            if left == 0 {
                if self.retry_at.take().is_some() {
                    self.watch.refuse(None);
                }
                return Ok(());
            }
            if left == left_before {
                break;
            }
        }
        if completions > 0 {
            let pause = timeout.map_or(RETRY_AFTER, |timeout| timeout.min(RETRY_AFTER));
            self.enter_once(0, 1, Some(pause))?;
        }
        self.retry_at = Some(clock::now() + RETRY_AFTER);
        Ok(())
    }

    /// One system call. A signal, the end of the time, no memory for more at the moment, or completions to be taken
    /// first end it early.
    fn enter_once(&mut self, to_submit: u32, completions: u32, timeout: Option<Duration>) -> io::Result<()> {
        self.syscalls += 1;
        self.fresh = true;
        match self.call(to_submit, completions, timeout) {
            Err(error) if !passes(&error) => self.refused(error),
            _ => Ok(()),
        }
    }

    fn call(&self, to_submit: u32, completions: u32, timeout: Option<Duration>) -> io::Result<u32> {
        let ring = self.ring.as_raw_fd();
        #[cfg(test)]
        if let Some(shortage) = &self.shortage {
            return shortage.enter(ring, to_submit, completions, timeout);
        }
        enter(ring, to_submit, completions, timeout)
    }

    /// The system refuses to go on: a watch says so, too, and what waits by a bell comes back and asks.
    fn refused(&mut self, error: io::Error) -> io::Result<()> {
        self.watch.refuse(Some(&error));
        self.retry_at = Some(clock::now() + RETRY_AFTER);
        Err(error)
    }

    /// How far a request is after one of its calls returned; `None` while it goes on.
    fn after_call(&mut self, slot: u32, returned: i32) -> Option<Result<(), IoError>> {
        let block = u64::from(self.limits.logical_block_bytes);
        let request = &mut self.slots[slot as usize];
        let before = request.transfer.done();
        match request.transfer.after(i64::from(returned), block) {
            Step::Over(result) => Some(result),
            Step::Again => {
                let moved = (request.transfer.done() - before) as usize;
                if request.segments > 1 {
                    let range = entry::iovec_range(slot, self.limits.segments_max);
                    let all = &mut self.iovecs[range][..usize::from(request.segments)];
                    let rest = &mut all[usize::from(request.first_iovec)..];
                    request.first_iovec += skip(rest, moved) as u16;
                } else {
                    skip(std::slice::from_mut(&mut request.memory), moved);
                }
                self.push(slot);
                None
            }
            Step::ZeroFrom(end) => {
                let range = entry::iovec_range(slot, self.limits.segments_max);
                let from = (end - request.transfer.done()) as usize;
                // SAFETY: the kernel is done with this read, and the request has not completed: its memory is ours.
                unsafe { request.zero_from(&self.iovecs[range], from) };
                Some(Ok(()))
            }
        }
    }

    fn completions_ready(&mut self) -> u32 {
        self.ring.completion().len() as u32
    }
}

impl<T> BlockDevice for Uring<T> {
    type Memory = Segment;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    /// # Panics
    /// If the request's memory is not as long as its extent or in more segments than the limits say.
    fn submit(&mut self, io: &Io<'_, Segment>, _now: Instant) -> Result<(), Busy> {
        let Some(&slot) = self.free.last() else { return Err(Busy { tag: io.tag }) };
        self.take_memory(slot, io);
        self.free.pop();
        let request = &mut self.slots[slot as usize];
        request.tag = io.tag;
        request.transfer = Transfer::new(io, self.limits.capacity);
        self.push(slot);
        Ok(())
    }

    /// One system call if anything was submitted. What the kernel does not take is submitted again by each call that
    /// follows, and [`BlockDevice::poll_timeout`] says when one is due; an error comes from the next wait.
    fn commit(&mut self, _now: Instant) {
        if self.bell.is_some() && self.completions_ready() > 0 {
            // The kernel rang for these before, perhaps for a poll that took others only.
            self.bell.iter().for_each(Bell::ring);
        }
        if !self.ring.submission().is_empty() {
            let _ = self.enter(0, None);
        }
    }

    fn poll_completion(&mut self, _now: Instant) -> Option<Completion> {
        loop {
            let Some(entry) = self.ring.completion().next() else {
                // The kernel may hold completions back until it is entered. Who has just been there has them all, but
                // for those since: a bell was rung for the first of these, and is not rung for others.
                let held_back = (!self.fresh || self.bell.is_some()) && self.ring.submission().taskrun();
                let is_behind = !self.fresh && self.retry_at.is_some();
                self.fresh = false;
                if (held_back || is_behind) && self.enter(0, None).is_ok() {
                    continue;
                }
                return None;
            };
            if entry.user_data() == END_OF_WATCH {
                self.ends_watch = false;
                continue;
            }
            let slot = entry.user_data() as u32;
            if let Some(result) = self.after_call(slot, entry.result()) {
                self.free.push(slot);
                return Some(Completion { tag: self.slots[slot as usize].tag, result });
            }
        }
    }

    /// When to submit again what the kernel did not take.
    fn poll_timeout(&self) -> Option<Instant> {
        self.retry_at
    }
}

// SAFETY: a request is reported as over after the kernel has completed its last call, and dropping waits for all.
unsafe impl<T> RealDevice for Uring<T> {
    fn commit_and_wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        let wanted = completions.min(self.in_flight());
        if self.ring.submission().is_empty() && self.completions_ready() >= wanted {
            return Ok(());
        }
        Ok(self.enter(wanted, timeout)?)
    }

    fn watch(&self) -> Arc<dyn Watch> {
        Arc::clone(&self.watch) as Arc<dyn Watch>
    }

    /// Submits an entry that does nothing: its completion ends the wait.
    fn end_watch(&mut self) {
        if self.ends_watch {
            return;
        }
        let nothing = opcode::Nop::new().build().user_data(END_OF_WATCH);
        // SAFETY: the entry names no memory.
        self.ends_watch = unsafe { self.ring.submission().push(&nothing) }.is_ok();
        // What the kernel does not take is submitted again like any other entry.
        let _ = self.enter(0, None);
    }

    fn set_capacity(&mut self, sectors: u64) {
        self.limits.capacity = sectors;
    }

    fn in_flight(&self) -> u32 {
        (self.slots.len() - self.free.len()) as u32
    }

    fn syscalls(&self) -> u64 {
        self.syscalls + self.watch.syscalls()
    }

    fn ring_when_over(&mut self, bell: &Bell) -> io::Result<()> {
        if self.bell.take().is_some() {
            self.ring.submitter().unregister_eventfd()?;
        }
        // The kernel keeps the eventfd open by itself; the bell is kept to know that there is one.
        self.ring.submitter().register_eventfd(bell.as_raw_fd())?;
        self.bell = Some(bell.clone());
        Ok(())
    }
}

impl<T> Drop for Uring<T> {
    /// Waits until the kernel is done with all memory it was given. Requests not yet committed are not begun.
    fn drop(&mut self) {
        let not_begun = self.ring.submission().len() as u32;
        let mut in_kernel = self.in_flight() + u32::from(self.ends_watch) - not_begun;
        loop {
            in_kernel -= self.ring.completion().count() as u32;
            if in_kernel == 0 {
                return;
            }
            let entered = enter(self.ring.as_raw_fd(), 0, in_kernel, None);
            if matches!(entered, Err(error) if !passes(&error)) {
                // Someone closed our descriptor. The kernel goes on writing to memory that will be freed: no way on.
                std::process::abort();
            }
        }
    }
}

impl<T> fmt::Debug for Uring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uring")
            .field("file", &self.file)
            .field("limits", &self.limits)
            .field("in_flight", &self.in_flight())
            .field("registered_buffers", &self.pool.as_ref().map(|_| self.registered.len()))
            .field("ring", self.ring.params())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
