//! The workloads: pages of a trace, and synthetic mixes of skewed reads and scans, each from a fixed seed.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::HashSet;

/// A sequence of pages, and the numbers of frames to serve it with.
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) pages: Vec<u64>,
    pub(crate) frames: [u32; 3],
}

/// Pages of 8 KiB that a trace touches, on all its disks.
pub(crate) fn traced(name: &str, csv: &str) -> Workload {
    let mut pages = Vec::new();
    for line in csv.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [_, _, sector, sectors, disk] = fields[..] else { panic!("not a line of a trace: {line:?}") };
        let number = |text: &str| text.parse::<u64>().unwrap_or_else(|error| panic!("{text:?}: {error}"));
        let (first, last) = (number(sector) / 16, (number(sector) + number(sectors) - 1) / 16);
        pages.extend((first..=last).map(|page| page | number(disk) << 40));
    }
    let distinct = pages.iter().collect::<HashSet<_>>().len() as u32;
    let name = format!("{name}: {} accesses to {distinct} pages", pages.len());
    Workload { name, pages, frames: [distinct / 20, distinct / 10, distinct / 4] }
}

/// The synthetic workloads, each with this many accesses.
pub(crate) fn made(accesses: usize) -> Vec<Workload> {
    let frames = [1_000, 5_000, 20_000];
    let mut workloads = Vec::new();
    for skew in [0.8, 1.0] {
        let zipf = Zipf::new(100_000, skew);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let pages = (0..accesses).map(|_| zipf.draw(&mut rng)).collect();
        workloads.push(Workload { name: format!("Zipf {skew} over 100,000 pages"), pages, frames });
        let pages = with_scans(accesses, &zipf);
        workloads.push(Workload {
            name: format!("the same, half of it scans of 10,000 pages ({skew})"),
            pages,
            frames,
        });
    }
    let around = (0..accesses as u64).map(|access| access % 6_000).collect();
    workloads.push(Workload { name: "cyclic over 6,000 pages".to_owned(), pages: around, frames });
    workloads
}

/// Every second read belongs to a scan of 10,000 pages that are not read again.
fn with_scans(accesses: usize, zipf: &Zipf) -> Vec<u64> {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut scan = 1 << 32;
    let mut next = |access: usize| {
        if (access / 10_000).is_multiple_of(2) {
            return zipf.draw(&mut rng);
        }
        scan += 1;
        scan
    };
    (0..accesses).map(&mut next).collect()
}

/// Page n is drawn in proportion to 1 / n^skew; pages are numbered out of order.
struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    fn new(pages: usize, skew: f64) -> Self {
        let mut sum = 0.0;
        let weight = |rank: usize| {
            sum += 1.0 / (rank as f64).powf(skew);
            sum
        };
        Self { cumulative: (1..=pages).map(weight).collect() }
    }

    fn draw(&self, rng: &mut ChaCha8Rng) -> u64 {
        let sum = self.cumulative.last().expect("there are pages");
        let point = rng.random::<f64>() * sum;
        let rank = self.cumulative.partition_point(|below| *below < point) as u64;
        rank.wrapping_mul(0x9E37_79B9) % (1 << 32)
    }
}
