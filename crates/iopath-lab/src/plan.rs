//! The sequence of transfers of one job: offsets, directions and order. The same seed gives the same sequence. Does not run
//! transfers.

use rand_xoshiro::Xoshiro256PlusPlus;

use crate::distribution::Sampler;
use crate::path::{Direction, Transfer};
use crate::random::{below, generator};
use crate::workload::{Rw, Workload};

/// The transfers of one job in one repetition.
///
/// A sequential job accesses its own share of the blocks in order, and starts again at the first block if the workload has
/// more than one pass. A random job draws each block independently from the whole target, by the distribution of the
/// workload: it may access some blocks twice and others never. A mixed workload draws the direction of each transfer. A rewrite reads each block and
/// then writes it, so one pass has two transfers for each block.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    generator: Xoshiro256PlusPlus,
    order: Order,
    mix: Mix,
    start_bytes: u64,
    block_bytes: u32,
    /// Transfers that remain.
    left: u64,
    /// Transfers that remain when the plan begins to count them.
    counted: u64,
}

#[derive(Debug, Clone)]
enum Order {
    Sequential { first: u64, end: u64, next: u64 },
    Random { sampler: Sampler },
}

#[derive(Debug, Clone, Copy)]
enum Mix {
    Only(Direction),
    /// Reads in 100 transfers.
    Reads(u32),
    /// Each block twice: a read, then a write.
    Rewrite {
        next: Direction,
    },
}

impl Plan {
    /// The transfers of job `job` in repetition `repeat` of a workload that ends at `size_bytes`. Bytes past the last whole block
    /// are not accessed.
    pub(crate) fn new(workload: &Workload, size_bytes: u64, repeat: u32, job: u32) -> Self {
        let block_bytes = workload.block_size.bytes();
        let blocks = size_bytes.saturating_sub(workload.start_bytes) / u64::from(block_bytes);
        let jobs = u64::from(workload.jobs);
        let share = |job: u64| (u128::from(blocks) * u128::from(job) / u128::from(jobs)) as u64;
        let (first, end) = (share(job.into()), share(u64::from(job) + 1));
        let order = if workload.rw.is_random() {
            Order::Random { sampler: Sampler::new(&workload.distribution, blocks) }
        } else {
            Order::Sequential { first, end, next: first }
        };
        let mix = match (workload.rw.reads(), workload.rw.writes()) {
            _ if workload.rw == Rw::Rewrite => Mix::Rewrite { next: Direction::Read },
            (true, true) => Mix::Reads(workload.read_share.get()),
            (true, false) => Mix::Only(Direction::Read),
            _ => Mix::Only(Direction::Write),
        };
        let left = match workload.end.bytes() {
            // At least one block per job.
            Some(bytes) => (bytes / jobs / u64::from(block_bytes)).max(1),
            None if workload.end.time().is_some() => u64::MAX,
            None if workload.rw == Rw::Rewrite => 2 * (end - first),
            None => end - first,
        };
        Self {
            generator: generator(workload.seed, [repeat.into(), job.into()]),
            order,
            mix,
            start_bytes: workload.start_bytes,
            block_bytes,
            left,
            counted: left,
        }
    }
}

impl Plan {
    /// The same plan without an end, until [`Plan::count_from_here`].
    pub(crate) fn uncounted(self) -> Self {
        Self { left: u64::MAX, ..self }
    }

    /// From here on, the plan ends after its number of transfers.
    pub(crate) fn count_from_here(&mut self) {
        self.left = self.counted;
    }

    /// Whether all transfers have been drawn.
    pub(crate) const fn is_complete(&self) -> bool {
        self.left == 0
    }
}

impl Iterator for Plan {
    type Item = Transfer;

