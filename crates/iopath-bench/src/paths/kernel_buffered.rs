//! The path of most programs: `pread(2)` and `pwrite(2)` through the kernel's page cache.

use iopath_os::kernel::{OneAtATime, Pread};

use super::kernel::KernelFile;
use super::spread;
use crate::error::BenchError;
use crate::path::{Capabilities, IoPath, OpenSpec, PathRow};
use crate::stripe_name::StripeName;

/// The row of the table.
pub static ROW: PathRow = PathRow {
    name: "kernel-buffered",
    about: "pread(2) and pwrite(2) through the kernel's page cache, as most programs do",
    capabilities: Capabilities {
        needs_target: true,
        direct: false,
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
        return spread::open(spec, stripe, false);
    }
    // Without direct I/O, the alignment is 1.
    let connect =
        |_: &KernelFile, file, slots| Ok(Box::new(OneAtATime::new(Pread::new(file, 1), slots)) as _);
    Ok(Box::new(KernelFile::open(spec, false, connect)?))
}
