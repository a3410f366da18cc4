//! iopath-os

mod aligned;
mod clock;
pub mod device;
mod engine;
mod errno;
mod limits;
mod memory;
mod pool;
pub mod target;

pub use aligned::{AlignedBuf, NoMemory, page_bytes};
pub use clock::now;
pub use device::{
    AnyThread, DEVICES, DeviceKind, Null, OneThread, Ram, RealDevice, Threads, ThreadsConfig, Uring,
    UringConfig, WaitError,
};
pub use engine::{Engine, EngineConfig, Fallback, OpenError, Opened, Reason, UnknownEngine};
pub use limits::{Geometry, REQUEST_BYTES, limits_of};
pub use memory::Segment;
pub use pool::{BufferPool, PoolBuf};
