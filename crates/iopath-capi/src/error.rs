//! Errors: a number for the return value, and a message for the thread. Panics end here.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use iopath::OpenError;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// The reason why a function failed.
pub(crate) struct Failure {
    /// A number of `errno.h`, positive.
    errno: c_int,
    message: String,
}

impl Failure {
    pub(crate) fn new(errno: c_int, message: impl Into<String>) -> Self {
        Self { errno, message: message.into() }
    }

    /// An argument that no call accepts.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, message)
    }
}

impl From<iopath::Error> for Failure {
    fn from(error: iopath::Error) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

/// Runs a function that returns a count: 0 or more, or the negative number of its error.
pub(crate) fn count(run: impl FnOnce() -> Result<i64, Failure>) -> i64 {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(count)) => count,
        Ok(Err(failure)) => report(&failure),
        Err(panic) => report(&Failure::new(libc::ENOTRECOVERABLE, panic_message(&*panic))),
    }
}

/// Runs a function that returns 0, or the negative number of its error.
pub(crate) fn status(run: impl FnOnce() -> Result<(), Failure>) -> c_int {
    count(|| run().map(|()| 0)) as c_int
}

/// Runs a function that returns a pointer, or NULL.
pub(crate) fn pointer<T>(run: impl FnOnce() -> Result<*mut T, Failure>) -> *mut T {
    let mut made = std::ptr::null_mut();
    status(|| {
        made = run()?;
        Ok(())
    });
    made
}

/// Keeps the message for the thread. Returns the number, negative.
fn report(failure: &Failure) -> i64 {
    // A path in the message cannot contain a zero, but no message may be lost if it does.
    let message = CString::new(failure.message.replace('\0', " ")).unwrap_or_default();
    // A thread that ends has no message any longer.
    let _ = LAST.try_with(|last| last.replace(message));
    -i64::from(failure.errno)
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    format!("a bug of iopath: {text}")
}

/// The value behind a handle.
///
/// # Safety
/// The handle is NULL, or was made by this library and is not freed.
pub(crate) unsafe fn handle<'a, T>(handle: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| Failure::invalid(format!("{name} is NULL")))
}

/// The value behind a handle that no other thread uses.
///
/// # Safety
/// As [`handle`], and no other thread uses the handle during the call.
pub(crate) unsafe fn handle_mut<'a, T>(handle: *mut T, name: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_mut() }.ok_or_else(|| Failure::invalid(format!("{name} is NULL")))
}

/// Checks a place for a result. It may have no value yet, so nothing makes a reference to it.
pub(crate) fn place<T>(place: *mut T, name: &str) -> Result<*mut T, Failure> {
    if place.is_null() { Err(Failure::invalid(format!("{name} is NULL"))) } else { Ok(place) }
}

/// The text of a C string.
///
/// # Safety
/// The pointer is NULL or a string that ends with a zero.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a CStr, Failure> {
    if text.is_null() {
        return Err(Failure::invalid(format!("{name} is NULL")));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// The message of the last function that failed on this thread, or an empty string. Valid until another function fails
/// on this thread, or the thread ends.
#[unsafe(no_mangle)]
pub extern "C" fn iopath_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The version of the library: "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn iopath_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no zero"),
        };
    VERSION.as_ptr()
}
