//! iopath's raw path: whole blocks of a device, without the semantics of a file. The batches are in `batch.rs`.

use iopath::IoMode;

use super::batch;
use crate::path::{Capabilities, PathRow};

/// The row of the table.
pub(crate) static ROW: PathRow = PathRow {
    name: "iopath-raw",
    about: "iopath-direct with device semantics: transfers of whole blocks, complete or failed",
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
    open: |spec| batch::open(spec, IoMode::Raw),
};
