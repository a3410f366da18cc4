//! Rounds of several sides in alternating order. Every comparison with a peer runs here.

use std::time::Duration;

use anyhow::Result;

use super::cpu;
use super::samples::Samples;

/// A warning is printed if more cores than this are busy on the idle machine.
const IDLE_CORES_MAX: f64 = 0.2;

/// How long the idle machine is observed before the rounds.
const OBSERVE: Duration = Duration::from_millis(500);

/// The runs of each side, in the order of the rounds.
#[derive(Debug)]
pub(super) struct Turns<T> {
    pub(super) sides: Vec<Vec<T>>,
    /// Cores that other programs kept busy before the rounds.
    pub(super) others: f64,
}

/// Runs each of `sides` sides once in each of `rounds` rounds; every second round in the reverse order. Prints what
/// else uses the machine.
pub(super) fn alternate<T>(
    name: &str,
    rounds: u32,
    sides: usize,
    mut run: impl FnMut(usize) -> Result<T>,
) -> Result<Turns<T>> {
    let others = cpu::idle_cores(OBSERVE)?;
    if others > IDLE_CORES_MAX {
        eprintln!("warning: {name}: other programs keep {others:.1} cores busy");
    }
    let mut turns = Turns { sides: (0..sides).map(|_| Vec::new()).collect(), others };
    for round in 0..rounds {
        eprintln!("{name}: round {} of {rounds}", round + 1);
        let mut order: Vec<usize> = (0..sides).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for side in order {
            turns.sides[side].push(run(side)?);
        }
    }
    Ok(turns)
}

impl<T> Turns<T> {
    /// A value of each run of a side.
    pub(super) fn samples(&self, side: usize, value: impl Fn(&T) -> f64) -> Samples {
        Samples::new(self.sides[side].iter().map(value).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_runs_once_a_round_and_the_order_alternates() {
        let mut order = Vec::new();
        let turns = alternate("test", 3, 2, |side| {
            order.push(side);
            Ok(order.len() as f64)
        })
        .expect("no run fails");
        assert_eq!(order, [0, 1, 1, 0, 0, 1]);
        assert_eq!(turns.samples(1, |&number| number).median().to_bits(), 3.0_f64.to_bits());
    }
}
