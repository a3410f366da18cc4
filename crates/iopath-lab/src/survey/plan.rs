//! Selects the workloads of a survey and their duration, from the time limit and the speed of the target. Does not
//! measure, and does not read the clock: see `schedule.rs`.

use std::time::Duration;

use iopath_report::Rw;
use iopath_report::size::format_size;

use super::cell::{Cell, Constraints, Hit};
use iopath_bench::paths::find_path;

/// Block sizes of the sequential part, in bytes, the most informative first. For lack of time, the plan removes the
/// last.
const BLOCKS: [u32; 8] = [1 << 20, 4 << 10, 64 << 10, 16 << 20, 256 << 10, 16 << 10, 4 << 20, 64 << 20];

/// The block of random transfers, in bytes.
pub(crate) const RANDOM_BLOCK: u32 = 4 << 10;

/// Paths of the sequential part, in the order of the table's columns.
pub(crate) const PATHS: [&str; 4] = ["kernel-buffered", "kernel-direct", "kernel-uring", "iopath-direct"];

/// Random reads and writes: path and depth.
const RANDOM: [(&str, u32); 6] = [
    ("kernel-buffered", 1),
    ("kernel-direct", 1),
    ("kernel-uring", 1),
    ("iopath-direct", 1),
    ("kernel-uring", DEEP),
    ("iopath-direct", DEEP),
];

/// Random reads and writes at the same time: path and depth.
const MIXED: [(&str, u32); 4] =
    [("kernel-buffered", 1), ("kernel-direct", 1), ("kernel-uring", DEEP), ("iopath-direct", DEEP)];

/// Writes with a flush after each: paths. The depth is 1, because the next write waits for the flush.
const DURABLE: [&str; 3] = ["kernel-buffered", "kernel-direct", "iopath-direct"];

/// Random reads and writes of a model: depths on its only path.
const MODEL_PATH: &str = "iopath-direct";
const MODEL_DEPTHS: [u32; 5] = [1, 4, 16, 64, 256];

/// The cells that compare page caches. The sequential part has the other cells of `kernel-buffered`.
const CACHED: [(&str, Rw, u32, Option<Hit>); 6] = [
    ("iopath-buffered", Rw::Read, 4 << 10, None),
    ("iopath-buffered", Rw::Read, 16 << 10, None),
    ("iopath-buffered", Rw::Write, 16 << 10, None),
    ("kernel-buffered", Rw::RandRead, RANDOM_BLOCK, Some(Hit::Copied)),
    ("iopath-buffered", Rw::RandRead, RANDOM_BLOCK, Some(Hit::Copied)),
    ("iopath-buffered", Rw::RandRead, RANDOM_BLOCK, Some(Hit::Borrowed)),
];

/// The greater depth of random transfers.
pub(crate) const DEEP: u32 = 32;

/// The measurements that only a target for writes has, besides sequential writes.
const SMALL_WRITES: &str = "random writes, fsync latency, mixed reads and writes";

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

/// The cells in the order of their turns. Each turn lasts `slice`; each cell has at most `rounds` turns.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) cells: Vec<Cell>,
    pub(crate) rounds: u32,
    pub(crate) slice: Duration,
    /// Measurements that this survey leaves out, with the reasons.
    pub(crate) left_out: Vec<String>,
}

impl Plan {
    pub(crate) fn new(constraints: &Constraints) -> Self {
        let (mut blocks, too_large) = fitting_blocks(constraints.size_bytes);
        let mut no_time = Vec::new();
        let mut parts = Parts { caches: true, small_writes: constraints.writes };
        let (cells, rounds, slice) = loop {
            let cells = cells(&blocks, parts, constraints);
            if let Some((rounds, slice)) = fit(&cells, constraints) {
                break (cells, rounds, slice);
            }
            if blocks.len() > 1 {
                no_time.extend(blocks.pop());
            } else if parts.caches {
                parts.caches = false;
            } else if parts.small_writes {
                parts.small_writes = false;
            } else {
                let slice = slice(&cells, ROUNDS_MIN, constraints).unwrap_or_default().max(SLICE_SHORTEST);
                break (cells, ROUNDS_MIN, slice);
            }
        };
        let mut left_out = too_large_for(constraints.size_bytes, too_large);
        let no_time = names(no_time);
        let caches = (!parts.caches).then(|| "page caches".to_owned());
        let small_writes = (constraints.writes && !parts.small_writes).then(|| SMALL_WRITES.to_owned());
        let short = no_time.into_iter().chain(caches).chain(small_writes);
        left_out.extend(short.map(|part| format!("{part}: not enough time; use a longer --time")));
        if !constraints.writes {
            left_out.push(format!(
                "sequential writes, {SMALL_WRITES}: an existing file or device is only read; name a directory to use a \
                 scratch file"
            ));
        }
        Self { cells, rounds, slice, left_out }
    }

