//! The workloads of a fit: the training, to which the parameters are fitted, and the workloads held back. Does not run
//! them.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use iopath_report::Rw;
use iopath_report::size::format_size;

use super::evidence::{LatencyCause, Part};
use iopath_bench::paths::iopath_direct;
use iopath_bench::workload::{BlockSize, Depth, End, Repetitions, Workload};

const KIB: u64 = 1 << 10;

/// The alignment of the start and end of a part of the target, in bytes.
const RANGE_ALIGN: u64 = 1 << 20;

/// One workload.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Planned {
    pub(crate) rw: Rw,
    pub(crate) block_bytes: u32,
    pub(crate) depth: u32,
    /// The bytes of the target that it accesses.
    pub(crate) range: Range<u64>,
    /// Whether `range` is the whole target.
    is_whole: bool,
    pub(crate) part: Part,
}

/// The length of one run of a workload. The limit that is reached first ends the run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Slice {
    pub(crate) time: Duration,
    pub(crate) ios_max: u64,
}

/// Pattern, block size in KiB, and depth.
type Row = (Rw, u64, u32);

/// Workloads for storage without mechanical latency.
const TRAINING: &[Row] = &[
    (Rw::RandRead, 4, 1),
    (Rw::RandRead, 4, 4),
    (Rw::RandRead, 4, 32),
    (Rw::RandRead, 16, 8),
    (Rw::RandRead, 64, 1),
    (Rw::RandRead, 64, 16),
    (Rw::RandRead, 512, 2),
    (Rw::Read, 16, 1),
    (Rw::Read, 1024, 1),
    (Rw::Read, 1024, 4),
    (Rw::RandWrite, 4, 1),
    (Rw::RandWrite, 4, 8),
    (Rw::RandWrite, 4, 32),
    (Rw::RandWrite, 64, 4),
    (Rw::Write, 64, 1),
    (Rw::Write, 1024, 1),
    (Rw::Write, 1024, 4),
    (Rw::RandRw, 16, 4),
];

/// Workloads with block sizes and depths that the training does not have.
const HELD_BACK: &[Row] = &[
    (Rw::RandRead, 4, 2),
    (Rw::RandRead, 4, 8),
    (Rw::RandRead, 4, 16),
    (Rw::RandRead, 8, 32),
    (Rw::RandRead, 16, 1),
    (Rw::RandRead, 32, 4),
    (Rw::RandRead, 128, 2),
    (Rw::Read, 4, 1),
    (Rw::Read, 32, 2),
    (Rw::Read, 256, 8),
    (Rw::RandWrite, 4, 2),
    (Rw::RandWrite, 4, 16),
    (Rw::RandWrite, 16, 4),
    (Rw::RandWrite, 8, 32),
    (Rw::RandWrite, 128, 2),
    (Rw::Write, 4, 1),
    (Rw::Write, 32, 2),
    (Rw::Write, 256, 8),
    (Rw::RandRw, 4, 8),
];

/// A workload of a rotating disk, with the share of the disk that it accesses.
type PlacedRow = (Row, [f64; 2]);

/// The whole disk.
const ALL: [f64; 2] = [0.0, 1.0];

/// Workloads for rotating disks. The latency over ranges of different size determines the seek curve. Sequential reads
/// at several positions determine the zones.
const MECHANICAL_TRAINING: &[PlacedRow] = &[
    ((Rw::RandRead, 4, 1), [0.0, 0.002]),
    ((Rw::RandRead, 4, 1), [0.0, 0.02]),
    ((Rw::RandRead, 4, 1), [0.0, 0.2]),
    ((Rw::RandRead, 4, 1), ALL),
    ((Rw::RandRead, 4, 8), ALL),
    ((Rw::RandRead, 4, 32), ALL),
    ((Rw::RandRead, 256, 1), ALL),
    ((Rw::Read, 64, 1), [0.0, 0.1]),
    ((Rw::Read, 1024, 2), [0.0, 0.06]),
    ((Rw::Read, 1024, 2), [0.2, 0.26]),
    ((Rw::Read, 1024, 2), [0.4, 0.46]),
    ((Rw::Read, 1024, 2), [0.6, 0.66]),
    ((Rw::Read, 1024, 2), [0.8, 0.86]),
    ((Rw::Read, 1024, 2), [0.94, 1.0]),
    ((Rw::RandWrite, 4, 1), ALL),
    ((Rw::RandWrite, 4, 8), ALL),
    ((Rw::Write, 256, 4), [0.0, 0.1]),
];

const MECHANICAL_HELD_BACK: &[PlacedRow] = &[
    ((Rw::RandRead, 4, 1), [0.0, 0.006]),
    ((Rw::RandRead, 4, 1), [0.0, 0.5]),
    ((Rw::RandRead, 4, 4), ALL),
    ((Rw::RandRead, 16, 16), ALL),
    ((Rw::RandRead, 64, 1), ALL),
    ((Rw::Read, 256, 2), [0.1, 0.16]),
    ((Rw::Read, 512, 4), [0.5, 0.56]),
    ((Rw::Read, 256, 8), [0.9, 0.96]),
    ((Rw::Read, 16, 1), [0.0, 0.1]),
    ((Rw::RandWrite, 16, 4), ALL),
    ((Rw::RandWrite, 4, 32), ALL),
    ((Rw::Write, 64, 8), [0.0, 0.1]),
];

