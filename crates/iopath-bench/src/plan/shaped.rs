//! The transfers of a job with several sizes, gaps or runs. The transfers of one size are in `plan.rs`.

use iopath_report::random::below;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::distribution::Sampler;
use crate::path::{Direction, number_of};
use crate::shape::{Shape, Sizes, Zones};
use crate::workload::Workload;

/// The position and sizes of a job. Offsets are in bytes from the start of the range of the workload.
#[derive(Debug, Clone)]
pub(super) struct Shaped {
    sizes: [Sizes; 2],
    min_bytes: u64,
    /// The part of the range that the job accesses.
    first: u64,
    end: u64,
    /// The end of the last transfer of each direction; none before the first.
    positions: [Option<u64>; 3],
    order: Order,
    ios_left: u64,
    zone: Option<Zone>,
}

/// The present zone.
#[derive(Debug, Clone, Copy)]
struct Zone {
    settings: Zones,
    first: u64,
    transferred: u64,
}

impl Zone {
    /// The next zone after the amount of this one; the first again after the last of a range from `first` to `end`.
    fn advance(&mut self, first: u64, end: u64, min_bytes: u64) -> bool {
        if self.transferred < self.settings.transfer_bytes {
            return false;
        }
        let distance = self.settings.range_bytes.saturating_add(self.settings.skip_bytes);
        let next = self.first.saturating_add(distance);
        self.first = if next.saturating_add(min_bytes) <= end { next } else { first };
        self.transferred = 0;
        true
    }

    fn end(&self, end: u64) -> u64 {
        self.first.saturating_add(self.settings.range_bytes).min(end)
    }
}

#[derive(Debug, Clone)]
enum Order {
    Sequential {
        skip_bytes: i64,
    },
    Random {
        /// Draws units of offsets.
        sampler: Sampler,
        unit_bytes: u64,
        run: u32,
        run_left: u32,
        percent: u32,
    },
}

impl Shaped {
    /// The transfers between `first` and `end`, for a sequential pattern; in the whole range of `bytes` for a random
    /// one.
    pub(super) fn new(workload: &Workload, first: u64, end: u64, bytes: u64) -> Self {
        let Shape { ref sizes, align_bytes, skip_bytes, random_run, random_percent, ios_max, zones } =
            workload.shape;
        let block_bytes = workload.block_size.bytes();
        let one = || [Sizes::Split(vec![(block_bytes, 100)]), Sizes::Split(vec![(block_bytes, 100)])];
        let sizes = sizes.clone().unwrap_or_else(one);
        let min_bytes = u64::from(workload.shape.min_bytes(block_bytes));
        let unit_bytes = align_bytes.unwrap_or(min_bytes).max(1);
        let is_random = workload.rw.is_random();
        let order = if is_random {
            let sampler = Sampler::new(&workload.distribution, (bytes / unit_bytes).max(1));
            Order::Random { sampler, unit_bytes, run: random_run, run_left: 0, percent: random_percent }
        } else {
            Order::Sequential { skip_bytes }
        };
        let (first, end) = if is_random { (0, bytes) } else { (first, end) };
        let zone = zones.map(|settings| Zone { settings, first, transferred: 0 });
        let ios_left = ios_max.unwrap_or(u64::MAX);
        Self { sizes, min_bytes, first, end, positions: [None; 3], order, ios_left, zone }
    }

    /// Offset and size of the next transfer; none after the last. `left`: the bytes that remain.
    pub(super) fn next(
        &mut self,
        generator: &mut Xoshiro256PlusPlus,
        direction: Direction,
        left: u64,
    ) -> Option<(u64, u32)> {
        if left < self.min_bytes || self.ios_left == 0 {
            return None;
        }
        self.ios_left -= 1;
        let size = match direction {
            Direction::Read => self.sizes[0].draw(generator),
            Direction::Write | Direction::Trim => self.sizes[1].draw(generator),
        };
        let (mut first, mut end) = (self.first, self.end);
        if let Some(zone) = &mut self.zone {
            if zone.advance(first, end, self.min_bytes) {
                self.positions = [None; 3];
            }
            (first, end) = (zone.first, zone.end(end));
        }
        let offset = self.offset(generator, size.into(), direction, [first, end]);
        // The last transfers of a range or of an amount are smaller than drawn: a multiple of the smallest size.
        let most = left.min(end.saturating_sub(offset));
        let bytes = if u64::from(size) <= most { size.into() } else { most - most % self.min_bytes };
        let bytes = bytes.max(self.min_bytes);
        self.positions[number_of(direction)] = Some(offset + bytes);
        if let Some(zone) = &mut self.zone {
            zone.transferred += bytes;
        }
        Some((offset, bytes as u32))
    }

    fn offset(
        &mut self,
        generator: &mut Xoshiro256PlusPlus,
        size: u64,
        direction: Direction,
        [first, end]: [u64; 2],
    ) -> u64 {
        let position = self.positions[number_of(direction)];
        let min_bytes = self.min_bytes;
        let fits = |offset: &u64| *offset >= first && offset.saturating_add(min_bytes) <= end;
        match &mut self.order {
            Order::Sequential { skip_bytes: skip } => {
                let start = if *skip < 0 { end.checked_add_signed(*skip) } else { Some(first) };
                let start = start.filter(fits).unwrap_or(first);
                let next = position.map_or(Some(start), |position| position.checked_add_signed(*skip));
                next.filter(fits).unwrap_or(start)
            }
            Order::Random { sampler, unit_bytes, run, run_left, percent } => {
                let follows = *run_left > 0 || (*percent < 100 && below(generator, 100) >= (*percent).into());
                *run_left = run_left.saturating_sub(1);
                if let Some(position) = position.filter(|position| follows && fits(position)) {
                    return position;
                }
                *run_left = *run - 1;
                let mut drawn = sampler.draw(generator) * *unit_bytes;
                if self.zone.is_some() {
                    let units = ((end - first) / *unit_bytes).max(1);
                    drawn = first + drawn % (units * *unit_bytes);
                }
                let last = end.saturating_sub(size);
                drawn.min(last - last % *unit_bytes).max(first)
            }
        }
    }
}
