//! Volumes: files and block devices, from any thread.

use std::ffi::{OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::{ptr, slice};

use iopath::{Advice, Options, Volume};
use libc::iovec;

use crate::error::{Failure, count, handle, handle_mut, place, status, text};
use crate::options::iopath_options;

/// An open file or block device. Any number of threads may use it at once.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "a name of C")]
pub struct iopath_volume(
    /// Missing only while iopath_abandon runs, and after a panic of it.
    Option<Volume>,
);

// Threads of the C program share a volume.
const _: () = is_shared::<Volume>();
const fn is_shared<T: Send + Sync>() {}

/// The volume behind a handle.
///
/// # Safety
/// As [`handle`].
pub(crate) unsafe fn volume_of<'a>(volume: *const iopath_volume) -> Result<&'a Volume, Failure> {
    // SAFETY: the caller's promise.
    let volume = unsafe { handle(volume, "volume") }?;
    volume.0.as_ref().ok_or_else(|| Failure::invalid("the volume is closed"))
}

/// The facts of a volume.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(non_camel_case_types, reason = "a name of C")]
pub struct iopath_facts {
    /// The current size in bytes.
    pub size_bytes: u64,
    /// Offsets and lengths of direct I/O are multiples of this many bytes.
    pub block_bytes: u32,
    /// Memory of direct I/O starts at a multiple of this many bytes.
    pub memory_align_bytes: u32,
    /// The longest request in bytes; longer I/O is split.
    pub request_bytes_max: u64,
}

/// Advice on a range of a buffered volume, as of posix_fadvise.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(non_camel_case_types, reason = "names of C")]
pub enum iopath_advice {
    /// None: readahead detects patterns. Cancels earlier advice.
    IOPATH_ADVICE_NORMAL = 0,
    /// Sequential access: the first read starts a full window.
    IOPATH_ADVICE_SEQUENTIAL = 1,
    /// Random access: nothing is read ahead.
    IOPATH_ADVICE_RANDOM = 2,
    /// The range is read now, up to half of the cache.
    IOPATH_ADVICE_WILL_NEED = 3,
    /// The clean pages of the range are dropped.
    IOPATH_ADVICE_DONT_NEED = 4,
    /// Pages are read once: they are evicted before others.
    IOPATH_ADVICE_NO_REUSE = 5,
}

/// The advice of each number of `iopath_advice`.
const ADVICE: [Advice; 6] =
    [Advice::Normal, Advice::Sequential, Advice::Random, Advice::WillNeed, Advice::DontNeed, Advice::NoReuse];

/// Memory of the C program that a call fills.
///
/// # Safety
/// The memory is NULL and `bytes` is 0, or it has that many bytes and nothing else uses them while the slice lives.
unsafe fn memory_mut<'a>(memory: *mut c_void, bytes: usize) -> Result<&'a mut [u8], Failure> {
    check_memory(memory, bytes)?;
    let start = if bytes == 0 { ptr::dangling_mut() } else { memory.cast() };
    // SAFETY: the caller's promise. The C program made the memory, so its bytes have values, if perhaps arbitrary ones.
    Ok(unsafe { slice::from_raw_parts_mut(start, bytes) })
}

/// Memory of the C program that a call reads.
///
/// # Safety
/// The memory is NULL and `bytes` is 0, or it has that many bytes and nothing writes to them while the slice lives.
unsafe fn memory<'a>(memory: *const c_void, bytes: usize) -> Result<&'a [u8], Failure> {
    check_memory(memory, bytes)?;
    let start = if bytes == 0 { ptr::dangling() } else { memory.cast() };
    // SAFETY: as in `memory_mut`.
    Ok(unsafe { slice::from_raw_parts(start, bytes) })
}

fn check_memory(memory: *const c_void, bytes: usize) -> Result<(), Failure> {
    if memory.is_null() && bytes > 0 {
        return Err(Failure::invalid(format!("the buffer of {bytes} bytes is NULL")));
    }
    if isize::try_from(bytes).is_err() {
        return Err(Failure::invalid(format!("{bytes} bytes are more than a buffer can have")));
    }
    Ok(())
}

/// Opens a file or block device; NULL for the default options. Returns 0 and the volume in `*volume`, or a negative
/// error: -ENOENT, -EBUSY for a device in use, -EINVAL for an option. The volume is for iopath_close.
///
/// # Safety
/// The path is NULL or a string. The options are NULL or from iopath_options_new, and no other thread changes them.
/// `volume` is NULL or points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_open(
    path: *const c_char,
    options: *const iopath_options,
    volume: *mut *mut iopath_volume,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let (path, made) = (unsafe { text(path, "path") }?, place(volume, "volume")?);
        // SAFETY: the caller's promise: there is space for a pointer.
        unsafe { made.write(ptr::null_mut()) };
        // SAFETY: the caller's promise.
        let options = unsafe { options.as_ref() }.map_or_else(Options::new, |options| options.0.clone());
        let opened = Volume::open(OsStr::from_bytes(path.to_bytes()), &options)?;
        // SAFETY: as above.
        unsafe { made.write(Box::into_raw(Box::new(iopath_volume(Some(opened))))) };
        Ok(())
    })
}

