//! Records the I/O of any program on the kernel's own path: opens the tracepoints of the block layer, passes their
//! events to the joiner of `iopath-log`, and writes a request log. The rings are in `iopath-os`.

mod decode;
mod devices;
mod error;
mod files;
mod session;
mod unseen;

pub use error::RecordError;
pub use session::{EventCounts, RecordRequest, Recorded, Top, record};
