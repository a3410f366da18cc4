//! A file or block device through `io_uring`: one system call submits all requests in the submission ring, and waits.
//! `uring/setup.rs` sets up rings; `transfer.rs` continues short transfers.

mod end;
mod enter;
mod entry;
mod registered;
mod rings;
mod setup;
mod watch;

use std::fmt;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, opcode};
use iopath_core::{BlockDevice, Busy, Completion, Instant, Io, IoError, Limits, Op};

use super::transfer::{Step, Transfer, skip};
use super::{Notifier, RealDevice, WaitError, Watch};
use crate::clock;
use crate::memory::Segment;
use crate::pool::BufferPool;
use enter::{RETRY_AFTER, enter, passes};
use entry::Slot;
use registered::Registered;

pub use rings::RingPool;
pub(crate) use setup::{Refused, Stage};
use watch::RingWatch;

/// The maximum bytes of a request: whole blocks of any size whose length fits into 31 bits.
const REQUEST_BYTES_MAX: u64 = 1 << 30;

/// The user data of the entry that ends a watch. No slot has this number.
const END_OF_WATCH: u32 = u32::MAX;

/// The maximum number of segments of a request (`UIO_MAXIOV`).
const SEGMENTS_MAX: u16 = 1024;

/// A ring that one thread makes and uses: the kernel runs completions in that thread's own calls, without interrupts.
/// Not `Send`.
#[derive(Debug)]
pub struct OneThread(PhantomData<*const ()>);

/// A ring that may move between threads. Each completion costs slightly more.
#[derive(Debug)]
pub struct AnyThread(());

/// The size of a ring, and the buffers it registers.
#[derive(Debug, Clone)]
pub struct UringConfig {
    /// Requests in flight, 1 to 32,767.
    pub depth: u32,
    /// Buffers to register. They count against `RLIMIT_MEMLOCK` (see `io_uring_register(2)`).
    pub pool: Option<BufferPool>,
}

impl UringConfig {
    /// The limits of a ring of this depth, on a target with `limits`.
    pub(crate) fn limits(depth: u32, limits: &Limits) -> Limits {
        Limits {
            depth_max: depth.clamp(1, setup::ENTRIES_MAX - 1),
            segments_max: limits.segments_max.clamp(1, SEGMENTS_MAX),
            request_bytes_max: limits.request_bytes_max.min(REQUEST_BYTES_MAX),
            ..limits.clone()
        }
    }
}

/// A file or block device through `io_uring`, used by [`OneThread`] or [`AnyThread`].
///
/// Drop waits for the requests in flight.
pub struct Uring<T> {
    /// Taken by drop only.
    ring: ManuallyDrop<IoUring>,
    /// The pool to which the ring goes.
    rings: Option<rings::User>,
    /// File 0 of the ring's registered files.
    file: Arc<File>,
    registered: Registered,
    limits: Limits,
    slots: Box<[Slot]>,
    /// Unused slots. The slot used last is taken first, since it is still in the CPU's cache.
    free: Vec<u32>,
    /// `segments_max` for each slot, for requests of more than one segment. Ends with the last slot that
    /// had one. Allocated for all slots with the first one, and never moves then: the kernel reads these until it has
    /// taken an entry.
    iovecs: Vec<libc::iovec>,
    /// The kernel notifies it of each completion.
    notifier: Option<Notifier>,
    syscalls: u64,
    watch: Arc<RingWatch>,
    /// Not all completions of the last system call have been polled.
    fresh: bool,
    /// The user data of the entries that the kernel has not taken, in the order of the submission ring.
    untaken: Vec<u32>,
    /// If the kernel did not take all entries: the latest time at which to submit the rest again.
    retry_at: Option<Instant>,
    /// The error number with which the system has permanently refused the ring. It accepts no entries then.
    refused: Option<i32>,
    /// The slots of requests that the kernel never took because of that: they complete with the error.
    failed: Vec<u32>,
    /// The entry that ends a watch is in flight.
    ends_watch: bool,
    lone_flush: LoneFlush,
    is_of_one_thread: bool,
    #[cfg(test)]
    shortage: Option<Arc<tests::Shortage>>,
    threads: PhantomData<T>,
}

