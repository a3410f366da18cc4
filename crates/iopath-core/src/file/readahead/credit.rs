//! Limits the cost of wrong guesses of readahead. A guess is the first window of a stream that is not certain.

/// The number of pages that may be read on a guess. A correct guess earns double; every demanded page earns a little.
///
/// Bound: pages wasted on wrong guesses ≤ `START` + demanded pages / `EARN_PER` at any time. Under uniform random reads
/// that is below 1% of the bytes.
#[derive(Debug)]
pub(super) struct Credit {
    pages: u64,
    /// Demanded pages that have not yet earned a whole page.
    earning: u64,
}

impl Credit {
    /// Twenty streams of 4 KiB reads can start at once. Their correct guesses let more streams start.
    const START: u64 = 64;
    const MAX: u64 = 256;
    /// The number of demanded pages that earn one page: 0.4%.
    const EARN_PER: u64 = 256;

    pub(super) const fn new() -> Self {
        Self { pages: Self::START, earning: 0 }
    }

    /// Takes up to `wanted` pages.
    pub(super) fn take(&mut self, wanted: u64) -> u64 {
        let guessed = wanted.min(self.pages);
        self.pages -= guessed;
        guessed
    }

    /// Earns credit for a correct guess of this many pages.
    pub(super) fn refund(&mut self, guessed: u64) {
        self.pages = (self.pages + guessed * 2).min(Self::MAX);
    }

    /// Earns credit for `pages` missed pages.
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
            wasted += credit.take(3);
        }
        assert_eq!(wasted, Credit::START + 100_000 / Credit::EARN_PER);
        credit.refund(3);
        assert_eq!(credit.take(100), 6);
    }
}
