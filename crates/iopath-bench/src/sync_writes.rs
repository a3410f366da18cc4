//! The durability of each write. Flushes between writes are a setting of their own.

/// When a write completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncWrites {
    /// When the cache, or the device, has the bytes.
    #[default]
    None,
    /// When the bytes are on the medium: `O_DSYNC`, or forced unit access on a path of iopath.
    Data,
    /// When the bytes and the metadata of the file are on the medium: `O_SYNC`.
    All,
}

impl SyncWrites {
    /// The name in options and results, as fio's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Data => "dsync",
            Self::All => "sync",
        }
    }
}
