//! A request in flight on a ring, and the submission entry for the rest of it.

use std::ops::Range;
use std::ptr::null_mut;

use io_uring::{opcode, squeue, types};
use iopath_core::{Extent, Io, Op, Tag};

use crate::device::transfer::Transfer;
use crate::memory::Segment;

/// The file's index in the ring's registered files.
const FILE: types::Fixed = types::Fixed(0);

/// The request in a slot of the ring. As large as a cache line: each submission and completion touches one.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Slot {
    pub(super) transfer: Transfer,
    /// The rest of the memory, if it is one segment.
    pub(super) memory: libc::iovec,
    pub(super) tag: Tag,
    /// The number of segments; several are in the slot's iovecs.
    pub(super) segments: u16,
    /// The first of several segments that is not done.
    pub(super) first_iovec: u16,
    /// The registered buffer of its only segment.
    buffer: Option<u16>,
}

impl Default for Slot {
    fn default() -> Self {
        let nothing = Io::<Segment>::new(Tag::from_bits(0), Op::Flush, Extent::EMPTY, &[]);
        Self {
            transfer: Transfer::new(&nothing, 0),
            memory: libc::iovec { iov_base: null_mut(), iov_len: 0 },
            tag: nothing.tag,
            segments: 0,
            first_iovec: 0,
            buffer: None,
        }
    }
}

/// The range of a slot's iovecs in the list of all.
pub(super) fn iovec_range(slot: u32, segments_max: u16) -> Range<usize> {
    let start = slot as usize * usize::from(segments_max);
    start..start + usize::from(segments_max)
}

/// The iovecs of a slot; none if it has never had a request of several segments.
pub(super) fn iovecs_of(all: &[libc::iovec], slot: u32, segments_max: u16) -> &[libc::iovec] {
    all.get(iovec_range(slot, segments_max)).unwrap_or_default()
}

impl Slot {
    /// Sets the memory: `count` segments, of which `first` is the first.
    pub(super) fn set_memory(&mut self, first: Option<libc::iovec>, count: u16, buffer: Option<u16>) {
        if let Some(first) = first {
            self.memory = first;
        }
        self.segments = count;
        self.first_iovec = 0;
        self.buffer = buffer;
    }

    /// The entry for the rest of the request. `iovecs` are the slot's own.
    pub(super) fn entry(&self, slot: u32, iovecs: &[libc::iovec]) -> squeue::Entry {
        let transfer = &self.transfer;
        let entry = match transfer.op {
            Op::Read => self.read(iovecs),
            Op::Write => self.write(iovecs),
            Op::Flush => opcode::Fsync::new(FILE).flags(types::FsyncFlags::DATASYNC).build(),
            Op::Discard | Op::WriteZeroes => opcode::Fallocate::new(FILE, transfer.left())
                .offset(transfer.position())
                .mode(transfer.fallocate_mode())
                .build(),
        };
        entry.user_data(u64::from(slot))
    }

    fn read(&self, iovecs: &[libc::iovec]) -> squeue::Entry {
        let position = self.transfer.position();
        let start = self.start();
        let len = self.memory.iov_len as u32;
        match self.buffer {
            Some(buffer) => opcode::ReadFixed::new(FILE, start, len, buffer).offset(position).build(),
            None if self.segments == 1 => opcode::Read::new(FILE, start, len).offset(position).build(),
            None => {
                let rest = self.rest(iovecs);
                opcode::Readv::new(FILE, rest.as_ptr(), rest.len() as u32).offset(position).build()
            }
        }
    }

    fn write(&self, iovecs: &[libc::iovec]) -> squeue::Entry {
        let position = self.transfer.position();
        let flags = self.transfer.rw_flags();
        let (start, len) = (self.start().cast_const(), self.memory.iov_len as u32);
        match self.buffer {
            Some(buffer) => {
                opcode::WriteFixed::new(FILE, start, len, buffer).offset(position).rw_flags(flags).build()
            }
            None if self.segments == 1 => {
                opcode::Write::new(FILE, start, len).offset(position).rw_flags(flags).build()
            }
            None => {
                let rest = self.rest(iovecs);
                opcode::Writev::new(FILE, rest.as_ptr(), rest.len() as u32)
                    .offset(position)
                    .rw_flags(flags)
                    .build()
            }
        }
    }

    fn start(&self) -> *mut u8 {
        self.memory.iov_base.cast()
    }

    /// The iovecs that are not done, of a request of several segments.
    fn rest<'a>(&self, iovecs: &'a [libc::iovec]) -> &'a [libc::iovec] {
        &iovecs[usize::from(self.first_iovec)..usize::from(self.segments)]
    }

    /// Zeroes the rest of the memory from its byte `from` on.
    ///
    /// # Safety
    /// The request is a read that has not completed, and the kernel has no entry of it.
    pub(super) unsafe fn zero_from(&self, iovecs: &[libc::iovec], mut from: usize) {
        let rest = if self.segments > 1 { self.rest(iovecs) } else { std::slice::from_ref(&self.memory) };
        for iovec in rest {
            // SAFETY: a segment's memory, still promised to this request.
            if let Some(segment) = unsafe { Segment::of_iovec(*iovec) } {
                // SAFETY: as above. The kernel does not write to it now.
                unsafe { segment.zero_from(from.min(iovec.iov_len)) };
            }
            from = from.saturating_sub(iovec.iov_len);
        }
    }
}