impl Uring<OneThread> {
    /// A ring for the calling thread.
    pub fn new(file: Arc<File>, limits: &Limits, config: &UringConfig) -> io::Result<Self> {
        Ok(Self::try_new(file, limits, config)?)
    }

    pub(crate) fn try_new(file: Arc<File>, limits: &Limits, config: &UringConfig) -> Result<Self, Refused> {
        Self::open(file, limits, config, true, None)
    }
}

impl Uring<AnyThread> {
    /// A ring for several threads, one after another.
    pub fn new(file: Arc<File>, limits: &Limits, config: &UringConfig) -> io::Result<Self> {
        Ok(Self::try_new(file, limits, config, None)?)
    }

    /// Uses a ring of the pool if there is one that fits, and leaves its ring to the pool.
    pub(crate) fn try_new(
        file: Arc<File>,
        limits: &Limits,
        config: &UringConfig,
        rings: Option<&RingPool>,
    ) -> Result<Self, Refused> {
        Self::open(file, limits, config, false, rings)
    }
}

/// A flush that was submitted while nothing else was in flight, on a ring of one thread.
///
/// The kernel executes a flush of a ring in a worker thread. If the caller only waits for that flush, the two changes
/// between threads are pure cost, so the caller executes it itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoneFlush {
    /// There is no such flush.
    None,
    /// The flush has a slot. Its entry is not in the ring.
    Submitted { slot: u32 },
    /// The flush has been executed, with this result, and has not been polled.
    Executed { slot: u32, returned: i32 },
}

// SAFETY: the ring was set up without `SINGLE_ISSUER`, so any thread may enter it; the raw pointers in slots and
// iovecs point to memory that may be accessed from any thread, as the makers of the segments promised.
unsafe impl Send for Uring<AnyThread> {}

impl<T> Uring<T> {
    fn open(
        file: Arc<File>,
        limits: &Limits,
        config: &UringConfig,
        one: bool,
        rings: Option<&RingPool>,
    ) -> Result<Self, Refused> {
        let limits = UringConfig::limits(config.depth, limits);
        let depth = limits.depth_max;
        let entries = entries(depth, one);
        let rings = rings.cloned().map(rings::User::new);
        let ring = if let Some(ring) = rings.as_ref().and_then(|rings| rings.pool.take(entries, &*file)) {
            ring
        } else {
            let ring = setup::ring(entries, one)?;
            setup::register_file(&ring, &file)?;
            ring
        };
        let watch = Arc::new(RingWatch::new(&ring).map_err(|source| Refused { stage: Stage::Ring, source })?);
        let registered = match &config.pool {
            Some(pool) => Registered::new(&ring, pool)?,
            None => Registered::none(),
        };
        Ok(Self {
            ring: ManuallyDrop::new(ring),
            rings,
            file,
            registered,
            limits,
            slots: (0..depth).map(|_| Slot::default()).collect(),
            free: (0..depth).rev().collect(),
            iovecs: Vec::new(),
            notifier: None,
            syscalls: 0,
            watch,
            fresh: false,
            untaken: Vec::with_capacity(depth as usize + 1),
            retry_at: None,
            refused: None,
            failed: Vec::new(),
            ends_watch: false,
            lone_flush: LoneFlush::None,
            is_of_one_thread: one,
            #[cfg(test)]
            shortage: None,
            threads: PhantomData,
        })
    }

