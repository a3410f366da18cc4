//! Selects the workloads of a survey and their duration, from the time limit and the speed of the target. Does not measure,
//! and does not read the clock: see `schedule.rs`.

use std::fmt;
use std::time::Duration;

use crate::cache::CacheSettings;
use crate::error::LabError;
use crate::paths::find_path;
use crate::size::format_size;
use crate::workload::{BlockSize, Depth, End, Rw, Workload};

/// Block sizes of the sequential part, in bytes, the most informative first. For lack of time, the plan removes the last.
const BLOCKS: [u32; 8] = [1 << 20, 4 << 10, 64 << 10, 16 << 20, 256 << 10, 16 << 10, 4 << 20, 64 << 20];

/// The block of random reads, in bytes.
const RANDOM_BLOCK: u32 = 4 << 10;

/// Paths of the sequential part, in the order of the table's columns.
pub(crate) const PATHS: [&str; 4] = ["kernel-buffered", "kernel-direct", "kernel-uring", "iopath-direct"];

/// Random reads: path and depth.
const RANDOM: [(&str, u32); 6] = [
    ("kernel-buffered", 1),
    ("kernel-direct", 1),
    ("kernel-uring", 1),
    ("iopath-direct", 1),
    ("kernel-uring", DEEP),
    ("iopath-direct", DEEP),
];

/// The cells that compare page caches. The sequential part has the other cells of `kernel-buffered`.
const CACHED: [(&str, Rw, u32, Option<Hit>); 6] = [
    ("iopath-buffered", Rw::Read, 4 << 10, None),
    ("iopath-buffered", Rw::Read, 16 << 10, None),
    ("iopath-buffered", Rw::Write, 16 << 10, None),
    ("kernel-buffered", Rw::RandRead, RANDOM_BLOCK, Some(Hit::Copied)),
    ("iopath-buffered", Rw::RandRead, RANDOM_BLOCK, Some(Hit::Copied)),
    ("iopath-buffered", Rw::RandRead, RANDOM_BLOCK, Some(Hit::Borrowed)),
];

/// The size of iopath-buffered's page cache, and the part of the target for measuring hits, in bytes.
const CACHE_BYTES: u64 = 64 << 20;
pub(crate) const HIT_BYTES: u64 = 32 << 20;

/// The greater depth of random reads.
const DEEP: u32 = 32;

/// The depth of sequential transfers on an asynchronous path, and the maximum bytes in flight.
const SEQUENTIAL_DEPTH: u32 = 8;
const IN_FLIGHT_BYTES_MAX: u32 = 32 << 20;

/// The minimum size of the target, in blocks.
const BLOCKS_IN_TARGET_MIN: u64 = 4;

/// Bounds of the repetitions of each cell. Within them, the time and slices of at least [`SLICE_MIN`] decide.
const ROUNDS_MIN: u32 = 3;
const ROUNDS_MAX: u32 = 10;

/// The duration of one measurement of a cell.
const SLICE_MIN: Duration = Duration::from_millis(120);
const SLICE_MAX: Duration = Duration::from_secs(2);
/// The minimum if the time is too short for [`SLICE_MIN`] even with one block size.
const SLICE_SHORTEST: Duration = Duration::from_millis(20);

/// The time of a turn in addition to the slice: dropping caches, opening, starting threads, reading counters.
const TURN_OVERHEAD: Duration = Duration::from_millis(15);

/// The speed of allocating and filling buffers, in bytes per second: a low estimate.
const FILL_SPEED: f64 = 1e9;

/// Random reads through a page cache end after this part of the target: then at most one in 20 is a hit.
const CACHED_RANDOM_PART: u64 = 10;

/// The maximum bytes that one turn writes: flash wears out.
const WRITE_BYTES_MAX: u64 = 128 << 20;

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
}

impl Cell {
    fn in_flight_bytes(self) -> u64 {
        u64::from(self.block_bytes) * u64::from(self.io_depth)
    }

    /// The time of a turn in addition to its slice, on a target of that speed. It includes the completion of the transfers
    /// in flight at the end of the slice.
    fn overhead(self, speed: f64) -> Duration {
        let bytes = self.in_flight_bytes() as f64;
        let completing = if self.path == "null" { 0.0 } else { bytes / speed };
        let warming = if self.hit.is_some() { HIT_BYTES as f64 / speed } else { 0.0 };
        let cache = if self.has_own_cache() { CACHE_BYTES as f64 / FILL_SPEED } else { 0.0 };
        TURN_OVERHEAD + Duration::from_secs_f64(bytes / FILL_SPEED + completing + warming + cache)
    }

