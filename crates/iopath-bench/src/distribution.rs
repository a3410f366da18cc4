//! Distributions of random offsets: fio's `random_distribution`. Draws numbers of blocks. The order of transfers is in
//! `plan.rs`.

use std::fmt;
use std::str::FromStr;

use iopath_report::random::below;
use rand_distr::{Distribution as _, Normal, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::RngCore;
use thiserror::Error;

/// The maximum number of zones, as in fio.
const ZONES_MAX: usize = 256;

/// The maximum number of blocks of a sequence, as in fio.
const SEQUENCE_MAX: usize = 64;

/// fio's default of the exponent of `zipf`.
const ZIPF_THETA: f64 = 1.1;

/// fio's default of `pareto`.
const PARETO_POWER: f64 = 0.2;

/// An odd number that maps ranks to blocks without a visible pattern: the golden ratio of 2^64.
const SCATTER: u64 = 0x9E37_79B9_7F4A_7C15;

/// How random offsets are distributed over the range.
#[derive(Debug, Clone, PartialEq)]
pub enum Distribution {
    /// Each block is equally probable.
    Uniform,
    /// Zipf: the block of rank k has a probability proportional to 1/k^theta.
    Zipf {
        /// The exponent, more than 0.
        theta: f64,
        /// The position of the most probable block, from 0 to 1; unset scatters the ranks over the range.
        center: Option<f64>,
    },
    /// Pareto, or the self-similar distribution: a share `power` of the blocks has a share `1 - power` of the accesses.
    Pareto {
        /// From 0 to 1, exclusive.
        power: f64,
        /// As of Zipf.
        center: Option<f64>,
    },
    /// Normal (Gauss).
    Normal {
        /// The standard deviation in percent of the range, more than 0.
        deviation_percent: f64,
        /// The position of the mean, from 0 to 1.
        center: f64,
    },
    /// Zones of the range, from its start.
    Zoned(Vec<Zone>),
    /// These blocks in this order, again and again. Not random.
    Sequence {
        /// Numbers of blocks.
        blocks: Vec<u64>,
        /// Whether each pass begins after the blocks of the pass before it: then the numbers count from there.
        moves: bool,
    },
}

/// A zone of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zone {
    /// Its share of the accesses, in percent.
    pub access_percent: u32,
    /// Its share of the range, in percent.
    pub size_percent: u32,
}

/// The texts of distributions, with the ranges of their numbers.
pub(crate) const VALID: &str = "random, zipf:THETA (above 0; 1.1), pareto:POWER (between 0 and 1; 0.2), normal:PERCENT (up to 100), each \
                                of the three with a :CENTER from 0 to 1 if needed, zoned:ACCESS/SIZE:… in percent, or \
                                sequence:BLOCK,… with 64 blocks at most";

/// A text that is not a distribution.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("use {VALID}")]
pub struct BadDistribution;

impl FromStr for Distribution {
    type Err = BadDistribution;

