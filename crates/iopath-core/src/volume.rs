//! What a volume does between its callers and the page cache or the queue, as data and state machines. The drivers
//! are the threads and batches of the crate `iopath` and the simulator; they transfer bytes and wait.

mod bounced;
mod extend;
mod locks;
mod new_file;
mod shape;

pub use bounced::{BatchRoute, BouncedRead, BouncedWrite, ReadStep, WriteStep};
pub use extend::{Appends, Ends, ExtendStep, Extension, Trim};
pub use locks::{LockKind, RangeLocks, Ticket, Wake};
pub use new_file::NewFile;
pub use shape::{CacheUse, CheckError, Route, VolumeShape, check_within};
