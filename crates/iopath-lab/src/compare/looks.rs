//! When a live comparison evaluates its data, and with which error rate. Does not compare.
//!
//! An evaluation after each pair would find a difference sooner or later without there being one. The looks are
//! therefore fixed in advance, and their error rates add up to 5%: by the inequality of Bonferroni, no more than one of
//! twenty A/A comparisons ends with a difference, at any correlation of the looks. Each look spends the share of the
//! new pairs.

/// The error rate of the whole comparison.
const ALPHA: f64 = 0.05;

/// The pairs of the first look.
const FIRST: u32 = 5;

/// The factor from one look to the next.
const GROWTH: f64 = 1.4;

/// The looks of a comparison with a maximum number of pairs.
#[derive(Debug, Clone)]
pub(crate) struct Looks {
    pairs_max: u32,
    /// The pairs of the next scheduled look.
    next: u32,
    /// The pairs whose share of the error rate is spent.
    spent: u32,
    pub(crate) count: u32,
}

impl Looks {
    pub(crate) fn new(pairs_max: u32) -> Self {
        Self { pairs_max, next: FIRST.min(pairs_max), spent: 0, count: 0 }
    }

    /// The error rate of a look at this number of pairs, if one is scheduled. Further calls return later looks.
    pub(crate) fn due(&mut self, pairs: u32) -> Option<f64> {
        if pairs < self.next || pairs > self.pairs_max {
            return None;
        }
        self.next = ((f64::from(self.next) * GROWTH).ceil() as u32).max(pairs + 1).min(self.pairs_max);
        let share = pairs - self.spent;
        self.spent = pairs;
        self.count += 1;
        (share > 0).then(|| ALPHA * f64::from(share) / f64::from(self.pairs_max))
    }

    /// The error rate of the last look of a comparison that ends early: all that is left.
    pub(crate) fn last(&mut self) -> f64 {
        let left = self.pairs_max - self.spent;
        self.spent = self.pairs_max;
        self.count += 1;
        ALPHA * f64::from(left) / f64::from(self.pairs_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_rates_of_all_looks_add_up_to_5_percent() {
        for pairs_max in [1, 4, 5, 6, 40, 1000] {
            let mut looks = Looks::new(pairs_max);
            let rates: Vec<f64> = (1..=pairs_max).filter_map(|pairs| looks.due(pairs)).collect();
            assert!((rates.iter().sum::<f64>() - ALPHA).abs() < 1e-12, "{pairs_max}: {rates:?}");
        }
        let mut looks = Looks::new(40);
        let early: f64 = (1..=17).filter_map(|pairs| looks.due(pairs)).sum();
        assert!((early + looks.last() - ALPHA).abs() < 1e-12);
    }

    #[test]
    fn looks_become_rarer() {
        let mut looks = Looks::new(40);
        let at: Vec<u32> = (1..=40).filter(|pairs| looks.due(*pairs).is_some()).collect();
        assert_eq!(at, [5, 7, 10, 14, 20, 28, 40]);
    }
}