    fn from_str(text: &str) -> Result<Self, BadDistribution> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        if name == "zoned" {
            return zones(rest).map(Self::Zoned).ok_or(BadDistribution);
        }
        if name == "sequence" {
            let blocks: Option<Vec<u64>> = rest.split(',').map(|block| block.trim().parse().ok()).collect();
            let blocks = blocks.filter(|blocks| blocks.len() <= SEQUENCE_MAX).ok_or(BadDistribution)?;
            return Ok(Self::Sequence { blocks, moves: false });
        }
        let numbers: Result<Vec<f64>, _> =
            rest.split(':').filter(|part| !part.is_empty()).map(str::parse).collect();
        let numbers = numbers.map_err(|_| BadDistribution)?;
        let center = numbers.get(1).copied();
        if numbers.len() > 2 || center.is_some_and(|center| !(0.0..=1.0).contains(&center)) {
            return Err(BadDistribution);
        }
        let parsed = match (name, numbers.first().copied()) {
            ("random", None) => Self::Uniform,
            ("zipf", None) => Self::Zipf { theta: ZIPF_THETA, center },
            ("pareto", None) => Self::Pareto { power: PARETO_POWER, center },
            ("zipf", Some(theta)) if theta > 0.0 && theta.is_finite() => Self::Zipf { theta, center },
            ("pareto", Some(power)) if power > 0.0 && power < 1.0 => Self::Pareto { power, center },
            ("normal", Some(deviation_percent)) if deviation_percent > 0.0 && deviation_percent <= 100.0 => {
                Self::Normal { deviation_percent, center: center.unwrap_or(0.5) }
            }
            _ => return Err(BadDistribution),
        };
        Ok(parsed)
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let center = |center: &Option<f64>| center.map_or_else(String::new, |center| format!(":{center}"));
        match self {
            Self::Uniform => f.write_str("random"),
            Self::Zipf { theta, center: at } => write!(f, "zipf:{theta}{}", center(at)),
            Self::Pareto { power, center: at } => write!(f, "pareto:{power}{}", center(at)),
            Self::Normal { deviation_percent, center } => write!(f, "normal:{deviation_percent}:{center}"),
            Self::Zoned(zones) => {
                f.write_str("zoned")?;
                zones.iter().try_for_each(|zone| write!(f, ":{}/{}", zone.access_percent, zone.size_percent))
            }
            Self::Sequence { blocks, moves } => {
                let blocks: Vec<String> = blocks.iter().map(ToString::to_string).collect();
                write!(f, "sequence:{}{}", blocks.join(","), if *moves { " moving" } else { "" })
            }
        }
    }
}

/// Zones of `ACCESS/SIZE:…`. Missing percentages share the rest to 100 equally; all percentages add up to 100.
fn zones(text: &str) -> Option<Vec<Zone>> {
    let pairs: Option<Vec<[Option<u32>; 2]>> = text
        .split(':')
        .map(|pair| {
            let (access, size) = pair.split_once('/')?;
            let percent = |text: &str| {
                if text.is_empty() {
                    Some(None)
                } else {
                    text.parse().ok().filter(|&percent| percent <= 100).map(Some)
                }
            };
            Some([percent(access)?, percent(size)?])
        })
        .collect();
    let mut pairs = pairs.filter(|pairs| pairs.len() <= ZONES_MAX)?;
    for side in 0..2 {
        let missing = pairs.iter().filter(|pair| pair[side].is_none()).count() as u32;
        let mut left = 100u32.checked_sub(pairs.iter().filter_map(|pair| pair[side]).sum())?;
        let mut open = missing;
        for percent in pairs.iter_mut().map(|pair| &mut pair[side]).filter(|percent| percent.is_none()) {
            let share = left / open;
            *percent = Some(share);
            (left, open) = (left - share, open - 1);
        }
        if left > 0 {
            return None;
        }
    }
    let zone = |pair: &[Option<u32>; 2]| Some(Zone { access_percent: pair[0]?, size_percent: pair[1]? });
    let zones: Vec<Zone> = pairs.iter().map(zone).collect::<Option<_>>()?;
    // A zone without blocks cannot be accessed.
    zones.iter().all(|zone| zone.access_percent == 0 || zone.size_percent > 0).then_some(zones)
}

/// Draws blocks of a range by a distribution.
#[derive(Debug, Clone)]
pub(crate) struct Sampler {
    blocks: u64,
    law: Law,
}

#[derive(Debug, Clone)]
enum Law {
    Uniform,
    Zipf(Zipf<f64>, Place),
    Pareto {
        exponent: f64,
        place: Place,
    },
    Normal(Normal<f64>),
    Zoned(Vec<Zone>),
    /// The numbers, and the blocks drawn so far.
    Sequence {
        blocks: Vec<u64>,
        moves: bool,
        drawn: u64,
    },
}

/// The block of a rank.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// A permutation of the blocks.
    Scattered,
    /// From this block upwards.
    From(u64),
}

