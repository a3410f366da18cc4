//! Interprets the figures of a survey: one row of [`FINDINGS`] for each finding. A finding states a difference only if
//! it is significant, and otherwise that there is none.
//!
//! Recommendations are in `findings/advice.rs`, those of random and durable writes in `findings/small_writes.rs`, page
//! caches in `findings/caches.rs`, anomalies in `findings/anomalies.rs`, the validity of the figures in
//! `findings/validity.rs`, other limits than the storage in `findings/limits.rs`, the confidence in each finding in
//! `findings/confidence.rs`, shared code in `survey/figures.rs`. A new finding needs a function in one of these files
//! and a row here.

mod advice;
mod anomalies;
mod caches;
mod confidence;
mod limits;
mod small_writes;
mod validity;

use iopath_report::result::{Finding, RunResult};

use super::figures::Figures;
use confidence::confidence;

/// A finding before its confidence is known.
#[derive(Debug, PartialEq)]
pub(crate) struct Found<'a> {
    pub(crate) text: String,
    pub(crate) evidence: String,
    /// The measurements that it rests on; empty for a fact that the system reports.
    pub(crate) runs: Vec<&'a RunResult>,
    /// Whether a comparison in the text is inconclusive.
    pub(crate) is_inconclusive: bool,
}

impl<'a> Found<'a> {
    /// A finding from measurements.
    pub(crate) fn measured(text: String, evidence: String, runs: Vec<&'a RunResult>) -> Self {
        Self { text, evidence, runs, is_inconclusive: false }
    }

    /// A fact that the system reports, or a statement about the measurements themselves.
    pub(crate) fn fact(text: String, evidence: String) -> Self {
        Self::measured(text, evidence, Vec::new())
    }

    /// The same finding with an inconclusive comparison.
    pub(crate) fn inconclusive(self, is_inconclusive: bool) -> Self {
        Self { is_inconclusive, ..self }
    }
}

/// One possible finding.
pub(crate) struct FindingRow {
    /// The same in every version.
    pub(crate) id: &'static str,
    /// None if the figures do not show it.
    pub(crate) find: for<'a> fn(&Figures<'a>) -> Option<Found<'a>>,
}

/// All findings, in the order of the report.
pub(crate) static FINDINGS: &[FindingRow] = &[
    // What the noise of the machine does to all others, then advice, then reasons for doubt.
    FindingRow { id: "spread", find: anomalies::variation },
    FindingRow { id: "sequential-read", find: advice::sequential_read },
    FindingRow { id: "sequential-write", find: advice::sequential_write },
    FindingRow { id: "random-read", find: advice::random_read },
    FindingRow { id: "random-write", find: small_writes::random_write },
    FindingRow { id: "durable-write", find: small_writes::durable_write },
    FindingRow { id: "mixed", find: small_writes::mixed },
    FindingRow { id: "direct-read", find: advice::direct_read },
    FindingRow { id: "direct-write", find: advice::direct_write },
    FindingRow { id: "page-cache", find: caches::cold },
    FindingRow { id: "page-cache-hits", find: caches::hits },
    FindingRow { id: "device-orders", find: anomalies::command_queueing },
    FindingRow { id: "readahead", find: anomalies::readahead },
    FindingRow { id: "dip", find: anomalies::dip },
    FindingRow { id: "cache", find: validity::cache },
    FindingRow { id: "no-disk", find: validity::no_disk },
    FindingRow { id: "cpu-limit", find: limits::cpu },
    FindingRow { id: "beneath", find: limits::beneath },
    FindingRow { id: "iopath-kernel", find: validity::iopath_kernel },
    FindingRow { id: "tool-cost", find: validity::tool_cost },
    FindingRow { id: "engine", find: validity::engine },
];

