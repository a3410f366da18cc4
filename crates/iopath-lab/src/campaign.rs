//! The rules that campaigns share: the order of cells and of pairs, the target (`campaign/target.rs`), and the progress
//! of a cell. What a failure ends is in `BenchError::scope` and `BenchError::into_failure`. Has no loop: each campaign
//! has its own. A survey measures its cells in the order of their importance, within a time: see `survey/schedule.rs`.

pub(crate) mod target;

use iopath_bench::progress::{Completed, Progress, Stage};
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

/// The sides of a comparison in the order of a round, from 0. The order of each even round is random, and the next
/// round has the opposite order: a linear drift (heat, a cache of flash that fills) cancels out over two rounds.
pub(crate) fn round(seed: u64, number: u32, sides: usize) -> Vec<usize> {
    let mut order = order(seed, number / 2, sides);
    if number % 2 == 1 {
        order.reverse();
    }
    order
}

/// Forwards the progress within a stage, but no stages: a cell is one.
pub(crate) struct OnlyAdvance<'a>(pub(crate) &'a mut dyn Progress);

impl Progress for OnlyAdvance<'_> {
    fn stage(&mut self, _stage: &Stage) {}

    fn advance(&mut self, done: f64) {
        self.0.advance(done);
    }

    fn completed(&mut self, completed: &Completed) {
        self.0.completed(completed);
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
    fn the_order_within_rounds_is_random_and_balanced() {
        let firsts: Vec<usize> = (0..40).map(|number| round(1, number, 2)[0]).collect();
        assert!(firsts.chunks(2).all(|two| two[0] != two[1]), "{firsts:?}");
        let starts: Vec<usize> = firsts.iter().copied().step_by(2).collect();
        assert!(starts.contains(&0) && starts.contains(&1), "{starts:?}");
        assert!((0..40).all(|number| round(1, number, 2).iter().sum::<usize>() == 1));
        // Over two rounds, each of several sides has the same mean place.
        for number in (0..40).step_by(2) {
            let [first, second] = [round(1, number, 5), round(1, number + 1, 5)];
            let place = |order: &[usize], side| order.iter().position(|one| *one == side).unwrap();
            assert!(
                (0..5).all(|side| place(&first, side) + place(&second, side) == 4),
                "{first:?} {second:?}"
            );
        }
    }
}
