//! The shape of a sequence of transfers beyond one block size and one order: several sizes, gaps, runs, and a share of
//! random offsets. `plan/shaped.rs` draws the transfers.

use std::fmt;

use iopath_report::random::below;
use iopath_report::size::parse_size;
use rand_xoshiro::Xoshiro256PlusPlus;
use thiserror::Error;

/// The most sizes of a split, as in fio.
const SIZES_MAX: usize = 64;

/// Sizes and order of transfers. The default has the block size of the workload for all transfers, without gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// The sizes of reads and of writes; unset is the block size of the workload. That must be the largest size.
    pub sizes: Option<[Sizes; 2]>,
    /// The unit of random offsets in bytes; unset is the smallest size.
    pub align_bytes: Option<u64>,
    /// Added to the position after each transfer of a sequential pattern, in bytes. If negative, the pattern runs from
    /// the end of the range to its start.
    pub skip_bytes: i64,
    /// The transfers of a random pattern at adjacent offsets, from each random offset on.
    pub random_run: u32,
    /// The transfers in 100 of a random pattern that have a random offset. The others follow the transfer before them.
    pub random_percent: u32,
    /// The transfers of a job; unset is no limit.
    pub ios_max: Option<u64>,
    /// Zones that the pattern accesses one after another; unset is the whole range.
    pub zones: Option<Zones>,
}

/// Zones of a range, one after another from its start: fio's `zonemode=strided`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zones {
    /// The length of a zone in bytes.
    pub range_bytes: u64,
    /// The bytes to transfer before the next zone: less or more than its length.
    pub transfer_bytes: u64,
    /// The bytes between two zones.
    pub skip_bytes: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            sizes: None,
            align_bytes: None,
            skip_bytes: 0,
            random_run: 1,
            random_percent: 100,
            ios_max: None,
            zones: None,
        }
    }
}

impl Shape {
    /// Whether all transfers have one size, without gaps and runs.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// The smallest size, of a workload with this block size.
    pub(crate) fn min_bytes(&self, block_bytes: u32) -> u32 {
        self.sizes.as_ref().map_or(block_bytes, |sizes| sizes.iter().map(Sizes::min).min().unwrap_or(1))
    }

    /// The greatest common divisor of all sizes and of the distances between offsets.
    pub(crate) fn unit_bytes(&self, block_bytes: u32) -> u64 {
        let sizes = self.sizes.as_ref().map_or(u64::from(block_bytes), |sizes| {
            sizes.iter().fold(0, |unit, sizes| common(unit, sizes.unit()))
        });
        let zones = self.zones.map_or(0, |zones| common(zones.range_bytes, zones.skip_bytes));
        [self.align_bytes.unwrap_or(0), self.skip_bytes.unsigned_abs(), zones].into_iter().fold(sizes, common)
    }
}

/// The greatest common divisor.
pub fn common(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common(b, a % b) }
}

/// The sizes of the transfers in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sizes {
    /// Sizes in bytes, each with its transfers in 100.
    Split(Vec<(u32, u32)>),
    /// Each size from `min` to `max` in bytes that is `min` plus a multiple of `step`, with the same probability.
    Range {
        /// The smallest size.
        min: u32,
        /// The largest size.
        max: u32,
        /// The distance between two sizes.
        step: u32,
    },
}

/// Text or numbers that are not sizes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("sizes of 1 byte to 1 GiB with a share in percent, 100 in all: 4k/60:64k/40; or a range: 4k-64k")]
pub struct BadSizes;

/// The largest size. The block size of a workload has a limit of its own.
const BYTES_MAX: u64 = u32::MAX as u64;

/// Sizes with their shares, of `4k/60:64k`.
fn shares(text: &str, bytes: impl Fn(&str) -> Option<u64>) -> Result<Vec<(u64, Option<u32>)>, BadSizes> {
    let one = |text: &str| {
        let (size, share) = text.split_once('/').map_or((text, None), |(size, share)| (size, Some(share)));
        let share = share.filter(|share| !share.is_empty());
        let share =
            share.map(|share| share.trim_end_matches('%').parse().map_err(|_| BadSizes)).transpose()?;
        Ok((bytes(size).ok_or(BadSizes)?, share))
    };
    text.split(':').map(one).collect()
}

