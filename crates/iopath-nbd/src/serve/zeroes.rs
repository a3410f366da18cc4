//! The I/O of a write of zeroes: the kind that keeps or frees the space, and is fast if the client asks for that.

use super::storage::{Io, Zeroing};

/// A write of zeroes, as a client asks for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zeroes {
    pub(super) offset: u64,
    pub(super) length: u64,
    /// Keep the space allocated.
    pub(super) no_hole: bool,
    /// Fail if it is not faster than a write of data.
    pub(super) must_be_fast: bool,
}

impl Zeroes {
    /// The I/O; `None` if the client asks for a fast one and it would not be faster than a write.
    pub(super) fn io<B>(self, zeroing: Zeroing) -> Option<Io<B>> {
        let Self { offset, length, no_hole, must_be_fast } = self;
        let Zeroing { punches, is_file, block_bytes } = zeroing;
        if must_be_fast {
            // The ends inside of blocks are written.
            let block = u64::from(block_bytes);
            let has_whole_block = offset.next_multiple_of(block) < (offset + length) / block * block;
            // A disk may write the zeroes if it must keep the space. In a file, both kinds only change metadata.
            if !punches || !has_whole_block || (no_hole && !is_file) {
                return None;
            }
        }
        // A client that allows holes wants them in files: copies stay sparse.
        let makes_hole = punches && !no_hole && (is_file || must_be_fast);
        Some(if makes_hole { Io::Discard { offset, length } } else { Io::Zeroes { offset, length } })
    }
}
