//! The request log: writes the records of queues to a file, and summarises such a file.
//!
//! [`LogWriter`] creates a ring for each queue, and writes all rings to one file. No I/O waits for a ring. In virtual
//! time, [`SyncLogWriter`] writes the same format without rings and threads, and misses no record.
//! [`LogReader`] reads such a file up to its end or the first damage. [`LogReader::summarise`] joins the records of
//! each bio and request into a [`Report`], which `iopath-report` shows. [`LogReader::dump`] writes one line for each
//! step.
//!
//! The records themselves: `iopath_core::log`. The file format: `docs/log-format.md`. The JSON: `docs/log-summary.md`.
//!
//! ```
//! use iopath_core::{Bio, Extent, Instant, LengthOnly, Limits, QueueConfig, RequestQueue, Sector};
//! use iopath_log::{Filter, LogInfo, LogOptions, LogReader, LogWriter};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("log");
//! let log = LogWriter::create(&path, &LogInfo::default(), &LogOptions::default())?;
//! let mut queue = RequestQueue::new(Limits::with_capacity(1 << 20), &QueueConfig::default());
//! queue.start_log(Box::new(log.add_queue()));
//!
//! let extent = Extent::new(Sector(2048), 8).expect("within the address space");
//! queue.submit_bio(Bio::read(extent, LengthOnly::new(4096), 1), Instant::from_nanos(100))?;
//! let tag = queue.poll_dispatch(Instant::from_nanos(200)).expect("it is queued").tag;
//! queue.handle_completion(tag, Ok(()), Instant::from_nanos(300));
//!
//! queue.end_log();
//! assert_eq!(log.finish()?.missed, 0);
//!
//! let report = LogReader::open(&path)?.summarise(&Filter::default())?;
//! assert_eq!(report.stages.q2c.max_ns, 200);
//! println!("{}", report.to_json());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod block;
mod columns;
mod dump;
mod encoding;
mod error;
mod filter;
mod format;
pub mod kernel;
mod labels;
mod main_device;
mod names;
mod number_map;
mod reader;
mod ring;
mod summary;
mod text;
mod writer;

pub use block::{Block, BlockBuilder, Entry, Mark};
pub use dump::Dumped;
pub use encoding::other_encoding;
pub use error::{Damage, LogError, Position};
pub use filter::Filter;
pub use format::{LogInfo, Totals};
pub use labels::{Labels, Loss, QueueLabel, StreamLabel};
pub use main_device::{MainDevice, main_device};
pub use names::{event_name, event_named, op_letter, op_name, reason_name};
pub use number_map::{NumberHasher, NumberMap};
pub use reader::{BlockSource, End, LogReader, is_log, starts_log};
pub use ring::{Producer, RingReader, ring_reader};
pub use summary::{
    AccessCounts, Contents, Depth, DeviceShare, ElevatorChange, ErrorCount, EventCounts, FileAccess, Flow,
    Interval, Intervals, OpCounts, Plugging, Reasons, RepeatShare, Report, SUMMARY_SCHEMA, Seeks, SizeClass,
    Slow, Stage, Stages, StreamShare,
};
pub use text::{Plain, escape_json, for_terminal};
pub use writer::{LogOptions, LogWriter, SyncLogWriter, SyncSink};
