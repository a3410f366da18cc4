//! Shared by the kernel's own paths: the open file, and the connection of synchronous paths. The system calls are in
//! `iopath_os::kernel`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use iopath_os::NoMemory;
use iopath_os::kernel::{self, Blocking, Hint, OneAtATime, Pages, Polling, Slots};
use iopath_os::target::DioAlignment;
use rustix::fs::OFlags;

use super::passes::Passes;
use crate::error::BenchError;
use crate::path::{Connection, Done, IoPath, JobSpec, OpenSpec, Pass, Transfer};
use crate::sync_writes::SyncWrites;

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
    pub(super) polling: Polling,
    pub(super) hint: Option<Hint>,
    pass: Option<Pass>,
}

impl KernelFile {
    pub(super) fn open(spec: &OpenSpec, direct: bool, connect: Connect) -> Result<Self, BenchError> {
        let target = spec.file();
        let align_bytes = if direct { DioAlignment::discover(target)?.offset_bytes } else { 1 };
        let file = open_file(target, spec, direct).map_err(BenchError::open(target, spec.writes))?;
        let (target, writes, size_bytes) = (target.to_owned(), spec.writes, spec.size_bytes);
        let (polling, hint) = (spec.polling, spec.hint.filter(|_| !direct));
        if let Some(hint) = hint {
            kernel::hint(&file, hint).map_err(BenchError::io("advise the kernel about", &target))?;
        }
        let pass = spec.pass.filter(|_| !direct);
        Ok(Self { connect, file, target, align_bytes, writes, size_bytes, polling, hint, pass })
    }
}

/// Opens the file, with durable writes if the workload has them.
pub(super) fn open_file(target: &Path, spec: &OpenSpec, direct: bool) -> io::Result<File> {
    let mut flags = match spec.sync {
        SyncWrites::None => OFlags::empty(),
        SyncWrites::Data => OFlags::DSYNC,
        SyncWrites::All => OFlags::SYNC,
    };
    flags.set(OFlags::DIRECT, direct);
    kernel::open_with(target, spec.writes, flags)
}

/// The buffers of a job, with the content of its writes.
pub(super) fn slots_of(job: &JobSpec) -> Result<Slots, BenchError> {
    let fill = |bytes: &mut [u8]| job.contents.fill(job.seed, bytes);
    let slots =
        Slots::on_pages(job.pages, job.depth, job.block_bytes, fill).map_err(|error| match error {
            NoMemory { bytes, source, .. } if job.pages == Pages::Reserved => {
                BenchError::NoHugePages { bytes, source }
            }
            other => other.into(),
        })?;
    Ok(if job.makes_unique() { slots } else { slots.without_stamps() })
}

impl IoPath for KernelFile {
    fn connect(&self, job: &JobSpec) -> Result<Box<dyn Connection>, BenchError> {
        let slots = slots_of(job)?;
        let again = || self.file.try_clone().map_err(BenchError::io("open again", &self.target));
        let connection = (self.connect)(self, again()?, slots)?;
        Ok(match self.pass {
            None => connection,
            Some(pass) => Box::new(Passes::new(connection, again()?, pass)),
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

    fn buffer(&mut self, slot: u32) -> Option<&mut [u8]> {
        Some(Self::buffer(self, slot))
    }

    fn flush(&mut self) -> io::Result<()> {
        Self::flush(self)
    }

    fn flush_all(&mut self) -> io::Result<()> {
        Self::flush_all(self)
    }
}
