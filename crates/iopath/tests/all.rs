//! The tests of the crate in one test program, a module for each subject. A test that needs a process of its own is not
//! here.

mod support;

mod batch_borrow;
mod buffered;
mod buffered_batch;
mod buffered_faults;
mod cancel;
mod completion_fd;
mod context;
mod crash;
mod debug_output;
mod direct;
mod extend;
mod extreme_values;
mod forced;
mod futures;
#[cfg(feature = "tokio")]
mod futures_tokio;
mod kept;
mod locks;
mod log;
mod mapped;
mod mapped_threads;
mod names;
mod new_file;
#[cfg(all(feature = "tracing", feature = "metrics"))]
mod observed;
mod odd_sizes;
mod opening;
mod own_buffers;
mod own_source;
mod ranges;
mod resize;
mod shared_memory;
mod sharing;
mod stripe;
mod tiny_cache;
mod tuning;
mod vectored;
mod volume;
