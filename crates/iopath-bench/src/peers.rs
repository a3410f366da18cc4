//! Other processes that measure the same workload at the same time: the common start, the early end, and the exchange
//! of each repetition. The caller implements them (`hosts.rs` of `iopath-lab`); the engine calls them between its
//! phases.

use std::fmt;
use std::time::Duration;

use iopath_report::result::Latencies;

use crate::error::BenchError;

/// The interval at which a rank looks for the early end.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// Whether the jobs of this rank go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Go {
    /// They do.
    On,
    /// The first rank has ended, and the others end with it: the repetition is complete.
    End,
    /// Another rank has failed: the repetition is not complete.
    Failed,
}

/// The other ranks of a measurement. All calls are on the thread that coordinates the jobs, in the same order on each
/// rank.
pub trait Peers: fmt::Debug {
    /// Waits until the jobs of all ranks can start. All of them return at the same time.
    ///
    /// # Errors
    /// [`BenchError::Peer`]: another rank has failed. [`BenchError::PeerRefused`]: it has refused the workload.
    /// [`BenchError::Interrupted`]: a signal came.
    fn start(&self) -> Result<(), BenchError>;

    /// Whether the running jobs go on.
    fn poll(&self) -> Go;

    /// All jobs of this rank have ended.
    fn ended(&self);

    /// The time on the clock of the ranks, in seconds.
    fn seconds(&self) -> f64;

    /// A repetition is complete on this rank. Returns when it is complete on all of them.
    ///
    /// # Errors
    /// As for [`Peers::start`].
    fn repeated(&self, repeat: PeerRepeat) -> Result<(), BenchError>;

    /// The failure of another rank.
    fn failure(&self) -> Option<BenchError>;
}

/// The measurements of a rank in one repetition.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PeerRepeat {
    /// The number of the repetition, from 1.
    pub number: u32,
    /// CPU time in user mode, in kernel mode, and of the whole machine, in seconds; none where it was not counted.
    pub cpu: Option<[f64; 3]>,
    /// Each workload.
    pub parts: Vec<PeerPart>,
}

/// The measurements of a workload.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PeerPart {
    /// The start of its first job, on the clock of the ranks, in seconds.
    pub started: f64,
    /// The end of its last job.
    pub ended: f64,
    /// All transfers.
    pub all: PeerTransfers,
    /// Reads, writes and trims, if there were at least two of them.
    pub directions: Option<[PeerTransfers; 3]>,
}

/// Transfers of a workload.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PeerTransfers {
    /// Bytes transferred.
    pub bytes: u64,
    /// Transfers.
    pub ios: u64,
    /// Their latencies.
    pub latency_ns: Latencies,
}

impl PeerTransfers {
    /// Adds other transfers.
    pub fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.ios += other.ios;
        self.latency_ns.add(&other.latency_ns);
    }
}
