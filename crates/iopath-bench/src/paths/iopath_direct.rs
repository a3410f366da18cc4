//! iopath's direct path: queue, merging and elevator in user space, without a page cache. The batches are in
//! `batch.rs`.

use iopath::IoMode;

use super::batch;
use crate::path::{Capabilities, PathRow};

/// The row of the table.
pub static ROW: PathRow = PathRow {
    name: "iopath-direct",
    about: "batches of a volume: queue, merging and elevator in user space, no page cache",
    capabilities: Capabilities {
        needs_target: true,
        direct: true,
        synchronous: false,
        queue: true,
        cache: false,
        priorities: false,
        polls: false,
        durable_writes: true,
        stripes: true,
    },
    open: |spec| batch::open(spec, IoMode::Direct),
};
