//! Shared by the kernel's own paths: the open file, and the connection of synchronous paths. The system calls are in
//! `iopath_os::kernel`.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use iopath_os::kernel::{self, Blocking, OneAtATime, Slots};
use iopath_os::target::DioAlignment;
use iopath_report::random;

use crate::error::BenchError;
use crate::path::{Connection, Done, IoPath, JobSpec, OpenSpec, Transfer};

/// Makes the connection of a job from its own descriptor of the file and its buffers.
type Connect = fn(&KernelFile, File, Slots) -> Result<Box<dyn Connection>, BenchError>;

/// An open file or device, with the constructor of its connections.
pub(super) struct KernelFile {
    connect: Connect,
    file: File,
    pub(super) target: PathBuf,
    /// The alignment of offsets, in bytes: 1 through the page cache.
    pub(super) align_bytes: u32,
    pub(super) writes: bool,
    pub(super) size_bytes: u64,
}

impl KernelFile {
    pub(super) fn open(spec: &OpenSpec, direct: bool, connect: Connect) -> Result<Self, BenchError> {
        let target = spec.file();
        let align_bytes = if direct { DioAlignment::discover(target)?.offset_bytes } else { 1 };
        let file =
            kernel::open(target, spec.writes, direct).map_err(BenchError::open(target, spec.writes))?;
        let (target, writes, size_bytes) = (target.to_owned(), spec.writes, spec.size_bytes);
        Ok(Self { connect, file, target, align_bytes, writes, size_bytes })
    }
}

impl IoPath for KernelFile {
    fn connect(&self, job: &JobSpec) -> Result<Box<dyn Connection>, BenchError> {
        let slots = Slots::new(job.depth, job.block_bytes, |bytes| random::fill(job.seed, bytes))?;
        let slots = if job.fills { slots.without_stamps() } else { slots };
        let file = self.file.try_clone().map_err(BenchError::io("open again", &self.target))?;
        (self.connect)(self, file, slots)
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

    fn buffer(&mut self, slot: u32) -> Option<&mut [u8]> {
        Some(Self::buffer(self, slot))
    }

    fn flush(&mut self) -> io::Result<()> {
        Self::flush(self)
    }
}
