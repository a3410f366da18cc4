//! What a survey's figures mean, in words: one row each in [`FINDINGS`]. A finding says only what the figures show
//! beyond their spread; where they show no difference, it says that.
//!
//! What to use is in `findings/advice.rs`, whose page cache in `findings/caches.rs`, what is odd in `findings/odd.rs`, what the figures stand on in
//! `findings/ground.rs`. Adding a finding is a function there and a row here.

mod advice;
mod caches;
mod ground;
mod odd;

use std::path::PathBuf;

use super::compare::CpuOf;
use crate::paths::find_path;
use crate::result::{DiskFacts, Finding, RunResult};
use crate::size::format_size;
use crate::table::digits;
use crate::workload::Rw;

/// A machine that others keep busier than this, for each CPU, does not know what a measurement cost it.
const BUSY_MAX: f64 = 0.05;

/// One thing that may be found.
pub(crate) struct FindingRow {
    /// The same in every version.
    pub(crate) id: &'static str,
    /// Its text and its evidence; none if the figures do not show it.
    pub(crate) find: fn(&Figures) -> Option<(String, String)>,
}

/// All findings, in the order people read them.
pub(crate) static FINDINGS: &[FindingRow] = &[
    FindingRow { id: "sequential-read", find: advice::sequential_read },
    FindingRow { id: "sequential-write", find: advice::sequential_write },
    FindingRow { id: "random-read", find: advice::random_read },
    FindingRow { id: "direct-read", find: advice::direct_read },
    FindingRow { id: "direct-write", find: advice::direct_write },
    FindingRow { id: "page-cache", find: caches::cold },
    FindingRow { id: "page-cache-hits", find: caches::hits },
    FindingRow { id: "device-orders", find: odd::device_orders },
    FindingRow { id: "readahead", find: odd::readahead },
    FindingRow { id: "dip", find: odd::dip },
    FindingRow { id: "spread", find: odd::spread },
    FindingRow { id: "cache", find: ground::cache },
    FindingRow { id: "no-disk", find: ground::no_disk },
    FindingRow { id: "iopath-kernel", find: ground::iopath_kernel },
    FindingRow { id: "tool-cost", find: ground::tool_cost },
    FindingRow { id: "engine", find: ground::engine },
];

/// What is known beside the figures.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub(crate) size_bytes: u64,
    pub(crate) disk: Option<DiskFacts>,
    /// Why there is no disk to name.
    pub(crate) no_disk: Option<String>,
    /// The file behind a loop device that reads it through the page cache.
    pub(crate) loop_file: Option<PathBuf>,
    /// The first offset that is not in a written extent.
    pub(crate) unwritten: Option<u64>,
    /// The filesystem, if it compresses and the bytes are not ours.
    pub(crate) compressing: Option<String>,
    pub(crate) engine: Option<EngineFacts>,
    pub(crate) cores: u32,
    /// Of the machine.
    pub(crate) memory_bytes: u64,
    /// The most CPUs that other programs kept busy between the rounds.
    pub(crate) busy_cpus: Option<f64>,
}

/// How iopath's paths do their system calls.
#[derive(Debug, Clone)]
pub(crate) struct EngineFacts {
    pub(crate) name: String,
    /// Why it is not the best there is.
    pub(crate) fallback: Option<String>,
}

impl Facts {
    /// Whether others used the machine so much that its CPU time says little of ours.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy_cpus.is_none_or(|busy| busy > BUSY_MAX * f64::from(self.cores))
    }

    /// Whose CPU time the figures go by.
    pub(crate) fn cpu_of(&self) -> CpuOf {
        if self.is_busy() { CpuOf::Process } else { CpuOf::Machine }
    }
}

/// All that findings are found in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures<'a> {
    pub(crate) runs: &'a [RunResult],
    pub(crate) facts: &'a Facts,
}

