//! iopath-os

mod aligned;
mod cpu;
pub mod kernel;
pub mod target;

pub use aligned::{AlignedBuf, NoMemory, page_bytes};
pub use cpu::{CpuTimes, process_cpu_times};
