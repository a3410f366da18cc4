//! The C interface of iopath: a volume and its batches behind opaque handles. `include/iopath.h` is made from these
//! sources; `docs/c.md` describes its use.
//!
//! - A function returns 0 or a count, or a negative number of `errno.h`. [`iopath_last_error`] has the message.
//! - No panic unwinds into the C program: it is an error with the number `ENOTRECOVERABLE`.
//! - Pointers are checked for NULL only. All else that a C program must observe is at each function.

mod batch;
mod buffer;
mod error;
mod options;
mod volume;

pub use batch::*;
pub use buffer::*;
pub use error::{iopath_last_error, iopath_version};
pub use options::*;
pub use volume::*;