    /// Sets the memory of a slot's request: in the slot, or in its iovecs if there are several segments.
    ///
    /// # Panics
    /// If the memory is not as long as the extent, or in too many segments: the kernel would access memory beyond it.
    fn take_memory(&mut self, slot: u32, io: &Io<'_, Segment>) {
        let mut segments = io.segments();
        let first = segments.next();
        let mut bytes = first.map_or(0, Segment::len);
        let mut count = u16::from(first.is_some());
        if let (Some(first), Some(second)) = (first, segments.next()) {
            let range = entry::iovec_range(slot, self.limits.segments_max);
            if self.iovecs.len() < range.end {
                if self.iovecs.capacity() == 0 {
                    self.iovecs.reserve_exact(self.slots.len() * usize::from(self.limits.segments_max));
                }
                debug_assert!(range.end <= self.iovecs.capacity(), "slot {slot} has no iovecs");
                let no_memory = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
                self.iovecs.resize(range.end, no_memory);
            }
            let iovecs = &mut self.iovecs[range];
            iovecs[0] = first.iovec();
            for segment in std::iter::once(second).chain(segments) {
                iovecs[usize::from(count)] = segment.iovec();
                bytes += segment.len();
                count += 1;
            }
        }
        let expected = if io.op.has_memory() { io.extent.bytes() } else { 0 };
        assert!(bytes as u64 == expected, "{} of {} has {bytes} bytes of memory", io.op, io.extent);
        let first_alone = first.filter(|_| count == 1);
        let buffer = first_alone.and_then(|first| self.registered.find(&self.ring, first));
        self.slots[slot as usize].set_memory(first.map(Segment::iovec), count, buffer);
    }

    /// Writes the next call of a slot's request into the submission ring. If the ring is refused, the request fails.
    fn push(&mut self, slot: u32) {
        if self.refused.is_some() {
            self.failed.push(slot);
            return;
        }
        let iovecs = entry::iovecs_of(&self.iovecs, slot, self.limits.segments_max);
        let entry = self.slots[slot as usize].entry(slot, iovecs);
        // SAFETY: the memory lives until the completion, as its makers promised; the iovecs live as long as this
        // device, which waits for all completions when dropped; the file is registered.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the ring has an entry for each slot, and a slot has one entry at a time");
        self.untaken.push(slot);
    }

    /// Writes the entry of a lone flush into the ring, because other work follows before a wait for the flush.
    fn push_lone_flush(&mut self) {
        if let LoneFlush::Submitted { slot } = self.lone_flush {
            self.lone_flush = LoneFlush::None;
            self.push(slot);
        }
    }

    /// Executes a lone flush in the calling thread.
    fn execute_lone_flush(&mut self, slot: u32) {
        self.syscalls += 1;
        let returned = match self.file.sync_data() {
            Ok(()) => 0,
            Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
        };
        self.lone_flush = LoneFlush::Executed { slot, returned };
    }

