//! Interprets the figures of a survey: one row of [`FINDINGS`] for each finding. A finding states a difference only if it
//! is significant, and otherwise that there is none.
//!
//! Recommendations are in `findings/advice.rs`, page caches in `findings/caches.rs`, anomalies in
//! `findings/anomalies.rs`, the validity of the figures in `findings/validity.rs`, shared code in `survey/figures.rs`. A new
//! finding needs a function in one of these files and a row here.

mod advice;
mod anomalies;
mod caches;
mod validity;

use super::figures::Figures;
use crate::result::Finding;

/// One possible finding.
pub(crate) struct FindingRow {
    /// The same in every version.
    pub(crate) id: &'static str,
    /// Its text and its evidence; none if the figures do not show it.
    pub(crate) find: fn(&Figures) -> Option<(String, String)>,
}

/// All findings, in the order of the report.
pub(crate) static FINDINGS: &[FindingRow] = &[
    FindingRow { id: "sequential-read", find: advice::sequential_read },
    FindingRow { id: "sequential-write", find: advice::sequential_write },
    FindingRow { id: "random-read", find: advice::random_read },
    FindingRow { id: "direct-read", find: advice::direct_read },
    FindingRow { id: "direct-write", find: advice::direct_write },
    FindingRow { id: "page-cache", find: caches::cold },
    FindingRow { id: "page-cache-hits", find: caches::hits },
    FindingRow { id: "device-orders", find: anomalies::command_queueing },
    FindingRow { id: "readahead", find: anomalies::readahead },
    FindingRow { id: "dip", find: anomalies::dip },
    FindingRow { id: "spread", find: anomalies::variation },
    FindingRow { id: "cache", find: validity::cache },
    FindingRow { id: "no-disk", find: validity::no_disk },
    FindingRow { id: "iopath-kernel", find: validity::iopath_kernel },
    FindingRow { id: "tool-cost", find: validity::tool_cost },
    FindingRow { id: "engine", find: validity::engine },
];

/// The findings of a survey, in the table's order.
pub(crate) fn findings(figures: &Figures) -> Vec<Finding> {
    let find = |row: &FindingRow| {
        let (text, evidence) = (row.find)(figures)?;
        Some(Finding { id: row.id.to_owned(), text, evidence })
    };
    FINDINGS.iter().filter_map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::super::figures::Facts;
    use super::super::fixtures::run;
    use super::*;
    use crate::workload::Rw;

    #[test]
    fn ids_are_unique() {
        for row in FINDINGS {
            assert_eq!(FINDINGS.iter().filter(|other| other.id == row.id).count(), 1, "{}", row.id);
        }
    }

    #[test]
    fn the_smallest_survey_has_three_findings() {
        let runs = [
            run("null", Rw::RandRead, 4096, 32, &[40_000.0], 0.02),
            run("kernel-buffered", Rw::Read, 1 << 20, 1, &[500.0], 0.3),
        ];
        let facts = Facts { no_disk: Some("tmpfs lies in memory".to_owned()), cores: 2, ..Facts::default() };
        let findings = findings(&Figures { runs: &runs, facts: &facts });
        assert!(findings.len() >= 3, "{findings:#?}");
        for finding in &findings {
            assert!(!finding.text.is_empty() && !finding.evidence.is_empty(), "{finding:?}");
        }
    }
}
