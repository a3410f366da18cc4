//! Numbers threads, for tables with a slot for each thread.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The calling thread's number: from 0 on, in the order of the threads' first calls.
#[inline]
pub fn thread_number() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = THREADS.fetch_add(1, Relaxed);
    }
    // All threads of an explored run are one thread of the system.
    #[cfg(iopath_explore)]
    if let Some(number) = crate::sync::task_number() {
        return number;
    }
    NUMBER.with(|number| *number)
}
