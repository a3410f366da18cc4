//! Latencies, counted in the classes of an `hdrhistogram`, with its percentiles, mean and deviation. Memory is
//! allocated only for classes that occur: a job file may have thousands of jobs, a fit thousands of short runs, and a
//! `Histogram` allocates, writes and reads the counters of all classes, 264 KiB.

use std::collections::BTreeMap;
use std::iter::Sum;

/// Longer latencies count as this one, in nanoseconds: one hour.
const MAX_NS: u64 = 3_600_000_000_000;

/// The classes of each factor of two: at least 10³, for three significant digits. Values below twice this number have a
/// class each.
const CLASSES_PER_OCTAVE: u64 = 1024;

/// The classes of the exact values, and of the octaves up to the end of that of [`MAX_NS`].
const CLASSES: u64 = ((MAX_NS / CLASSES_PER_OCTAVE).ilog2() as u64 + 2) * CLASSES_PER_OCTAVE;

/// Classes whose counters are allocated together: an eighth of an octave, 1 KiB.
const CHUNK: usize = 128;

/// Latencies in nanoseconds, with three significant digits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Latencies {
    /// The counters of the lowest classes, then of the classes above them. Ends at the highest chunk that counts
    /// anything.
    chunks: Vec<Option<Box<[u64; CHUNK]>>>,
}

impl Latencies {
    /// Counts `count` latencies of this value, at least one.
    #[inline]
    pub fn record(&mut self, latency_ns: u64, count: u64) {
        debug_assert!(count > 0, "a latency that did not occur has no class");
        let class = class_of(latency_ns);
        let (number, index) = (class / CHUNK, class % CHUNK);
        let counter = match self.chunks.get_mut(number) {
            Some(Some(chunk)) => &mut chunk[index],
            _ => &mut self.allocate(number)[index],
        };
        *counter = counter.saturating_add(count);
    }

    /// Whether no latency was counted.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The number of latencies.
    #[inline]
    pub fn count(&self) -> u64 {
        self.counted().fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// The lowest value of the class of the shortest latency. 0 if there is none.
    #[inline]
    pub fn min_ns(&self) -> u64 {
        self.counted().next().map_or(0, |(class, _)| lowest_of(class))
    }

    /// The highest value of the class of the longest latency. 0 if there is none.
    #[inline]
    pub fn max_ns(&self) -> u64 {
        self.counted().last().map_or(0, |(class, _)| highest_of(class))
    }

    /// The mean of the middles of the classes. 0 if there is no latency.
    #[inline]
    pub fn mean_ns(&self) -> f64 {
        let all = self.count() as f64;
        self.counted().fold(0.0, |sum, (class, count)| sum + middle_of(class) as f64 * count as f64 / all)
    }

    /// The standard deviation of the middles of the classes. 0 if there is no latency.
    #[inline]
    pub fn stddev_ns(&self) -> f64 {
        if self.is_empty() {
            return 0.0;
        }
        let mean = self.mean_ns();
        let squares = self.counted().fold(0.0, |sum, (class, count)| {
            let deviation = middle_of(class) as f64 - mean;
            sum + deviation * deviation * count as f64
        });
        (squares / self.count() as f64).sqrt()
    }

    /// The highest value of the class in which this share of all latencies, 0 to 1, is reached. 0 if there is none.
    #[inline]
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let rank = ((share.min(1.0) * self.count() as f64).ceil() as u64).max(1);
        let mut passed = 0_u64;
        let reached = self.counted().find(|(_, count)| {
            passed = passed.saturating_add(*count);
            passed >= rank
        });
        reached.map_or(0, |(class, _)| highest_of(class))
    }