    /// The cells of a model, which run one after another in virtual time, and the block sizes that are left out.
    pub(crate) fn of_model(size_bytes: u64, align_bytes: u32) -> (Vec<Cell>, Vec<String>) {
        let (mut blocks, too_large) = fitting_blocks(size_bytes);
        blocks.sort_unstable();
        let is_aligned = |block: &u32| block.is_multiple_of(align_bytes);
        let mut cells = Vec::new();
        for rw in [Rw::RandRead, Rw::RandWrite, Rw::RandRw] {
            let depths = MODEL_DEPTHS.into_iter().filter(|_| is_aligned(&RANDOM_BLOCK));
            cells.extend(depths.map(|depth| Cell::new(MODEL_PATH, rw, RANDOM_BLOCK, depth)));
        }
        if is_aligned(&RANDOM_BLOCK) {
            cells.push(Cell { is_durable: true, ..Cell::new(MODEL_PATH, Rw::Write, RANDOM_BLOCK, 1) });
        }
        for rw in [Rw::Read, Rw::Write] {
            let blocks = blocks.iter().copied().filter(is_aligned);
            cells.extend(blocks.map(|block| Cell::new(MODEL_PATH, rw, block, depth(MODEL_PATH, block))));
        }
        (cells, too_large_for(size_bytes, too_large))
    }

    /// The expected time of a turn of each cell.
    pub(crate) fn costs(&self, speed: f64) -> Vec<Duration> {
        self.cells.iter().map(|cell| self.slice + cell.overhead(speed)).collect()
    }
}

/// The parts of a plan besides sequential transfers and random reads.
#[derive(Debug, Clone, Copy)]
struct Parts {
    caches: bool,
    small_writes: bool,
}

/// The block sizes that fit into a target, and the others.
fn fitting_blocks(size_bytes: u64) -> (Vec<u32>, Vec<u32>) {
    BLOCKS.into_iter().partition(|block| u64::from(*block) * BLOCKS_IN_TARGET_MIN <= size_bytes)
}

fn too_large_for(size_bytes: u64, blocks: Vec<u32>) -> Vec<String> {
    let target = format_size(size_bytes);
    names(blocks).map(|blocks| format!("{blocks}: too large for a target of {target}")).into_iter().collect()
}

/// Block sizes in words, if there are any.
fn names(mut blocks: Vec<u32>) -> Option<String> {
    blocks.sort_unstable();
    let sizes: Vec<String> = blocks.into_iter().map(|block| format_size(block.into())).collect();
    (!sizes.is_empty()).then(|| format!("blocks of {}", sizes.join(", ")))
}

/// The maximum number of rounds with a slice of at least [`SLICE_MIN`], and that slice. None if the time is too short
/// for `ROUNDS_MIN`.
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

/// All cells, in the order of turns: all paths at each block size. Random transfers and page caches follow the first
/// block size.
fn cells(blocks: &[u32], parts: Parts, constraints: &Constraints) -> Vec<Cell> {
    let mut cells = Vec::new();
    if constraints.has_tool {
        cells.push(Cell::new("null", Rw::RandRead, RANDOM_BLOCK, DEEP));
    }
    let directions: &[Rw] = if constraints.writes { &[Rw::Read, Rw::Write] } else { &[Rw::Read] };
    for (index, &block_bytes) in blocks.iter().enumerate() {
        for &rw in directions {
            let paths = PATHS.into_iter().filter(|path| suits(path, block_bytes, constraints));
            cells.extend(paths.map(|path| Cell::new(path, rw, block_bytes, depth(path, block_bytes))));
        }
        if index == 0 {
            cells.extend(small(parts, constraints));
        }
    }
    cells
}

