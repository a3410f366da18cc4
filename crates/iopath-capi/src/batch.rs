//! Batches: many requests in flight from one thread. The batch owns all buffers; a C program knows one by its address.
//!
//! ```text
//!   free ── iopath_batch_buffer ──▶ borrowed ── read, write ──▶ in flight ── wait, poll ──▶ borrowed
//!    ▲                               │                          └── cancelled ──▶ free, when the device has completed
//!    └───── iopath_batch_release ────┘
//! ```

use std::ffi::{c_int, c_void};
use std::ptr;
use std::time::Duration;

use iopath::{Batch, BatchOptions, BufferPool, Completion, PoolBuf, Request, Volume};

use crate::error::{Failure, count, handle_mut, place, pointer, status};
use crate::volume::{iopath_volume, volume_of};

/// Many requests in flight on a volume. One thread at a time may use it.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "a name of C")]
pub struct iopath_batch {
    batch: Batch,
    /// The buffers that the C program has, by number.
    borrowed: Vec<Option<PoolBuf>>,
    /// The address of the first buffer. They are adjacent, in the order of their numbers.
    start: usize,
    buffer_bytes: usize,
}

/// A completed request.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(non_camel_case_types, reason = "a name of C")]
pub struct iopath_completion {
    /// The token of the request.
    pub token: u64,
    /// The number of bytes, or a negative error. Of a read, fewer bytes than requested only at the end of the volume.
    pub result: i64,
    /// The buffer of the request, for its next one or for iopath_batch_release; NULL for a request without buffer, and
    /// for a cancelled one.
    pub buffer: *mut c_void,
}

/// Flags of iopath_batch_write: the request completes when its bytes are durable.
pub const IOPATH_DURABLE: u32 = 1;

// Threads of the C program may use a batch one after another.
const _: () = is_sent::<Batch>();
const fn is_sent<T: Send>() {}

impl iopath_batch {
    fn new(volume: &Volume, depth: u32, buffer_bytes: usize) -> Result<Self, Failure> {
        let depth = depth.max(1);
        let no_memory = |error: iopath::buffers::NoMemory| Failure::new(libc::ENOMEM, error.to_string());
        let pool = BufferPool::new(depth, buffer_bytes).map_err(no_memory)?;
        let batch = volume.batch(&BatchOptions::new(depth, buffer_bytes).pool(&pool))?;
        let buffer_bytes = pool.buffer_bytes();
        let first = pool.take().ok_or_else(|| Failure::new(libc::ENOMEM, "the pool has no buffer"))?;
        let start = first.as_ptr().addr() - first.number() as usize * buffer_bytes;
        Ok(Self { batch, borrowed: (0..depth).map(|_| None).collect(), start, buffer_bytes })
    }

    /// Gives a buffer to the C program. Returns its address.
    fn borrow(&mut self, mut buffer: PoolBuf) -> *mut c_void {
        let address = buffer.as_mut_ptr().cast();
        let number = buffer.number() as usize;
        self.borrowed[number] = Some(buffer);
        address
    }

    /// Takes a borrowed buffer back.
    fn take_back(&mut self, address: *const c_void) -> Result<PoolBuf, Failure> {
        let offset = address.addr().wrapping_sub(self.start);
        let place = self.borrowed.get_mut(offset / self.buffer_bytes);
        let buffer = place.filter(|_| offset.is_multiple_of(self.buffer_bytes)).and_then(Option::take);
        buffer.ok_or_else(|| {
            Failure::invalid(format!(
                "{address:p} is no buffer that iopath_batch_buffer or a completion returned"
            ))
        })
    }

    /// Queues a request. A refused one leaves its buffer with the C program.
    fn queue(&mut self, request: Request) -> Result<(), Failure> {
        self.batch.queue(request).map_err(|refused| {
            if let Some(buffer) = refused.buffer {
                self.borrow(buffer);
            }
            refused.error.into()
        })
    }

    fn complete(&mut self, done: Completion) -> iopath_completion {
        let buffer = done.buffer.map_or(ptr::null_mut(), |buffer| self.borrow(buffer));
        // An error of a request is no failure of the call, but has a message, too.
        let result = count(|| Ok(done.result? as i64));
        iopath_completion { token: done.token, result, buffer }
    }
}

