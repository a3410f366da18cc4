//! The rules that campaigns share: the order of cells and of pairs, the target (`campaign/target.rs`), and the progress
//! of a cell. What a failure ends is in `BenchError::scope` and `BenchError::into_failure`. Has no loop: each campaign
//! has its own. A survey measures its cells in the order of their importance, within a time: see `survey/schedule.rs`.

pub(crate) mod target;

use iopath_bench::progress::{Progress, Stage};
use iopath_report::random;

/// Separates the order of cells from other random numbers of the same seed.
const PURPOSE: u64 = 0x0DE2;

/// The numbers of the cells in the order of a round, which is random: a drift of the storage then looks like the effect
/// of no cell, and no cell always follows the same other one.
pub(crate) fn order(seed: u64, round: u32, cells: usize) -> Vec<usize> {
    let mut generator = random::generator(seed, [PURPOSE, round.into()]);
    let mut order: Vec<usize> = (0..cells).collect();
    for last in (1..cells).rev() {
        order.swap(last, random::below(&mut generator, last as u64 + 1) as usize);
    }
    order
}

/// The two sides in the order of a pair, from 0. The order of each even pair is random, and the next pair has the
/// opposite order: a linear drift (heat, a cache of flash that fills) cancels out over two pairs.
pub(crate) fn pair(seed: u64, number: u32) -> [usize; 2] {
    let order = order(seed, number / 2, 2);
    let first = order[(number % 2) as usize];
    [first, 1 - first]
}

/// Forwards the progress within a stage, but no stages: a cell is one.
pub(crate) struct OnlyAdvance<'a>(pub(crate) &'a mut dyn Progress);

impl Progress for OnlyAdvance<'_> {
    fn stage(&mut self, _stage: &Stage) {}

    fn advance(&mut self, done: f64) {
        self.0.advance(done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_each_cell_once_in_an_order_of_its_own() {
        let orders: Vec<Vec<usize>> = (1..=8).map(|round| order(1, round, 37)).collect();
        for (index, order) in orders.iter().enumerate() {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..37).collect::<Vec<_>>());
            assert!(!orders[..index].contains(order), "{order:?}");
            // A fit lists the workloads held back last: each half of a round has some.
            assert!(order.chunks(19).all(|part| part.iter().any(|one| *one >= 18)), "{order:?}");
        }
        assert_eq!(orders[0], order(1, 1, 37), "the seed and the round determine the order");
        assert_ne!(orders[0], order(2, 1, 37));
        assert!(order(1, 1, 0).is_empty() && order(1, 1, 1) == [0]);
    }

    #[test]
    fn the_order_within_pairs_is_random_and_balanced() {
        let firsts: Vec<usize> = (0..40).map(|number| pair(1, number)[0]).collect();
        assert!(firsts.chunks(2).all(|two| two[0] != two[1]), "{firsts:?}");
        let starts: Vec<usize> = firsts.iter().copied().step_by(2).collect();
        assert!(starts.contains(&0) && starts.contains(&1), "{starts:?}");
        assert!((0..40).all(|number| pair(1, number).iter().sum::<usize>() == 1));
    }
}
