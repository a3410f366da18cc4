//! The progress of a request, and the next step after a system call returned. It makes no system call. `io_uring` and
//! threads share it.

use iopath_core::{Io, IoError, Memory, Op};

use crate::errno::io_error;

/// A request as a sequence of system calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) op: Op,
    pub(crate) fua: bool,
    /// The last call from this position moved less than a block.
    stalled: bool,
    end: End,
    /// Write-zeroes punches a hole, since the target cannot zero a range.
    punch: bool,
    /// The start of the request on the device, in bytes.
    offset: u64,
    /// The length of the request.
    bytes: u64,
    /// Bytes done, in whole blocks.
    done: u64,
}

/// The position of a request's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// At the end of the device: the last block of a file may be partial.
    OfDevice,
    /// Before the end of the device.
    Inside,
}

/// The next step after a system call returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The request has completed.
    Done(Result<(), IoError>),
    /// Another call for the rest.
    Again,
    /// The file ends inside the last block: zero the memory from this byte of the request on. Then the request has
    /// completed.
    ZeroFrom(u64),
}

impl Transfer {
    /// A new request for a device of `capacity` sectors.
    pub(crate) fn new<M: Memory>(io: &Io<'_, M>, capacity: u64) -> Self {
        let (offset, bytes) = (io.extent.offset(), io.extent.bytes());
        let end = if io.extent.end().0 == capacity { End::OfDevice } else { End::Inside };
        Self { op: io.op, fua: io.fua, stalled: false, end, punch: false, offset, bytes, done: 0 }
    }

    /// The start of the next call on the device, in bytes.
    pub(crate) const fn position(&self) -> u64 {
        self.offset + self.done
    }

    /// Bytes left.
    pub(crate) const fn left(&self) -> u64 {
        self.bytes - self.done
    }

    /// Bytes done.
    pub(crate) const fn done(&self) -> u64 {
        self.done
    }

    /// The return value of a call that completes the rest.
    pub(crate) const fn returns_if_whole(&self) -> u64 {
        if self.op.has_memory() { self.left() } else { 0 }
    }

    /// The flags of `preadv2(2)` and `pwritev2(2)`.
    pub(crate) const fn rw_flags(&self) -> i32 {
        if self.fua && matches!(self.op, Op::Write) { libc::RWF_DSYNC } else { 0 }
    }

    /// The mode of `fallocate(2)` for a discard or write-zeroes. Neither changes the size of a file.
    pub(crate) const fn fallocate_mode(&self) -> i32 {
        let zero = matches!(self.op, Op::WriteZeroes) && !self.punch;
        libc::FALLOC_FL_KEEP_SIZE | if zero { libc::FALLOC_FL_ZERO_RANGE } else { libc::FALLOC_FL_PUNCH_HOLE }
    }

    /// The next step after a call returned `returned`: bytes moved, or a negative error number. `block` is the logical
    /// block in bytes: a direct transfer continues at a multiple of it.
    pub(crate) fn after(&mut self, returned: i64, block: u64) -> Step {
        match u64::try_from(returned) {
            Ok(moved) if moved >= self.returns_if_whole() => Step::Done(Ok(())),
            Ok(moved) => self.after_part(moved, block),
            Err(_) => self.after_error(-returned as i32),
        }
    }

    fn after_part(&mut self, moved: u64, block: u64) -> Step {
        let whole = moved / block * block;
        self.done += whole;
        if whole > 0 || !self.stalled {
            self.stalled = whole == 0;
            return Step::Again;
        }
        // The second call that moved less than a block from here: the file ends here.
        let end = self.done + moved;
        if self.op == Op::Read && self.end == End::OfDevice && end.next_multiple_of(block) >= self.bytes {
            Step::ZeroFrom(end)
        } else {
            Step::Done(Err(IoError::EndOfDevice))
        }
    }

    fn after_error(&mut self, errno: i32) -> Step {
        match errno {
            // ECANCELED: the thread that submitted to a ring ended before the call began.
            libc::EAGAIN | libc::EINTR | libc::ECANCELED => Step::Again,
            libc::EOPNOTSUPP if self.op == Op::WriteZeroes && !self.punch => {
                self.punch = true;
                Step::Again
            }
            errno => Step::Done(Err(io_error(self.op, errno))),
        }
    }
}

