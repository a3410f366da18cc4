//! The kernel's own paths as rows of the table. What they do is in `iopath_os::kernel`; here they are opened.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use iopath_os::kernel::{self, Blocking, Mmap, OneAtATime, Pread, Slots, Uring};

use crate::error::LabError;
use crate::path::{Connection, Done, IoPath, JobSpec, OpenSpec, Transfer};
use crate::random;

/// Opens a target for `pread` and `pwrite` through the page cache.
pub(crate) fn buffered(spec: &OpenSpec) -> Result<Box<dyn IoPath>, LabError> {
    KernelPath::open(spec, Kind::Pread, false)
}

/// The same, around the page cache.
pub(crate) fn direct(spec: &OpenSpec) -> Result<Box<dyn IoPath>, LabError> {
    KernelPath::open(spec, Kind::Pread, true)
}

/// Opens a target for `io_uring`, around the page cache.
pub(crate) fn uring(spec: &OpenSpec) -> Result<Box<dyn IoPath>, LabError> {
    KernelPath::open(spec, Kind::Uring, true)
}

/// Opens a target for mapping.
pub(crate) fn mmap(spec: &OpenSpec) -> Result<Box<dyn IoPath>, LabError> {
    KernelPath::open(spec, Kind::Mmap, false)
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Pread,
    Uring,
    Mmap,
}

/// An open file or device, and how jobs use it.
struct KernelPath {
    kind: Kind,
    file: File,
    target: PathBuf,
    /// The offset alignment the file was opened with, in bytes.
    align: u32,
    writes: bool,
    size_bytes: u64,
}

impl KernelPath {
    fn open(spec: &OpenSpec, kind: Kind, direct: bool) -> Result<Box<dyn IoPath>, LabError> {
        let target = spec.file();
        let align = if direct { spec.place.direct_align_bytes()? } else { 1 };
        let file = kernel::open(target, spec.writes, direct).map_err(LabError::open(target, spec.writes))?;
        Ok(Box::new(Self {
            kind,
            file,
            target: target.to_owned(),
            align,
            writes: spec.writes,
            size_bytes: spec.size_bytes,
        }))
    }
}

impl IoPath for KernelPath {
    fn connect(&self, job: &JobSpec) -> Result<Box<dyn Connection>, LabError> {
        let slots = Slots::new(job.depth, job.block_bytes, |bytes| random::fill(job.seed, bytes))?;
        let file = self.file.try_clone().map_err(LabError::io("open again", &self.target))?;
        Ok(match self.kind {
            Kind::Pread => Box::new(OneAtATime::new(Pread::new(file, self.align), slots)),
            Kind::Uring => {
                let uring = Uring::new(file, slots, self.align);
                Box::new(uring.map_err(|source| LabError::UringRefused { source })?)
            }
            Kind::Mmap => {
                let mapped = Mmap::new(file, self.size_bytes, self.writes);
                Box::new(OneAtATime::new(mapped.map_err(LabError::io("map", &self.target))?, slots))
            }
        })
    }
}

impl<B: Blocking> Connection for OneAtATime<B> {
    fn depth(&self) -> u32 {
        1
    }

    fn submit(&mut self, slot: u32, transfer: Transfer) -> io::Result<()> {
        Self::submit(self, slot, transfer);
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        Self::reap(self, done);
        Ok(())
    }

    fn run_each(
        &mut self,
        transfers: &[Transfer],
        _done: &mut Vec<Done>,
    ) -> Result<(), (Transfer, io::Error)> {
        for &transfer in transfers {
            self.run(0, transfer).map_err(|error| (transfer, error))?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Self::flush(self)
    }
}

impl Connection for Uring {
    fn depth(&self) -> u32 {
        Self::depth(self)
    }

    fn submit(&mut self, slot: u32, transfer: Transfer) -> io::Result<()> {
        Self::submit(self, slot, transfer)
    }

    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        Self::reap(self, done)
    }

    fn flush(&mut self) -> io::Result<()> {
        Self::flush(self)
    }

    fn warnings(&self) -> Vec<String> {
        if self.buffers_registered() {
            return Vec::new();
        }
        vec!["the kernel did not register the buffers with io_uring and pins them at each transfer, which costs \
              CPU; raise the limit of locked memory (ulimit -l)"
            .to_owned()]
    }
}
