//! The figures of a survey and the facts about its target: the input of findings and tables. Does not interpret them.

use std::path::PathBuf;

use iopath_report::Rw;
use iopath_report::numbers::digits;
use iopath_report::result::{DiskFacts, RunResult, ServedBy};
use iopath_report::size::format_size;

use super::compare::CpuOf;
use iopath_bench::paths::find_path;

/// If other programs use more than this share of the CPUs, the machine's CPU time does not show the cost of a
/// measurement.
const BUSY_MAX: f64 = 0.05;

/// Facts about the target and the machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// The target is a model.
    pub(crate) is_model: bool,
    /// Whether findings about the tool itself are wanted.
    pub(crate) has_tool: bool,
    pub(crate) disk: Option<DiskFacts>,
    /// The reason why no single disk is known.
    pub(crate) no_disk: Option<String>,
    /// Files beneath the target that the kernel reads through the page cache.
    pub(crate) cached_files: Vec<PathBuf>,
    /// The first offset outside of written extents.
    pub(crate) unwritten: Option<u64>,
    /// The filesystem, if it compresses and the target is a user's file.
    pub(crate) compressing: Option<String>,
    /// Layers beneath the target that encrypt, compress or deduplicate, in words.
    pub(crate) transforms: Vec<String>,
    pub(crate) engine: Option<EngineFacts>,
    pub(crate) cores: u32,
    /// Of the machine.
    pub(crate) memory_bytes: u64,
    /// The maximum number of CPUs that other programs kept busy before a round.
    pub(crate) busy_cpus: Option<f64>,
}

/// The engine of iopath's paths.
#[derive(Debug, Clone)]
pub(crate) struct EngineFacts {
    pub(crate) name: String,
    /// The reason for a fallback to a slower engine.
    pub(crate) fallback: Option<String>,
}

impl Facts {
    /// Whether other programs use more than [`BUSY_MAX`] of the CPUs, or their load is not known.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy_cpus.is_none_or(|busy| busy > BUSY_MAX * f64::from(self.cores))
    }

    /// The CPU time that counts as cost.
    pub(crate) fn cpu_of(&self) -> CpuOf {
        if self.is_model {
            CpuOf::Unknown
        } else if self.is_busy() {
            CpuOf::Process
        } else {
            CpuOf::Machine
        }
    }
}

/// All measurements of a survey, with the facts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures<'a> {
    pub(crate) runs: &'a [RunResult],
    pub(crate) facts: &'a Facts,
}

impl<'a> Figures<'a> {
    /// The cold runs of one pattern that storage served, without `null` and without iopath's page cache. Only these
    /// runs are ranked and recommended.
    pub(crate) fn of(&self, rw: Rw) -> Vec<&'a RunResult> {
        self.runs.iter().filter(|run| is_table_run(run, rw) && is_ranked(run)).collect()
    }

    /// The writes with a flush after each that storage served.
    pub(crate) fn durable(&self) -> Vec<&'a RunResult> {
        self.runs.iter().filter(|run| is_durable(run) && is_ranked(run)).collect()
    }

    /// The random reads of one path at one depth.
    pub(crate) fn random(&self, path: &str, io_depth: u32) -> Option<&'a RunResult> {
        self.of(Rw::RandRead).into_iter().find(|run| run.path == path && run.io_depth == io_depth)
    }

    /// The runs of one path through a page cache, cold or hits, copied or borrowed.
    pub(crate) fn cached(
        &self,
        path: &str,
        rw: Rw,
        block_bytes: u32,
        is_warm: bool,
        borrows: bool,
    ) -> Option<&'a RunResult> {
        self.runs.iter().filter(|run| is_ranked(run)).find(|run| {
            let is_match =
                (run.path.as_str(), run.rw.as_str(), run.block_bytes) == (path, rw.name(), block_bytes);
            is_match && run.warm == is_warm && run.cache.as_ref().is_some_and(|cache| cache.borrow) == borrows
        })
    }

    pub(crate) fn null(&self) -> Option<&'a RunResult> {
        self.runs.iter().find(|run| run.path == "null")
    }

    pub(crate) fn cpu(&self) -> CpuOf {
        self.facts.cpu_of()
    }
}

/// Whether the tables by block size and of random transfers show a run.
pub(crate) fn is_table_run(run: &RunResult, rw: Rw) -> bool {
    !run.warm && run.cache.is_none() && run.rw == rw.name() && run.path != "null" && !is_durable(run)
}

/// Whether a flush followed each write of a run.
pub(crate) fn is_durable(run: &RunResult) -> bool {
    run.flushes.is_some()
}

/// Whether comparisons include a run: all runs except cold runs that memory served.
pub(crate) fn is_ranked(run: &RunResult) -> bool {
    run.served_by != Some(ServedBy::Memory)
}

/// Whether a run bypassed the page cache.
pub(crate) fn is_direct(run: &RunResult) -> bool {
    find_path(&run.path).is_ok_and(|row| row.capabilities.direct)
}

/// A run in words: path, block, and the depth unless it is 1.
pub(crate) fn name(run: &RunResult) -> String {
    let block = format_size(run.block_bytes.into());
    match run.io_depth {
        1 => format!("{} with blocks of {block}", run.path),
        depth => format!("{} with blocks of {block} at depth {depth}", run.path),
    }
}

/// A throughput in words, from bytes per second.
pub(crate) fn mb(bytes_per_second: f64) -> String {
    format!("{} MB/s", digits(bytes_per_second / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_report::fixtures::run;

    #[test]
    fn cpu_time_of_the_machine_counts_only_while_no_other_program_uses_it() {
        let facts = |busy_cpus| Facts { busy_cpus, cores: 2, ..Facts::default() };
        assert_eq!(facts(Some(0.05)).cpu_of(), CpuOf::Machine);
        assert_eq!(facts(Some(0.5)).cpu_of(), CpuOf::Process);
        assert_eq!(facts(None).cpu_of(), CpuOf::Process, "not known is not idle");
    }

    #[test]
    fn a_cold_run_that_memory_served_is_not_ranked() {
        let stored = run("kernel-direct", Rw::Read, 4096, 1, &[100.0], 0.1);
        let fast = run("kernel-buffered", Rw::Read, 4096, 1, &[14_700.0], 0.1);
        let cached = RunResult { served_by: Some(ServedBy::Memory), ..fast.clone() };
        let hits = RunResult { warm: true, served_by: None, ..fast };
        let runs = [stored.clone(), cached, hits.clone()];
        let figures = Figures { runs: &runs, facts: &Facts::default() };
        assert_eq!(figures.of(Rw::Read), [&stored]);
        assert_eq!(figures.cached("kernel-buffered", Rw::Read, 4096, true, false), Some(&hits));
        assert_eq!(figures.cached("kernel-buffered", Rw::Read, 4096, false, false), None);
    }
}
