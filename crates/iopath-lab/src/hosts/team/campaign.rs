//! Several workloads of all ranks, one after another: a workload that one rank refuses is refused on all of them, and
//! the results of each are joined. Does not choose the workloads: see `sweep/measure.rs` and `combinations.rs`.

use std::mem;

use iopath_bench::BenchError;
use iopath_bench::refusal::Scope;
use iopath_report::result::{HostFacts, Report};

use super::{CONTENT, Lane, REFUSED, RankEnd, Team};

impl Team {
    /// The hosts of all ranks, without targets; on rank 0 only.
    pub fn host_facts(&self) -> Vec<HostFacts> {
        self.merge(&[], None).host_facts()
    }

    /// The bytes of rank 0 on all ranks.
    ///
    /// # Errors
    /// [`BenchError::Peer`]: another rank has failed. [`BenchError::Interrupted`]: a signal came.
    pub fn broadcast(&self, bytes: Vec<u8>) -> Result<Vec<u8>, BenchError> {
        self.wait()?;
        self.ranks.broadcast(Lane::Work, bytes).ok_or(BenchError::Interrupted)
    }

    /// The workloads that any rank refuses before their I/O, from those of this rank: the number of each with the
    /// reason, which has the name of the rank.
    ///
    /// # Errors
    /// As for [`Team::broadcast`].
    pub fn agree(&self, refused: &[(usize, String)]) -> Result<Vec<(usize, String)>, BenchError> {
        let own = serde_json::to_vec(refused).expect("JSON can represent all fields");
        let lists = self.exchange(CONTENT, &own)?;
        let mut all: Vec<(usize, String)> = Vec::new();
        for (rank, bytes) in lists.iter().enumerate() {
            let of_rank: Vec<(usize, String)> = serde_json::from_slice(bytes).unwrap_or_default();
            for (number, reason) in of_rank {
                if !all.iter().any(|(known, _)| *known == number) {
                    all.push((number, format!("rank {rank} on host {}: {reason}", self.hosts[rank])));
                }
            }
        }
        let all = serde_json::to_vec(&all).expect("JSON can represent all fields");
        let all = self.ranks.broadcast(Lane::Work, all).ok_or(BenchError::Interrupted)?;
        let all: Vec<(usize, String)> = serde_json::from_slice(&all).map_err(|error| {
            BenchError::Peer(format!("rank 0 on host {} has sent no list: {error}", self.hosts[0]))
        })?;
        self.state.borrow_mut().refusal = all.first().map(|(_, reason)| reason.clone());
        Ok(all)
    }

    /// The repetitions from now on are those of the workload with this number.
    pub fn begin_series(&self, number: usize) {
        self.state.borrow_mut().series = number;
    }

    /// The error of a workload, which then is that of all ranks if it does not end the whole campaign.
    pub fn refuse(&self, error: BenchError) -> BenchError {
        if matches!(error, BenchError::PeerRefused(_)) || error.scope() == Scope::Campaign {
            return error;
        }
        let reason = error.message(iopath_bench::options::flag_of);
        match self.exchange(REFUSED, reason.as_bytes()) {
            Ok(_) => error,
            Err(error) => error,
        }
    }

    /// Joins the results of one of several workloads on rank 0; the others keep their own.
    ///
    /// # Errors
    /// Those of a rank. If an error ends this workload only, it is the same on all ranks.
    pub fn join(&self, measured: Result<Report, BenchError>) -> Result<Report, BenchError> {
        let joined = measured.map_err(|error| self.refuse(error)).and_then(|report| self.joined(report));
        self.state.borrow_mut().repetitions.clear();
        joined
    }

    fn joined(&self, report: Report) -> Result<Report, BenchError> {
        let end =
            serde_json::to_vec(&RankEnd::of(Some(&report), None)).expect("JSON can represent all fields");
        let ends = self.exchange(CONTENT, &end)?;
        if self.rank() > 0 {
            return Ok(report);
        }
        let ends: Option<Vec<RankEnd>> =
            ends.iter().map(|bytes| serde_json::from_slice(bytes).ok()).collect();
        let repetitions = mem::take(&mut self.state.borrow_mut().repetitions);
        self.merge(&repetitions, ends.as_deref())
            .report(report)
            .ok_or_else(|| BenchError::Peer("a rank has sent no histogram of its latencies".to_owned()))
    }
}
