//! Several files as one for the synchronous paths of the kernel: chunk after chunk in turn, as a stripe has them. Each
//! transfer lies in one chunk.

use std::io;

use iopath_os::kernel::{Blocking, OneAtATime, Pread, Slots, Transfer};
use iopath_os::target::DioAlignment;

use super::kernel::{open_file, slots_of};
use crate::error::BenchError;
use crate::path::{Connection, IoPath, JobSpec, OpenSpec};
use crate::stripe_name::StripeName;

/// The open files.
struct SpreadFiles {
    files: Vec<std::fs::File>,
    chunk_bytes: u64,
    align_bytes: u32,
    stripe: StripeName,
}

/// Opens the files of a stripe.
pub(super) fn open(spec: &OpenSpec, stripe: StripeName, direct: bool) -> Result<Box<dyn IoPath>, BenchError> {
    let mut files = Vec::with_capacity(stripe.members.len());
    let mut align_bytes = 1;
    for member in &stripe.members {
        if direct {
            align_bytes = align_bytes.max(DioAlignment::discover(member)?.offset_bytes);
        }
        files.push(open_file(member, spec, direct).map_err(BenchError::open(member, spec.writes))?);
    }
    Ok(Box::new(SpreadFiles { files, chunk_bytes: stripe.chunk_bytes, align_bytes, stripe }))
}

impl IoPath for SpreadFiles {
    fn connect(&self, job: &JobSpec) -> Result<Box<dyn Connection>, BenchError> {
        let clone = |(file, member): (&std::fs::File, &std::path::PathBuf)| {
            let file = file.try_clone().map_err(BenchError::io("open again", member))?;
            Ok(Pread::new(file, self.align_bytes))
        };
        let files = self.files.iter().zip(&self.stripe.members).map(clone);
        let spread =
            Spread { files: files.collect::<Result<_, BenchError>>()?, chunk_bytes: self.chunk_bytes };
        Ok(Box::new(OneAtATime::new(spread, slots_of(job)?)))
    }
}

/// Transfers from and to one of several files.
struct Spread {
    files: Vec<Pread>,
    chunk_bytes: u64,
}

impl Spread {
    /// The file of a transfer, and the transfer there. None if it does not lie in one chunk.
    fn place(&self, transfer: Transfer) -> Option<(usize, Transfer)> {
        let (chunk, offset) = (transfer.offset / self.chunk_bytes, transfer.offset % self.chunk_bytes);
        let count = self.files.len() as u64;
        let local = Transfer { offset: chunk / count * self.chunk_bytes + offset, ..transfer };
        let is_whole = offset + u64::from(transfer.bytes) <= self.chunk_bytes;
        is_whole.then_some(((chunk % count) as usize, local))
    }
}

impl Blocking for Spread {
    fn run(&mut self, slots: &mut Slots, slot: u32, transfer: Transfer) -> io::Result<()> {
        let (file, local) = self.place(transfer).ok_or(io::ErrorKind::InvalidInput)?;
        self.files[file].run(slots, slot, local)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.files.iter_mut().try_for_each(Blocking::flush)
    }

    fn flush_all(&mut self) -> io::Result<()> {
        self.files.iter_mut().try_for_each(Blocking::flush_all)
    }
}

#[cfg(test)]
mod tests {
    use iopath_os::kernel::Direction;

    use super::*;

    #[test]
    fn transfers_go_to_the_files_in_turn() {
        let file = || Pread::new(tempfile::tempfile().unwrap(), 1);
        let spread = Spread { files: vec![file(), file(), file()], chunk_bytes: 4096 };
        let place = |offset, bytes| {
            let found = spread.place(Transfer { direction: Direction::Read, offset, bytes });
            found.map(|(file, local)| (file, local.offset))
        };
        let found: Vec<_> = (0..5).map(|chunk| place(chunk * 4096, 4096)).collect();
        assert_eq!(found, [Some((0, 0)), Some((1, 0)), Some((2, 0)), Some((0, 4096)), Some((1, 4096))]);
        assert_eq!(place(4096 * 4 + 512, 512), Some((1, 4096 + 512)));
        assert_eq!(place(512, 4096), None, "in two chunks");
    }
}
