//! Runs a bench of our crates that prints one line per figure: name, tab, number. `queue.rs` and `log.rs` interpret the
//! figures.

use std::collections::BTreeMap;
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use super::samples::Samples;
use crate::workspace;

/// Numbers, by the name of the case.
pub(super) type Lines = BTreeMap<String, f64>;

/// The numbers of all rounds, by the name of the case.
pub(super) type Rounds = BTreeMap<String, Samples>;

/// Collects each number over `rounds` runs of `once`.
pub(super) fn collect(name: &str, rounds: u32, once: impl Fn() -> Result<Lines>) -> Result<Rounds> {
    let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for round in 0..rounds {
        eprintln!("{name}: round {} of {rounds}", round + 1);
        for (case, number) in once()? {
            all.entry(case).or_default().push(number);
        }
    }
    Ok(all.into_iter().map(|(case, numbers)| (case, Samples::new(numbers))).collect())
}

/// Runs a bench once. Cargo adds `--bench`.
pub(super) fn run(package: &str, bench: &str, arguments: &[&str]) -> Result<Lines> {
    let mut command = workspace::cargo();
    command.args(["bench", "--quiet", "--package", package, "--bench", bench, "--"]).args(arguments);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("{command:?}: {}", output.status);
    }
    parse(&String::from_utf8_lossy(&output.stdout))
}

pub(super) fn parse(lines: &str) -> Result<Lines> {
    let number = |line: &str| {
        let (name, number) = line.split_once('\t').with_context(|| format!("no tab in {line:?}"))?;
        Ok((name.to_owned(), number.parse().with_context(|| format!("no number in {line:?}"))?))
    };
    lines.lines().map(number).collect()
}

/// The numbers of one round.
#[cfg(test)]
pub(super) fn once(lines: &str) -> Rounds {
    let lines = parse(lines).expect("name, tab, number");
    lines.into_iter().map(|(case, number)| (case, Samples::constant(number))).collect()
}

pub(super) fn samples(rounds: &Rounds, case: &str) -> Result<Samples> {
    rounds.get(case).cloned().with_context(|| format!("the output of the bench has no figure {case:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_without_tab_or_number_are_refused() {
        assert_eq!(parse("a, b\t1.5\nc\t2\n").expect("name, tab, number").len(), 2);
        assert!(parse("ascend, random, 32").is_err() && parse("ascend\tx").is_err());
    }

    #[test]
    fn each_case_has_its_numbers_of_all_rounds() {
        let runs = std::cell::Cell::new(0.0);
        let once = || {
            runs.set(runs.get() + 1.0);
            Ok(Lines::from([("rising".to_owned(), runs.get()), ("same".to_owned(), 7.0)]))
        };
        let rounds = collect("test", 3, once).expect("no run fails");
        let expected = [("rising", vec![1.0, 2.0, 3.0]), ("same", vec![7.0; 3])];
        let expected = expected.map(|(case, numbers)| (case.to_owned(), Samples::new(numbers)));
        assert_eq!(rounds, Rounds::from(expected));
    }
}
