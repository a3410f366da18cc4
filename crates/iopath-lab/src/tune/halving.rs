//! Finds the best of several candidates by successive halving, and confirms it against the present state. Does not
//! change settings: the caller measures.
//!
//! Each round measures the base and all remaining candidates alternately, in random order, and keeps the better half. A
//! round has twice the repetitions of the previous one. The winner of a selection looks better than it is, so the
//! confirmation uses new measurements only: pairs of base and winner, evaluated as by `compare --live`.

use iopath_report::stats::contrast::Contrast;
use iopath_report::tune::TrialVerdict;

use crate::campaign::{self, order};
use crate::compare::looks::Looks;

/// The repetitions of the first round, and the maximum of a round.
const REPETITIONS: [u32; 2] = [2, 8];

/// The limits of a search.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The maximum number of pairs of the confirmation.
    pub pairs_max: u32,
    /// The largest ratio less 1 that counts as the same.
    pub threshold: f64,
    /// Seeds the order of measurements.
    pub seed: u64,
}

/// The removal of a candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Removal {
    /// The round, from 1.
    pub(super) round: u32,
    /// The lowest ratio to the base that was kept.
    pub(super) kept_from: f64,
}

/// The outcome of a search.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    /// The measurements of each candidate in the rounds; the base is the first one.
    pub(super) values: Vec<Vec<f64>>,
    /// The ratio of each candidate to the base in the rounds of both; none before the end of a round, and for the base.
    pub(super) ratios: Vec<Option<f64>>,
    /// The removal of a candidate; none for the winner and the base.
    pub(super) removed: Vec<Option<Removal>>,
    /// The number of the winner, from 1; none before the last round.
    pub(super) winner: Option<usize>,
    pub(super) verdict: TrialVerdict,
    /// The ratio of winner to base in the confirmation, less 1, and its interval.
    pub(super) difference: f64,
    pub(super) interval: Option<[f64; 2]>,
    pub(super) pairs: u32,
}

/// Searches among the candidates 1 to `count`; 0 is the base. `measure` returns a positive number, the larger the
/// better. The first error of `measure` ends the search: it is returned with the outcome so far.
pub(super) fn search<E>(
    count: usize,
    limits: &Limits,
    mut measure: impl FnMut(usize) -> Result<f64, E>,
) -> (Outcome, Option<E>) {
    let mut outcome = Outcome {
        values: vec![Vec::new(); count + 1],
        ratios: vec![None; count + 1],
        removed: vec![None; count + 1],
        winner: None,
        verdict: TrialVerdict::Inconclusive,
        difference: 0.0,
        interval: None,
        pairs: 0,
    };
    let error = rounds(&mut outcome, limits, &mut measure).err();
    (outcome, error)
}

/// The rounds and the confirmation of a search.
fn rounds<E>(
    outcome: &mut Outcome,
    limits: &Limits,
    measure: &mut dyn FnMut(usize) -> Result<f64, E>,
) -> Result<(), E> {
    let count = outcome.values.len() - 1;
    let mut alive: Vec<usize> = (1..=count).collect();
    let (mut round, mut repetitions) = (0, REPETITIONS[0]);
    while alive.len() > 1 {
        round += 1;
        for _ in 0..repetitions {
            let cells = [&[0], &alive[..]].concat();
            let repetition = outcome.values[0].len() as u32;
            for number in order(limits.seed, repetition, cells.len()).into_iter().map(|index| cells[index]) {
                outcome.values[number].push(measure(number)?);
            }
        }
        // The n-th values of two remaining candidates were measured at about the same time.
        let values = &outcome.values;
        let score = |number: usize| {
            Contrast::paired(&values[0], &values[number]).map_or(f64::MIN, |one| one.log_ratio)
        };
        alive.sort_by(|a, b| score(*b).total_cmp(&score(*a)));
        for number in &alive {
            outcome.ratios[*number] = Some(score(*number).exp());
        }
        let losers = alive.split_off(alive.len().div_ceil(2));
        let kept_from = alive.last().map_or(0.0, |number| score(*number).exp());
        for loser in losers {
            outcome.removed[loser] = Some(Removal { round, kept_from });
        }
        repetitions = (repetitions * 2).min(REPETITIONS[1]);
    }
    let winner = alive.first().copied().unwrap_or(0);
    outcome.winner = Some(winner);
    let (mut looks, mut base, mut best) = (Looks::new(limits.pairs_max), Vec::new(), Vec::new());
    for pairs in 1..=limits.pairs_max {
        for side in campaign::round(limits.seed, pairs - 1, 2) {
            // Side 0 is the base.
            let value = measure([0, winner][side])?;
            [&mut base, &mut best][side].push(value);
        }
        let Some(alpha) = looks.due(pairs) else { continue };
        outcome.pairs = pairs;
        if let Some(contrast) = Contrast::paired(&base, &best) {
            let interval = contrast.interval(alpha);
            outcome.difference = contrast.log_ratio.exp_m1();
            outcome.interval = interval.map(|ends| ends.map(f64::exp_m1));
            outcome.verdict = verdict(interval, limits.threshold.ln_1p());
        }
        if outcome.verdict != TrialVerdict::Inconclusive {
            break;
        }
    }
    Ok(())
}

