//! One workload of a survey: its path, pattern, block size and depth, and the limits of a turn. Does not select the
//! workloads: see `plan.rs`.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use iopath_report::Rw;
use iopath_report::size::format_size;

use iopath_bench::cache::CacheSettings;
use iopath_bench::error::BenchError;
use iopath_bench::paths::find_path;
use iopath_bench::workload::{BlockSize, Depth, End, ReadShare, Workload};

/// The size of iopath-buffered's page cache, and the part of the target for measuring hits, in bytes.
const CACHE_BYTES: u64 = 64 << 20;
pub(crate) const HIT_BYTES: u64 = 32 << 20;

/// Reads in 100 transfers of the mix.
pub(crate) const MIXED_READS: u32 = 70;

/// The time of a turn in addition to the slice: dropping caches, opening, starting threads, reading counters.
const TURN_OVERHEAD: Duration = Duration::from_millis(15);

/// The speed of allocating and filling buffers, in bytes per second: a low estimate.
const FILL_SPEED: f64 = 1e9;

/// Random reads through a page cache end after this part of the target: then at most one in 20 is a hit.
const CACHED_RANDOM_PART: u64 = 10;

/// The maximum bytes that one turn writes: flash wears out.
const WRITE_BYTES_MAX: u64 = 128 << 20;

/// A turn of random writes has at least this number of blocks.
const RANDOM_WRITES_MIN: u64 = 16;

/// A read of cached data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hit {
    Copied,
    /// Borrowed from iopath's page cache.
    Borrowed,
}

/// One workload of the survey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) path: &'static str,
    pub(crate) rw: Rw,
    pub(crate) block_bytes: u32,
    pub(crate) io_depth: u32,
    /// Set if the page cache serves the reads.
    pub(crate) hit: Option<Hit>,
    /// Whether a flush follows each write.
    pub(crate) is_durable: bool,
}

/// The constraints of a plan.
#[expect(clippy::struct_excessive_bools, reason = "facts of the target, independent of each other")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Constraints {
    /// The time for all rounds.
    pub(crate) time: Duration,
    /// The target's speed, in bytes per second.
    pub(crate) speed: f64,
    /// The target's speed for random writes of small blocks, one after another, in bytes per second.
    pub(crate) random_write_speed: f64,
    /// Its size.
    pub(crate) size_bytes: u64,
    /// Whether it may be written to.
    pub(crate) writes: bool,
    /// The alignment of direct I/O, in bytes; none where it is refused.
    pub(crate) direct_align_bytes: Option<u32>,
    /// Whether it is an export of a server, which only paths of iopath access.
    pub(crate) is_remote: bool,
    /// Whether direct reads also pass through a page cache: of a file beneath a loop device.
    pub(crate) is_cached_beneath: bool,
    /// Whether the cost of the tool is measured.
    pub(crate) has_tool: bool,
}

impl Cell {
    pub(crate) const fn new(path: &'static str, rw: Rw, block_bytes: u32, io_depth: u32) -> Self {
        Self { path, rw, block_bytes, io_depth, hit: None, is_durable: false }
    }

    fn in_flight_bytes(self) -> u64 {
        u64::from(self.block_bytes) * u64::from(self.io_depth)
    }

    /// The time of a turn in addition to its slice, on a target of that speed. It includes the completion of the
    /// transfers in flight at the end of the slice.
    pub(crate) fn overhead(self, speed: f64) -> Duration {
        let bytes = self.in_flight_bytes() as f64;
        let completing = if self.path == "null" { 0.0 } else { bytes / speed };
        let warming = if self.hit.is_some() { HIT_BYTES as f64 / speed } else { 0.0 };
        let cache = if self.has_own_cache() { CACHE_BYTES as f64 / FILL_SPEED } else { 0.0 };
        TURN_OVERHEAD + Duration::from_secs_f64(bytes / FILL_SPEED + completing + warming + cache)
    }

    /// The workload over `constraints.size_bytes` for a turn of `slice`.
    pub(crate) fn workload(self, constraints: &Constraints, slice: Duration) -> Result<Workload, BenchError> {
        let has_cache = self.has_own_cache();
        Ok(Workload {
            path: find_path(self.path)?,
            rw: self.rw,
            block_size: BlockSize::new(self.block_bytes)?,
            depth: Depth::new(self.io_depth)?,
            read_share: ReadShare::new(MIXED_READS)?,
            flush_every: NonZeroU64::new(u64::from(self.is_durable)),
            end: End::new(Some(slice), self.bytes_max(constraints, slice)),
            warm: self.hit.is_some(),
            cache: CacheSettings {
                cache_bytes: has_cache.then_some(CACHE_BYTES),
                borrow: self.hit == Some(Hit::Borrowed),
                ..CacheSettings::default()
            },
            ..Workload::default()
        })
    }

