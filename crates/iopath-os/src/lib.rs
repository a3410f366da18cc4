//! iopath-os

mod aligned;
pub mod kernel;
mod cpu;

pub use aligned::{AlignedBuf, NoMemory, page_bytes};
pub use cpu::{CpuTimes, process_cpu_times};
