//! A memory-mapped file: the job copies bytes from and to the mapping, without a system call.

use iopath_os::kernel::{Mmap, OneAtATime};

use super::kernel::KernelFile;
use crate::error::BenchError;
use crate::path::{Capabilities, IoPath, OpenSpec, PathRow};

/// The row of the table.
pub static ROW: PathRow = PathRow {
    name: "kernel-mmap",
    about: "a memory-mapped file: no system call per transfer, a page fault for each uncached page",
    capabilities: Capabilities {
        needs_target: true,
        direct: false,
        synchronous: true,
        queue: false,
        cache: false,
        priorities: false,
        polls: false,
        durable_writes: false,
        stripes: false,
    },
    open,
};

fn open(spec: &OpenSpec) -> Result<Box<dyn IoPath>, BenchError> {
    let connect = |opened: &KernelFile, file, slots| {
        let mapped = Mmap::new(file, opened.size_bytes, opened.writes);
        let mapped = mapped.map_err(BenchError::io("map", &opened.target))?;
        if let Some(hint) = opened.hint {
            mapped.hint(hint).map_err(BenchError::io("advise the kernel about", &opened.target))?;
        }
        Ok(Box::new(OneAtATime::new(mapped, slots)) as _)
    };
    // Pages of a mapping stay in the page cache.
    let spec = &OpenSpec { pass: None, ..*spec };
    Ok(Box::new(KernelFile::open(spec, false, connect)?))
}
