//! The system call `io_uring_enter`, once. Does not try again: what the kernel did not take is `uring.rs`'s to see to.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use io_uring::{EnterFlags, types};

/// How long to wait before entries are submitted again that the kernel did not take, unless something has completed before.
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(1);

/// Submits `to_submit` entries of the submission ring and, if the kernel takes them all, waits for `completions`, no
/// longer than `timeout`. Returns how many it took, which may be fewer; it has waited for nothing then.
pub(super) fn enter(
    ring: RawFd,
    to_submit: u32,
    completions: u32,
    timeout: Option<Duration>,
) -> io::Result<u32> {
    let time = types::Timespec::from(timeout.unwrap_or_default());
    let args = types::SubmitArgs::new().timespec(&time);
    let (mut flags, mut arg, mut arg_bytes) = (EnterFlags::GETEVENTS, std::ptr::null(), 0);
    if timeout.is_some() {
        flags |= EnterFlags::EXT_ARG;
        arg = std::ptr::from_ref(&args).cast::<libc::c_void>();
        arg_bytes = size_of_val(&args);
    }
    // SAFETY: whoever pushed an entry promised that the memory it names lives until its completion; the argument, if
    // the flag says that there is one, and the time that it points to outlive the call.
    let entered = unsafe {
        let flags = flags.bits();
        libc::syscall(libc::SYS_io_uring_enter, ring, to_submit, completions, flags, arg, arg_bytes)
    };
    if entered < 0 { Err(io::Error::last_os_error()) } else { Ok(entered as u32) }
}

/// Errors of `io_uring_enter` that pass: time out, signal, no memory now, completions to be taken first.
pub(super) const fn is_passing(errno: i32) -> bool {
    matches!(errno, libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY)
}

/// Whether an error does not end all I/O on the ring.
pub(super) fn passes(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(is_passing)
}