/// The verdict that an interval of the logarithm of the ratio permits.
fn verdict(interval: Option<[f64; 2]>, margin: f64) -> TrialVerdict {
    match interval {
        Some([low, high]) if -margin <= low && high <= margin => TrialVerdict::Same,
        Some([low, _]) if low > 0.0 => TrialVerdict::Better,
        Some([_, high]) if high < 0.0 => TrialVerdict::Worse,
        _ => TrialVerdict::Inconclusive,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_report::stats::noise::Noise;

    const LIMITS: Limits = Limits { pairs_max: 20, threshold: 0.03, seed: 1 };

    /// A search in which the candidates have these true ratios, with noise of 5%.
    fn searched(trial: u64, ratios: &[f64]) -> Outcome {
        let noise: Vec<f64> = Noise::Gaussian.samples(trial, [4000, 1], 1.0)[0].clone();
        let mut drawn = noise.into_iter();
        let measure = |number: usize| {
            Ok::<f64, ()>(drawn.next().unwrap() * if number == 0 { 1.0 } else { ratios[number - 1] })
        };
        search(ratios.len(), &Limits { seed: trial, ..LIMITS }, measure).0
    }

    #[test]
    fn a_candidate_that_is_20_percent_better_is_found_and_confirmed() {
        let ratios = [1.0, 0.9, 1.2, 1.0, 1.05, 0.7, 1.0, 1.1];
        let found = (0..200).filter(|trial| {
            let outcome = searched(*trial, &ratios);
            outcome.winner == Some(3) && outcome.verdict == TrialVerdict::Better
        });
        let found = found.count();
        eprintln!("the best of 8 is found in {found} of 200 searches");
        assert!(found >= 180, "{found}");
    }

    #[test]
    fn equal_candidates_are_rarely_kept_although_one_of_them_wins_the_selection() {
        let kept =
            (0..1000).filter(|trial| searched(*trial, &[1.0; 8]).verdict == TrialVerdict::Better).count();
        eprintln!("a candidate without an effect is kept in {kept} of 1000 searches");
        // 5% for both directions, plus three standard errors.
        assert!(kept <= 71, "{kept}");
    }

    #[test]
    fn each_round_removes_half_and_doubles_the_repetitions() {
        let mut counts = [0; 9];
        let (outcome, _) = search(8, &LIMITS, |number| {
            counts[number] += 1;
            Ok::<f64, ()>(100.0 + number as f64 * 10.0)
        });
        assert_eq!((outcome.winner, outcome.verdict, outcome.pairs), (Some(8), TrialVerdict::Better, 5));
        let removed: Vec<u32> = outcome.removed.iter().map(|one| one.map_or(0, |one| one.round)).collect();
        assert_eq!(removed, [0, 1, 1, 1, 1, 2, 2, 3, 0]);
        let rounds: Vec<usize> = outcome.values.iter().map(Vec::len).collect();
        assert_eq!(rounds, [14, 2, 2, 2, 2, 6, 6, 14, 14]);
        assert_eq!((counts[0], counts[8]), (19, 19), "with the pairs of the confirmation");
    }

    #[test]
    fn a_removed_candidate_is_never_better_than_those_that_its_round_kept() {
        // The storage becomes slower with each measurement, and the candidates differ by less than that.
        let mut speed = 1000.0;
        let (outcome, _) = search(4, &LIMITS, |number| {
            speed *= 0.97;
            Ok::<f64, ()>(speed * (1.0 + number as f64 / 100.0))
        });
        let mean =
            |number: usize| outcome.values[number].iter().sum::<f64>() / outcome.values[number].len() as f64;
        let winner = outcome.winner.unwrap();
        let mut removed = 0;
        for (number, removal) in outcome.removed.iter().enumerate() {
            let Some(Removal { kept_from, .. }) = removal else { continue };
            assert!(outcome.ratios[number].unwrap() <= *kept_from, "{outcome:?}");
            removed += usize::from(mean(number) > mean(winner));
        }
        assert!(removed > 0, "the means of different rounds contradict the removals: {outcome:?}");
    }

    #[test]
    fn a_single_candidate_is_only_confirmed() {
        let (outcome, _) = search(1, &LIMITS, |number| Ok::<f64, ()>(if number == 0 { 2.0 } else { 1.0 }));
        assert_eq!((outcome.winner, outcome.verdict), (Some(1), TrialVerdict::Worse));
    }

    #[test]
    fn an_error_ends_the_search_with_the_values_so_far() {
        let mut left = 17;
        let (outcome, error) = search(3, &LIMITS, |_| {
            left -= 1;
            if left > 0 { Ok(1.0) } else { Err("gone") }
        });
        assert_eq!(
            (error, outcome.winner, outcome.verdict),
            (Some("gone"), None, TrialVerdict::Inconclusive)
        );
        assert_eq!(outcome.values.iter().map(Vec::len).sum::<usize>(), 16);
        assert_eq!(
            outcome.removed.iter().flatten().filter(|removal| removal.round == 1).count(),
            1,
            "the first round is complete"
        );
    }
}