impl Sizes {
    /// One size.
    ///
    /// # Errors
    /// [`BadSizes`]: it is out of range.
    pub fn one(bytes: u64) -> Result<Self, BadSizes> {
        Self::split(&[(bytes, Some(100))])
    }

    /// Sizes with shares. Sizes without a share divide the rest equally, as in fio.
    ///
    /// # Errors
    /// [`BadSizes`]: there is no size or too many, one is out of range, or the sum of the shares is not 100.
    pub fn split(sizes: &[(u64, Option<u32>)]) -> Result<Self, BadSizes> {
        let given: u32 = sizes.iter().filter_map(|(_, share)| *share).fold(0, u32::saturating_add);
        let open = sizes.iter().filter(|(_, share)| share.is_none()).count() as u32;
        let is_valid = sizes.iter().all(|(bytes, _)| (1..=BYTES_MAX).contains(bytes));
        let is_whole = given == 100 || (given < 100 && open > 0);
        if !(1..=SIZES_MAX).contains(&sizes.len()) || !is_valid || !is_whole {
            return Err(BadSizes);
        }
        let rest = 100 - given;
        let mut number = 0;
        let share = |(bytes, share): &(u64, Option<u32>)| {
            let share = share.unwrap_or_else(|| {
                number += 1;
                rest * number / open - rest * (number - 1) / open
            });
            (*bytes as u32, share)
        };
        Ok(Self::Split(sizes.iter().map(share).collect()))
    }

    /// A range of sizes: multiples of the smallest, or any size if not `aligned`.
    ///
    /// # Errors
    /// [`BadSizes`]: a size is out of range.
    pub fn range(min: u64, max: u64, aligned: bool) -> Result<Self, BadSizes> {
        if min == 0 || min > max || max > BYTES_MAX {
            return Err(BadSizes);
        }
        let (min, step) = (min as u32, if aligned { min as u32 } else { 1 });
        Ok(Self::Range { min, max: max as u32, step })
    }

    /// Sizes with shares of any sum, as fio draws them: from the smallest share to the largest. What the sum lacks to
    /// 100 falls to the largest share, and what it has above 100 is cut off there.
    fn split_any_sum(mut sizes: Vec<(u64, Option<u32>)>) -> Result<Self, BadSizes> {
        let given: Option<Vec<u32>> = sizes.iter().map(|(_, share)| *share).collect();
        let sum = given.map(|shares| shares.iter().fold(0, |sum: u32, share| sum.saturating_add(*share)));
        if sum.is_none_or(|sum| sum == 100 || sum == 0) {
            return Self::split(&sizes);
        }
        sizes.sort_by_key(|(_, share)| *share);
        let mut rest = 100;
        let last = sizes.len() - 1;
        for (index, (_, share)) in sizes.iter_mut().enumerate() {
            let given = share.unwrap_or(0).min(rest);
            let drawn = if index == last { rest } else { given };
            rest -= drawn;
            *share = Some(drawn);
        }
        sizes.retain(|(_, share)| *share != Some(0));
        Self::split(&sizes)
    }

    /// Parses `4k/60:64k/40`, `4k/60:64k` or `4k-64k`. `bytes` parses a size.
    ///
    /// # Errors
    /// [`BadSizes`]
    pub fn parse(text: &str, bytes: impl Fn(&str) -> Option<u64>) -> Result<Self, BadSizes> {
        if let Some((min, max)) = text.split_once('-') {
            return Self::range(bytes(min).ok_or(BadSizes)?, bytes(max).ok_or(BadSizes)?, true);
        }
        Self::split(&shares(text, bytes)?)
    }

    /// As [`Sizes::parse`], of shares whose sum need not be 100: fio fills or cuts the largest.
    ///
    /// # Errors
    /// [`BadSizes`]
    pub fn parse_any_sum(text: &str, bytes: impl Fn(&str) -> Option<u64>) -> Result<Self, BadSizes> {
        if text.contains('-') { Self::parse(text, bytes) } else { Self::split_any_sum(shares(text, bytes)?) }
    }