/// Makes a batch of up to `depth` requests in flight, with a buffer of `buffer_bytes` bytes for each. Returns 0 and the
/// batch in `*batch`, or a negative error. The batch is for iopath_batch_free, and keeps the volume open.
///
/// # Safety
/// The volume is NULL or from iopath_open. `batch` is NULL or points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_batch_new(
    volume: *const iopath_volume,
    depth: u32,
    buffer_bytes: usize,
    batch: *mut *mut iopath_batch,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let (volume, made) = (unsafe { volume_of(volume) }?, place(batch, "batch")?);
        // SAFETY: the caller's promise: there is space for a pointer.
        unsafe { made.write(ptr::null_mut()) };
        let batch = Box::new(iopath_batch::new(volume, depth, buffer_bytes)?);
        // SAFETY: as above.
        unsafe { made.write(Box::into_raw(batch)) };
        Ok(())
    })
}

/// Waits for all requests in flight, and frees a batch and its buffers; NULL is allowed.
///
/// # Safety
/// The batch is NULL or from iopath_batch_new, and neither it nor a buffer of it is used any longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_batch_free(batch: *mut iopath_batch) {
    status(|| {
        if !batch.is_null() {
            // SAFETY: made by `Box::into_raw`, and the caller's promise.
            drop(unsafe { Box::from_raw(batch) });
        }
        Ok(())
    });
}

/// A free buffer of the batch, with its last content; NULL if each is borrowed or in flight.
///
/// # Safety
/// The batch is NULL or from iopath_batch_new, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_batch_buffer(batch: *mut iopath_batch) -> *mut c_void {
    pointer(|| {
        // SAFETY: the caller's promise.
        let batch = unsafe { handle_mut(batch, "batch") }?;
        let buffer = batch.batch.buffer();
        Ok(buffer.map_or(ptr::null_mut(), |buffer| batch.borrow(buffer)))
    })
}

/// Returns a buffer to the batch that iopath_batch_buffer or a completion gave to the program. Returns 0, or -EINVAL if
/// the program does not have it.
///
/// # Safety
/// As iopath_batch_buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_batch_release(batch: *mut iopath_batch, buffer: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on(batch, |batch| batch.take_back(buffer).map(drop)) }
}

/// Queues a read of `bytes` bytes at `offset` into a buffer of the batch. The program does not use the buffer until the
/// completion returns it. Returns 0; or a negative error, and the program keeps the buffer: -EAGAIN if the batch is
/// full, -EINVAL.
///
/// # Safety
/// As iopath_batch_buffer. No thread uses the buffer until its completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_batch_read(
    batch: *mut iopath_batch,
    buffer: *mut c_void,
    bytes: usize,
    offset: u64,
    token: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        on(batch, |batch| {
            let buffer = batch.take_back(buffer)?;
            batch.queue(Request::read(buffer, offset).bytes(bytes).token(token))
        })
    }
}

/// Queues a write of the first `bytes` bytes of a buffer, as iopath_batch_read does for a read. `flags` is 0 or
/// IOPATH_DURABLE.
///
/// # Safety
/// As iopath_batch_read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_batch_write(
    batch: *mut iopath_batch,
    buffer: *mut c_void,
    bytes: usize,
    offset: u64,
    flags: u32,
    token: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        on(batch, |batch| {
            if flags & !IOPATH_DURABLE != 0 {
                return Err(Failure::invalid(format!("flags {flags:#x}: only IOPATH_DURABLE is known")));
            }
            let buffer = batch.take_back(buffer)?;
            let request = Request::write(buffer, offset).bytes(bytes).token(token);
            batch.queue(request.durable(flags & IOPATH_DURABLE != 0))
        })
    }
}

/// Queues a flush. It covers the writes whose completions the program has before.
///
/// # Safety
/// As iopath_batch_buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_batch_flush(batch: *mut iopath_batch, token: u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on(batch, |batch| batch.queue(Request::flush().token(token))) }
}

/// Queues a discard of a range, whose content is not needed any longer.
///
/// # Safety
/// As iopath_batch_buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_batch_discard(
    batch: *mut iopath_batch,
    offset: u64,
    bytes: u64,
    token: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on(batch, |batch| batch.queue(Request::discard(offset, bytes).token(token))) }
}

/// Queues zeroes for a range.
///
/// # Safety
/// As iopath_batch_buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_batch_write_zeroes(
    batch: *mut iopath_batch,
    offset: u64,
    bytes: u64,
    token: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on(batch, |batch| batch.queue(Request::write_zeroes(offset, bytes).token(token))) }
}

/// Submits the queued requests. Does not wait; iopath_batch_wait submits them, too.
///
/// # Safety
/// As iopath_batch_buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_batch_submit(batch: *mut iopath_batch) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        on(batch, |batch| {
            batch.batch.submit();
            Ok(())
        })
    }
}

