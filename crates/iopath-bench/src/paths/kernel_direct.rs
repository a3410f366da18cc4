//! `pread(2)` and `pwrite(2)` with `O_DIRECT`, which bypasses the page cache.

use iopath_os::kernel::{OneAtATime, Pread};

use super::kernel::KernelFile;
use super::spread;
use crate::error::BenchError;
use crate::path::{Capabilities, IoPath, OpenSpec, PathRow};
use crate::stripe_name::StripeName;

/// The row of the table.
pub static ROW: PathRow = PathRow {
    name: "kernel-direct",
    about: "pread(2) and pwrite(2) with O_DIRECT: bypasses the page cache, one transfer at a time",
    capabilities: Capabilities {
        needs_target: true,
        direct: true,
        synchronous: true,
        queue: false,
        cache: false,
        priorities: false,
        polls: false,
        durable_writes: true,
        stripes: true,
    },
    open,
};

fn open(spec: &OpenSpec) -> Result<Box<dyn IoPath>, BenchError> {
    if let Some(stripe) = StripeName::find(spec.file())? {
        return spread::open(spec, stripe, true);
    }
    let connect = |opened: &KernelFile, file, slots| {
        Ok(Box::new(OneAtATime::new(Pread::new(file, opened.align_bytes), slots)) as _)
    };
    Ok(Box::new(KernelFile::open(spec, true, connect)?))
}