    /// The number of latencies in the classes up to the one of this value.
    #[inline]
    pub fn count_to(&self, latency_ns: u64) -> u64 {
        let last = class_of(latency_ns) as u64;
        let counted = self.counted().take_while(|(class, _)| *class <= last);
        counted.fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// Counts all latencies of `other`.
    #[inline]
    pub fn add(&mut self, other: &Self) {
        for (number, chunk) in other.chunks.iter().enumerate() {
            let Some(chunk) = chunk else { continue };
            let sums = self.allocate(number);
            sums.iter_mut().zip(&**chunk).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
        }
    }

    /// The counters as bytes, for another process: for each class that occurs, its distance from the one before and its
    /// count, in groups of seven bits.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut before = 0;
        for (class, count) in self.counted() {
            put(&mut bytes, class - before);
            put(&mut bytes, count);
            before = class;
        }
        bytes
    }

    /// Counts the latencies of [`Latencies::to_bytes`]. None if the bytes are not of it: then some may be counted.
    pub fn add_bytes(&mut self, mut bytes: &[u8]) -> Option<()> {
        let mut class = 0u64;
        while !bytes.is_empty() {
            class = class.checked_add(take(&mut bytes)?).filter(|class| *class < CLASSES)?;
            let count = take(&mut bytes).filter(|count| *count > 0)?;
            let (number, index) = (class as usize / CHUNK, class as usize % CHUNK);
            let counter = &mut self.allocate(number)[index];
            *counter = counter.saturating_add(count);
        }
        Some(())
    }

    /// The lowest latency of each class that is not empty, in rising order, with the number of its latencies.
    pub fn classes(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counted().map(|(class, count)| (lowest_of(class), count))
    }

    /// The latencies in the classes of fio, which are coarser: the middle of each class that is not empty, in rising
    /// order, with the number of its latencies.
    pub fn fio_bins(&self) -> BTreeMap<u64, u64> {
        let mut bins = BTreeMap::new();
        for (latency_ns, count) in self.classes() {
            let bin = bins.entry(fio_bin(latency_ns)).or_insert(0_u64);
            *bin = bin.saturating_add(count);
        }
        bins
    }

    /// The classes that are not empty, in rising order, with their counts.
    #[inline]
    fn counted(&self) -> impl Iterator<Item = (u64, u64)> {
        let chunks = self.chunks.iter().enumerate();
        chunks.flat_map(|(number, chunk)| {
            let counts = chunk.iter().flat_map(|chunk| chunk.iter().enumerate());
            counts
                .filter(|(_, count)| **count > 0)
                .map(move |(index, count)| ((number * CHUNK + index) as u64, *count))
        })
    }

    #[cold]
    fn allocate(&mut self, number: usize) -> &mut [u64; CHUNK] {
        if self.chunks.len() <= number {
            self.chunks.resize(number + 1, None);
        }
        self.chunks[number].get_or_insert_with(|| Box::new([0; CHUNK]))
    }
}

impl<'a> Sum<&'a Self> for Latencies {
    fn sum<I: Iterator<Item = &'a Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum.add(one);
            sum
        })
    }
}

/// Appends a number in groups of seven bits, the lowest first.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// The number at the start of the bytes.
fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(first & 0x7f);
        // The last group has one bit.
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// The class of a latency.
#[inline]
fn class_of(latency_ns: u64) -> usize {
    let of = |value: u64| {
        let octave = (value | (2 * CLASSES_PER_OCTAVE - 1)).ilog2() - CLASSES_PER_OCTAVE.ilog2();
        u64::from(octave) * CLASSES_PER_OCTAVE + (value >> octave)
    };
    let class = of(latency_ns);
    // As the histogram does, also the values between the maximum and the end of its octave keep their classes.
    (if class < CLASSES { class } else { of(MAX_NS) }) as usize
}

/// The middle of the class of fio of a latency: 64 classes in each factor of two, from 128 ns on, and one for each
/// value below (fio, `stat.h`).
fn fio_bin(latency_ns: u64) -> u64 {
    const CLASSES: u64 = 64;
    match latency_ns.checked_ilog2() {
        Some(octave) if latency_ns >= 2 * CLASSES => {
            let bits = octave - CLASSES.ilog2();
            (latency_ns >> bits << bits) + (1 << bits) / 2
        }
        _ => latency_ns,
    }
}

