//! The sequence of transfers of one job: offsets, directions and order. The same seed gives the same sequence. Does not
//! run transfers.

mod permutation;
mod shaped;

use iopath_report::Rw;
use iopath_report::random::{below, generator};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::distribution::{Distribution, Sampler};
use crate::path::{Direction, Transfer, number_of};
use crate::share::{Layout, Share};
use crate::workload::Workload;
use permutation::Permutation;
use shaped::Shaped;

/// The transfers of one job in one repetition.
///
/// A sequential job accesses its own share of the blocks in order, and starts again at the first block if the workload
/// has more than one pass. As in fio, each direction has a position of its own: the reads of a mixed job begin at the
/// first block, and so do its writes. A random job draws each block independently from the whole target, by the
/// distribution of the workload: it may access some blocks twice and others never. A workload that covers its blocks
/// accesses each once in each pass, in a random order. A mixed workload draws the direction of each transfer. A rewrite
/// reads each block and then writes it, so one pass has two transfers for each block.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    generator: Xoshiro256PlusPlus,
    order: Order,
    mix: Mix,
    start_bytes: u64,
    block_bytes: u32,
    /// Transfers that remain, or bytes of a shaped job.
    left: u64,
    /// The value of `left` when the plan begins to count.
    counted: u64,
}

#[derive(Debug, Clone)]
enum Order {
    Sequential {
        first: u64,
        end: u64,
        /// The next block of each direction.
        next: [u64; 3],
    },
    /// Every n-th block.
    Strided {
        /// The next block of each direction.
        next: [u64; 3],
        stride: Stride,
    },
    Random {
        sampler: Sampler,
        /// The block of the first of two transfers, for the second.
        again: Option<u64>,
    },
    Covering {
        blocks: Permutation,
        again: Option<u64>,
    },
    Shaped(Box<Shaped>),
}

/// The blocks of one of several jobs that have the blocks in turn.
#[derive(Debug, Clone, Copy)]
struct Stride {
    first: u64,
    step: u64,
    end: u64,
    /// The number of these blocks.
    count: u64,
}

impl Stride {
    fn of(number: u64, step: u64, blocks: u64) -> Self {
        Self { first: number, step, end: blocks, count: blocks.saturating_sub(number).div_ceil(step) }
    }
}

#[derive(Debug, Clone, Copy)]
enum Mix {
    Only(Direction),
    /// Reads in 100 transfers.
    Reads(u32),
    /// Each block twice: first a read or a trim, then a write.
    Twice {
        first: Direction,
        next: Direction,
    },
}

impl Mix {
    const fn twice(first: Direction) -> Self {
        Self::Twice { first, next: first }
    }

    /// The direction of the next transfer.
    #[inline]
    fn direction(&mut self, generator: &mut Xoshiro256PlusPlus) -> Direction {
        match self {
            Self::Only(direction) => *direction,
            Self::Reads(percent) if below(generator, 100) < (*percent).into() => Direction::Read,
            Self::Reads(_) => Direction::Write,
            Self::Twice { first, next } => {
                let after = if next == first { Direction::Write } else { *first };
                std::mem::replace(next, after)
            }
        }
    }

    /// The block of the next transfer: the same again, or a new one.
    #[inline]
    fn block(self, again: &mut Option<u64>, draw: impl FnOnce() -> u64) -> u64 {
        match (self, again.take()) {
            (Self::Twice { first, next }, Some(block)) if next != first => block,
            (Self::Twice { .. }, _) => *again.insert(draw()),
            _ => draw(),
        }
    }
}

