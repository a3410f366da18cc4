//! The slowest bios. Bios of one batch with equal latency are one entry.

use super::report::Slow;

/// Entries kept.
const SLOWEST: usize = 10;

/// The slowest bios.
#[derive(Debug, Default)]
pub(super) struct Slowest {
    /// Slowest first.
    bios: Vec<Slow>,
    /// The shortest latency in a full list; 0 until there are [`SLOWEST`] entries.
    least_ns: u64,
}

impl Slowest {
    /// Whether a bio of this latency may be among them.
    #[inline]
    pub(super) const fn is_among(&self, q2c_ns: u64) -> bool {
        q2c_ns >= self.least_ns
    }

    #[cold]
    pub(super) fn insert(&mut self, bio: Slow) {
        let equal = |other: &&mut Slow| Slow { bios: bio.bios, sector: bio.sector, ..**other } == bio;
        if let Some(other) = self.bios.iter_mut().find(equal) {
            other.bios += bio.bios;
            other.sector = other.sector.min(bio.sector);
            return;
        }
        let index = self.bios.partition_point(|other| other.q2c_ns >= bio.q2c_ns);
        self.bios.insert(index, bio);
        self.bios.truncate(SLOWEST);
        if self.bios.len() == SLOWEST {
            self.least_ns = self.bios[SLOWEST - 1].q2c_ns;
        }
    }

    /// The list, with times since the log began.
    pub(super) fn report(&self, start_ns: u64) -> Vec<Slow> {
        let since_start = |slow: &Slow| Slow { queued_ns: slow.queued_ns.saturating_sub(start_ns), ..*slow };
        self.bios.iter().map(since_start).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bio(q2c_ns: u64, sector: u64) -> Slow {
        Slow {
            bios: 1,
            queued_ns: 1000,
            q2c_ns,
            d2c_ns: Some(1),
            queue: 0,
            stream: 0,
            op: "read",
            sector,
            sectors: 8,
            errno: 0,
        }
    }

    #[test]
    fn equal_bios_of_one_batch_are_one_entry() {
        let mut slowest = Slowest::default();
        for sector in [64, 8, 16] {
            slowest.insert(bio(500, sector));
        }
        slowest.insert(Slow { queued_ns: 2000, ..bio(500, 0) });
        let shown: Vec<_> = slowest.report(1000).iter().map(|slow| (slow.bios, slow.sector)).collect();
        assert_eq!(shown, [(3, 8), (1, 0)]);
    }

    #[test]
    fn the_slowest_are_kept_in_order() {
        let mut slowest = Slowest::default();
        for q2c_ns in [5, 9, 1, 7, 3, 8, 2, 6, 4, 10, 12, 11, 1, 2] {
            if slowest.is_among(q2c_ns) {
                slowest.insert(bio(q2c_ns, 0));
            }
        }
        let kept: Vec<_> = slowest.report(0).iter().map(|slow| slow.q2c_ns).collect();
        assert_eq!(kept, [12, 11, 10, 9, 8, 7, 6, 5, 4, 3]);
    }
}
