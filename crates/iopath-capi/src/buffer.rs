//! Memory for direct I/O.

use std::ffi::c_void;

use iopath::AlignedBuf;

use crate::error::{Failure, handle, pointer};

/// Memory that every device accepts. Made by iopath_buffer_new.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "a name of C")]
pub struct iopath_buffer(AlignedBuf);

/// Zeroed memory of `bytes` bytes, aligned for every device; NULL if the system has none. Huge pages where it has them.
#[unsafe(no_mangle)]
pub extern "C" fn iopath_buffer_new(bytes: usize) -> *mut iopath_buffer {
    pointer(|| {
        let memory = AlignedBuf::new(bytes).map_err(|error| Failure::new(libc::ENOMEM, error.to_string()))?;
        Ok(Box::into_raw(Box::new(iopath_buffer(memory))))
    })
}

/// The first byte of a buffer, for reads and writes of any volume; NULL if it has no bytes.
///
/// # Safety
/// The buffer is NULL or from iopath_buffer_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_buffer_data(buffer: *const iopath_buffer) -> *mut c_void {
    pointer(|| {
        // SAFETY: the caller's promise.
        let buffer = unsafe { handle(buffer, "buffer") }?;
        Ok(if buffer.0.is_empty() { std::ptr::null_mut() } else { buffer.0.start().as_ptr().cast() })
    })
}

/// Frees a buffer; NULL is allowed.
///
/// # Safety
/// The buffer is NULL or from iopath_buffer_new, no I/O uses it, and it is not used any longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_buffer_free(buffer: *mut iopath_buffer) {
    if !buffer.is_null() {
        // SAFETY: made by `Box::into_raw`, and the caller's promise.
        drop(unsafe { Box::from_raw(buffer) });
    }
}