impl Plan {
    /// The transfers of job `job` in repetition `repeat` of a workload that ends at `size_bytes`. Bytes past the last
    /// whole block are not accessed.
    pub(crate) fn new(workload: &Workload, size_bytes: u64, repeat: u32, job: u32) -> Self {
        let block_bytes = workload.block_size.bytes();
        let all_blocks = size_bytes.saturating_sub(workload.start_bytes) / u64::from(block_bytes);
        let [from, to] = workload.share.map_or([0, all_blocks], |share| share.blocks(all_blocks));
        let start_bytes = workload.start_bytes + from * u64::from(block_bytes);
        // The rest after the last whole block belongs to the last share.
        let size_bytes =
            if to == all_blocks { size_bytes } else { workload.start_bytes + to * u64::from(block_bytes) };
        let blocks = to - from;
        let jobs = u64::from(workload.jobs);
        let share = |job: u64| (u128::from(blocks) * u128::from(job) / u128::from(jobs)) as u64;
        let (first, end) = (share(job.into()), share(u64::from(job) + 1));
        let number = workload.share.map_or(job.into(), |share| share.job(job, workload.jobs.get()));
        let strided = workload.share.filter(|share| share.layout == Layout::Strided);
        let strided = strided.map(|share| Stride::of(number, u64::from(share.count) * jobs, blocks));
        let is_shaped = !workload.shape.is_plain();
        let order = if is_shaped {
            let (bytes, unit) = (size_bytes.saturating_sub(start_bytes), u64::from(block_bytes));
            let end = if u64::from(job) + 1 == jobs { bytes } else { end * unit };
            Order::Shaped(Box::new(Shaped::new(workload, first * unit, end, bytes)))
        } else if workload.rw.is_random() && workload.covers && workload.distribution == Distribution::Uniform
        {
            Order::Covering { blocks: Permutation::new(blocks), again: None }
        } else if workload.rw.is_random() {
            Order::Random { sampler: Sampler::new(&workload.distribution, blocks), again: None }
        } else if let Some(stride) = strided {
            Order::Strided { next: [stride.first; 3], stride }
        } else {
            Order::Sequential { first, end, next: [first; 3] }
        };
        let pass = match (strided, workload.share) {
            (Some(stride), _) => stride.count,
            // Together, the ranks draw as many blocks as the range has.
            (None, Some(Share { layout: Layout::Random, count, .. })) => {
                ((end - first) / u64::from(count)).max(1)
            }
            _ => end - first,
        };
        let is_twice = matches!(workload.rw, Rw::Rewrite | Rw::TrimWrite | Rw::RandTrimWrite);
        let mix = match (workload.rw.reads(), workload.rw.writes()) {
            _ if workload.rw == Rw::Rewrite => Mix::twice(Direction::Read),
            _ if workload.rw.trims() && is_twice => Mix::twice(Direction::Trim),
            _ if workload.rw.trims() => Mix::Only(Direction::Trim),
            (true, true) => Mix::Reads(workload.read_share.get()),
            (true, false) => Mix::Only(Direction::Read),
            _ => Mix::Only(Direction::Write),
        };
        let bytes_max = workload.end.bytes();
        let bytes_max = bytes_max.map(|bytes| workload.share.map_or(bytes, |share| share.bytes(bytes)));
        let left = match bytes_max {
            Some(bytes) if is_shaped => (bytes / jobs).max(block_bytes.into()),
            None if is_shaped && workload.end.time().is_none() => pass * u64::from(block_bytes),
            // At least one block per job.
            Some(bytes) => (bytes / jobs / u64::from(block_bytes)).max(1),
            None if workload.end.time().is_some() => u64::MAX,
            None if is_twice => 2 * pass,
            None => pass,
        };
        Self {
            generator: generator(workload.seed, [repeat.into(), number]),
            order,
            mix,
            start_bytes,
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

    /// The next transfer, in this direction if one is given instead of that of the mix.
    pub(crate) fn next_in(&mut self, direction: Option<Direction>) -> Option<Transfer> {
        let Some(direction) = direction else { return self.next() };
        let mix = std::mem::replace(&mut self.mix, Mix::Only(direction));
        let transfer = self.next();
        self.mix = mix;
        transfer
    }

    #[cold]
    fn next_shaped(&mut self) -> Option<Transfer> {
        let Order::Shaped(shaped) = &mut self.order else { return None };
        if self.left == 0 {
            return None;
        }
        let direction = match self.mix {
            Mix::Only(direction) | Mix::Twice { next: direction, .. } => direction,
            Mix::Reads(percent) if below(&mut self.generator, 100) < percent.into() => Direction::Read,
            Mix::Reads(_) => Direction::Write,
        };
        let drawn = shaped.next(&mut self.generator, direction, self.left);
        let Some((offset, bytes)) = drawn else {
            self.left = 0;
            return None;
        };
        if self.left != u64::MAX {
            self.left = self.left.saturating_sub(bytes.into());
        }
        Some(Transfer { direction, offset: self.start_bytes + offset, bytes })
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
        if matches!(self.order, Order::Shaped(_)) {
            return self.next_shaped();
        }
        self.left = self.left.checked_sub(1)?;
        let (block, direction) = match &mut self.order {
            Order::Shaped(_) => return None,
            Order::Random { sampler, again } => {
                let block = self.mix.block(again, || sampler.draw(&mut self.generator));
                (block, self.mix.direction(&mut self.generator))
            }
            Order::Covering { blocks, again } => {
                let block = self.mix.block(again, || blocks.draw(&mut self.generator));
                (block, self.mix.direction(&mut self.generator))
            }
            Order::Sequential { first, end, next } => {
                let direction = self.mix.direction(&mut self.generator);
                let next = &mut next[number_of(direction)];
                let block = *next;
                *next = if block + 1 == *end { *first } else { block + 1 };
                (block, direction)
            }
            Order::Strided { next, stride } => {
                let direction = self.mix.direction(&mut self.generator);
                let next = &mut next[number_of(direction)];
                let block = *next;
                let after = block + stride.step;
                *next = if after < stride.end { after } else { stride.first };
                (block, direction)
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
    use crate::shape::{Shape, Sizes, Zones};
    use crate::workload::{BlockSize, End, Jobs, ReadShare};

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
    fn the_shares_of_ranks_are_disjoint_and_cover_the_range() {
        for (layout, rw) in [
            (Layout::Segmented, Rw::Read),
            (Layout::Segmented, Rw::RandRead),
            (Layout::Strided, Rw::Read),
            (Layout::Strided, Rw::Rewrite),
        ] {
            let mut all = Vec::new();
            for number in 0..3 {
                let share = Some(Share { number, count: 3, layout });
                let from = Workload { share, start_bytes: 4096, covers: true, ..workload(rw, 2) };
                for job in 0..2 {
                    let blocks = Plan::new(&from, 21 * 4096 + 100, 1, job);
                    all.push(blocks.map(|one| one.offset / 4096).collect::<Vec<_>>());
                }
            }
            if layout == Layout::Strided && rw == Rw::Read {
                assert_eq!(all[..2], [vec![1, 7, 13, 19], vec![2, 8, 14, 20]]);
            }
            let mut blocks = all.concat();
            blocks.sort_unstable();
            blocks.dedup();
            let expected: Vec<u64> = (1..21).collect();
            if rw == Rw::RandRead {
                // Each job draws half of the blocks of its rank.
                assert!(all[..2].concat().iter().all(|block| (1..7).contains(block)), "{all:?}");
                assert!(all[4..].concat().iter().all(|block| (14..21).contains(block)), "{all:?}");
            } else {
                assert_eq!(blocks, expected, "{layout:?} {rw:?}");
            }
        }
    }

    #[test]
    fn ranks_draw_different_blocks_of_the_whole_range() {
        let drawn = |number| {
            let share = Some(Share { number, count: 4, layout: Layout::Random });
            let from = Workload { share, ..workload(Rw::RandRead, 1) };
            Plan::new(&from, 400 * 4096, 0, 0).map(|one| one.offset / 4096).collect::<Vec<_>>()
        };
        assert_eq!(drawn(0).len(), 100);
        assert_ne!(drawn(0), drawn(1));
        assert!(drawn(0).iter().any(|block| *block >= 200));
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
    fn a_trimmed_block_is_written_next() {
        for (rw, end) in [(Rw::TrimWrite, End::Pass), (Rw::RandTrimWrite, End::Bytes(200 * 4096))] {
            let workload = Workload { end, ..workload(rw, 1) };
            let transfers: Vec<Transfer> = Plan::new(&workload, 100 * 4096, 0, 0).collect();
            assert_eq!(transfers.len(), 200, "{rw}");
            for pair in transfers.chunks(2) {
                assert_eq!(
                    [pair[0].direction, pair[1].direction],
                    [Direction::Trim, Direction::Write],
                    "{rw}"
                );
                assert_eq!(pair[0].offset, pair[1].offset, "{rw}");
            }
        }
        let trims = Plan::new(&workload(Rw::RandTrim, 1), 100 * 4096, 0, 0);
        assert!(trims.into_iter().all(|one| one.direction == Direction::Trim));
    }

    #[test]
    fn a_covering_job_accesses_each_block_once_in_each_pass() {
        for (rw, times) in [(Rw::RandWrite, 1), (Rw::RandRw, 1), (Rw::RandTrimWrite, 2)] {
            let end = End::Bytes(2 * 100 * times * 4096);
            let workload = Workload { covers: true, end, start_bytes: 4096, ..workload(rw, 1) };
            let blocks: Vec<u64> =
                Plan::new(&workload, 101 * 4096, 0, 0).map(|one| one.offset / 4096).collect();
            let passes: Vec<&[u64]> = blocks.chunks(100 * times as usize).collect();
            assert_eq!(passes.len(), 2, "{rw}");
            assert_ne!(passes[0], passes[1], "{rw}");
            for pass in passes {
                let mut sorted = pass.to_vec();
                sorted.sort_unstable();
                sorted.dedup();
                assert!(sorted.into_iter().eq(1..101), "{rw}");
            }
        }
    }

    #[test]
    fn a_mix_holds_its_share_of_reads() {
        let workload = Workload { read_share: ReadShare::constant(70), ..workload(Rw::Rw, 1) };
        let plan = Plan::new(&workload, 10_000 * 4096, 0, 0);
        let reads = plan.filter(|transfer| transfer.direction == Direction::Read).count();
        assert!((6_700..7_300).contains(&reads), "{reads}");
    }

    #[test]
    fn reads_and_writes_of_a_sequential_mix_each_begin_at_the_first_block() {
        let end = End::Bytes(64 * 4096);
        let mixed = Workload { end, ..workload(Rw::Rw, 1) };
        let skipping = Workload { shape: skipping(4), ..mixed.clone() };
        for (workload, step) in [(mixed, 1), (skipping, 2)] {
            let transfers: Vec<Transfer> = Plan::new(&workload, 1 << 20, 0, 0).collect();
            for direction in [Direction::Read, Direction::Write] {
                let own = transfers.iter().filter(|one| one.direction == direction);
                let offsets: Vec<u64> = own.map(|one| one.offset / 4096).collect();
                assert!(
                    offsets.len() > 16 && offsets.iter().copied().eq((0..).step_by(step).take(offsets.len())),
                    "{offsets:?}"
                );
            }
        }
    }

    /// Offset and size of each transfer, in KiB, of one pass over 64 KiB.
    fn shaped(rw: Rw, block_kib: u32, shape: Shape) -> Vec<(u64, u32)> {
        let block_size = BlockSize::constant(block_kib << 10);
        let workload = Workload { block_size, shape, ..workload(rw, 1) };
        Plan::new(&workload, 64 << 10, 0, 0).map(|one| (one.offset >> 10, one.bytes >> 10)).collect()
    }

    fn skipping(skip_kib: i64) -> Shape {
        Shape { skip_bytes: skip_kib << 10, ..Shape::default() }
    }

    #[test]
    fn a_sequential_pattern_skips_bytes_forwards_and_backwards() {
        let forwards = shaped(Rw::Write, 4, skipping(12));
        assert_eq!(forwards[..5], [(0, 4), (16, 4), (32, 4), (48, 4), (0, 4)]);
        assert_eq!(forwards.len(), 16, "the amount is that of a pass");
        // As fio with rw=read:-8k and bs=4k: each transfer lies before the last one.
        let backwards = shaped(Rw::Read, 4, skipping(-8));
        assert_eq!(backwards[..3], [(56, 4), (52, 4), (48, 4)]);
        assert_eq!(backwards[14..], [(0, 4), (56, 4)]);
        assert_eq!(shaped(Rw::Read, 4, skipping(1000))[..2], [(0, 4), (0, 4)], "a gap beyond the range");
        assert_eq!(shaped(Rw::Read, 4, skipping(-1000))[..2], [(0, 4), (0, 4)]);
    }

    #[test]
    fn runs_and_a_share_of_random_offsets_follow_the_transfer_before() {
        let adjacent = |drawn: &[(u64, u32)]| {
            drawn.windows(2).filter(|pair| pair[0].0 + u64::from(pair[0].1) == pair[1].0).count()
        };
        let run = Shape { random_run: 8, ios_max: Some(64), ..Shape::default() };
        let workload = Workload { shape: run.clone(), end: End::Bytes(1 << 30), ..workload(Rw::RandRead, 1) };
        let drawn: Vec<_> = Plan::new(&workload, 1 << 30, 0, 0).map(|one| (one.offset, one.bytes)).collect();
        assert_eq!((drawn.len(), adjacent(&drawn)), (64, 56));
        let half = Shape { random_run: 1, random_percent: 25, ios_max: Some(10_000), ..run };
        let drawn: Vec<_> = Plan::new(&Workload { shape: half, ..workload }, 1 << 30, 0, 0)
            .map(|one| (one.offset, one.bytes))
            .collect();
        assert!((7_300..7_700).contains(&adjacent(&drawn)), "{}", adjacent(&drawn));
    }

    #[test]
    fn transfers_of_several_sizes_stay_in_the_range_and_have_the_amount() {
        let sizes: Sizes = "4k/50:12k/30:16k/20".parse().unwrap();
        let several = Shape { sizes: Some([sizes.clone(), sizes]), ..Shape::default() };
        for rw in [Rw::Read, Rw::RandRead, Rw::RandRw] {
            let drawn = shaped(rw, 16, several.clone());
            assert_eq!(drawn.iter().map(|(_, kib)| kib).sum::<u32>(), 64, "{rw}: {drawn:?}");
            assert!(drawn.iter().all(|(offset, kib)| offset % 4 == 0 && offset + u64::from(*kib) <= 64));
            if rw == Rw::Read {
                assert!(drawn.windows(2).all(|pair| pair[0].0 + u64::from(pair[0].1) == pair[1].0));
            }
        }
        let (reads, writes) = (Sizes::one(4096).unwrap(), Sizes::one(16384).unwrap());
        let workload = Workload {
            shape: Shape { sizes: Some([reads, writes]), ..Shape::default() },
            block_size: BlockSize::constant(16384),
            ..workload(Rw::RandRw, 1)
        };
        let bytes = |one: Transfer| if one.direction == Direction::Read { 4096 } else { 16384 };
        assert!(Plan::new(&workload, 1 << 20, 0, 0).filter(|one| one.bytes != bytes(*one)).count() <= 1);
        assert!((workload.mean_bytes() - 10240.0).abs() < 1e-9 && workload.unit_bytes() == 4096);
    }

    #[test]
    fn zones_are_accessed_one_after_another() {
        let zones = |transfer_kib: u64, skip_kib: u64| Shape {
            zones: Some(Zones {
                range_bytes: 8 << 10,
                transfer_bytes: transfer_kib << 10,
                skip_bytes: skip_kib << 10,
            }),
            ..Shape::default()
        };
        let offsets = |rw, shape| shaped(rw, 4, shape).iter().map(|(offset, _)| *offset).collect::<Vec<_>>();
        let drawn = offsets(Rw::Read, zones(8, 16));
        assert_eq!(drawn[..8], [0, 4, 24, 28, 48, 52, 0, 4], "zones of 8 KiB, 16 KiB apart, in 64 KiB");
        assert_eq!(drawn.len(), 16, "the amount is that of a pass");
        assert_eq!(offsets(Rw::Read, zones(4, 0))[..4], [0, 8, 16, 24], "half of each zone");
        assert_eq!(offsets(Rw::Read, zones(16, 0))[..6], [0, 4, 0, 4, 8, 12], "each zone twice");
        let random = offsets(Rw::RandRead, zones(8, 16));
        assert!(random[2..4].iter().all(|offset| (24..32).contains(offset)), "{random:?}");
    }
}