impl<'a> Figures<'a> {
    /// What was found, in the table's order.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let find = |row: &FindingRow| {
            let (text, evidence) = (row.find)(self)?;
            Some(Finding { id: row.id.to_owned(), text, evidence })
        };
        FINDINGS.iter().filter_map(find).collect()
    }

    /// The cold runs that go one way, `null` not among them, and of page caches the kernel's only.
    pub(crate) fn of(&self, rw: Rw) -> Vec<&'a RunResult> {
        let moves = |run: &&RunResult| is_cold(run) && run.rw == rw.name() && run.path != "null";
        self.runs.iter().filter(moves).collect()
    }

    /// The random reads of one path at one depth.
    pub(crate) fn random(&self, path: &str, io_depth: u32) -> Option<&'a RunResult> {
        self.of(Rw::RandRead).into_iter().find(|run| run.path == path && run.io_depth == io_depth)
    }

    /// The runs of one path through a page cache, cold or hits, copying or not.
    pub(crate) fn cached(
        &self,
        path: &str,
        rw: Rw,
        block_bytes: u32,
        is_warm: bool,
        borrows: bool,
    ) -> Option<&'a RunResult> {
        self.runs.iter().find(|run| {
            let is_asked =
                (run.path.as_str(), run.rw.as_str(), run.block_bytes) == (path, rw.name(), block_bytes);
            is_asked && run.warm == is_warm && run.cache.as_ref().is_some_and(|cache| cache.borrow) == borrows
        })
    }

    pub(crate) fn null(&self) -> Option<&'a RunResult> {
        self.runs.iter().find(|run| run.path == "null")
    }

    pub(crate) fn cpu(&self) -> CpuOf {
        self.facts.cpu_of()
    }
}

/// Whether a run is one of those that the tables by block size and of random reads show.
pub(crate) fn is_cold(run: &RunResult) -> bool {
    !run.warm && run.cache.is_none()
}

/// Whether a run went past the page cache.
fn is_direct(run: &RunResult) -> bool {
    find_path(&run.path).is_ok_and(|row| row.capabilities.direct)
}

/// A run in words: path, block, and how many in flight where it is not one.
fn name(run: &RunResult) -> String {
    let block = format_size(run.block_bytes.into());
    match run.io_depth {
        1 => format!("{} with blocks of {block}", run.path),
        depth => format!("{} with blocks of {block}, {depth} in flight", run.path),
    }
}

/// Bytes a second in words.
fn mb(bytes_per_second: f64) -> String {
    format!("{} MB/s", digits(bytes_per_second / 1e6))
}

#[cfg(test)]
mod tests {
    use super::super::made_up::run;
    use super::*;

    #[test]
    fn ids_are_unique() {
        for row in FINDINGS {
            assert_eq!(FINDINGS.iter().filter(|other| other.id == row.id).count(), 1, "{}", row.id);
        }
    }

    #[test]
    fn the_least_survey_has_three_findings() {
        let runs = [
            run("null", Rw::RandRead, 4096, 32, &[40_000.0], 0.02),
            run("kernel-buffered", Rw::Read, 1 << 20, 1, &[500.0], 0.3),
        ];
        let facts = Facts { no_disk: Some("tmpfs lies in memory".to_owned()), cores: 2, ..Facts::default() };
        let findings = Figures { runs: &runs, facts: &facts }.findings();
        assert!(findings.len() >= 3, "{findings:#?}");
        for finding in &findings {
            assert!(!finding.text.is_empty() && !finding.evidence.is_empty(), "{finding:?}");
        }
    }

    #[test]
    fn the_machines_cpu_time_counts_only_while_nobody_else_uses_it() {
        let facts = |busy_cpus| Facts { busy_cpus, cores: 2, ..Facts::default() };
        assert_eq!(facts(Some(0.05)).cpu_of(), CpuOf::Machine);
        assert_eq!(facts(Some(0.5)).cpu_of(), CpuOf::Process);
        assert_eq!(facts(None).cpu_of(), CpuOf::Process, "not known is not quiet");
    }
}
