//! Volumes of iopath as block devices of Linux, `/dev/ublkbN`, by the ublk driver of the kernel.
//!
//! ```text
//!  file system, program ──▶ /dev/ublkbN, blk-mq
//!                               │ requests            results ▲
//!                               ▼                             │
//!                           ublk driver ◀── io_uring ──▶ worker.rs, a thread for each queue
//!                               ▲                          queue.rs, request.rs: decode, begin, complete
//!                               │ control commands            │
//!  devices.rs, server.rs ───────┘                             ▼
//!                                                 a batch on the volume
//! ```
//!
//! The protocol makes no system calls: [`Devices`] speaks with a [`Control`], and a queue with a driver, which are
//! those of the kernel ([`iopath_os::ublk`]) or those of a test.
//!
//! # Why not `libublk`
//! That crate has an executor and a thread-local ring of its own: the descriptor of a batch would have to be polled
//! through them, and its buffers are plain memory that the caller must not touch at the wrong time. What iopath needs
//! of the stable interface is ten control commands, two commands of a queue and three structures, with buffers whose
//! owner is checked by the compiler.
//!
//! # Data
//! The driver copies data to and from a buffer of each tag, in the system call that also submits results and waits:
//! no further call for a request, and no privilege. The alternative, `UBLK_F_USER_COPY`, needs a `pread(2)` or
//! `pwrite(2)` for each request, and saves one of two copies of a page in the page cache of iopath.

mod devices;
mod error;
mod info;
mod params;
mod progress;
mod queue;
mod request;
mod server;
mod state;
mod stop;
mod worker;

pub use devices::{Control, Devices, NewDevice};
pub use error::UblkError;
pub use info::{DeviceInfo, DeviceState};
pub use params::Params;
pub use request::{Disk, Work, decode};
pub use server::{LEAVE, UblkOptions, UblkServer, UblkTotals, become_io_flusher, wait_for_end};
pub use stop::{UblkEnd, detach};

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
