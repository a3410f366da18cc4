//! Joins the events of the kernel's block layer into the steps of a log. The events contain no number of a bio or
//! request; the joiner finds their subject by device, sector, length and task. It reads no file and makes no system
//! call: `iopath record` passes events of the running kernel. docs/log-format.md has the record of each event.
//!
//! `kernel/queue.rs` follows the bios and requests of one device, `kernel/table.rs` stores them. `kernel/accesses.rs`
//! has the level above the page cache.

mod accesses;
mod event;
mod joiner;
mod processes;
mod queue;
mod table;

pub use accesses::{AccessEvent, AccessStep, FileCall, FileNumber, FileSource};
pub use event::{DeviceNumber, KernelEvent, KernelIo, What};
pub use joiner::{DeviceSource, JoinCounts, Joiner, OpenedDevice};
pub use processes::kernel_name;

#[cfg(test)]
mod tests;
