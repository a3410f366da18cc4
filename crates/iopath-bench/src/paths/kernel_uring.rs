//! `io_uring` with `O_DIRECT`, a registered file and registered buffers, submitted in batches.

use std::io;
use std::num::NonZeroU32;
use std::time::Duration;

use iopath_os::kernel::Uring;
use iopath_os::target::Target as TargetInfo;

use super::kernel::KernelFile;
use crate::error::BenchError;
use crate::path::{Capabilities, Connection, Done, IoPath, OpenSpec, PathRow, Transfer};
use crate::thread_settings::IoPriority;

/// The row of the table.
pub static ROW: PathRow = PathRow {
    name: "kernel-uring",
    about: "io_uring with O_DIRECT, registered file and buffers, submitted in batches",
    capabilities: Capabilities {
        needs_target: true,
        direct: true,
        synchronous: false,
        queue: false,
        cache: false,
        priorities: true,
        polls: true,
        durable_writes: true,
        stripes: false,
    },
    open,
};

fn open(spec: &OpenSpec) -> Result<Box<dyn IoPath>, BenchError> {
    if spec.polling.completions {
        let info = TargetInfo::inspect(spec.file())?;
        let disk = info.backing.disk();
        if disk.and_then(|disk| disk.polls) != Some(true) {
            return Err(BenchError::NoPolling { disk: disk.map(|disk| disk.name.clone()) });
        }
    }
    let connect = |opened: &KernelFile, file, slots| {
        let uring = Uring::with_polling(file, slots, opened.align_bytes, opened.polling);
        Ok(Box::new(uring.map_err(|source| BenchError::UringRefused { source })?) as _)
    };
    Ok(Box::new(KernelFile::open(spec, true, connect)?))
}

impl Connection for Uring {
    fn depth(&self) -> u32 {
        Self::depth(self)
    }

    fn submit(&mut self, slot: u32, transfer: Transfer) -> io::Result<()> {
        Self::submit(self, slot, transfer)
    }

    fn submit_prioritized(&mut self, slot: u32, transfer: Transfer, priority: IoPriority) -> io::Result<()> {
        Self::submit_prioritized(self, slot, transfer, priority)
    }

    fn submits_queued(&self) -> bool {
        true
    }

    fn set_submit_max(&mut self, transfers: NonZeroU32) {
        Self::set_submit_max(self, transfers);
    }

    fn has_queued(&mut self) -> bool {
        Self::has_queued(self)
    }

    fn submit_queued(&mut self) -> io::Result<()> {
        Self::submit_queued(self)
    }

    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        Self::reap(self, done)
    }

    fn reap_within(&mut self, done: &mut Vec<Done>, wait: Duration) -> io::Result<()> {
        Self::reap_within(self, done, wait)
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

    fn warnings(&self) -> Vec<String> {
        if self.buffers_registered() {
            return Vec::new();
        }
        vec!["io_uring could not register the buffers, so the kernel pins them at each transfer, which costs CPU; \
              raise the limit of locked memory (ulimit -l)"
            .to_owned()]
    }
}