    /// The workload over `constraints.size_bytes` for a turn of `slice`. Sequential reads through a page cache end with the
    /// target, random reads after a part of it: a second pass would read from memory. Writes are limited to the bytes that
    /// the target can write in that time: otherwise the final flush would dominate the figures.
    pub(crate) fn workload(self, constraints: &Constraints, slice: Duration) -> Result<Workload, LabError> {
        let is_cached = self.path == "kernel-buffered"
            || self.has_own_cache()
            || constraints.is_cached_beneath && self.path != "null";
        let io_bytes = match self.rw {
            _ if self.hit.is_some() => None,
            Rw::Write => {
                let bytes = (constraints.speed * slice.as_secs_f64()) as u64;
                Some(bytes.clamp(self.block_bytes.into(), WRITE_BYTES_MAX))
            }
            Rw::Read if is_cached => Some(constraints.size_bytes),
            Rw::RandRead if is_cached => Some(constraints.size_bytes / CACHED_RANDOM_PART),
            _ => None,
        };
        Ok(Workload {
            path: find_path(self.path)?,
            rw: self.rw,
            block_size: BlockSize::new(self.block_bytes)?,
            depth: Depth::new(self.io_depth)?,
            end: End::new(Some(slice), io_bytes),
            warm: self.hit.is_some(),
            cache: CacheSettings {
                cache_bytes: self.has_own_cache().then_some(CACHE_BYTES),
                borrow: self.hit == Some(Hit::Borrowed),
                ..CacheSettings::default()
            },
            ..Workload::default()
        })
    }

    fn has_own_cache(self) -> bool {
        find_path(self.path).is_ok_and(|row| row.capabilities.cache)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, rw, block_bytes, io_depth, hit } = self;
        let how = match rw {
            _ if hit.is_some() => "hits",
            Rw::RandRead => "random reads",
            Rw::Write => "writes",
            _ => "reads",
        };
        write!(f, "{path}, {how} of {}, depth {io_depth}", format_size(u64::from(*block_bytes)))
    }
}

/// The constraints of a plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Constraints {
    /// The time for all rounds.
    pub(crate) time: Duration,
    /// The target's speed, in bytes per second.
    pub(crate) speed: f64,
    /// Its size.
    pub(crate) size_bytes: u64,
    /// Whether it may be written to.
    pub(crate) writes: bool,
    /// The alignment of direct I/O, in bytes; none where it is refused.
    pub(crate) direct_align_bytes: Option<u32>,
    /// Whether direct reads also pass through a page cache: of a file beneath a loop device.
    pub(crate) is_cached_beneath: bool,
}

/// The cells in the order of their turns. Each turn lasts `slice`; each cell has at most `rounds` turns.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) cells: Vec<Cell>,
    pub(crate) rounds: u32,
    pub(crate) slice: Duration,
    /// Block sizes that this survey leaves out, with the reasons.
    pub(crate) left_out: Vec<String>,
}

impl Plan {
    pub(crate) fn new(constraints: &Constraints) -> Self {
        let fits = |block: &u32| u64::from(*block) * BLOCKS_IN_TARGET_MIN <= constraints.size_bytes;
        let (mut blocks, too_large): (Vec<u32>, Vec<u32>) = BLOCKS.into_iter().partition(fits);
        let mut no_time = Vec::new();
        let mut has_caches = true;
        let (cells, rounds, slice) = loop {
            let cells = cells(&blocks, has_caches, constraints);
            if let Some((rounds, slice)) = fit(&cells, constraints) {
                break (cells, rounds, slice);
            }
            if blocks.len() <= 1 && has_caches {
                has_caches = false;
                continue;
            }
            if blocks.len() <= 1 {
                let slice = slice(&cells, ROUNDS_MIN, constraints).unwrap_or_default().max(SLICE_SHORTEST);
                break (cells, ROUNDS_MIN, slice);
            }
            no_time.extend(blocks.pop());
        };
        let target = format_size(constraints.size_bytes);
        let mut left_out = Vec::new();
        left_out
            .extend(names(too_large).map(|blocks| format!("{blocks}: too large for a target of {target}")));
        left_out
            .extend(names(no_time).map(|blocks| format!("{blocks}: not enough time; use a longer --time")));
        if !has_caches {
            left_out.push("page caches: not enough time; use a longer --time".to_owned());
        }
        Self { cells, rounds, slice, left_out }
    }

    /// The expected time of a turn of each cell.
    pub(crate) fn costs(&self, speed: f64) -> Vec<Duration> {
        self.cells.iter().map(|cell| self.slice + cell.overhead(speed)).collect()
    }
}

/// Block sizes in words, if there are any.
fn names(mut blocks: Vec<u32>) -> Option<String> {
    blocks.sort_unstable();
    let sizes: Vec<String> = blocks.into_iter().map(|block| format_size(block.into())).collect();
    (!sizes.is_empty()).then(|| format!("blocks of {}", sizes.join(", ")))
}

