//! The facts of a volume, found when it is opened. Plain data.

use iopath_core::debug;
use iopath_os::Fallback;
use iopath_os::target::Target;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The facts of a volume: [`Volume::facts`](crate::Volume::facts).
#[derive(Clone)]
#[non_exhaustive]
pub struct Facts {
    /// The path, with symbolic links resolved; of a remote export, its URI.
    pub path: PathBuf,
    /// The size in bytes when the volume was opened.
    pub size_bytes: u64,
    /// Offsets and lengths of direct I/O are multiples of this many bytes.
    pub block_bytes: u32,
    /// Buffers of direct I/O start at a multiple of this many bytes.
    pub memory_align_bytes: u32,
    /// The longest request, in bytes; longer I/O is split.
    pub request_bytes_max: u64,
    /// The engine: `uring`, `threads`, `memory` or `remote`. A volume whose page cache opens it later has that of
    /// earlier volumes on the device, and may find another one.
    pub engine: &'static str,
    /// The reason for a fallback to another engine: one line for the user of the program.
    pub fallback: Option<Fallback>,
    /// The target: filesystem, disk, scheduler.
    pub target: Arc<Target>,
}

impl fmt::Debug for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Facts")
            .field("path", &debug::Text(&self.path))
            .field("size_bytes", &self.size_bytes)
            .field("block_bytes", &self.block_bytes)
            .field("memory_align_bytes", &self.memory_align_bytes)
            .field("request_bytes_max", &self.request_bytes_max)
            .field("engine", &self.engine)
            .field("fallback", &self.fallback)
            .field("target", &self.target)
            .finish()
    }
}
