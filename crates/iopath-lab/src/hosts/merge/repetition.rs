//! A repetition of all ranks on the clock of rank 0: transfers, starts, ends and fairness. Does not merge histograms.

use iopath_bench::run::per_second;
use iopath_report::result::RanksEnd;
use iopath_report::stats::fairness::jain;

use crate::hosts::clock::Offset;
use crate::hosts::wire::{PartFigures, RankRepeat};

/// A repetition of all ranks.
#[derive(Debug)]
pub(in crate::hosts) struct Repetition {
    /// The number of its series, if the repetitions of several workloads alternate.
    pub(in crate::hosts) series: usize,
    /// Each rank.
    pub(in crate::hosts) ranks: Vec<RankRepeat>,
    /// The clocks of the ranks after it.
    pub(in crate::hosts) offsets: Vec<Offset>,
}

impl RankRepeat {
    /// The histogram of transfers: 0 for all, then reads, writes and trims. Empty if they were not told apart.
    pub(super) fn histogram(&self, part: usize, kind: usize) -> Option<&[u8]> {
        let part = &self.figures.parts[part];
        if kind >= part.transfers.len() {
            return Some(&[]);
        }
        self.histograms.get(part.histogram + kind).map(Vec::as_slice)
    }
}

impl Repetition {
    pub(super) fn number(&self) -> u32 {
        self.ranks[0].figures.number
    }

    pub(super) fn parts(&self) -> usize {
        self.ranks[0].figures.parts.len()
    }

    pub(super) fn figures(&self, rank: usize, part: usize) -> &PartFigures {
        &self.ranks[rank].figures.parts[part]
    }

    /// Bytes and number of transfers of some ranks.
    pub(super) fn transfers(
        &self,
        ranks: impl IntoIterator<Item = usize>,
        part: usize,
        kind: usize,
    ) -> [u64; 2] {
        let of_rank = |rank| self.figures(rank, part).transfers.get(kind).copied().unwrap_or_default();
        ranks.into_iter().map(of_rank).fold([0; 2], |sum, one| [sum[0] + one[0], sum[1] + one[1]])
    }

    pub(super) fn seconds(&self, rank: usize, part: usize) -> f64 {
        let PartFigures { started, ended, .. } = self.figures(rank, part);
        ended - started
    }

    /// The throughput of a rank in its own time.
    pub(super) fn rate(&self, rank: usize, part: usize) -> f64 {
        per_second(self.transfers([rank], part, 0)[0], self.seconds(rank, part))
    }

    /// The start and the end of some ranks, on the clock of rank 0.
    pub(super) fn span(&self, ranks: &[usize], part: usize) -> [f64; 2] {
        let at = |rank: usize, time: f64| time - self.offsets[rank].seconds;
        let started = ranks.iter().map(|rank| at(*rank, self.figures(*rank, part).started));
        let ended = ranks.iter().map(|rank| at(*rank, self.figures(*rank, part).ended));
        [started.fold(f64::INFINITY, f64::min), ended.fold(f64::NEG_INFINITY, f64::max)]
    }
}

/// Starts and ends of all ranks in a repetition, on the clock of rank 0.
pub(super) struct Times {
    pub(super) first_start: f64,
    last_start: f64,
    pub(super) first_done: f64,
    last_done: f64,
    /// The error of the time between the first and the last end.
    error: f64,
}

impl Times {
    pub(super) fn of(repetition: &Repetition, part: usize) -> Self {
        let spans = || {
            repetition.offsets.iter().enumerate().map(|(rank, offset)| {
                let [started, ended] = repetition.span(&[rank], part);
                (started, ended, offset.error)
            })
        };
        let (mut first, mut last) = ((f64::INFINITY, 0.0), (f64::NEG_INFINITY, 0.0));
        for (_, ended, error) in spans() {
            first = if ended < first.0 { (ended, error) } else { first };
            last = if ended > last.0 { (ended, error) } else { last };
        }
        let is_one = repetition.ranks.len() == 1;
        Self {
            first_start: spans().map(|(started, ..)| started).fold(f64::INFINITY, f64::min),
            last_start: spans().map(|(started, ..)| started).fold(f64::NEG_INFINITY, f64::max),
            first_done: first.0,
            last_done: last.0,
            error: if is_one { 0.0 } else { first.1 + last.1 },
        }
    }

    pub(super) fn seconds(&self) -> f64 {
        self.last_done - self.first_start
    }
}

/// Starts, ends and fairness: means over the repetitions.
pub(super) fn ends(times: &[Times], rates: &[Vec<f64>], group: &[Repetition], part: usize) -> RanksEnd {
    let count = times.len() as f64;
    let mean = |of: &dyn Fn(&Times) -> f64| times.iter().map(of).sum::<f64>() / count;
    let skew = |times: &Times| times.last_done - times.first_done;
    let jain_hosts = (0..group.len()).map(|repeat| {
        let of_hosts: Vec<f64> = rates.iter().map(|host| host[repeat]).collect();
        jain(&of_hosts)
    });
    let jain_ranks = group.iter().map(|repetition| {
        let of_ranks: Vec<f64> =
            (0..repetition.ranks.len()).map(|rank| repetition.rate(rank, part)).collect();
        jain(&of_ranks)
    });
    RanksEnd {
        last_start_seconds: mean(&|times| times.last_start - times.first_start),
        first_done_seconds: mean(&|times| times.first_done - times.first_start),
        last_done_seconds: mean(&Times::seconds),
        skew_seconds: mean(&skew),
        skew_ci95: [
            mean(&|times| (skew(times) - times.error).max(0.0)),
            mean(&|times| skew(times) + times.error),
        ],
        jain_hosts: jain_hosts.sum::<f64>() / count,
        jain_ranks: jain_ranks.sum::<f64>() / count,
    }
}

/// The mean offset of some ranks over the repetitions, and the largest error.
pub(super) fn clock(ranks: &[usize], group: &[Repetition]) -> Offset {
    let offsets = || group.iter().flat_map(|one| ranks.iter().map(|rank| one.offsets[*rank]));
    let count = (group.len() * ranks.len()) as f64;
    Offset {
        seconds: offsets().map(|one| one.seconds).sum::<f64>() / count,
        error: offsets().map(|one| one.error).fold(0.0, f64::max),
    }
}
