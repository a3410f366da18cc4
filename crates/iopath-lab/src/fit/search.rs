//! A deterministic search for the minimum of a function: a pattern search along each variable, on a logarithmic scale,
//! with decreasing steps. Does not depend on models.

use iopath_report::random::{below, generator};

/// A variable of the search. All values are positive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Variable {
    pub(crate) start: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) is_whole: bool,
}

impl Variable {
    /// A variable that starts at a direct estimate, limited to `min` and `max`.
    pub(crate) fn new(start: f64, min: f64, max: f64) -> Self {
        Self { start: start.clamp(min, max), min, max, is_whole: false }
    }

    pub(crate) fn whole(self) -> Self {
        Self { is_whole: true, start: self.start.round(), ..self }
    }

    /// The value after one step by `factor`.
    fn moved(&self, value: f64, factor: f64) -> f64 {
        let to = value * factor;
        let to = if !self.is_whole {
            to
        } else if factor > 1.0 {
            to.round().max(value + 1.0)
        } else {
            to.round().min(value - 1.0)
        };
        to.clamp(self.min, self.max)
    }
}

/// The factors of the steps, the largest first.
const STEPS: [f64; 6] = [2.0, 1.4, 1.2, 1.1, 1.05, 1.025];

/// The best point found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Best {
    pub(crate) values: Vec<f64>,
    pub(crate) score: f64,
    pub(crate) evaluations: u32,
}

/// The largest factor by which a restart moves a variable.
const RESTART_FACTOR: f64 = 2.5;

/// The seed of the restarts.
const SEED: u64 = 0x5EA2C;

/// Minimises `score` within the ranges. When no step of any size improves the score, the search restarts near the best
/// point, until it has made `evaluations_max` evaluations. An infinite score marks a point that is not valid.
///
/// # Errors
/// The first error of `score`.
pub(crate) fn minimise<E>(
    variables: &[Variable],
    evaluations_max: u32,
    mut score: impl FnMut(&[f64]) -> Result<f64, E>,
) -> Result<Best, E> {
    let mut random = generator(SEED, [0, 0]);
    let start: Vec<f64> = variables.iter().map(|variable| variable.start).collect();
    let mut best = descend(variables, start, evaluations_max, &mut score)?;
    while best.evaluations < evaluations_max {
        let moved = variables.iter().zip(&best.values).map(|(variable, value)| {
            let share = below(&mut random, 2001) as f64 / 1000.0 - 1.0;
            let value = (value * RESTART_FACTOR.powf(share)).clamp(variable.min, variable.max);
            if variable.is_whole { value.round() } else { value }
        });
        let moved: Vec<f64> = moved.collect();
        let found = descend(variables, moved, evaluations_max - best.evaluations, &mut score)?;
        let evaluations = best.evaluations + found.evaluations;
        best = Best { evaluations, ..if found.score < best.score { found } else { best } };
    }
    Ok(best)
}

/// Searches from one point.
fn descend<E>(
    variables: &[Variable],
    values: Vec<f64>,
    evaluations_max: u32,
    score: &mut impl FnMut(&[f64]) -> Result<f64, E>,
) -> Result<Best, E> {
    let mut best = Best { score: score(&values)?, values, evaluations: 1 };
    // The last direction of each variable. The next step tries this direction first.
    let mut upward = vec![true; variables.len()];
    for step in STEPS {
        loop {
            let before = best.score;
            for (index, variable) in variables.iter().enumerate() {
                let first = upward[index];
                for is_upward in [first, !first] {
                    let factor = if is_upward { step } else { 1.0 / step };
                    let left = evaluations_max - best.evaluations;
                    if follow(&mut best, index, variable, factor, left, score)? {
                        upward[index] = is_upward;
                        break;
                    }
                }
            }
            if best.evaluations >= evaluations_max {
                return Ok(best);
            }
            // If a round gains little, continue with a smaller step.
            if before - best.score <= before.abs() * 0.01 {
                break;
            }
        }
    }
    Ok(best)
}

/// Moves one variable by a factor while this improves the score. Returns whether the variable has moved.
fn follow<E>(
    best: &mut Best,
    index: usize,
    variable: &Variable,
    factor: f64,
    evaluations_max: u32,
    score: &mut impl FnMut(&[f64]) -> Result<f64, E>,
) -> Result<bool, E> {
    for moves in 0..evaluations_max {
        let value = variable.moved(best.values[index], factor);
        if value.to_bits() == best.values[index].to_bits() {
            return Ok(moves > 0);
        }
        let mut values = best.values.clone();
        values[index] = value;
        best.evaluations += 1;
        let found = score(&values)?;
        if found >= best.score {
            return Ok(moves > 0);
        }
        (best.score, best.values) = (found, values);
    }
    Ok(evaluations_max > 0)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn run(variables: &[Variable], evaluations: u32, score: impl Fn(&[f64]) -> f64) -> Best {
        minimise(variables, evaluations, |values| Ok::<_, Infallible>(score(values))).unwrap()
    }

    #[test]
    fn finds_a_minimum_orders_of_magnitude_away() {
        let variables = [Variable::new(1.0, 1e-6, 1e9), Variable::new(1e6, 1.0, 1e9)];
        let best = run(&variables, 2000, |at| (at[0] / 3e4).ln().abs() + 2.0 * (at[1] / 70.0).ln().abs());
        assert!((best.values[0] / 3e4).ln().abs() < 0.03, "{best:?}");
        assert!((best.values[1] / 70.0).ln().abs() < 0.03, "{best:?}");
    }

    #[test]
    fn values_stay_in_their_ranges_whole_numbers_stay_whole_and_the_limit_of_evaluations_holds() {
        let variables = [Variable::new(8.0, 1.0, 16.0), Variable::new(3.0, 1.0, 64.0).whole()];
        let best = run(&variables, 500, |at| -at[0] + (at[1] - 21.0).abs());
        assert!((best.values[0] - 16.0).abs() < 1e-9 && (best.values[1] - 21.0).abs() < 1e-9, "{best:?}");
        let few = run(&variables, 10, |at| -at[0]);
        assert!(few.evaluations <= 10);
    }

    #[test]
    fn a_point_that_is_not_valid_is_never_the_result() {
        let variables = [Variable::new(4.0, 1.0, 1000.0)];
        let best = run(&variables, 300, |at| if at[0] > 50.0 { f64::INFINITY } else { 1.0 / at[0] });
        assert!(best.values[0] <= 50.0 && best.values[0] > 45.0, "{best:?}");
    }
}
