//! The block I/O path of iopath, without system calls, clock, threads and locks.
//!
//! The caller submits a [`Bio`] to a [`RequestQueue`]. The queue splits it to the [`Limits`] of the device, holds it in
//! a plug, and merges it with adjacent bios. An I/O scheduler ([`Elevator`](elevator::Elevator)) orders the requests.
//! [`RequestQueue::poll_dispatch`] returns the next request, up to the depth of the device, and a [`BlockDevice`]
//! executes it. Time is an argument, so the same code runs on real storage and on modelled disks.
//!
//! ```
//! use iopath_core::{Bio, Extent, Instant, LengthOnly, Limits, QueueConfig, RequestQueue, Sector};
//!
//! let mut queue = RequestQueue::new(Limits::with_capacity(1 << 20), &QueueConfig::default());
//! let now = Instant::ZERO;
//! queue.plug();
//! for block in 0..4 {
//!     let extent = Extent::new(Sector(block * 8), 8).expect("within the address space");
//!     queue.submit_bio(Bio::read(extent, LengthOnly::new(4096), block), now)?;
//! }
//! queue.unplug(now);
//!
//! let io = queue.poll_dispatch(now).expect("four adjacent bios are one request");
//! assert_eq!(io.extent.bytes(), 16384);
//! let tag = io.tag;
//! queue.handle_completion(tag, Ok(()), now);
//! assert_eq!(std::iter::from_fn(|| queue.poll_completion()).count(), 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod atomic;
mod block;
mod collections;
pub mod debug;
mod error;
mod file;
mod memory;
mod sector;
mod time;
pub mod volume;

pub use block::bio::{Bio, BioDone, Op, Priority, Stream};
pub use block::device::{BlockDevice, Busy, Completion, Io, OwnedIo, Segments};
pub use block::fault::{Damage, FAULTS, Fault, FaultKind, FaultPlan, FaultSource, FaultyDevice, Outcome};
pub use block::limits::Limits;
pub use block::log::{LogSink, Record, RecordBatch};
pub use block::merge::{NoMerge, Side};
pub use block::queue::{QueueConfig, QueueStats, RequestQueue, SubmitError};
pub use block::queued::QueuedDevice;
pub use block::request::{Request, Tag};
pub use block::stripe::{Stripe, StripeConfig, StripeError};
pub use block::table::RequestTable;
pub use block::tag_list::TagList;
pub use block::{elevator, log};
pub use collections::sorted;
pub use error::IoError;
pub use file::page::{Page, PageRange};
pub use file::{buffered, cache, mapped, mapper, readahead};
pub use memory::{LengthOnly, Memory, ModelMemory};
pub use sector::{Extent, SECTOR_BYTES, SECTOR_SHIFT, Sector};
pub use time::{Duration, Instant};