/// The findings of a survey, in the table's order.
pub(crate) fn findings(figures: &Figures) -> Vec<Finding> {
    let find = |row: &FindingRow| {
        let found = (row.find)(figures)?;
        let (level, doubts) = confidence(figures, &found);
        let Found { text, evidence, .. } = found;
        Some(Finding { id: row.id.to_owned(), text, evidence, confidence: Some(level), doubts })
    };
    FINDINGS.iter().filter_map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::super::figures::{EngineFacts, Facts};
    use super::*;
    use iopath_report::Rw;
    use iopath_report::fixtures::{run, with_flushes};
    use iopath_report::result::{Confidence, ServedBy};

    #[test]
    fn ids_are_unique() {
        for row in FINDINGS {
            assert_eq!(FINDINGS.iter().filter(|other| other.id == row.id).count(), 1, "{}", row.id);
        }
    }

    #[test]
    fn a_survey_of_memory_has_findings_with_the_reasons_for_doubt() {
        let runs = [run("kernel-buffered", Rw::Read, 1 << 20, 1, &[500.0], 0.3)];
        let facts = Facts { no_disk: Some("tmpfs lies in memory".to_owned()), cores: 2, ..Facts::default() };
        let findings = findings(&Figures { runs: &runs, facts: &facts });
        assert!(findings.len() >= 2, "{findings:#?}");
        for finding in &findings {
            assert!(!finding.text.is_empty() && !finding.evidence.is_empty(), "{finding:?}");
        }
        let advice = findings.iter().find(|finding| finding.id == "sequential-read").unwrap();
        assert_eq!(advice.confidence, Some(Confidence::Low), "{advice:?}");
        assert!(advice.doubts.iter().any(|doubt| doubt.contains("no disk")), "{advice:?}");
    }

    #[test]
    fn noise_comes_before_advice_and_doubt_after_it() {
        let runs = [run("kernel-buffered", Rw::Read, 1 << 20, 1, &[300.0, 500.0, 900.0], 0.3)];
        let facts = Facts { no_disk: Some("tmpfs lies in memory".to_owned()), cores: 2, ..Facts::default() };
        let findings = findings(&Figures { runs: &runs, facts: &facts });
        let place = |id: &str| findings.iter().position(|finding| finding.id == id);
        assert_eq!(place("spread"), Some(0), "{findings:#?}");
        assert_eq!(place("sequential-read"), Some(1), "{findings:#?}");
        assert!(place("no-disk") > Some(1), "{findings:#?}");
    }

    #[test]
    fn the_tool_is_explained_only_on_request() {
        let runs = [
            run("null", Rw::RandRead, 4096, 32, &[40_000.0; 3], 0.02),
            run("iopath-direct", Rw::RandRead, 4096, 32, &[100.0; 3], 0.02),
            run("kernel-uring", Rw::RandRead, 4096, 32, &[100.0; 3], 0.02),
        ];
        let engine = Some(EngineFacts { name: "uring".to_owned(), fallback: None });
        let ids = |has_tool| -> Vec<String> {
            let facts = Facts { has_tool, cores: 2, engine: engine.clone(), ..Facts::default() };
            findings(&Figures { runs: &runs, facts: &facts }).into_iter().map(|finding| finding.id).collect()
        };
        for id in ["tool-cost", "iopath-kernel", "engine"] {
            assert!(
                ids(true).iter().any(|known| known == id) && !ids(false).iter().any(|known| known == id),
                "{id}"
            );
        }
    }

    #[test]
    fn no_finding_recommends_a_combination_that_a_cache_answered() {
        let stored = |path: &str, rw, depth| run(path, rw, 4096, depth, &[100.0, 101.0, 99.0], 0.2);
        let mut runs = Vec::new();
        for rw in [Rw::Read, Rw::Write, Rw::RandRead, Rw::RandWrite, Rw::RandRw] {
            runs.push(stored("kernel-direct", rw, 1));
            runs.push(stored("kernel-uring", rw, 32));
            runs.push(RunResult {
                served_by: Some(ServedBy::Memory),
                ..run("kernel-buffered", rw, 4096, 1, &[9000.0, 9001.0, 8999.0], 0.01)
            });
        }
        for (path, mbs) in [("kernel-direct", 1.0), ("kernel-buffered", 1000.0)] {
            let mut durable = with_flushes(run(path, Rw::Write, 4096, 1, &[mbs; 3], 0.1));
            if mbs > 1.0 {
                durable.served_by = Some(ServedBy::Memory);
            }
            runs.push(durable);
        }
        let facts = Facts { cores: 2, busy_cpus: Some(0.0), ..Facts::default() };
        let findings = findings(&Figures { runs: &runs, facts: &facts });
        let ids: Vec<&str> = findings.iter().map(|finding| finding.id.as_str()).collect();
        for id in
            ["sequential-read", "sequential-write", "random-read", "random-write", "durable-write", "mixed"]
        {
            assert!(ids.contains(&id), "{id}: {ids:?}");
        }
        for finding in findings.iter().filter(|finding| finding.id != "cache") {
            let said = format!("{} {}", finding.text, finding.evidence);
            assert!(!said.contains("kernel-buffered"), "{finding:?}");
            assert!(finding.confidence != Some(Confidence::High), "a cache answered some runs: {finding:?}");
        }
    }
}
