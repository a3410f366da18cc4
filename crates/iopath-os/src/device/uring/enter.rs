//! One call of `io_uring_enter`, without retries: `uring.rs` retries.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use io_uring::{EnterFlags, types};

/// The delay before entries are submitted again that the kernel did not take, unless a completion comes first.
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(1);

/// Submits `to_submit` entries of the submission ring. If the kernel takes all entries, waits for `completions`, at
/// most for `timeout`. Returns the number of entries taken; if it is less, there was no wait.
pub(super) fn enter(
    ring: RawFd,
    to_submit: u32,
    completions: u32,
    timeout: Option<Duration>,
) -> io::Result<u32> {
    let time = types::Timespec::from(timeout.unwrap_or_default());
    let args = types::SubmitArgs::new().timespec(&time);
    let mut flags = EnterFlags::GETEVENTS;
    let mut arg = std::ptr::null();
    let mut arg_bytes = 0;
    if timeout.is_some() {
        flags |= EnterFlags::EXT_ARG;
        arg = std::ptr::from_ref(&args).cast::<libc::c_void>();
        arg_bytes = size_of_val(&args);
    }
    // SAFETY: the code that pushed an entry promised that its memory lives until the completion. The argument, if the
    // flag announces one, and the time that it points to outlive the call.
    let entered = unsafe {
        let flags = flags.bits();
        libc::syscall(libc::SYS_io_uring_enter, ring, to_submit, completions, flags, arg, arg_bytes)
    };
    if entered < 0 { Err(io::Error::last_os_error()) } else { Ok(entered as u32) }
}

/// Transient errors of `io_uring_enter`: timeout, signal, no memory now, full completion ring.
pub(super) const fn is_passing(errno: i32) -> bool {
    matches!(errno, libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ENOMEM)
}

/// Whether I/O on the ring can continue after the error.
pub(super) fn passes(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(is_passing)
}