/// The cells of small blocks: random transfers, writes with flushes, page caches.
fn small(parts: Parts, constraints: &Constraints) -> Vec<Cell> {
    let random = |rw: Rw, rows: &'static [(&'static str, u32)]| {
        rows.iter().map(move |(path, io_depth)| Cell::new(path, rw, RANDOM_BLOCK, *io_depth))
    };
    let mut cells: Vec<Cell> = random(Rw::RandRead, &RANDOM).collect();
    if parts.small_writes {
        cells.extend(random(Rw::RandWrite, &RANDOM));
        let durable = |path| Cell { is_durable: true, ..Cell::new(path, Rw::Write, RANDOM_BLOCK, 1) };
        cells.extend(DURABLE.map(durable));
        cells.extend(random(Rw::RandRw, &MIXED));
    }
    if parts.caches {
        let cached = CACHED.into_iter().filter(|(_, rw, ..)| constraints.writes || !rw.writes());
        cells.extend(cached.map(|(path, rw, block, hit)| Cell { hit, ..Cell::new(path, rw, block, 1) }));
    }
    cells.retain(|cell| suits(cell.path, cell.block_bytes, constraints));
    cells
}

/// Whether a path can transfer blocks of this size on the target.
fn suits(path: &str, block_bytes: u32, constraints: &Constraints) -> bool {
    let Ok(row) = find_path(path).map(|row| row.capabilities) else { return false };
    if constraints.is_remote && row.needs_target && !row.queue {
        return false;
    }
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
            is_remote: false,
            is_cached_beneath: false,
            random_write_speed: 4e7,
            has_tool: false,
        }
    }

    #[test]
    fn paths_are_in_the_table() {
        let cached = CACHED.map(|(path, ..)| path);
        for path in PATHS
            .into_iter()
            .chain(RANDOM.map(|(path, _)| path))
            .chain(MIXED.map(|(path, _)| path))
            .chain(DURABLE)
            .chain(cached)
            .chain(["null", MODEL_PATH])
        {
            find_path(path).unwrap();
        }
    }

    #[test]
    fn a_fast_disk_has_all_cells() {
        let plan = Plan::new(&constraints(75, 5e8));
        assert_eq!(plan.left_out, Vec::<String>::new());
        assert_eq!(plan.cells.len(), 8 * 4 * 2 + 6 + (6 + 3 + 4) + 6);
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
            plan.cells.iter().any(|cell| cell.rw == Rw::Write)
                && plan.cells.iter().all(|cell| !cell.is_durable)
        );
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
        let said = plan.left_out.join("\n");
        for part in ["random writes", "fsync", "mixed", "is only read"] {
            assert!(said.contains(part), "{part}: {said}");
        }
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
    fn the_tool_itself_is_measured_only_on_request() {
        let has_null = |has_tool| {
            let plan = Plan::new(&Constraints { has_tool, ..constraints(75, 5e8) });
            plan.cells.iter().any(|cell| cell.path == "null")
        };
        assert!(has_null(true) && !has_null(false));
    }

    #[test]
    fn a_model_is_measured_on_the_path_that_models_have_and_at_several_depths() {
        let (cells, left_out) = Plan::of_model(GIB, 4096);
        assert!(left_out.is_empty() && cells.iter().all(|cell| cell.path == MODEL_PATH));
        let depths = cells.iter().filter(|cell| cell.rw == Rw::RandRead).count();
        assert_eq!((cells.len(), depths), (2 * 8 + 3 * 5 + 1, 5));
        let (coarse, _) = Plan::of_model(GIB, 16 << 10);
        assert!(!coarse.is_empty() && coarse.iter().all(|cell| cell.block_bytes >= 16 << 10));
        let (_, left_out) = Plan::of_model(1 << 20, 512);
        assert_eq!(left_out, ["blocks of 1 MiB, 4 MiB, 16 MiB, 64 MiB: too large for a target of 1 MiB"]);
    }
}
