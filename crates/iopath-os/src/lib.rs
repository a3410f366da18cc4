//! iopath-os

mod aligned;
pub mod kernel;

pub use aligned::{AlignedBuf, NoMemory, page_bytes};
