//! The processes that measure together: this one alone, or the ranks of an MPI program (`mpi.rs`).

use iopath_bench::Peers;
use iopath_bench::share::Share;
use iopath_fio::{Environment, System};
use iopath_report::result::Report;
use std::rc::Rc;

/// What `iopath run` needs to know of the other processes.
pub(crate) trait Party {
    /// The other processes; none if there are none.
    fn peers(&self) -> Option<Rc<dyn Peers>>;

    /// The share of this process in a common target.
    fn share(&self) -> Option<Share>;

    /// Where job files are read.
    fn environment(&self) -> Box<dyn Environment>;

    /// Whether this process has the output of all.
    fn speaks(&self) -> bool;

    /// The results of all processes; none if another one shows them.
    fn join(&self, report: anyhow::Result<Report>) -> anyhow::Result<Option<Report>>;
}

/// A process without others.
pub(crate) struct Alone;

impl Party for Alone {
    fn peers(&self) -> Option<Rc<dyn Peers>> {
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
}