/// The number of classes of fio.
pub const FIO_BINS: usize = 29 * 64;

/// The number of the class of fio of a latency; the last one for all above it.
#[inline]
pub fn fio_bin_number(latency_ns: u64) -> usize {
    const CLASSES: u64 = 64;
    match latency_ns.checked_ilog2() {
        Some(octave) if latency_ns >= 2 * CLASSES => {
            let bits = u64::from(octave - CLASSES.ilog2());
            (((bits + 1) * CLASSES + ((latency_ns >> bits) & (CLASSES - 1))) as usize).min(FIO_BINS - 1)
        }
        _ => latency_ns as usize,
    }
}

/// The lowest latency of a class.
#[inline]
fn lowest_of(class: u64) -> u64 {
    let octave = (class / CLASSES_PER_OCTAVE).saturating_sub(1);
    (class - octave * CLASSES_PER_OCTAVE) << octave
}

/// The highest latency of a class.
#[inline]
fn highest_of(class: u64) -> u64 {
    lowest_of(class + 1) - 1
}

/// The middle of a class.
#[inline]
fn middle_of(class: u64) -> u64 {
    lowest_of(class) + (lowest_of(class + 1) - lowest_of(class)) / 2
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;

    use super::*;
    use crate::random::{below, generator};

    /// Both records of the same values, each with its count.
    fn both(values: impl IntoIterator<Item = (u64, u64)>) -> (Latencies, Histogram<u64>) {
        let mut latencies = Latencies::default();
        let mut histogram = Histogram::new_with_bounds(1, MAX_NS, 3).unwrap();
        for (value, count) in values {
            latencies.record(value, count);
            histogram.saturating_record_n(value, count);
        }
        (latencies, histogram)
    }

    fn assert_equal(latencies: &Latencies, histogram: &Histogram<u64>, named: &str) {
        let of_class = |class| (middle_of(class), highest_of(class));
        let ours: Vec<_> = latencies.counted().map(|(class, count)| (of_class(class), count)).collect();
        let recorded = histogram.iter_recorded().map(|at| {
            let highest = at.value_iterated_to();
            ((histogram.median_equivalent(highest), highest), at.count_at_value())
        });
        assert_eq!(ours, recorded.collect::<Vec<_>>(), "{named}");
        let one = latencies;
        let figures = (one.count(), one.min_ns(), one.mean_ns().to_bits(), one.stddev_ns().to_bits());
        let expected =
            (histogram.len(), histogram.min(), histogram.mean().to_bits(), histogram.stdev().to_bits());
        assert_eq!(figures, expected, "{named}");
        // The maximum of an empty histogram, and the lowest value of a quantile of 0, are conventions of its own.
        assert_eq!(latencies.max_ns(), if histogram.is_empty() { 0 } else { histogram.max() }, "{named}");
        for share in [0.001, 0.01, 0.5, 0.9, 0.999, 1.0, 7.0] {
            assert_eq!(latencies.quantile_ns(share), histogram.value_at_quantile(share), "{named}: {share}");
        }
        for value in [0, 1, 999, 1 << 11, 1 << 30, MAX_NS] {
            assert_eq!(latencies.count_to(value), histogram.count_between(0, value), "{named}: {value}");
        }
        assert_eq!(latencies.is_empty(), histogram.is_empty(), "{named}");
    }

    #[test]
    fn the_figures_are_those_of_a_histogram_that_recorded_the_same_values() {
        assert_equal(&Latencies::default(), &both([]).1, "empty");
        let around = |value: u64| [value.saturating_sub(1), value, value.saturating_add(1)];
        let borders = (0..64).map(|bits| 1 << bits).chain([0, MAX_NS, CLASSES, u64::MAX]).flat_map(around);
        for value in borders.clone() {
            let (latencies, histogram) = both([(value, 1)]);
            assert_equal(&latencies, &histogram, &value.to_string());
        }
        let (latencies, histogram) = both(borders.map(|value| (value, 1 + value % 5)));
        assert_equal(&latencies, &histogram, "borders");
        let (latencies, histogram) = both([(7, u64::MAX), (7, 2), (9, u64::MAX)]);
        assert_equal(&latencies, &histogram, "saturated counts");
        for seed in 0..5 {
            let mut random = generator(seed, [0, 0]);
            // All magnitudes are equally probable.
            let mut value = || below(&mut random, u64::MAX) >> below(&mut random, 64);
            let (latencies, histogram) = both((0..2000).map(|number| (value(), 1 + number % 3)));
            assert_equal(&latencies, &histogram, &format!("seed {seed}"));
        }
    }

    #[test]
    fn a_sum_is_the_histogram_of_all_values() {
        let parts: Vec<Vec<(u64, u64)>> = (0..5)
            .map(|seed| {
                let mut random = generator(seed, [1, 0]);
                (0..300).map(|_| (below(&mut random, u64::MAX) >> below(&mut random, 64), 1)).collect()
            })
            .collect();
        let sum: Latencies = parts.iter().map(|part| both(part.clone()).0).collect::<Vec<_>>().iter().sum();
        let (latencies, histogram) = both(parts.concat());
        assert_equal(&sum, &histogram, "sum");
        assert_eq!(sum, latencies);
        assert!([].iter().sum::<Latencies>().is_empty());
    }

    #[test]
    fn counters_survive_the_way_to_another_process() {
        let (latencies, _) = both([(0, 1), (7, u64::MAX), (200, 300), (1 << 40, 2), (u64::MAX, 5)]);
        let bytes = latencies.to_bytes();
        let mut read = Latencies::default();
        assert_eq!((read.add_bytes(&bytes), &read), (Some(()), &latencies));
        read.add_bytes(&bytes).unwrap();
        assert_eq!(read, [&latencies, &latencies].into_iter().sum());
        assert_eq!(Latencies::default().to_bytes(), [0u8; 0]);
        // A class beyond the last, a count of 0, and ends within a number.
        let too_high = [0xff, 0xff, 0xff, 0x7f, 1];
        for bad in [&too_high[..], &[1, 0], &[1], &[0x80], &[0xff; 11], &[1, 0xff, 0xff]] {
            assert_eq!(Latencies::default().add_bytes(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn bins_are_those_of_fio() {
        // Latencies, and the names of the bins in which fio 3.33 counts them.
        let known = [
            (10, 10),
            (127, 127),
            (130, 131),
            (2384, 2384),
            (2400, 2416),
            (35_333, 35_584),
            (15_898_499, 15_925_248),
        ];
        let mut latencies = Latencies::default();
        for (latency_ns, bin) in known {
            assert_eq!(fio_bin(latency_ns), bin, "{latency_ns}");
            latencies.record(latency_ns, 2);
        }
        let expected: BTreeMap<u64, u64> = known.iter().map(|(_, bin)| (*bin, 2)).collect();
        assert_eq!(latencies.fio_bins(), expected);
        // Two latencies have one number if and only if they have one bin, and the numbers have no gaps.
        let (mut number, mut bin) = (0, 0);
        for latency_ns in 1..1 << 16 {
            number += usize::from(fio_bin(latency_ns) != bin);
            bin = fio_bin(latency_ns);
            assert_eq!(fio_bin_number(latency_ns), number, "{latency_ns}");
        }
        assert_eq!(fio_bin_number(u64::MAX), FIO_BINS - 1);
    }

    #[test]
    fn counters_are_allocated_for_classes_that_occur() {
        let (latencies, _) = both([(100, 1), (1_000_000, 5), (1_000_100, 1)]);
        assert_eq!(latencies.chunks.iter().flatten().count(), 2);
    }
}
