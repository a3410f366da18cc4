//! Linux for iopath: devices that execute I/O (`io_uring`, threads, memory), aligned and registered memory, the
//! inspection of targets and the guard against overwriting them, and the kernel's own paths for comparison. All
//! `unsafe` code is here. The core orders and merges requests. On other systems than Linux the crate is empty.

#![cfg(target_os = "linux")]

mod aligned;
mod answers;
mod buffered;
mod child;
mod clock;
mod cpu;
pub mod device;
mod election;
mod engine;
mod errno;
mod huge_pages;
mod io_buf;
mod jobs;
pub mod kernel;
mod limits;
mod locked;
mod memory;
mod pool;
mod runner;
mod shared;
mod shared_memory;
#[doc(hidden)]
pub mod sync;
mod tail;
pub mod target;
mod thread;
pub mod thread_policy;
mod thread_queue;
pub mod trace;
pub mod ublk;

pub use aligned::{AlignedBuf, NoMemory, page_bytes};
pub use buffered::{
    Advice, BorrowedBytes, Buffered, BufferedConfig, BufferedError, BufferedStats, CacheBudget, CacheQueue,
    CacheRequest, CacheUsage, Completed, Demand, DirectGuard, KeptPages, PageGuard, SharedFlusher,
    WriteBackError,
};
pub use child::keep_child_status;
pub use clock::now;
pub use cpu::{CpuTimes, process_cpu_times};
pub use device::{
    AnyThread, DEVICES, DeviceKind, DeviceRequest, Execute, Fault, Faults, Faulty, FileMap, FileMapError,
    Incoming, InlineDevice, Lazy, Losses, Mapped, MappedError, MemoryConfig, MemoryDevice, MemoryDisk,
    MemoryTail, Notifier, Null, OneThread, Outgoing, RealDevice, Remote, RemoteAddress, RemoteDevice,
    RemoteEncryption, RemoteError, RemoteEvent, RemoteFacts, RemoteProtocol, RemoteRequest, RemoteSession,
    RemoteSocket, RingPool, Striped, StripedError, Threads, ThreadsConfig, Timed, Timing, Uring, UringConfig,
    WaitError, Watch, WeakRemote, flush_now,
};
pub use engine::{
    Comparison, Engine, EngineConfig, Fallback, OpenError as EngineError, Opened, Rate, Reason, UnknownEngine,
};
pub use errno::{io_error_of, system_error};
pub use huge_pages::HugePages;
pub use io_buf::{AnyBuf, IoBuf, IoBufMut, JobBuf, init_of, space_bytes, usable_bytes, zeroed};
pub use jobs::{CompletedJob, Job, Refused};
pub use limits::{Geometry, REQUEST_BYTES, file_size_limit, limits_of, limits_of_open};
pub use locked::LockedMemory;
pub use memory::Segment;
pub use pool::{BufferPool, PoolBuf};
pub use runner::{RunError, Runner};
pub use shared::{QueueClient, SharedQueue};
pub use shared_memory::{SharedBuf, SharedMemory};
pub use tail::{Tail, WriteStopped};
pub use thread::thread_number;
pub use thread_queue::ThreadQueue;