/// Removes the first `bytes` bytes from `iovecs`. Returns the number of iovecs that are used up.
pub(crate) fn skip(iovecs: &mut [libc::iovec], mut bytes: usize) -> usize {
    for (used_up, iovec) in iovecs.iter_mut().enumerate() {
        if bytes < iovec.iov_len {
            iovec.iov_base = iovec.iov_base.wrapping_byte_add(bytes);
            iovec.iov_len -= bytes;
            return used_up;
        }
        bytes -= iovec.iov_len;
    }
    iovecs.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_core::{Extent, LengthOnly, Tag};

    fn transfer(op: Op, bytes: u64) -> Transfer {
        let extent = Extent::from_bytes(1 << 20, bytes).unwrap();
        Transfer::new(&Io::<LengthOnly>::new(Tag::from_bits(0), op, extent, &[]), extent.end().0)
    }

    #[test]
    fn a_short_transfer_continues_at_a_whole_block() {
        let mut write = transfer(Op::Write, 64 << 10);
        assert_eq!(write.after(5000, 4096), Step::Again);
        assert_eq!((write.position(), write.left()), ((1 << 20) + 4096, 60 << 10));
        assert_eq!(write.after(60 << 10, 4096), Step::Done(Ok(())));
    }

    #[test]
    fn a_file_that_ends_inside_the_last_block_is_read_whole() {
        let mut read = transfer(Op::Read, 8192);
        assert_eq!(read.after(5000, 4096), Step::Again);
        assert_eq!(read.after(904, 4096), Step::Again, "one short call may have another cause");
        assert_eq!(read.after(904, 4096), Step::ZeroFrom(5000));
    }

    #[test]
    fn a_file_that_ends_inside_an_earlier_block_is_an_error() {
        let mut read = Transfer { end: End::Inside, ..transfer(Op::Read, 8192) };
        assert_eq!(read.after(5000, 4096), Step::Again);
        assert_eq!(read.after(904, 4096), Step::Again);
        assert_eq!(read.after(904, 4096), Step::Done(Err(IoError::EndOfDevice)));
    }

    #[test]
    fn a_file_that_ends_earlier_is_an_error() {
        for end in [0, 904, 4096] {
            let mut read = transfer(Op::Read, 8192);
            let mut step = read.after(end, 4096);
            while step == Step::Again {
                step = read.after(end - read.done().cast_signed(), 4096);
            }
            assert_eq!(step, Step::Done(Err(IoError::EndOfDevice)), "ends at {end}");
        }
    }

    #[test]
    fn a_write_without_progress_is_an_error() {
        let mut write = transfer(Op::Write, 4096);
        assert_eq!(write.after(0, 512), Step::Again);
        assert_eq!(write.after(0, 512), Step::Done(Err(IoError::EndOfDevice)));
    }

    #[test]
    fn interruptions_are_retried_and_errors_are_not() {
        let mut read = transfer(Op::Read, 4096);
        assert_eq!(read.after(-i64::from(libc::EINTR), 512), Step::Again);
        assert_eq!(read.after(-i64::from(libc::EAGAIN), 512), Step::Again);
        assert_eq!(read.after(-i64::from(libc::EIO), 512), Step::Done(Err(IoError::Media)));
    }

    #[test]
    fn write_zeroes_punches_a_hole_where_it_cannot_zero() {
        let mut zero = transfer(Op::WriteZeroes, 4096);
        assert_eq!(zero.fallocate_mode() & libc::FALLOC_FL_PUNCH_HOLE, 0);
        assert_eq!(zero.after(-i64::from(libc::EOPNOTSUPP), 512), Step::Again);
        assert_ne!(zero.fallocate_mode() & libc::FALLOC_FL_PUNCH_HOLE, 0);
        let unsupported = Step::Done(Err(IoError::Unsupported));
        assert_eq!(zero.after(-i64::from(libc::EOPNOTSUPP), 512), unsupported);
    }

    #[test]
    fn skipping_cuts_into_the_right_iovec() {
        let iovec = |len| libc::iovec { iov_base: std::ptr::without_provenance_mut(0x1000), iov_len: len };
        for (bytes, used_up, left) in
            [(0, 0, 512), (100, 0, 412), (512, 1, 1024), (600, 1, 936), (1536, 2, 0)]
        {
            let mut iovecs = [iovec(512), iovec(1024)];
            assert_eq!(skip(&mut iovecs, bytes), used_up, "{bytes} bytes");
            assert_eq!(iovecs.get(used_up).map_or(0, |iovec| iovec.iov_len), left, "{bytes} bytes");
        }
    }
}
