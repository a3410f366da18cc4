//! Options of a log being written.

#[cfg(doc)]
use iopath_core::RecordBatch;

/// The options of a log.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Records in the ring of each queue: a multiple of [`RecordBatch::CAPACITY`], at least twice that, at most
    /// [`LogOptions::RING_RECORDS_MAX`].
    pub ring_records: usize,
    /// Maximum size of the file in bytes. Later records are counted and dropped.
    pub limit_bytes: u64,
    /// The zstd level, 1 to 19, or -1 to -20 for less CPU time and a larger file. Above 3 compression may be too slow
    /// for a million I/Os a second.
    pub level: i32,
}

impl LogOptions {
    /// The longest ring: 384 MiB, allocated when the queue is added.
    pub const RING_RECORDS_MAX: usize = 1 << 24;

    /// The fastest level.
    pub const LEVEL_MIN: i32 = -20;

    /// The level of the smallest files.
    pub const LEVEL_MAX: i32 = 19;
}

impl Default for LogOptions {
    /// A ring of 2 MiB (87,381 records), a file of up to 4 GiB, level 1.
    fn default() -> Self {
        Self { ring_records: 87_381, limit_bytes: 4 << 30, level: 1 }
    }
}
