//! iopath-os

mod aligned;

pub use aligned::{AlignedBuf, NoMemory, page_bytes};
