//! The figures of a rank, of a host, and of the directions of all ranks, over the repetitions of a workload.

use iopath_bench::run::{latency, per_second, spread};
use iopath_report::result::{
    DirectionResult, Directions, HostResult, Latencies, LatencyDistribution, RankResult, RepeatDirection,
    RepeatDirections,
};

use super::repetition::{Repetition, Times, clock};
use crate::hosts::wire::RankRepeat;

pub(super) fn rank_result(
    rank: usize,
    host: &str,
    local_rank: usize,
    group: &[Repetition],
    part: usize,
    latencies: &Latencies,
) -> RankResult {
    let clock = clock(&[rank], group);
    let transfers = |kind: usize| group.iter().map(|one| one.transfers([rank], part, 0)[kind]).sum();
    RankResult {
        rank: rank as u32,
        host: host.to_owned(),
        local_rank: local_rank as u32,
        bytes: transfers(0),
        ios: transfers(1),
        seconds: group.iter().map(|one| one.seconds(rank, part)).sum(),
        bytes_per_second: spread(group.iter().map(|one| one.rate(rank, part))),
        latency_ns: latency(latencies),
        clock_offset_seconds: clock.seconds,
        clock_error_seconds: clock.error,
    }
}

pub(super) fn host_result(
    host: &str,
    ranks: &[usize],
    group: &[Repetition],
    part: usize,
    latencies: &Latencies,
) -> HostResult {
    let clock = clock(ranks, group);
    let transfers = |one: &Repetition, kind: usize| one.transfers(ranks.iter().copied(), part, 0)[kind];
    // From the start of the host, and not of all: the others may have started earlier.
    let seconds = |one: &Repetition| {
        let [started, ended] = one.span(ranks, part);
        ended - started
    };
    let rate = |kind: usize| spread(group.iter().map(|one| per_second(transfers(one, kind), seconds(one))));
    HostResult {
        host: host.to_owned(),
        ranks: ranks.len() as u32,
        bytes: group.iter().map(|one| transfers(one, 0)).sum(),
        ios: group.iter().map(|one| transfers(one, 1)).sum(),
        seconds: group.iter().map(seconds).sum(),
        bytes_per_second: rate(0),
        iops: rate(1),
        latency_ns: latency(latencies),
        clock_offset_seconds: clock.seconds,
        clock_error_seconds: clock.error,
        relative_to_others: None,
        is_slower: false,
    }
}

/// Reads, writes and trims of all repetitions, and of each; none unless all ranks have them apart.
pub(super) fn directions(
    group: &[Repetition],
    part: usize,
    times: &[Times],
) -> Option<(Option<Directions>, Vec<RepeatDirections>)> {
    let is_apart = |rank: &RankRepeat| rank.figures.parts[part].transfers.len() > 1;
    if !group.iter().all(|repetition| repetition.ranks.iter().all(is_apart)) {
        return Some((None, Vec::new()));
    }
    let mut results = Vec::new();
    let mut of_each: Vec<Vec<RepeatDirection>> = vec![Vec::new(); group.len()];
    for kind in 1..=3 {
        let mut all = Latencies::default();
        for ((repetition, times), of_repeat) in group.iter().zip(times).zip(&mut of_each) {
            let mut latencies = Latencies::default();
            for rank in &repetition.ranks {
                latencies.add_bytes(rank.histogram(part, kind)?)?;
            }
            let [bytes, ios] = repetition.transfers(0..repetition.ranks.len(), part, kind);
            let seconds = times.seconds();
            of_repeat.push(RepeatDirection {
                bytes,
                ios,
                bytes_per_second: per_second(bytes, seconds),
                iops: per_second(ios, seconds),
                latency_ns: latency(&latencies),
            });
            all.add(&latencies);
        }
        let of_kind = || of_each.iter().map(|repeat| &repeat[kind - 1]);
        results.push(DirectionResult {
            bytes: of_kind().map(|one| one.bytes).sum(),
            ios: of_kind().map(|one| one.ios).sum(),
            bytes_per_second: spread(of_kind().map(|one| one.bytes_per_second)),
            iops: spread(of_kind().map(|one| one.iops)),
            latency_ns: latency(&all),
            latency_distribution: Some(LatencyDistribution::of(&all)),
            submissions: None,
        });
    }
    let each = of_each.into_iter().map(|repeat| {
        let [read, write, trim] = [repeat[0], repeat[1], repeat[2]];
        RepeatDirections { read, write, trim: (trim.ios > 0).then_some(trim) }
    });
    let trim = results.pop().filter(|trim| trim.ios > 0);
    let (write, read) = (results.pop()?, results.pop()?);
    Some((Some(Directions { read, write, trim }), each.collect()))
}