impl Sampler {
    /// `blocks` is 1 or more.
    pub(crate) fn new(distribution: &Distribution, blocks: u64) -> Self {
        let count = blocks as f64;
        let place = |center: Option<f64>| {
            center.map_or(Place::Scattered, |center| Place::From((center * count) as u64))
        };
        let law = match *distribution {
            Distribution::Zipf { theta, center } => {
                Zipf::new(count, theta).map_or(Law::Uniform, |zipf| Law::Zipf(zipf, place(center)))
            }
            Distribution::Pareto { power, center } => {
                Law::Pareto { exponent: power.ln() / (1.0 - power).ln(), place: place(center) }
            }
            Distribution::Normal { deviation_percent, center } => {
                Normal::new(center * count, deviation_percent / 100.0 * count)
                    .map_or(Law::Uniform, Law::Normal)
            }
            Distribution::Zoned(ref zones) => Law::Zoned(zones.clone()),
            Distribution::Sequence { ref blocks, moves } => {
                Law::Sequence { blocks: blocks.clone(), moves, drawn: 0 }
            }
            Distribution::Uniform => Law::Uniform,
        };
        Self { blocks, law }
    }

    /// A block, from 0.
    #[inline]
    pub(crate) fn draw(&mut self, generator: &mut Xoshiro256PlusPlus) -> u64 {
        match &mut self.law {
            Law::Uniform => below(generator, self.blocks),
            Law::Sequence { blocks, moves, drawn } => {
                let count = blocks.len() as u64;
                let block = blocks[(*drawn % count) as usize];
                let first = if *moves { *drawn - *drawn % count } else { 0 };
                *drawn += 1;
                ((u128::from(block) + u128::from(first)) % u128::from(self.blocks)) as u64
            }
            _ => self.draw_by(&self.law, generator),
        }
    }

    fn draw_by(&self, law: &Law, generator: &mut Xoshiro256PlusPlus) -> u64 {
        let last = self.blocks - 1;
        match law {
            Law::Uniform | Law::Sequence { .. } => below(generator, self.blocks),
            Law::Zipf(zipf, place) => {
                let rank = zipf.sample(generator) as u64;
                self.place(rank.saturating_sub(1).min(last), *place)
            }
            Law::Pareto { exponent, place } => {
                let rank = unit(generator).powf(*exponent) * self.blocks as f64;
                self.place((rank as u64).min(last), *place)
            }
            Law::Normal(normal) => {
                // A block beyond an end of the range is drawn again; the mean is inside, so this ends.
                for _ in 0..1000 {
                    let block = normal.sample(generator);
                    if block >= 0.0 && block < self.blocks as f64 {
                        return block as u64;
                    }
                }
                below(generator, self.blocks)
            }
            Law::Zoned(zones) => self.draw_in_zones(zones, generator),
        }
    }

    fn draw_in_zones(&self, zones: &[Zone], generator: &mut Xoshiro256PlusPlus) -> u64 {
        let at = |percent: u64| (u128::from(self.blocks) * u128::from(percent) / 100) as u64;
        let mut access = below(generator, 100) as u32;
        let mut start_percent = 0;
        for zone in zones {
            let end_percent = start_percent + u64::from(zone.size_percent);
            if access < zone.access_percent {
                let (start, end) = (at(start_percent), at(end_percent));
                // A small range has zones of less than a block.
                return start.min(self.blocks - 1) + below(generator, end.saturating_sub(start).max(1));
            }
            access -= zone.access_percent;
            start_percent = end_percent;
        }
        below(generator, self.blocks)
    }

    /// The block of a rank, from 0.
    fn place(&self, rank: u64, place: Place) -> u64 {
        let shifted = |by: u64| ((u128::from(rank) + u128::from(by)) % u128::from(self.blocks)) as u64;
        match place {
            Place::Scattered => scatter(rank, self.blocks),
            Place::From(first) => shifted(first),
        }
    }
}