/// Flushes a volume and closes it; NULL is allowed. The handle is freed also if the flush fails: a program that must
/// not lose writes calls iopath_flush before, and handles its error. Batches of the volume stay usable. Returns 0 or
/// the error of the flush.
///
/// # Safety
/// The volume is NULL or from iopath_open, and is not used any longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_close(volume: *mut iopath_volume) -> c_int {
    status(|| {
        if volume.is_null() {
            return Ok(());
        }
        // SAFETY: made by `Box::into_raw`, and the caller's promise.
        let volume = unsafe { Box::from_raw(volume) };
        Ok(volume.0.map_or(Ok(()), Volume::close)?)
    })
}

/// Closes a volume without writing its dirty pages back, so that the bytes of a failed commit do not appear later.
/// Returns 0; or -EBUSY if it has batches: then it stays open.
///
/// # Safety
/// The volume is NULL or from iopath_open, and no other thread uses it. After success it is not used any longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_abandon(volume: *mut iopath_volume) -> c_int {
    status(|| {
        // SAFETY: the caller's promise. No other thread uses a volume that is to be closed.
        let place = unsafe { handle_mut(volume, "volume") }?;
        if let Some(Err(kept)) = place.0.take().map(Volume::abandon) {
            place.0 = Some(kept);
            return Err(Failure::new(libc::EBUSY, "the volume has batches; free them first"));
        }
        // SAFETY: made by `Box::into_raw`, and the caller's promise.
        drop(unsafe { Box::from_raw(volume) });
        Ok(())
    })
}

/// The facts of a volume. Returns 0 or -EINVAL.
///
/// # Safety
/// The volume is NULL or from iopath_open; `facts` is NULL or points to memory for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_get_facts(volume: *const iopath_volume, facts: *mut iopath_facts) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let volume = unsafe { volume_of(volume) }?;
        let of = volume.facts();
        let found = iopath_facts {
            size_bytes: volume.size_bytes(),
            block_bytes: of.block_bytes,
            memory_align_bytes: of.memory_align_bytes,
            request_bytes_max: of.request_bytes_max,
        };
        let facts = place(facts, "facts")?;
        // SAFETY: the caller's promise: there is space for them.
        unsafe { facts.write(found) };
        Ok(())
    })
}

/// Reads `bytes` bytes at `offset`. Returns the number of bytes, fewer than `bytes` only at the end of the volume; or a
/// negative error: -EINVAL if a direct volume gets an unaligned range or unaligned memory.
///
/// # Safety
/// The volume is NULL or from iopath_open. The buffer has `bytes` bytes, which no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_read_at(
    volume: *const iopath_volume,
    buffer: *mut c_void,
    bytes: usize,
    offset: u64,
) -> i64 {
    count(|| {
        // SAFETY: the caller's promise.
        let (volume, buffer) = unsafe { (volume_of(volume)?, memory_mut(buffer, bytes)?) };
        Ok(volume.read_at(buffer, offset)? as i64)
    })
}