/// Submits the queued requests, and waits for a completion, for `timeout_ns` nanoseconds at most; without limit if
/// that is negative. Returns 1 and the completion in `*done`; or 0 if nothing is in flight or the limit has passed; or
/// a negative error of the wait. The first wait with a limit is before the first request of the batch, or fails.
///
/// # Safety
/// As iopath_batch_buffer. `done` is NULL or points to memory for a completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_batch_wait(
    batch: *mut iopath_batch,
    timeout_ns: i64,
    done: *mut iopath_completion,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        next(batch, done, |batch| {
            Ok(match u64::try_from(timeout_ns) {
                Ok(limit_ns) => batch.wait_timeout(Duration::from_nanos(limit_ns))?,
                Err(_) => batch.wait()?,
            })
        })
    }
}

/// Takes a completion if there is one. Does not wait. Returns as iopath_batch_wait does.
///
/// # Safety
/// As iopath_batch_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_batch_poll(batch: *mut iopath_batch, done: *mut iopath_completion) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { next(batch, done, |batch| Ok(batch.poll())) }
}

/// The next completion in `*done`: 1 if there is one.
///
/// # Safety
/// As iopath_batch_wait.
unsafe fn next(
    batch: *mut iopath_batch,
    done: *mut iopath_completion,
    take: impl FnOnce(&mut Batch) -> Result<Option<Completion>, Failure>,
) -> c_int {
    let call = |batch: &mut iopath_batch| {
        let done = place(done, "done")?;
        let Some(completion) = take(&mut batch.batch)? else { return Ok(0) };
        // SAFETY: the caller's promise: there is space for a completion.
        unsafe { done.write(batch.complete(completion)) };
        Ok(1)
    };
    // SAFETY: the caller's promise.
    unsafe { count_on(batch, call) as c_int }
}

/// Cancels a request in flight: the next wait or poll returns its completion with -ECANCELED and without its buffer,
/// which returns to the batch when the device has completed the request. Returns 1, or 0 if no request with this token
/// is in flight.
///
/// # Safety
/// As iopath_batch_buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_batch_cancel(batch: *mut iopath_batch, token: u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { count_on(batch, |batch| Ok(i64::from(batch.batch.cancel(token)))) as c_int }
}

/// A descriptor for poll, select or epoll of an event loop: readable when a completion may be there for
/// iopath_batch_poll, which resets it: the program does not read it. The program submits, polls until there is no
/// completion, and waits for the descriptor, for iopath_batch_next_timeout at most. Before the first request of the
/// batch. Returns the descriptor, which the program closes, or a negative error.
///
/// # Safety
/// As iopath_batch_buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_batch_fd(batch: *mut iopath_batch) -> c_int {
    let call = |batch: &mut iopath_batch| {
        let made = batch.batch.completion_fd();
        // An error without a number: requests are in flight.
        let made = made
            .map_err(|error| Failure::new(error.raw_os_error().unwrap_or(libc::EINVAL), error.to_string()))?;
        Ok(i64::from(std::os::fd::IntoRawFd::into_raw_fd(made)))
    };
    // SAFETY: the caller's promise.
    unsafe { count_on(batch, call) as c_int }
}

/// The time after which an event loop polls the batch, even if the descriptor is not readable, in nanoseconds; -1 for
/// no limit, and -EINVAL if the batch is NULL.
///
/// # Safety
/// As iopath_batch_buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_batch_next_timeout(batch: *mut iopath_batch) -> i64 {
    let call = |batch: &mut iopath_batch| {
        let limit = batch.batch.next_timeout();
        Ok(limit.map_or(-1, |limit| i64::try_from(limit.as_nanos()).unwrap_or(i64::MAX)))
    };
    // SAFETY: the caller's promise.
    unsafe { count_on(batch, call) }
}

/// Calls a method that returns nothing.
///
/// # Safety
/// As iopath_batch_buffer.
unsafe fn on(batch: *mut iopath_batch, call: impl FnOnce(&mut iopath_batch) -> Result<(), Failure>) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { count_on(batch, |batch| call(batch).map(|()| 0)) as c_int }
}

/// Calls a method that returns a count.
///
/// # Safety
/// As iopath_batch_buffer.
unsafe fn count_on(
    batch: *mut iopath_batch,
    call: impl FnOnce(&mut iopath_batch) -> Result<i64, Failure>,
) -> i64 {
    // SAFETY: the caller's promise.
    count(|| call(unsafe { handle_mut(batch, "batch") }?))
}