    /// The bytes of a turn. Sequential reads through a page cache end with the target, random reads after a part of it:
    /// a second pass would read from memory. Writes are limited to the bytes that the target can write in that time:
    /// otherwise the final flush would dominate the figures.
    fn bytes_max(self, constraints: &Constraints, slice: Duration) -> Option<u64> {
        let through_cache = self.path == "kernel-buffered" || self.has_own_cache();
        let is_cached = through_cache || constraints.is_cached_beneath && self.path != "null";
        let block_bytes = u64::from(self.block_bytes);
        let random_part = constraints.size_bytes / CACHED_RANDOM_PART;
        let small_writes = (constraints.random_write_speed * slice.as_secs_f64()) as u64;
        let small_writes = small_writes.min(WRITE_BYTES_MAX).max(RANDOM_WRITES_MIN * block_bytes);
        match self.rw {
            _ if self.hit.is_some() => None,
            Rw::Write if self.is_durable => Some(WRITE_BYTES_MAX),
            Rw::Write => {
                let bytes = (constraints.speed * slice.as_secs_f64()) as u64;
                Some(bytes.clamp(block_bytes, WRITE_BYTES_MAX))
            }
            // Without a page cache, writes take their time before the flush.
            Rw::RandWrite if through_cache => Some(small_writes),
            Rw::RandRw if through_cache => Some(random_part.min(small_writes)),
            Rw::RandWrite => Some(WRITE_BYTES_MAX),
            Rw::RandRw => Some(if is_cached { random_part.min(WRITE_BYTES_MAX) } else { WRITE_BYTES_MAX }),
            Rw::Read if is_cached => Some(constraints.size_bytes),
            Rw::RandRead if is_cached => Some(random_part),
            _ => None,
        }
    }

    pub(crate) fn has_own_cache(self) -> bool {
        find_path(self.path).is_ok_and(|row| row.capabilities.cache)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, rw, block_bytes, io_depth, hit, is_durable } = self;
        let how = match rw {
            _ if hit.is_some() => "hits",
            Rw::Write if *is_durable => "writes with fsync",
            Rw::RandRead => "random reads",
            Rw::RandWrite => "random writes",
            Rw::RandRw => "random reads and writes",
            Rw::Write => "writes",
            _ => "reads",
        };
        write!(f, "{path}, {how} of {}, depth {io_depth}", format_size(u64::from(*block_bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const SLICE: Duration = Duration::from_millis(100);

    fn constraints() -> Constraints {
        Constraints {
            time: Duration::from_secs(75),
            speed: 1e8,
            random_write_speed: 4e5,
            size_bytes: GIB,
            writes: true,
            direct_align_bytes: Some(4096),
            is_remote: false,
            is_cached_beneath: false,
            has_tool: false,
        }
    }

    fn end(constraints: &Constraints, path: &'static str, rw: Rw) -> End {
        Cell::new(path, rw, 4096, 1).workload(constraints, SLICE).unwrap().end
    }

    #[test]
    fn direct_reads_through_a_cache_beneath_end_with_the_target() {
        let constraints = Constraints { is_cached_beneath: true, ..constraints() };
        let bytes = |path, rw| end(&constraints, path, rw).bytes();
        assert_eq!(bytes("kernel-direct", Rw::Read), Some(GIB));
        assert_eq!(bytes("kernel-uring", Rw::RandRead), Some(GIB / 10));
        assert_eq!(bytes("null", Rw::RandRead), None);
    }

    #[test]
    fn reads_through_the_cache_end_with_the_target_and_writes_with_their_share() {
        let constraints = constraints();
        let end = |path, rw| end(&constraints, path, rw);
        assert_eq!(end("kernel-buffered", Rw::Read).bytes(), Some(GIB));
        assert_eq!(end("kernel-buffered", Rw::RandRead).bytes(), Some(GIB / 10));
        assert_eq!(end("kernel-direct", Rw::Read).bytes(), None);
        assert_eq!(end("kernel-direct", Rw::RandRead).bytes(), None);
        assert_eq!(end("kernel-direct", Rw::Write).bytes(), Some(10_000_000));
        assert_eq!(end("kernel-direct", Rw::Write).time(), Some(SLICE));
    }

    #[test]
    fn random_writes_through_a_cache_are_limited_to_the_bytes_that_a_flush_can_write_in_the_slice() {
        let constraints = constraints();
        let bytes = |path, rw| end(&constraints, path, rw).bytes();
        assert_eq!(bytes("kernel-buffered", Rw::RandWrite), Some(16 * 4096), "a disk of 100 IOPS");
        assert_eq!(bytes("kernel-buffered", Rw::RandRw), Some(16 * 4096));
        let fast = Constraints { random_write_speed: 8e7, ..constraints };
        assert_eq!(end(&fast, "kernel-buffered", Rw::RandWrite).bytes(), Some(8_000_000));
        assert_eq!(bytes("kernel-uring", Rw::RandWrite), Some(WRITE_BYTES_MAX), "the slice ends it");
    }

    #[test]
    fn every_block_size_has_a_workload_at_every_speed() {
        for speed in [1.0, 1e5, 1e9, 1e12] {
            let constraints = Constraints { speed, random_write_speed: speed, ..constraints() };
            for rw in Rw::ALL {
                for block_bytes in [4 << 10, 64 << 20] {
                    let cell = Cell::new("kernel-buffered", rw, block_bytes, 1);
                    assert!(cell.workload(&constraints, SLICE).is_ok(), "{cell}");
                }
            }
        }
    }

    #[test]
    fn a_durable_write_flushes_each_time_and_the_mix_has_its_share_of_reads() {
        let durable = Cell { is_durable: true, ..Cell::new("kernel-direct", Rw::Write, 4096, 1) };
        let workload = durable.workload(&constraints(), SLICE).unwrap();
        assert_eq!(workload.flush_every.map(NonZeroU64::get), Some(1));
        let mixed = Cell::new("kernel-direct", Rw::RandRw, 4096, 1).workload(&constraints(), SLICE).unwrap();
        assert_eq!((mixed.read_share.get(), mixed.flush_every), (70, None));
    }
}
