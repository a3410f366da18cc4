//! Limits the cost of wrong guesses of readahead. A guess is the first window of a stream that is not certain.

/// Pages that may be read on a guess. A guess that comes true earns double; every demanded page earns a little.
///
/// Bound: pages wasted on guesses ≤ `START` + demanded pages / `EARN_PER` at any time, since a guess that
/// comes true is not wasted. Under uniform random reads that is below 1% of the bytes.
#[derive(Debug)]
pub(super) struct Credit {
    pages: u64,
    /// Demanded pages that have not yet earned a whole one.
    earning: u64,
}

impl Credit {
    /// Enough for twenty streams of 4 KiB reads to start at once; as their guesses come true, more can.
    const START: u64 = 64;
    const MAX: u64 = 256;
    /// So many demanded pages earn one: 0.4%.
    const EARN_PER: u64 = 256;

    pub(super) const fn new() -> Self {
        Self { pages: Self::START, earning: 0 }
    }

    /// Takes up to `wanted` pages.
    pub(super) fn stake(&mut self, wanted: u64) -> u64 {
        let stake = wanted.min(self.pages);
        self.pages -= stake;
        stake
    }

    /// A guess of that many pages came true.
    pub(super) fn refund(&mut self, stake: u64) {
        self.pages = (self.pages + stake * 2).min(Self::MAX);
    }

    /// `pages` pages were missed.
    pub(super) fn earn(&mut self, pages: u64) {
        self.earning += pages.min(Self::EARN_PER);
        let earned = self.earning / Self::EARN_PER;
        self.earning %= Self::EARN_PER;
        self.pages = (self.pages + earned).min(Self::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_guesses_are_bounded_and_right_ones_earn() {
        let mut credit = Credit::new();
        let mut wasted = 0;
        for _ in 0..100_000 {
            credit.earn(1);
            wasted += credit.stake(3);
        }
        assert_eq!(wasted, Credit::START + 100_000 / Credit::EARN_PER);
        credit.refund(3);
        assert_eq!(credit.stake(100), 6);
    }
}