/// Writes `bytes` bytes at `offset`, all or an error. They are durable after the next iopath_flush.
///
/// # Safety
/// The volume is NULL or from iopath_open. The buffer has `bytes` bytes, to which no other thread writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_write_at(
    volume: *const iopath_volume,
    buffer: *const c_void,
    bytes: usize,
    offset: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { write(volume, buffer, bytes, |volume, buffer| volume.write_at(buffer, offset)) }
}

/// Writes as iopath_write_at does. On return the bytes are durable.
///
/// # Safety
/// As iopath_write_at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_write_durably_at(
    volume: *const iopath_volume,
    buffer: *const c_void,
    bytes: usize,
    offset: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { write(volume, buffer, bytes, |volume, buffer| volume.write_durably_at(buffer, offset)) }
}

/// Reads into several buffers, one after another. Returns the number of bytes, as iopath_read_at does.
///
/// # Safety
/// The volume is NULL or from iopath_open. There are `buffers_count` vectors, each of memory that no other vector has
/// and no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_readv_at(
    volume: *const iopath_volume,
    buffers: *const iovec,
    buffers_count: usize,
    offset: u64,
) -> i64 {
    count(|| {
        // SAFETY: the caller's promise.
        let (volume, vectors) = unsafe { (volume_of(volume)?, vectors(buffers, buffers_count)?) };
        // SAFETY: as above.
        let slice = |vector: &iovec| unsafe { memory_mut(vector.iov_base, vector.iov_len) };
        let slices = vectors.iter().map(|vector| Ok(std::io::IoSliceMut::new(slice(vector)?)));
        Ok(volume.read_vectored_at(&mut slices.collect::<Result<Vec<_>, Failure>>()?, offset)? as i64)
    })
}

/// Writes several buffers, one after another, as iopath_write_at does.
///
/// # Safety
/// The volume is NULL or from iopath_open. There are `buffers_count` vectors, each of memory to which no other thread
/// writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_writev_at(
    volume: *const iopath_volume,
    buffers: *const iovec,
    buffers_count: usize,
    offset: u64,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let (volume, vectors) = unsafe { (volume_of(volume)?, vectors(buffers, buffers_count)?) };
        // SAFETY: as above.
        let slice = |vector: &iovec| unsafe { memory(vector.iov_base, vector.iov_len) };
        let slices = vectors.iter().map(|vector| Ok(std::io::IoSlice::new(slice(vector)?)));
        Ok(volume.write_vectored_at(&slices.collect::<Result<Vec<_>, Failure>>()?, offset)?)
    })
}

/// # Safety
/// There are `count` vectors, or `count` is 0.
unsafe fn vectors<'a>(vectors: *const iovec, count: usize) -> Result<&'a [iovec], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    // The limit of the kernel's own vectored calls.
    if vectors.is_null() || count > libc::UIO_MAXIOV as usize {
        return Err(Failure::invalid(format!(
            "{count} buffers: the maximum is 1024, and the list is not NULL"
        )));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { slice::from_raw_parts(vectors, count) })
}

/// Makes all writes durable that returned before this call. While writes of a buffered volume are lost, each flush
/// fails: iopath_accept_loss.
///
/// # Safety
/// The volume is NULL or from iopath_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_flush(volume: *const iopath_volume) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on(volume, Volume::flush) }
}

/// Locks the file against other programs, as the option "lock" does at open. Returns 0, or -EBUSY: another program or
/// volume has the lock; or -EBADF: the volume is read-only.
///
/// # Safety
/// The volume is NULL or from iopath_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_try_lock(volume: *const iopath_volume) -> c_int {
    // SAFETY: the caller's promise.
    status(|| Ok(unsafe { volume_of(volume) }?.try_lock()?))
}