    #[inline]
    fn next(&mut self) -> Option<Transfer> {
        self.left = self.left.checked_sub(1)?;
        let block = match &mut self.order {
            Order::Random { sampler } => sampler.draw(&mut self.generator),
            Order::Sequential { first, end, next } => {
                let block = *next;
                if !matches!(self.mix, Mix::Rewrite { next: Direction::Read }) {
                    *next = if block + 1 == *end { *first } else { block + 1 };
                }
                block
            }
        };
        let direction = match &mut self.mix {
            Mix::Only(direction) => *direction,
            Mix::Reads(percent) if below(&mut self.generator, 100) < (*percent).into() => Direction::Read,
            Mix::Reads(_) => Direction::Write,
            Mix::Rewrite { next } => {
                let after = if *next == Direction::Read { Direction::Write } else { Direction::Read };
                std::mem::replace(next, after)
            }
        };
        let offset = self.start_bytes + block * u64::from(self.block_bytes);
        Some(Transfer { direction, offset, bytes: self.block_bytes })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::workload::{End, Jobs, ReadShare};

    fn workload(rw: Rw, jobs: u32) -> Workload {
        Workload { rw, jobs: Jobs::constant(jobs), ..Workload::default() }
    }

    #[test]
    fn sequential_jobs_share_the_blocks_without_gap_or_overlap() {
        let workload = workload(Rw::Read, 3);
        let mut blocks = Vec::new();
        for job in 0..3 {
            blocks
                .extend(Plan::new(&workload, 10 * 4096 + 100, 0, job).map(|transfer| transfer.offset / 4096));
        }
        assert_eq!(blocks, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn transfers_begin_at_the_first_byte_of_the_workload() {
        let from = Workload { start_bytes: 8192, ..workload(Rw::Read, 1) };
        let offsets = |workload: &Workload| -> Vec<u64> {
            Plan::new(workload, 5 * 4096, 0, 0).map(|transfer| transfer.offset / 4096).collect()
        };
        assert_eq!(offsets(&from), [2, 3, 4]);
        let random = Workload { rw: Rw::RandRead, ..from };
        assert!(offsets(&random).iter().all(|block| (2..5).contains(block)));
    }

    #[test]
    fn random_jobs_divide_the_transfers_and_draw_from_the_whole_target() {
        let workload = workload(Rw::RandRead, 2);
        let drawn: Vec<u64> =
            Plan::new(&workload, 1000 * 4096, 0, 0).map(|transfer| transfer.offset).collect();
        assert_eq!(drawn.len(), 500);
        assert!(drawn.iter().all(|offset| offset % 4096 == 0 && *offset < 1000 * 4096));
        assert!(drawn.iter().any(|offset| *offset >= 500 * 4096), "the whole target, not a share of it");
    }

    #[test]
    fn the_same_seed_repeat_and_job_give_the_same_transfers() {
        let workload = workload(Rw::RandRw, 2);
        let drawn = |repeat, job| Plan::new(&workload, 1 << 20, repeat, job).collect::<Vec<_>>();
        assert_eq!(drawn(0, 0), drawn(0, 0));
        assert_ne!(drawn(0, 0), drawn(1, 0));
        assert_ne!(drawn(0, 0), drawn(0, 1));
    }

    #[test]
    fn a_plan_without_a_count_wraps_around() {
        let workload = Workload { end: End::Time(Duration::from_secs(1)), ..workload(Rw::Write, 1) };
        let plan = Plan::new(&workload, 2 * 4096, 0, 0);
        let offsets: Vec<u64> = plan.take(5).map(|transfer| transfer.offset).collect();
        assert_eq!(offsets, [0, 4096, 0, 4096, 0]);
    }

    #[test]
    fn the_bytes_to_move_may_be_less_or_more_than_the_target() {
        let offsets = |end| {
            let workload = Workload { end, ..workload(Rw::Read, 1) };
            Plan::new(&workload, 3 * 4096, 0, 0).map(|transfer| transfer.offset / 4096).collect::<Vec<_>>()
        };
        assert_eq!(offsets(End::Bytes(2 * 4096)), [0, 1]);
        assert_eq!(offsets(End::TimeOrBytes(Duration::from_secs(1), 5 * 4096)), [0, 1, 2, 0, 1]);
        assert_eq!(offsets(End::Bytes(1)), [0], "a block at least");
    }

    #[test]
    fn a_rewrite_reads_each_block_and_then_writes_it() {
        let transfers = |end| {
            let workload = Workload { end, ..workload(Rw::Rewrite, 1) };
            let plan = Plan::new(&workload, 2 * 4096, 0, 0);
            plan.map(|transfer| (transfer.direction, transfer.offset / 4096)).collect::<Vec<_>>()
        };
        let (read, write) = (Direction::Read, Direction::Write);
        assert_eq!(transfers(End::Pass), [(read, 0), (write, 0), (read, 1), (write, 1)]);
        assert_eq!(transfers(End::Bytes(3 * 4096)), [(read, 0), (write, 0), (read, 1)]);
    }

    #[test]
    fn a_mix_holds_its_share_of_reads() {
        let workload = Workload { read_share: ReadShare::constant(70), ..workload(Rw::Rw, 1) };
        let plan = Plan::new(&workload, 10_000 * 4096, 0, 0);
        let reads = plan.filter(|transfer| transfer.direction == Direction::Read).count();
        assert!((6_700..7_300).contains(&reads), "{reads}");
    }
}