/// The maximum number of rounds with a slice of at least [`SLICE_MIN`], and that slice. None if the time is too short for
/// `ROUNDS_MIN`.
fn fit(cells: &[Cell], constraints: &Constraints) -> Option<(u32, Duration)> {
    let rounds = (ROUNDS_MIN..=ROUNDS_MAX).rev();
    rounds
        .filter_map(|rounds| Some((rounds, slice(cells, rounds, constraints)?)))
        .find(|(_, slice)| *slice >= SLICE_MIN)
}

/// The slice of each turn for a number of rounds; none if the overhead exceeds the time.
fn slice(cells: &[Cell], rounds: u32, constraints: &Constraints) -> Option<Duration> {
    let overhead: Duration = cells.iter().map(|cell| cell.overhead(constraints.speed)).sum();
    let left = (constraints.time / rounds).checked_sub(overhead)?;
    Some((left / cells.len() as u32).min(SLICE_MAX))
}

/// All cells, in the order of turns: the tool itself, then all paths at each block size. Random reads and page caches follow
/// the first block size.
fn cells(blocks: &[u32], has_caches: bool, constraints: &Constraints) -> Vec<Cell> {
    let mut cells =
        vec![Cell { path: "null", rw: Rw::RandRead, block_bytes: RANDOM_BLOCK, io_depth: DEEP, hit: None }];
    let directions: &[Rw] = if constraints.writes { &[Rw::Read, Rw::Write] } else { &[Rw::Read] };
    for (index, &block_bytes) in blocks.iter().enumerate() {
        for &rw in directions {
            let paths = PATHS.into_iter().filter(|path| suits(path, block_bytes, constraints));
            cells.extend(paths.map(|path| Cell {
                path,
                rw,
                block_bytes,
                io_depth: depth(path, block_bytes),
                hit: None,
            }));
        }
        if index == 0 {
            let random = RANDOM.into_iter().filter(|(path, _)| suits(path, RANDOM_BLOCK, constraints));
            cells.extend(random.map(|(path, io_depth)| Cell {
                path,
                rw: Rw::RandRead,
                block_bytes: RANDOM_BLOCK,
                io_depth,
                hit: None,
            }));
            let cached = CACHED.into_iter().filter(|(path, rw, block_bytes, _)| {
                has_caches && suits(path, *block_bytes, constraints) && (constraints.writes || !rw.writes())
            });
            cells.extend(cached.map(|(path, rw, block_bytes, hit)| Cell {
                path,
                rw,
                block_bytes,
                io_depth: 1,
                hit,
            }));
        }
    }
    cells
}

/// Whether a path can transfer blocks of this size on the target.
fn suits(path: &str, block_bytes: u32, constraints: &Constraints) -> bool {
    let Ok(row) = find_path(path).map(|row| row.capabilities) else { return false };
    if row.cache {
        // The page cache accepts any block, and uses direct I/O itself.
        return constraints.direct_align_bytes.is_some();
    }
    !row.direct || constraints.direct_align_bytes.is_some_and(|align| block_bytes.is_multiple_of(align))
}

