//! A new file under a page cache that is not open yet. A journal that a program creates, writes once, flushes and
//! removes needs no cache: the calling thread writes to the file by plain writes of the kernel. The first call that
//! needs the cache opens it: a read, a large write, a resize, a batch.
//!
//! Decides nothing about threads: one of them at a time uses a [`NewFile`].

use super::extend::Appends;
use crate::error::IoError;
use std::ops::Range;

/// The plain writes to a new file so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewFile {
    /// The bytes that were written since the last successful flush, with those between them.
    unflushed: Range<u64>,
    /// The error of a flush that lost bytes.
    lost: Option<IoError>,
    /// A flush has failed. Then the page cache does the rest: a kernel may not write a page again whose write has
    /// failed.
    has_failed: bool,
}

impl NewFile {
    /// Whether a thread writes `bytes` bytes at `offset` by a plain write: a small write that begins inside the file or
    /// at its end, unless the writes since the last flush exceed a step, or a flush has failed.
    pub const fn accepts(
        &self,
        size_bytes: u64,
        offset: u64,
        bytes: u64,
        written: Appends,
        step_bytes: u64,
    ) -> bool {
        offset <= size_bytes && written.has_room(bytes, step_bytes) && !self.has_failed
    }

    /// A plain write of this range has ended. After an error, any part of it may be in the file.
    pub fn handle_write(&mut self, range: Range<u64>) {
        if self.unflushed.is_empty() {
            self.unflushed = range;
        } else {
            let Range { start, end } = &mut self.unflushed;
            (*start, *end) = ((*start).min(range.start), (*end).max(range.end));
        }
    }

    /// The kernel has flushed the file. Returns the result of the flush for its caller: after a failed one, bytes are
    /// lost, since the kernel does not write them again, and every flush fails.
    ///
    /// # Errors
    /// The error of this flush, or of an earlier one.
    pub fn handle_flush(&mut self, result: Result<(), IoError>) -> Result<(), IoError> {
        self.has_failed |= result.is_err();
        match result {
            Ok(()) => self.unflushed = 0..0,
            Err(error) if !self.unflushed.is_empty() => {
                self.lost.get_or_insert(error);
            }
            Err(_) => {}
        }
        result.and(self.lost.map_or(Ok(()), Err))
    }

    /// Returns and clears the loss, so that flushes can succeed again.
    pub const fn accept_loss(&mut self) -> Option<IoError> {
        self.lost.take()
    }

    /// Whether all bytes are on the medium.
    pub fn is_flushed(&self) -> bool {
        self.unflushed.is_empty() && self.lost.is_none()
    }

    /// What the page cache has to know when it opens: the bytes that were written since the last successful flush, and
    /// the error of a flush that lost bytes.
    pub fn into_parts(self) -> (Range<u64>, Option<IoError>) {
        (self.unflushed, self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = 1 << 20;

    #[test]
    fn accepts_small_writes_inside_the_file_or_at_its_end() {
        let accepts = |offset, bytes, written| {
            NewFile::default().accepts(100, offset, bytes, Appends { bytes: written }, STEP)
        };
        assert!(accepts(0, 12, 0) && accepts(90, 20, 0) && accepts(100, Appends::BYTES_MAX, 0));
        assert!(!accepts(101, 1, 0), "it leaves a gap");
        assert!(!accepts(100, Appends::BYTES_MAX + 1, 0));
        assert!(accepts(100, 1, STEP - 1) && !accepts(100, 1, STEP) && !accepts(100, 1, u64::MAX));
    }

    #[test]
    fn a_failed_flush_loses_what_was_written_since_the_last_good_one() {
        let failed = Err(IoError::Media);
        let mut file = NewFile::default();
        assert_eq!(file.handle_flush(failed), failed);
        assert!(file.is_flushed(), "nothing was written");

        file.handle_write(100..112);
        file.handle_write(0..12);
        assert!(!file.is_flushed());
        assert_eq!(file.clone().into_parts(), (0..112, None));
        assert_eq!(file.handle_flush(Ok(())), Ok(()));
        assert!(file.is_flushed());
        assert_eq!(file.handle_flush(failed), failed);
        assert_eq!(file.accept_loss(), None, "all was on the medium");

        file.handle_write(50..60);
        assert_eq!(file.handle_flush(Err(IoError::NoSpace)), Err(IoError::NoSpace));
        assert_eq!(file.handle_flush(Ok(())), Err(IoError::NoSpace), "until the program accepts the loss");
        assert!(!file.is_flushed());
        assert_eq!(file.clone().into_parts(), (0..0, Some(IoError::NoSpace)));
        assert_eq!(file.accept_loss(), Some(IoError::NoSpace));
        assert_eq!(file.handle_flush(Ok(())), Ok(()));
    }

    #[test]
    fn bytes_of_a_failed_flush_can_be_lost_again_after_the_program_has_accepted_the_loss() {
        let failed = Err(IoError::Media);
        let mut file = NewFile::default();
        file.handle_write(0..1);
        assert_eq!(file.handle_flush(failed), failed);
        assert_eq!(file.accept_loss(), Some(IoError::Media));
        assert!(!file.is_flushed(), "no flush has succeeded since the write");
        let accepts = |file: &NewFile| file.accepts(1, 0, 1, Appends::default(), STEP);
        assert!(!accepts(&file) && accepts(&NewFile::default()), "the page cache writes from now on");
        assert_eq!(file.handle_flush(failed), failed);
        assert_eq!(file.accept_loss(), Some(IoError::Media));
    }
}
