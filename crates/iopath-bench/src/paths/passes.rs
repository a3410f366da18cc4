//! Drops the pages of a file from the kernel's page cache after each pass over it, as fio does between the loops of a
//! job. Does not count passes for the job: its plan does.

use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::time::Duration;

use iopath_core::Instant;
use iopath_os::kernel;

use crate::path::{Connection, Done, Pass, Transfer};

/// A connection that drops the pages of its file when a pass is complete.
pub(super) struct Passes {
    inner: Box<dyn Connection>,
    file: File,
    pass: Pass,
    /// Bytes of the present pass that are not yet submitted.
    left_bytes: u64,
}

impl Passes {
    pub(super) fn new(inner: Box<dyn Connection>, file: File, pass: Pass) -> Self {
        Self { inner, file, pass, left_bytes: pass.every_bytes }
    }

    /// Counts a transfer, before it is submitted.
    fn count(&mut self, transfer: Transfer) -> io::Result<()> {
        if self.left_bytes == 0 {
            kernel::drop_pages(&self.file, self.pass.start_bytes, self.pass.bytes)?;
            self.left_bytes = self.pass.every_bytes;
        }
        self.left_bytes = self.left_bytes.saturating_sub(transfer.bytes.into());
        Ok(())
    }
}

impl Connection for Passes {
    fn depth(&self) -> u32 {
        self.inner.depth()
    }

    fn begin_batch(&mut self, now: Instant) {
        self.inner.begin_batch(now);
    }

    fn submit(&mut self, slot: u32, transfer: Transfer) -> io::Result<()> {
        self.count(transfer)?;
        self.inner.submit(slot, transfer)
    }

    fn submits_queued(&self) -> bool {
        self.inner.submits_queued()
    }

    fn set_submit_max(&mut self, transfers: NonZeroU32) {
        self.inner.set_submit_max(transfers);
    }

    fn has_queued(&mut self) -> bool {
        self.inner.has_queued()
    }

    fn submit_queued(&mut self) -> io::Result<()> {
        self.inner.submit_queued()
    }

    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        self.inner.reap(done)
    }

    fn completed_at(&self) -> Option<Instant> {
        self.inner.completed_at()
    }

    fn reap_within(&mut self, done: &mut Vec<Done>, wait: Duration) -> io::Result<()> {
        self.inner.reap_within(done, wait)
    }

    fn run_each(
        &mut self,
        transfers: &[Transfer],
        done: &mut Vec<Done>,
    ) -> Result<(), (Transfer, io::Error)> {
        for transfer in transfers {
            self.count(*transfer).map_err(|error| (*transfer, error))?;
            self.inner.run_each(std::slice::from_ref(transfer), done)?;
        }
        Ok(())
    }

    fn buffer(&mut self, slot: u32) -> Option<&mut [u8]> {
        self.inner.buffer(slot)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }

    fn flush_all(&mut self) -> io::Result<()> {
        self.inner.flush_all()
    }

    fn warnings(&self) -> Vec<String> {
        self.inner.warnings()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Direction;
    use iopath_os::target::residency;
    use std::io::Write;

    /// Completes each transfer without I/O.
    struct Nothing;

    impl Connection for Nothing {
        fn depth(&self) -> u32 {
            1
        }

        fn submit(&mut self, _: u32, _: Transfer) -> io::Result<()> {
            Ok(())
        }

        fn reap(&mut self, _: &mut Vec<Done>) -> io::Result<()> {
            Ok(())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_pages_are_dropped_before_the_first_transfer_of_each_further_pass() {
        const BYTES: u32 = 256 << 10;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut file = File::create(&path).unwrap();
        file.write_all(&vec![7; BYTES as usize]).unwrap();
        file.sync_all().unwrap();
        let read = || drop(std::fs::read(&path).unwrap());
        let file = File::open(&path).unwrap();
        let resident = || residency(&file, 0..BYTES.into()).unwrap().resident;
        read();
        kernel::drop_pages(&file, 0, BYTES.into()).unwrap();
        if resident() > 0 {
            return eprintln!("skipped: the kernel keeps the pages of files in {}", path.display());
        }
        let bytes = BYTES.into();
        let pass = Pass { start_bytes: 0, bytes, every_bytes: bytes };
        let mut passes = Passes::new(Box::new(Nothing), File::open(&path).unwrap(), pass);
        let half = |number: u32| Transfer {
            direction: Direction::Read,
            offset: u64::from(number % 2 * BYTES / 2),
            bytes: BYTES / 2,
        };
        for number in 0..8 {
            read();
            passes.submit(0, half(number)).unwrap();
            assert_eq!(resident() == 0, number > 0 && number % 2 == 0, "transfer {number}");
        }
    }
}
