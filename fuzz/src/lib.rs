//! Drivers of the fuzz targets: each passes arbitrary bytes to one state machine and asserts the promises of its
//! documentation. They have no sockets and no threads. The targets themselves are in `targets/`.

mod client;
mod server;
mod trace;
mod vhost;

pub use client::{Peer, drive_client};
pub use server::drive_server;
pub use trace::{drive_trace, is_format};
pub use vhost::drive_vhost_queue;
