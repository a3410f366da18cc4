//! How sure a finding is: each reason for doubt lowers its confidence. Does not change what the finding states.

use iopath_report::numbers::digits;
use iopath_report::result::{Confidence, RunResult, ServedBy};

use crate::survey::compare::cv;
use crate::survey::figures::{Facts, Figures, is_ranked, name};
use iopath_bench::warnings::CV_MAX;

use super::Found;

/// Fewer repetitions than this show no reliable spread.
const REPEATS_MIN: usize = 3;

/// Above this coefficient of variation, a measurement alone makes the confidence low.
const CV_LOW: f64 = 0.30;

/// A doubt that alone makes the confidence low.
const HEAVY: u32 = 2;

/// The confidence in a finding, and the reasons that lower it. A fact that the system reports has no doubts.
pub(super) fn confidence(figures: &Figures, found: &Found) -> (Confidence, Vec<String>) {
    if found.runs.is_empty() {
        return (Confidence::High, Vec::new());
    }
    let mut doubts = Vec::new();
    doubts.extend(found.is_inconclusive.then(|| (HEAVY, "a comparison is inconclusive".to_owned())));
    doubts.extend(repetitions(&found.runs));
    doubts.extend(noise(&found.runs));
    doubts.extend(medium(figures, &found.runs));
    doubts.extend(machine(figures.facts));
    let weight: u32 = doubts.iter().map(|(weight, _)| weight).sum();
    let level = match weight {
        0 => Confidence::High,
        1 => Confidence::Medium,
        _ => Confidence::Low,
    };
    (level, doubts.into_iter().map(|(_, doubt)| doubt).collect())
}

fn repetitions(runs: &[&RunResult]) -> Option<(u32, String)> {
    match runs.iter().map(|run| run.repeats.len()).min()? {
        0 | 1 => Some((HEAVY, "measured once".to_owned())),
        few if few < REPEATS_MIN => Some((1, format!("measured {few} times"))),
        _ => None,
    }
}

fn noise(runs: &[&RunResult]) -> Option<(u32, String)> {
    let noisy = runs.iter().filter_map(|run| Some((*run, cv(run)?)));
    let (run, cv) = noisy.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, cv)| *cv > CV_MAX)?;
    let weight = if cv > CV_LOW { HEAVY } else { 1 };
    Some((weight, format!("CV {:.0}% of {}", cv * 100.0, name(run))))
}

/// Whether storage, and which, served the runs.
fn medium(figures: &Figures, runs: &[&RunResult]) -> Vec<(u32, String)> {
    let Facts { is_model, no_disk, unwritten, compressing, .. } = figures.facts;
    if *is_model {
        return vec![(1, "the figures are those of a model".to_owned())];
    }
    let mut doubts = Vec::new();
    let cold = figures.runs.iter().filter(|run| run.served_by.is_some());
    let (ranked, cached): (Vec<&RunResult>, Vec<&RunResult>) = cold.partition(|run| is_ranked(run));
    if !cached.is_empty() {
        doubts
            .push((1, format!("a cache answered {} of {} runs", cached.len(), cached.len() + ranked.len())));
    }
    if runs.iter().any(|run| run.served_by == Some(ServedBy::Unknown)) {
        doubts.push((1, "no counter shows whether storage served it".to_owned()));
    }
    doubts.extend(no_disk.is_some().then(|| (1, "no disk is known beneath the target".to_owned())));
    doubts.extend(unwritten.map(|_| (1, "the file has holes or unwritten extents".to_owned())));
    doubts.extend(compressing.as_ref().map(|filesystem| (1, format!("{filesystem} compresses"))));
    doubts
}

fn machine(facts: &Facts) -> Option<(u32, String)> {
    let doubt = match facts.busy_cpus {
        _ if facts.is_model => return None,
        Some(busy) => format!("other programs kept up to {} of {} CPUs busy", digits(busy), facts.cores),
        None => "the load by other programs is not known".to_owned(),
    };
    facts.is_busy().then_some((1, doubt))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_report::Rw;
    use iopath_report::fixtures::run;

    const STEADY: [f64; 4] = [100.0, 101.0, 99.0, 100.0];

    fn idle() -> Facts {
        Facts { cores: 2, busy_cpus: Some(0.0), ..Facts::default() }
    }

    fn read(mbs: &[f64]) -> RunResult {
        run("kernel-direct", Rw::Read, 1 << 20, 1, mbs, 0.1)
    }

    fn of(runs: &[RunResult], facts: &Facts) -> (Confidence, Vec<String>) {
        let found = Found::measured("text".to_owned(), "evidence".to_owned(), runs.iter().take(1).collect());
        confidence(&Figures { runs, facts }, &found)
    }

    #[test]
    fn steady_runs_of_an_idle_machine_have_high_confidence() {
        assert_eq!(of(&[read(&STEADY)], &idle()), (Confidence::High, Vec::new()));
    }

    #[test]
    fn each_reason_for_doubt_lowers_the_confidence_and_is_named() {
        let memory = RunResult { served_by: Some(ServedBy::Memory), ..read(&STEADY) };
        let unknown = RunResult { served_by: Some(ServedBy::Unknown), ..read(&STEADY) };
        let steady = || vec![read(&STEADY)];
        let cases: [(Vec<RunResult>, Facts, Confidence, &str); 10] = [
            (vec![read(&[100.0])], idle(), Confidence::Low, "measured once"),
            (vec![read(&[100.0, 101.0])], idle(), Confidence::Medium, "measured 2 times"),
            (vec![read(&[100.0, 130.0, 90.0])], idle(), Confidence::Medium, "CV 20%"),
            (vec![read(&[100.0, 250.0, 60.0])], idle(), Confidence::Low, "CV 7"),
            (vec![read(&STEADY), memory], idle(), Confidence::Medium, "a cache answered 1 of 2 runs"),
            (vec![unknown], idle(), Confidence::Medium, "no counter"),
            (steady(), Facts { no_disk: Some("tmpfs".to_owned()), ..idle() }, Confidence::Medium, "no disk"),
            (steady(), Facts { unwritten: Some(0), ..idle() }, Confidence::Medium, "holes"),
            (steady(), Facts { busy_cpus: Some(1.5), ..idle() }, Confidence::Medium, "up to 1.50 of 2 CPUs"),
            (steady(), Facts { is_model: true, ..Facts::default() }, Confidence::Medium, "of a model"),
        ];
        for (runs, facts, expected, part) in cases {
            let (level, doubts) = of(&runs, &facts);
            assert_eq!(level, expected, "{part}: {doubts:?}");
            assert!(doubts.len() == 1 && doubts[0].contains(part), "{part}: {doubts:?}");
        }
    }

    #[test]
    fn two_doubts_and_an_inconclusive_comparison_make_the_confidence_low() {
        let facts = Facts { no_disk: Some("tmpfs".to_owned()), busy_cpus: None, ..idle() };
        let (level, doubts) = of(&[read(&STEADY)], &facts);
        assert_eq!((level, doubts.len()), (Confidence::Low, 2), "{doubts:?}");
        let runs = [read(&STEADY)];
        let found = Found::measured(String::new(), String::new(), runs.iter().collect()).inconclusive(true);
        assert_eq!(confidence(&Figures { runs: &runs, facts: &idle() }, &found).0, Confidence::Low);
        let fact = Found::fact(String::new(), String::new());
        assert_eq!(confidence(&Figures { runs: &runs, facts: &facts }, &fact).0, Confidence::High);
    }
}
