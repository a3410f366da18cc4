//! Turns the SIGBUS of a mapped file that shrank, or whose device failed, into an error.
//!
//! When the kernel cannot load a page of a mapping, it sends a signal, which ends the process unless handled
//! (`mmap(2)`). The handler here maps a page of zeroes at the address and records the fault in the watched range. The
//! page is as large as those of the mapping, since the kernel splits no huge page of hugetlbfs. The access then
//! continues. The code that made the access calls [`Watch::faulted`] afterwards. The handler forwards faults at other
//! addresses to the previous handler.

mod range;

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

use range::SharedRange;
use rustix::fs::fstatfs;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::page_bytes;

/// The maximum number of watched mappings.
const WATCHES_MAX: usize = 256;

/// One watched range of addresses. A signal handler must not lock, so all fields are atomic. Only the watch that has
/// set `taken` changes the range.
struct Entry {
    taken: AtomicBool,
    range: SharedRange,
    /// The size of its pages. Set before the range, and constant while that is set.
    page_bytes: AtomicUsize,
    faulted: AtomicBool,
}

static ENTRIES: [Entry; WATCHES_MAX] = [const {
    Entry {
        taken: AtomicBool::new(false),
        range: SharedRange::none(),
        page_bytes: AtomicUsize::new(0),
        faulted: AtomicBool::new(false),
    }
}; WATCHES_MAX];

/// The size of the pages of a mapping of `file`. A mapping of huge pages (hugetlbfs) begins and ends on one.
pub(crate) fn mapped_page_bytes(file: BorrowedFd<'_>) -> io::Result<usize> {
    let about = fstatfs(file)?;
    let is_huge = about.f_type as u64 == libc::HUGETLBFS_MAGIC as u64;
    Ok(if is_huge { about.f_bsize as usize } else { page_bytes() })
}

/// The previous handler; set before ours is installed.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// A watched range. Drop ends the watch.
#[derive(Debug)]
pub(crate) struct Watch {
    index: usize,
}

impl Watch {
    /// Watches a range of addresses, whose pages have this size ([`mapped_page_bytes`]).
    ///
    /// # Safety
    /// Until the watch is dropped, the range, rounded to whole pages, is a mapping of the caller. The caller reads and
    /// writes it only as plain bytes, since a fault replaces a page of it by zeroes.
    pub(crate) unsafe fn new(range: Range<usize>, page_bytes: usize) -> io::Result<Self> {
        debug_assert!(page_bytes.is_power_of_two() && range.start.is_multiple_of(page_bytes));
        install()?;
        let index = ENTRIES
            .iter()
            .position(|entry| !entry.taken.swap(true, Ordering::AcqRel))
            .ok_or_else(|| io::Error::other(format!("more than {WATCHES_MAX} files mapped at a time")))?;
        let entry = &ENTRIES[index];
        entry.faulted.store(false, Ordering::Relaxed);
        entry.page_bytes.store(page_bytes, Ordering::Relaxed);
        // Publishes both.
        entry.range.set(&range);
        Ok(Self { index })
    }

    /// Whether the kernel failed to load a page of the range since the watch began.
    pub(crate) fn faulted(&self) -> bool {
        // The handler runs on the thread that made the access: only the compiler must not reorder.
        compiler_fence(Ordering::SeqCst);
        ENTRIES[self.index].faulted.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        ENTRIES[self.index].range.clear();
        ENTRIES[self.index].taken.store(false, Ordering::Release);
    }
}

/// Installs the handler, once for the process.
fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    INSTALLED.get_or_init(install_once).map_err(io::Error::from_raw_os_error)
}

fn install_once() -> Result<(), i32> {
    let errno = || io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
    // SAFETY: all zeroes is a valid sigaction (no handler, no flags, empty mask).
    let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: reads the current action and changes none.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut previous) } != 0 {
        return Err(errno());
    }
    PREVIOUS.get_or_init(|| previous);
    // SAFETY: as above.
    let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = handle as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: `handle` has the signature that SA_SIGINFO requires, and calls only functions that a handler may call.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) } != 0 {
        return Err(errno());
    }
    Ok(())
}

/// The handler: atomics and one raw system call (rustix makes it without touching `errno`).
extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo; SIGBUS from a fault fills in the address.
    let address = unsafe { (*info).si_addr() } as usize;
    for entry in &ENTRIES {
        if entry.range.get().is_some_and(|range| range.contains(&address)) {
            // Before the page is replaced: a thread that reads its zeroes finds the fault.
            entry.faulted.store(true, Ordering::SeqCst);
            if replace_page(address, entry.page_bytes.load(Ordering::Relaxed)) {
                return;
            }
        }
    }
    pass_on(signal, info, context);
}

/// Maps a page of zeroes at the address of the fault.
fn replace_page(address: usize, page: usize) -> bool {
    let start = address - address % page;
    // SAFETY: the page belongs to a watched range, whose owner agreed to this in `Watch::new`.
    let mapped = unsafe {
        mmap_anonymous(
            start as *mut c_void,
            page,
            ProtFlags::READ | ProtFlags::WRITE,
            // A huge page may be larger than the memory that is free.
            MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
        )
    };
    mapped.is_ok()
}

/// Forwards the signal to the previous handler. If there is none, restores the default action, which the retried access
/// then triggers.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(previous) = PREVIOUS.get() else { return };
    let handler = previous.sa_sigaction;
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // SAFETY: all zeroes with the default handler is a valid sigaction; the call is allowed in a handler.
        unsafe {
            let default: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, &raw const default, ptr::null_mut());
        }
    } else if previous.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: a handler installed with SA_SIGINFO has this signature.
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void) =
            unsafe { std::mem::transmute(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: a handler installed without SA_SIGINFO has this signature.
        let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
        handler(signal);
    }
}