/// The workloads for a target of `size_bytes`; without `writes`, only reads. A target whose latency has an unknown
/// cause gets those of both kinds. It omits a workload if its block does not fit the alignment of the target, or if its
/// part of the target is too small.
pub(crate) fn plan(size_bytes: u64, align_bytes: u32, latency: LatencyCause, writes: bool) -> Vec<Planned> {
    let placed: fn(&Row) -> PlacedRow = |row| (*row, ALL);
    let of = |rows: Vec<PlacedRow>, part: Part| {
        let planned =
            move |((rw, kib, depth), share): PlacedRow| planned((rw, kib, depth), share, part, size_bytes);
        rows.into_iter().filter_map(planned)
    };
    let (mut training, mut held_back) = (Vec::new(), Vec::new());
    if latency != LatencyCause::Electronic {
        training.extend(MECHANICAL_TRAINING);
        held_back.extend(MECHANICAL_HELD_BACK);
    }
    if latency != LatencyCause::Mechanical {
        training.extend(TRAINING.iter().map(placed));
        held_back.extend(HELD_BACK.iter().map(placed));
    }
    let mut all: Vec<Planned> = Vec::new();
    for planned in of(training, Part::Training).chain(of(held_back, Part::HeldBack)) {
        let fits = (writes || !planned.rw.writes()) && planned.block_bytes.is_multiple_of(align_bytes);
        // Both lists have some workloads. What is in the training is not held back.
        let is_known = all.iter().any(|known| Planned { part: planned.part, ..known.clone() } == planned);
        if fits && !is_known {
            all.push(planned);
        }
    }
    all
}

fn planned((rw, kib, depth): Row, [from, to]: [f64; 2], part: Part, size_bytes: u64) -> Option<Planned> {
    let at = |share: f64| ((size_bytes as f64 * share) as u64).min(size_bytes) / RANGE_ALIGN * RANGE_ALIGN;
    let is_whole = from == 0.0 && to >= 1.0;
    let range = if is_whole { 0..size_bytes } else { at(from)..at(to) };
    let block_bytes = kib * KIB;
    let fits = range.end >= range.start + block_bytes * u64::from(depth).max(8);
    fits.then_some(Planned { rw, block_bytes: block_bytes as u32, depth, range, is_whole, part })
}

impl Planned {
    /// The first workload. It shows whether the storage has mechanical latency.
    pub(crate) fn probe(size_bytes: u64, share: f64) -> Option<Self> {
        planned((Rw::RandRead, 4, 1), [0.0, share], Part::Training, size_bytes)
    }

    /// The workload of one run.
    pub(crate) fn workload(&self, slice: Slice, seed: u64) -> Workload {
        let ios = slice.ios_max.max(4 * u64::from(self.depth));
        Workload {
            path: &iopath_direct::ROW,
            rw: self.rw,
            block_size: BlockSize::constant(self.block_bytes),
            depth: Depth::constant(self.depth),
            start_bytes: self.range.start,
            end: End::TimeOrBytes(slice.time, ios * u64::from(self.block_bytes)),
            repetitions: Repetitions::constant(1),
            seed,
            ..Workload::default()
        }
    }

    /// Whether it accesses the whole target.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} depth {}", self.rw, format_size(self.block_bytes.into()), self.depth)?;
        if self.is_whole {
            return Ok(());
        }
        write!(f, " at {}", format_size(self.range.start))?;
        write!(f, " of {}", format_size(self.range.end - self.range.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn no_workload_is_both_in_the_training_and_held_back() {
        for latency in [LatencyCause::Electronic, LatencyCause::Mechanical, LatencyCause::Unknown] {
            let plan = plan(500 * GIB, 512, latency, true);
            let names =
                |part| plan.iter().filter(move |planned| planned.part == part).map(ToString::to_string);
            let held_back: Vec<_> = names(Part::HeldBack).collect();
            assert!(names(Part::Training).all(|name| !held_back.contains(&name)));
            assert!(held_back.len() >= 10);
            for rw in [Rw::RandRead, Rw::Read, Rw::RandWrite, Rw::Write] {
                assert!(
                    plan.iter().any(|planned| planned.part == Part::HeldBack && planned.rw == rw),
                    "{rw}"
                );
            }
        }
    }

    #[test]
    fn without_permission_no_workload_writes() {
        assert!(plan(GIB, 512, LatencyCause::Electronic, false).iter().all(|planned| !planned.rw.writes()));
        assert!(plan(GIB, 512, LatencyCause::Electronic, true).iter().any(|planned| planned.rw.writes()));
    }

    #[test]
    fn a_workload_fits_its_part_of_the_target() {
        for size in [1 << 20, 16 << 20, GIB, u64::MAX >> 10] {
            for latency in [LatencyCause::Electronic, LatencyCause::Mechanical, LatencyCause::Unknown] {
                for planned in plan(size, 4096, latency, true) {
                    let Range { start, end } = planned.range;
                    assert!(end <= size && start + u64::from(planned.block_bytes) * 8 <= end, "{planned}");
                }
            }
        }
        let names: Vec<_> =
            plan(500 * GIB, 512, LatencyCause::Mechanical, false).iter().map(ToString::to_string).collect();
        assert!(names.iter().any(|name| name == "read 1 MiB depth 2 at 100 GiB of 30 GiB"), "{names:?}");
    }
}