    /// Enters the kernel: submits all entries in the ring, then waits for `completions`.
    ///
    /// If the kernel takes no more entries now, for lack of memory or of room for completions, the rest stays in the
    /// ring. Then this waits for one earlier completion, at most for [`RETRY_AFTER`], and returns early. Each later
    /// call submits the rest again; the latest time for that is [`Uring::retry_at`].
    fn enter(&mut self, completions: u32, timeout: Option<Duration>) -> io::Result<()> {
        let mut left = self.untaken.len();
        loop {
            self.enter_once(left as u32, completions, timeout)?;
            let left_before = std::mem::replace(&mut left, self.untaken.len());
            if left == 0 {
                self.retry_at = None;
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
        self.retry_at = (!self.untaken.is_empty()).then(|| clock::now() + RETRY_AFTER);
        Ok(())
    }

    /// One system call. It ends early on a signal, the timeout, a lack of memory, or a full completion ring.
    ///
    /// # Errors
    /// If the system permanently refuses the ring, and no completion is ready.
    fn enter_once(&mut self, to_submit: u32, completions: u32, timeout: Option<Duration>) -> io::Result<()> {
        self.syscalls += 1;
        self.fresh = true;
        let called = self.call(to_submit, completions, timeout);
        if to_submit > 0 {
            let taken = self.untaken.len() - self.ring.submission().len();
            self.untaken.drain(..taken);
        }
        match called {
            Err(error) if !passes(&error) => {
                self.refuse(&error);
                if self.completions_ready() > 0 { Ok(()) } else { Err(error) }
            }
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

    /// The system permanently refuses the ring. The kernel has no access to the memory of requests that it never took:
    /// these fail now, and later ones at once. So only requests that it did take can keep a caller waiting.
    #[cold]
    fn refuse(&mut self, error: &io::Error) {
        self.refused = Some(error.raw_os_error().unwrap_or(libc::EIO));
        // The entries stay in the submission ring. No later call submits them.
        for entry in std::mem::take(&mut self.untaken) {
            if entry == END_OF_WATCH {
                self.ends_watch = false;
                self.watch.end_next();
            } else {
                self.failed.push(entry);
            }
        }
        self.announce_failed();
    }

    /// Ends the next wait if requests have failed: the kernel does not notify of requests that it never took.
    fn announce_failed(&self) {
        if !self.failed.is_empty() {
            self.watch.end_next();
            self.notifier.iter().for_each(Notifier::notify);
        }
    }

    /// Handles the return value of a request's entry; `None` if the request continues.
    fn after_call(&mut self, slot: u32, returned: i32) -> Option<Result<(), IoError>> {
        let block = u64::from(self.limits.logical_block_bytes);
        let request = &mut self.slots[slot as usize];
        let before = request.transfer.done();
        match request.transfer.after(i64::from(returned), block) {
            Step::Done(result) => Some(result),
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
                let iovecs = entry::iovecs_of(&self.iovecs, slot, self.limits.segments_max);
                let from = (end - request.transfer.done()) as usize;
                // SAFETY: the kernel has finished this read, and the request has not completed: no one else uses its
                // memory.
                unsafe { request.zero_from(iovecs, from) };
                Some(Ok(()))
            }
        }
    }

    fn flushes_executed(&self) -> u32 {
        u32::from(matches!(self.lone_flush, LoneFlush::Executed { .. }))
    }

    fn completions_ready(&mut self) -> u32 {
        let executed = self.flushes_executed();
        executed + (self.ring.completion().len() + self.failed.len()) as u32
    }
}

/// Whether the kernel may hold completions back until the next call, while its `TASKRUN` flag is set.
///
/// Directly after a call (`is_fresh`), the kernel holds back only newer completions. It has notified of the first of
/// these. If that notification has ended a wait, the kernel does not notify of the others, so a poll with a notifier
/// enters the kernel. It does so only once, since the flag may be stale: the kernel sets the flag after it has queued
/// the work, perhaps when the work is already done. Completions after the call notify again.
const fn may_hold_back(is_fresh: bool, has_notifier: bool, has_entered: bool) -> bool {
    !is_fresh || has_notifier && !has_entered
}

impl<T> BlockDevice for Uring<T> {
    type Memory = Segment;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    /// # Panics
    /// If the request's memory is not as long as its extent, or in more segments than the limits allow.
    fn submit(&mut self, io: &Io<'_, Segment>, _now: Instant) -> Result<(), Busy> {
        let Some(&slot) = self.free.last() else { return Err(Busy { tag: io.tag }) };
        self.take_memory(slot, io);
        let is_lone = self.in_flight() == 0;
        self.free.pop();
        let request = &mut self.slots[slot as usize];
        request.tag = io.tag;
        request.transfer = Transfer::new(io, self.limits.capacity);
        self.push_lone_flush();
        if io.op == Op::Flush && is_lone && self.is_of_one_thread && self.notifier.is_none() {
            self.lone_flush = LoneFlush::Submitted { slot };
        } else {
            self.push(slot);
        }
        Ok(())
    }

    /// Makes one system call if anything was submitted. Each later call submits entries again that the kernel did not
    /// take; the latest time for that is [`BlockDevice::poll_timeout`]. If the system permanently refuses the ring, the
    /// requests that the kernel never took complete with the error.
    fn commit(&mut self, _now: Instant) {
        self.push_lone_flush();
        if self.notifier.is_some() && self.completions_ready() > 0 {
            // The kernel has notified of these, but that notification may have ended an earlier wait.
            self.notifier.iter().for_each(Notifier::notify);
        }
        if !self.untaken.is_empty() {
            let _ = self.enter(0, None);
        }
        self.announce_failed();
    }

    fn poll_completion(&mut self, _now: Instant) -> Option<Completion> {
        if let LoneFlush::Executed { slot, returned } = self.lone_flush {
            self.lone_flush = LoneFlush::None;
            if let Some(result) = self.after_call(slot, returned) {
                self.free.push(slot);
                return Some(Completion { tag: self.slots[slot as usize].tag, result });
            }
        }
        let mut has_entered = false;
        loop {
            let Some(entry) = self.ring.completion().next() else {
                if let Some(slot) = self.failed.pop() {
                    self.free.push(slot);
                    let error = IoError::Os(self.refused.unwrap_or(libc::EIO));
                    return Some(Completion { tag: self.slots[slot as usize].tag, result: Err(error) });
                }
                let flags_held_back = self.ring.submission().taskrun();
                let is_held_back =
                    flags_held_back && may_hold_back(self.fresh, self.notifier.is_some(), has_entered);
                let is_behind = !self.fresh && self.retry_at.is_some();
                self.fresh = false;
                if (is_held_back || is_behind) && self.enter(0, None).is_ok() {
                    has_entered = true;
                    continue;
                }
                return None;
            };
            if entry.user_data() == u64::from(END_OF_WATCH) {
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

    /// The time at which to submit the entries again that the kernel did not take.
    fn poll_timeout(&self) -> Option<Instant> {
        self.retry_at
    }
}

// SAFETY: a request is reported as completed after the kernel has completed its last entry, and drop waits for all.
unsafe impl<T> RealDevice for Uring<T> {
    fn commit_and_wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        match self.lone_flush {
            // A timeout may be shorter than the flush.
            LoneFlush::Submitted { slot } if completions > 0 && timeout.is_none() => {
                self.execute_lone_flush(slot);
            }
            _ => self.push_lone_flush(),
        }
        let wanted = completions.min(self.in_flight());
        // The kernel does not count failed requests.
        if self.untaken.is_empty() && (self.completions_ready() >= wanted || !self.failed.is_empty()) {
            return Ok(());
        }
        Ok(self.enter(wanted - self.flushes_executed().min(wanted), timeout)?)
    }

    fn watch(&self) -> Arc<dyn Watch> {
        Arc::clone(&self.watch) as Arc<dyn Watch>
    }

    /// Submits a no-op: its completion ends the wait.
    fn end_watch(&mut self) {
        if self.refused.is_some() {
            return self.watch.end_next();
        }
        if self.ends_watch {
            return;
        }
        let nothing = opcode::Nop::new().build().user_data(END_OF_WATCH.into());
        // SAFETY: the entry names no memory.
        self.ends_watch = unsafe { self.ring.submission().push(&nothing) }.is_ok();
        self.untaken.extend(self.ends_watch.then_some(END_OF_WATCH));
        // If the kernel does not take the entry, it is submitted again like any other.
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

    fn set_notifier(&mut self, notifier: &Notifier) -> io::Result<()> {
        if self.notifier.take().is_some() {
            self.ring.submitter().unregister_eventfd()?;
        }
        // The kernel keeps the eventfd open; the field records that there is a notifier.
        self.ring.submitter().register_eventfd(notifier.as_raw_fd())?;
        self.notifier = Some(notifier.clone());
        Ok(())
    }
}

/// The entries of a ring for `depth` requests. One more to end a watch; a ring of one thread needs none.
const fn entries(depth: u32, one: bool) -> u32 {
    if one { depth } else { depth + 1 }
}

impl<T> fmt::Debug for Uring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uring")
            .field("limits", &self.limits)
            .field("in_flight", &self.in_flight())
            .field("registered", &self.registered)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