/// Releases the lock of iopath_try_lock.
///
/// # Safety
/// The volume is NULL or from iopath_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_unlock(volume: *const iopath_volume) -> c_int {
    // SAFETY: the caller's promise.
    status(|| Ok(unsafe { volume_of(volume) }?.unlock()?))
}

/// Makes the directory entry of the file durable, after its creation or a rename. Does not flush its bytes.
///
/// # Safety
/// The volume is NULL or from iopath_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_sync_directory(volume: *const iopath_volume) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on(volume, Volume::sync_directory) }
}

/// Makes the bytes of a range durable, as iopath_flush does for all.
///
/// # Safety
/// The volume is NULL or from iopath_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_flush_range(volume: *const iopath_volume, offset: u64, bytes: u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on(volume, |volume| volume.flush_range(offset, bytes)) }
}

/// Changes the size of the volume.
///
/// # Safety
/// The volume is NULL or from iopath_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_resize(volume: *const iopath_volume, size_bytes: u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on(volume, |volume| volume.resize(size_bytes)) }
}

/// Frees the space of a range, whose content is not needed any longer.
///
/// # Safety
/// The volume is NULL or from iopath_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_discard(volume: *const iopath_volume, offset: u64, bytes: u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on(volume, |volume| volume.discard(offset, bytes)) }
}

/// Zeroes a range.
///
/// # Safety
/// The volume is NULL or from iopath_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_write_zeroes(volume: *const iopath_volume, offset: u64, bytes: u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on(volume, |volume| volume.write_zeroes(offset, bytes)) }
}

/// Reserves the space of a range of a file, so that writes to it cannot fail with -ENOSPC.
///
/// # Safety
/// The volume is NULL or from iopath_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_allocate(volume: *const iopath_volume, offset: u64, bytes: u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on(volume, |volume| volume.allocate(offset, bytes)) }
}

/// Advises the page cache of a buffered volume: a number of `iopath_advice`.
///
/// # Safety
/// The volume is NULL or from iopath_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_advise(
    volume: *const iopath_volume,
    offset: u64,
    bytes: u64,
    advice: c_int,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let volume = unsafe { volume_of(volume) }?;
        let known = usize::try_from(advice).ok().and_then(|advice| ADVICE.get(advice));
        let known =
            known.ok_or_else(|| Failure::invalid(format!("{advice} is no advice: use iopath_advice")))?;
        Ok(volume.advise(offset, bytes, *known)?)
    })
}

/// Acknowledges lost writes of a buffered volume, so that flushes can succeed again. The program first handles the
/// loss, for example by repeating every write since the last flush. Returns 1 if there were lost writes, 0 if not, or
/// a negative error.
///
/// # Safety
/// The volume is NULL or from iopath_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_accept_loss(volume: *const iopath_volume) -> c_int {
    count(|| {
        // SAFETY: the caller's promise.
        let volume = unsafe { volume_of(volume) }?;
        Ok(i64::from(volume.accept_loss()?))
    }) as c_int
}

/// Calls a method that returns nothing.
///
/// # Safety
/// The volume is NULL or from iopath_open.
unsafe fn on(volume: *const iopath_volume, call: impl FnOnce(&Volume) -> iopath::Result<()>) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let volume = unsafe { volume_of(volume) }?;
        Ok(call(volume)?)
    })
}

/// Calls a method that writes memory of the C program.
///
/// # Safety
/// As iopath_write_at.
unsafe fn write(
    volume: *const iopath_volume,
    buffer: *const c_void,
    bytes: usize,
    call: impl FnOnce(&Volume, &[u8]) -> iopath::Result<()>,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let (volume, buffer) = unsafe { (volume_of(volume)?, memory(buffer, bytes)?) };
        Ok(call(volume, buffer)?)
    })
}
