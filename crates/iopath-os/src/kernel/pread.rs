//! One transfer after another with `pread(2)` and `pwrite(2)`. Whether that goes through the page cache is decided
//! where the file is opened.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::{Direction, Done, Progress, Slots, Transfer, advance};

/// The path of nearly every program: the thread waits in the system call. Depth 1.
#[derive(Debug)]
pub struct Pread {
    file: File,
    slots: Slots,
    align: u32,
    pending: Option<(u32, Transfer)>,
}

impl Pread {
    /// Transfers between `file` and the first of `slots`. `align` is the offset alignment that the file was opened
    /// with, in bytes: 1 through the page cache, the device's for `O_DIRECT`.
    pub fn new(file: File, slots: Slots, align: u32) -> Self {
        assert!(align > 0, "an alignment is 1 byte at least");
        Self { file, slots, align, pending: None }
    }

    /// Takes a transfer; it runs in [`Self::reap`].
    ///
    /// # Panics
    /// If one is pending, or it does not fit the buffer.
    pub fn submit(&mut self, slot: u32, transfer: Transfer) {
        assert!(self.pending.is_none(), "slot {slot}: one transfer at a time");
        assert!(transfer.bytes <= self.slots.block_bytes(), "{transfer:?} does not fit its buffer");
        self.pending = Some((slot, transfer));
    }

    /// Runs the pending transfer to its end.
    pub fn reap(&mut self, done: &mut Vec<Done>) {
        if let Some((slot, transfer)) = self.pending.take() {
            let result = self.run(slot, transfer);
            done.push(Done { slot, result });
        }
    }

    /// The bytes a slot holds.
    pub fn buffer(&mut self, slot: u32) -> &[u8] {
        // SAFETY: a synchronous connection has nothing in flight between two calls.
        unsafe { self.slots.buffer(slot) }
    }

    /// Returns when what was written is on the medium (`fdatasync(2)`).
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn run(&mut self, slot: u32, transfer: Transfer) -> io::Result<()> {
        if transfer.direction == Direction::Write {
            // SAFETY: a synchronous connection has nothing in flight between two calls.
            unsafe { self.slots.stamp(slot, transfer.offset) };
        }
        // SAFETY: as above; the system call below is given the reference and returns before it ends.
        let buffer = unsafe { self.slots.buffer(slot) };
        let mut from = 0;
        loop {
            let rest = &mut buffer[from as usize..transfer.bytes as usize];
            let offset = transfer.offset + u64::from(from);
            let moved = match transfer.direction {
                Direction::Read => self.file.read_at(rest, offset),
                Direction::Write => self.file.write_at(rest, offset),
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
}
