//! One transfer after another with `pread(2)` and `pwrite(2)`. The flags of the open file decide whether the calls use
//! the page cache.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::{Blocking, Direction, Progress, Slots, Transfer, advance, trim};

/// The path of nearly every program: the thread waits in the system call.
pub struct Pread {
    file: File,
    align: u32,
}

impl fmt::Debug for Pread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pread").field("align", &self.align).finish_non_exhaustive()
    }
}

impl Pread {
    /// Transfers from and to `file`. `align` is the offset alignment that the file was opened
    /// with, in bytes: 1 through the page cache, the device's for `O_DIRECT`.
    pub fn new(file: File, align: u32) -> Self {
        assert!(align > 0, "an alignment is 1 byte at least");
        Self { file, align }
    }
}

impl Blocking for Pread {
    fn run(&mut self, slots: &mut Slots, slot: u32, transfer: Transfer) -> io::Result<()> {
        if transfer.direction == Direction::Trim {
            return trim(&self.file, transfer);
        }
        if transfer.direction == Direction::Write {
            // SAFETY: a synchronous connection has nothing in flight between two calls.
            unsafe { slots.stamp(slot, transfer.offset) };
        }
        // SAFETY: as above; the system call below gets the reference and returns before it ends.
        let buffer = unsafe { slots.buffer(slot) };
        let mut from = 0;
        loop {
            let rest = &mut buffer[from as usize..transfer.bytes as usize];
            let offset = transfer.offset + u64::from(from);
            let moved = match transfer.direction {
                Direction::Read => self.file.read_at(rest, offset),
                Direction::Write | Direction::Trim => self.file.write_at(rest, offset),
            };
            match moved {
                Ok(moved) => match advance(transfer, from, moved as u32, self.align) {
                    Progress::Whole => return Ok(()),
                    Progress::From(next) => from = next,
                    Progress::Ended(kind) => return Err(kind.into()),
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn flush_all(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }
}
