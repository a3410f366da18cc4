//! The processes that measure together: this one alone, or the ranks of an MPI program (`mpi.rs`).

use crate::args::SweepArgs;
use iopath_bench::Peers;
use iopath_bench::share::Share;
use iopath_fio::{Environment, System};
use iopath_lab::hosts::Team;
use iopath_report::result::Report;
use std::rc::Rc;

/// What `iopath run` and `iopath sweep` need to know of the other processes.
pub(crate) trait Party {
    /// All processes; none if there is only this one.
    fn team(&self) -> Option<Rc<Team>>;

    /// The other processes for the engine.
    fn peers(&self) -> Option<Rc<dyn Peers>> {
        self.team().map(|team| -> Rc<dyn Peers> { team })
    }

    /// The share of this process in a common target.
    fn share(&self) -> Option<Share>;

    /// Where job files are read.
    fn environment(&self) -> Box<dyn Environment>;

    /// Whether this process has the output of all.
    fn speaks(&self) -> bool;

    /// The results of all processes; none if another one shows them.
    fn join(&self, report: anyhow::Result<Report>) -> anyhow::Result<Option<Report>>;

    /// The arguments of a sweep for this process, from those of the command.
    fn sweep(&self, arguments: &[String]) -> anyhow::Result<SweepArgs>;

    /// Ends a sweep on all processes, with the error of this one. Returns the failure of any of them.
    fn end(&self, error: Option<&anyhow::Error>) -> Option<String>;
}

/// A process without others.
pub(crate) struct Alone;

impl Party for Alone {
    fn team(&self) -> Option<Rc<Team>> {
        None
    }

    fn share(&self) -> Option<Share> {
        None
    }

    fn environment(&self) -> Box<dyn Environment> {
        Box::new(System)
    }

    fn speaks(&self) -> bool {
        true
    }

    fn join(&self, report: anyhow::Result<Report>) -> anyhow::Result<Option<Report>> {
        report.map(Some)
    }

    fn sweep(&self, arguments: &[String]) -> anyhow::Result<SweepArgs> {
        SweepArgs::of(arguments)
    }

    fn end(&self, _error: Option<&anyhow::Error>) -> Option<String> {
        None
    }
}