    /// The smallest size.
    pub fn min(&self) -> u32 {
        match self {
            Self::Split(sizes) => sizes.iter().map(|(bytes, _)| *bytes).min().unwrap_or(1),
            Self::Range { min, .. } => *min,
        }
    }

    /// The largest size.
    pub fn max(&self) -> u32 {
        match self {
            Self::Split(sizes) => sizes.iter().map(|(bytes, _)| *bytes).max().unwrap_or(1),
            Self::Range { max, .. } => *max,
        }
    }

    /// The mean size in bytes.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Split(sizes) => {
                sizes.iter().map(|(bytes, share)| f64::from(*bytes) * f64::from(*share) / 100.0).sum()
            }
            Self::Range { min, max, step } => {
                let last = min + (max - min) / step * step;
                f64::midpoint(f64::from(*min), f64::from(last))
            }
        }
    }

    /// The greatest common divisor of all sizes.
    fn unit(&self) -> u64 {
        match self {
            Self::Split(sizes) => sizes.iter().fold(0, |unit, (bytes, _)| common(unit, (*bytes).into())),
            Self::Range { min, step, .. } => common((*min).into(), (*step).into()),
        }
    }

    /// Draws a size.
    #[inline]
    pub(crate) fn draw(&self, generator: &mut Xoshiro256PlusPlus) -> u32 {
        match self {
            Self::Split(sizes) => {
                let mut left = below(generator, 100) as u32;
                let chosen = sizes.iter().find(|(_, share)| {
                    let is_chosen = left < *share;
                    left = left.saturating_sub(*share);
                    is_chosen
                });
                chosen.or(sizes.last()).map_or(1, |(bytes, _)| *bytes)
            }
            Self::Range { min, max, step } => {
                min + below(generator, u64::from((max - min) / step) + 1) as u32 * step
            }
        }
    }
}

/// The sizes of reads and writes: one text if they are equal.
pub fn of_both([reads, writes]: &[Sizes; 2]) -> String {
    if reads == writes { reads.to_string() } else { format!("{reads},{writes}") }
}

impl std::str::FromStr for Sizes {
    type Err = BadSizes;

    fn from_str(text: &str) -> Result<Self, BadSizes> {
        Self::parse(text, |text| parse_size(text).ok())
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Split(sizes) => {
                let each: Vec<String> =
                    sizes.iter().map(|(bytes, share)| format!("{bytes}/{share}")).collect();
                f.pad(&each.join(":"))
            }
            Self::Range { min, max, .. } => f.pad(&format!("{min}-{max}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_report::random::generator;

    #[test]
    fn sizes_without_a_share_divide_the_rest() {
        let parsed = |text: &str| text.parse::<Sizes>();
        assert_eq!(parsed("4k/10:64k/50:32k"), Ok(Sizes::Split(vec![(4096, 10), (65536, 50), (32768, 40)])));
        assert_eq!(parsed("4k:8k/:16k"), Ok(Sizes::Split(vec![(4096, 33), (8192, 33), (16384, 34)])));
        assert_eq!(parsed("8k"), Sizes::one(8192));
        assert_eq!(parsed("4k-64k"), Ok(Sizes::Range { min: 4096, max: 65536, step: 4096 }));
        for bad in ["", "4k/50", "4k/50:8k/60", "4k/100:8k/1", "0", "5g", "64k-4k", "x/5"] {
            assert_eq!(parsed(bad), Err(BadSizes), "{bad}");
        }
    }

    #[test]
    fn draws_have_the_shares() {
        let mut generator = generator(1, [2, 3]);
        let sizes: Sizes = "4k/20:64k/80".parse().unwrap();
        let large = (0..10_000).filter(|_| sizes.draw(&mut generator) == 65536).count();
        assert!((7_800..8_200).contains(&large), "{large}");
        let range = Sizes::range(512, 2000, true).unwrap();
        let drawn: std::collections::BTreeSet<u32> = (0..1000).map(|_| range.draw(&mut generator)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [512, 1024, 1536]);
        assert!((range.mean() - 1024.0).abs() < 1e-9 && (sizes.mean() - 53248.0).abs() < 1e-9);
    }
}