/// A permutation of the numbers below `blocks`: each step permutes the numbers of as many bits, and is repeated until
/// the number is in range.
fn scatter(rank: u64, blocks: u64) -> u64 {
    let bits = 64 - (blocks - 1).leading_zeros().min(63);
    let mask = u64::MAX >> (64 - bits);
    let mut number = rank;
    loop {
        number = number.wrapping_mul(SCATTER) & mask;
        number ^= number >> bits.div_ceil(2);
        number = number.wrapping_mul(SCATTER).wrapping_add(SCATTER >> 7) & mask;
        number ^= number >> bits.div_ceil(2);
        if number < blocks {
            return number;
        }
    }
}

/// A number from 0 to 1, exclusive of 1, with 53 bits.
fn unit(generator: &mut Xoshiro256PlusPlus) -> f64 {
    (generator.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_report::random::generator;

    const BLOCKS: u64 = 1000;
    const DRAWS: u32 = 100_000;

    fn counts(text: &str) -> Vec<u32> {
        let mut sampler = Sampler::new(&text.parse().unwrap(), BLOCKS);
        let mut generator = generator(5, [0, 0]);
        let mut counts = vec![0; BLOCKS as usize];
        for _ in 0..DRAWS {
            counts[sampler.draw(&mut generator) as usize] += 1;
        }
        counts
    }

    /// The share of accesses to a range of blocks, in percent.
    fn share(counts: &[u32], range: std::ops::Range<usize>) -> f64 {
        f64::from(counts[range].iter().sum::<u32>()) / f64::from(DRAWS) * 100.0
    }

    fn is_about(value: f64, expected: f64, tolerance: f64) {
        assert!((value - expected).abs() <= tolerance, "{value} is not about {expected}");
    }

    #[test]
    fn the_first_draws_are_pinned() {
        let drawn =
            ["random", "zipf:1.2", "pareto:0.2:0", "normal:10", "zoned:50/5:30/15:20/80"].map(|text| {
                let mut sampler = Sampler::new(&text.parse().unwrap(), BLOCKS);
                let mut generator = generator(1, [0, 0]);
                [(); 4].map(|()| sampler.draw(&mut generator))
            });
        let pinned = [
            [148, 89, 875, 915],
            [255, 121, 676, 255],
            [0, 0, 383, 529],
            [399, 418, 516, 468],
            [4, 932, 25, 37],
        ];
        assert_eq!(drawn, pinned, "a different sequence changes the transfers of existing seeds");
    }

    #[test]
    fn uniform_blocks_are_equally_frequent() {
        let counts = counts("random");
        assert!(counts.iter().all(|count| (50..160).contains(count)));
    }

    #[test]
    fn zipf_has_the_probabilities_of_its_ranks() {
        let counts = counts("zipf:1.2:0");
        let sum: f64 = (1..=BLOCKS).map(|rank| (rank as f64).powf(-1.2)).sum();
        for rank in [1, 2, 5, 20] {
            let expected = (rank as f64).powf(-1.2) / sum * 100.0;
            is_about(share(&counts, rank - 1..rank), expected, 0.05 * expected + 0.05);
        }
    }

    #[test]
    fn scattered_ranks_have_the_same_frequencies_at_other_blocks() {
        let sorted = |text| {
            let mut counts = counts(text);
            counts.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
            counts
        };
        assert_eq!(sorted("zipf:1.2"), sorted("zipf:1.2:0"));
        assert_ne!(counts("zipf:1.2"), counts("zipf:1.2:0"));
        for blocks in [1, 2, 3, 64, 1000] {
            let mut placed: Vec<u64> = (0..blocks).map(|rank| scatter(rank, blocks)).collect();
            placed.sort_unstable();
            assert_eq!(placed, (0..blocks).collect::<Vec<_>>(), "each block has one rank");
        }
    }

    #[test]
    fn pareto_is_self_similar() {
        let counts = counts("pareto:0.2:0");
        is_about(share(&counts, 0..200), 80.0, 1.0);
        is_about(share(&counts, 0..40), 64.0, 1.0);
        let shifted = self::counts("pareto:0.2:0.5");
        assert_eq!(shifted[500..], counts[..500]);
    }

    #[test]
    fn normal_has_its_mean_and_deviation() {
        let counts = counts("normal:10");
        is_about(share(&counts, 400..600), 68.3, 1.0);
        is_about(share(&counts, 300..700), 95.4, 0.6);
        let counts = self::counts("normal:10:0.25");
        is_about(share(&counts, 150..350), 68.3, 1.5);
    }

    #[test]
    fn zones_have_their_shares() {
        let counts = counts("zoned:60/10:30/20:8/30:2/40");
        is_about(share(&counts, 0..100), 60.0, 0.6);
        is_about(share(&counts, 100..300), 30.0, 0.6);
        is_about(share(&counts, 300..600), 8.0, 0.4);
        is_about(share(&counts, 600..1000), 2.0, 0.3);
    }

    #[test]
    fn every_block_drawn_is_in_the_range() {
        let texts = [
            "random",
            "zipf:0.5",
            "zipf:3:1",
            "pareto:0.9",
            "normal:100:0",
            "normal:1:1",
            "zoned:50/1:50/99",
        ];
        for text in texts {
            for blocks in [1, 2, 3, 1 << 40] {
                let mut sampler = Sampler::new(&text.parse().unwrap(), blocks);
                let mut generator = generator(3, [0, 0]);
                assert!((0..1000).all(|_| sampler.draw(&mut generator) < blocks), "{text} {blocks}");
            }
        }
    }

    #[test]
    fn missing_percentages_share_the_rest() {
        let zoned = |text: &str| text.parse::<Distribution>().map(|parsed| parsed.to_string());
        assert_eq!(zoned("zoned:50/5:30/15:20/").unwrap(), "zoned:50/5:30/15:20/80");
        assert_eq!([zoned("zipf").unwrap(), zoned("pareto").unwrap()], ["zipf:1.1", "pareto:0.2"]);
        assert_eq!(zoned("zoned:50/:/:/50").unwrap(), "zoned:50/25:25/25:25/50");
    }

    #[test]
    fn a_text_that_is_no_distribution_is_refused() {
        for text in [
            "",
            "random:1",
            "zipf:0",
            "zipf:-1",
            "zipf:x",
            "zipf:inf",
            "zipf:1:2",
            "zipf:1:0.5:3",
            "pareto:1",
            "pareto:0",
            "normal:0",
            "normal:101",
            "zoned",
            "zoned:50/50",
            "zoned:60/50:60/50",
            "zoned:100/0:0/100",
            "zoned:1/1/1",
            "gauss:1",
        ] {
            assert_eq!(text.parse::<Distribution>(), Err(BadDistribution), "{text}");
        }
    }

    #[test]
    fn a_sequence_has_its_blocks_in_order_and_may_move_on() {
        let drawn = |moves| {
            let sequence = Distribution::Sequence { blocks: vec![2, 0, 1], moves };
            let (mut sampler, mut generator) = (Sampler::new(&sequence, 8), generator(1, [0, 0]));
            (0..9).map(|_| sampler.draw(&mut generator)).collect::<Vec<_>>()
        };
        assert_eq!(drawn(false), [2, 0, 1, 2, 0, 1, 2, 0, 1]);
        assert_eq!(drawn(true), [2, 0, 1, 5, 3, 4, 0, 6, 7], "modulo the range");
        let last = Distribution::Sequence { blocks: vec![u64::MAX], moves: true };
        let (mut sampler, mut generator) = (Sampler::new(&last, 10), generator(1, [0, 0]));
        let drawn = [(); 3].map(|()| sampler.draw(&mut generator));
        assert_eq!(drawn, [5, 6, 7], "numbers past 2^64 do not wrap");
        assert!(
            "sequence:".parse::<Distribution>().is_err() && "sequence:1,x".parse::<Distribution>().is_err()
        );
        assert_eq!("sequence:2,0".parse::<Distribution>().unwrap().to_string(), "sequence:2,0");
    }
}
