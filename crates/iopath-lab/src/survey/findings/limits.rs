//! Findings on limits other than the storage: the CPU, and layers beneath the target that change its bytes.

use iopath_report::numbers::digits;
use iopath_report::result::RunResult;

use super::Found;
use crate::survey::compare::rate;
use crate::survey::figures::{Figures, is_ranked, mb, name};

/// The share of the time in which the threads of a run that the CPU limits are busy.
const SHARE_MIN: f64 = 0.9;

/// The threads of some runs never waited for storage.
pub(super) fn cpu<'a>(figures: &Figures<'a>) -> Option<Found<'a>> {
    let known: Vec<(&RunResult, f64)> = figures
        .runs
        .iter()
        .filter(|run| is_ranked(run) && !run.warm && run.path != "null")
        .filter_map(|run| Some((run, share(run)?)))
        .collect();
    let limited: Vec<&(&RunResult, f64)> = known.iter().filter(|(_, share)| *share >= SHARE_MIN).collect();
    let (fastest, of_fastest) = **limited.iter().max_by(|a, b| rate(a.0).total_cmp(&rate(b.0)))?;
    let text = format!(
        "The CPU, not the storage, limits {} of {} measurements: more jobs, larger blocks or direct I/O may be faster.",
        limited.len(),
        known.len()
    );
    let evidence = format!(
        "threads without a wait for at least {}% of the time; the fastest of them: {}, {}, {}%",
        digits(SHARE_MIN * 100.0),
        name(fastest),
        mb(rate(fastest)),
        digits(of_fastest.min(1.0) * 100.0)
    );
    Some(Found::measured(text, evidence, vec![fastest]))
}

/// The share of the time in which the threads of a run were busy.
fn share(run: &RunResult) -> Option<f64> {
    let used = run.threads?;
    let threads = f64::from(run.jobs) * run.targets.len().max(1) as f64;
    let share = (used.user_seconds + used.system_seconds) / (run.seconds * threads);
    share.is_finite().then_some(share)
}

/// Layers that encrypt, compress or deduplicate.
pub(super) fn beneath<'a>(figures: &Figures<'a>) -> Option<Found<'a>> {
    let transforms = &figures.facts.transforms;
    let text =
        "Layers beneath the target change its bytes: the figures are those of the storage with these layers.";
    (!transforms.is_empty()).then(|| Found::fact(text.to_owned(), transforms.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::figures::Facts;
    use iopath_report::Rw;
    use iopath_report::fixtures::run;
    use iopath_report::result::ThreadUse;

    #[test]
    fn runs_whose_threads_never_wait_are_limited_by_the_cpu() {
        let with = |path: &str, busy: f64| RunResult {
            threads: Some(ThreadUse { user_seconds: busy, system_seconds: 2.0 * busy, context_switches: 1 }),
            ..run(path, Rw::Read, 4096, 1, &[100.0; 3], 0.3)
        };
        let facts = Facts::default();
        let found = |runs: &[RunResult]| {
            cpu(&Figures { runs, facts: &facts }).map(|found| (found.text, found.evidence))
        };
        assert_eq!(found(&[with("kernel-direct", 0.5)]), None);
        let (text, evidence) = found(&[with("kernel-direct", 0.5), with("kernel-buffered", 0.98)]).unwrap();
        assert!(text.contains("limits 1 of 2 measurements"), "{text}");
        assert!(evidence.contains("kernel-buffered") && evidence.contains("98"), "{evidence}");
    }

    #[test]
    fn layers_beneath_are_named() {
        let facts =
            Facts { transforms: vec!["dm-0 (dm-crypt, LUKS2) encrypts".to_owned()], ..Facts::default() };
        let found = beneath(&Figures { runs: &[], facts: &facts }).unwrap();
        assert!(found.evidence.contains("LUKS2"), "{found:?}");
        assert_eq!(beneath(&Figures { runs: &[], facts: &Facts::default() }), None);
    }
}