/// The depth of sequential transfers: 1 on a synchronous path.
fn depth(path: &str, block_bytes: u32) -> u32 {
    if find_path(path).is_ok_and(|row| row.capabilities.synchronous) {
        return 1;
    }
    (IN_FLIGHT_BYTES_MAX / block_bytes).clamp(1, SEQUENTIAL_DEPTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn constraints(seconds: u64, speed: f64) -> Constraints {
        let time = Duration::from_secs(seconds);
        Constraints {
            time,
            speed,
            size_bytes: GIB,
            writes: true,
            direct_align_bytes: Some(4096),
            is_cached_beneath: false,
        }
    }

    #[test]
    fn paths_are_in_the_table() {
        let cached = CACHED.map(|(path, ..)| path);
        for path in PATHS.into_iter().chain(RANDOM.map(|(path, _)| path)).chain(cached).chain(["null"]) {
            find_path(path).unwrap();
        }
    }

    #[test]
    fn a_fast_disk_has_all_cells() {
        let plan = Plan::new(&constraints(75, 5e8));
        assert_eq!(plan.left_out, Vec::<String>::new());
        assert_eq!(plan.cells.len(), 1 + 8 * 4 * 2 + 6 + 6);
        assert!(plan.rounds >= 4 && plan.slice >= SLICE_MIN, "{} × {:?}", plan.rounds, plan.slice);
    }

    #[test]
    fn a_slow_disk_loses_block_sizes_not_repetitions_and_the_plan_says_so() {
        let plan = Plan::new(&constraints(75, 3e7));
        assert!(plan.rounds >= ROUNDS_MIN && plan.slice >= SLICE_MIN);
        assert!(plan.left_out[0].contains("64 MiB: not enough time"), "{:?}", plan.left_out);
        assert!(plan.cells.iter().any(|cell| cell.block_bytes == 4 << 10));
    }

    #[test]
    fn a_plan_fits_the_time() {
        for seconds in [10, 30, 75, 600] {
            for speed in [3e7, 2e8, 1e9, 2e10] {
                let plan = Plan::new(&constraints(seconds, speed));
                let round: Duration = plan.costs(speed).iter().sum();
                let all = round * plan.rounds;
                let allowed = Duration::from_secs(seconds);
                let one_row_too_many = plan.slice < SLICE_MIN;
                assert!(all <= allowed || one_row_too_many, "{seconds} s, {speed} B/s: {all:?}");
            }
        }
    }

    #[test]
    fn more_time_gives_more_rounds_and_then_longer_ones() {
        let [short, long, longest] = [60, 300, 3600].map(|seconds| Plan::new(&constraints(seconds, 1e9)));
        assert!(short.rounds < long.rounds && long.rounds == ROUNDS_MAX);
        assert!(long.slice < longest.slice && longest.slice == SLICE_MAX);
    }

    #[test]
    fn in_a_very_short_time_page_caches_are_left_out_and_the_plan_says_so() {
        let plan = Plan::new(&constraints(2, 1e9));
        assert!(!plan.cells.is_empty() && plan.cells.iter().all(|cell| !cell.has_own_cache()));
        assert!(
            plan.left_out.iter().any(|left| left.starts_with("page caches: not enough time")),
            "{:?}",
            plan.left_out
        );
    }

    #[test]
    fn a_read_only_survey_plans_no_writes() {
        let plan = Plan::new(&Constraints { writes: false, ..constraints(75, 1e9) });
        assert!(plan.cells.iter().all(|cell| !cell.rw.writes()));
    }

    #[test]
    fn without_direct_io_only_the_page_cache_is_left() {
        let plan = Plan::new(&Constraints { direct_align_bytes: None, ..constraints(75, 1e9) });
        assert!(plan.cells.iter().all(|cell| matches!(cell.path, "kernel-buffered" | "null")));
        let coarse = Plan::new(&Constraints { direct_align_bytes: Some(16 << 10), ..constraints(75, 1e9) });
        assert!(!coarse.cells.iter().any(|cell| cell.path == "kernel-direct" && cell.block_bytes == 4096));
    }

    #[test]
    fn a_small_file_is_read_in_small_blocks() {
        let plan = Plan::new(&Constraints { size_bytes: 1 << 20, ..constraints(75, 1e9) });
        let largest = plan.cells.iter().map(|cell| cell.block_bytes).max();
        assert_eq!(largest, Some(256 << 10));
        assert_eq!(
            plan.left_out,
            ["blocks of 1 MiB, 4 MiB, 16 MiB, 64 MiB: too large for a target of 1 MiB"]
        );
    }

    #[test]
    fn direct_reads_through_a_cache_beneath_end_with_the_target() {
        let constraints = Constraints { is_cached_beneath: true, ..constraints(75, 1e8) };
        let workload = |path, rw| {
            let cell = Cell { path, rw, block_bytes: 4096, io_depth: 1, hit: None };
            cell.workload(&constraints, SLICE_MIN).unwrap().end.bytes()
        };
        assert_eq!(workload("kernel-direct", Rw::Read), Some(GIB));
        assert_eq!(workload("kernel-uring", Rw::RandRead), Some(GIB / 10));
        assert_eq!(workload("null", Rw::RandRead), None);
    }

    #[test]
    fn reads_through_the_cache_end_with_the_target_and_writes_with_their_share() {
        let constraints = constraints(75, 1e8);
        let slice = Duration::from_millis(100);
        let workload = |path, rw| {
            Cell { path, rw, block_bytes: 4096, io_depth: 1, hit: None }
                .workload(&constraints, slice)
                .unwrap()
                .end
        };
        assert_eq!(workload("kernel-buffered", Rw::Read).bytes(), Some(GIB));
        assert_eq!(workload("kernel-buffered", Rw::RandRead).bytes(), Some(GIB / 10));
        assert_eq!(workload("kernel-direct", Rw::Read).bytes(), None);
        assert_eq!(workload("kernel-direct", Rw::RandRead).bytes(), None);
        assert_eq!(workload("kernel-direct", Rw::Write).bytes(), Some(10_000_000));
        assert_eq!(workload("kernel-direct", Rw::Write).time(), Some(slice));
    }
}
