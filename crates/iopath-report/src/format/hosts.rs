//! The hosts and ranks of runs under MPI: tables, and lines about starts, ends and fairness.

use super::Medium;
use crate::numbers::{counted, digits, half_width, signed_percent, time};
use crate::result::{HostResult, HostsResult, Latency, RankResult, RanksEnd, RunResult};
use crate::section::{Columns, Fit, Section, Table};
use crate::value::Value;

/// The ranks of a single host that a terminal shows.
const RANKS_MAX: usize = 64;

/// The sections of each run on several hosts.
pub(super) fn sections(runs: &[RunResult], medium: Medium) -> impl Iterator<Item = Section> {
    let are_several = runs.len() > 1;
    runs.iter().flat_map(move |run| {
        let Some(all) = &run.hosts else { return Vec::new() };
        let before = are_several.then(|| format!("{}:", run.name()));
        let hosts = medium.titled("Hosts", hosts(&all.hosts)).with_before(before).with_after(lines(all));
        // The hosts of a terminal are enough unless there is one.
        let has_ranks = medium != Medium::Text || (all.hosts.len() == 1 && all.ranks.len() <= RANKS_MAX);
        let ranks = has_ranks.then(|| medium.titled("Ranks", ranks(&all.ranks)));
        std::iter::once(hosts).chain(ranks).collect()
    })
}

fn hosts(hosts: &[HostResult]) -> Table {
    let latency = |of: fn(&Latency) -> u64| move |host: &HostResult| nanoseconds(of(&host.latency_ns));
    Columns::of(hosts)
        .text("host", |host| &host.host)
        .number("ranks", |host| host.ranks)
        .number("MB/s", |host| Value::Rate(host.bytes_per_second.mean))
        .number("±95%", |host| Value::known(half_width(&host.bytes_per_second), Value::Percent))
        .number("IOPS", |host| Value::Number(host.iops.mean))
        .number("p50", latency(|latency| latency.p50))
        .number("p99", latency(|latency| latency.p99))
        .number("p99.9", latency(|latency| latency.p999))
        .detail()
        .number("max", latency(|latency| latency.max))
        .number("rank, to others", |host| {
            Value::present(host.relative_to_others, |ratio| Value::Signed(ratio - 1.0))
        })
        .number("clock error", |host| Value::Nanoseconds(host.clock_error_seconds * 1e9))
        .text("", |host| if host.is_slower { "slower".into() } else { Value::Absent })
        .fit(Fit::Turn { corner: None })
        .into()
}

fn ranks(ranks: &[RankResult]) -> Table {
    let latency = |of: fn(&Latency) -> u64| move |rank: &RankResult| nanoseconds(of(&rank.latency_ns));
    Columns::of(ranks)
        .number("rank", |rank| rank.rank)
        .text("host", |rank| &rank.host)
        .detail()
        .number("MB/s", |rank| Value::Rate(rank.bytes_per_second.mean))
        .number("±95%", |rank| Value::known(half_width(&rank.bytes_per_second), Value::Percent))
        .number("p50", latency(|latency| latency.p50))
        .number("p99", latency(|latency| latency.p99))
        .number("max", latency(|latency| latency.max))
        .number("clock error", |rank| Value::Nanoseconds(rank.clock_error_seconds * 1e9))
        .fit(Fit::Turn { corner: None })
        .into()
}

fn nanoseconds(ns: u64) -> Value {
    Value::Nanoseconds(ns as f64)
}

/// Lines below the table of hosts.
fn lines(all: &HostsResult) -> impl Iterator<Item = String> {
    let HostsResult { stop, shared, reordered, worst_host, ends, hosts, ranks } = all;
    let RanksEnd { last_start_seconds, first_done_seconds, last_done_seconds, skew_seconds, .. } = *ends;
    let [first, last, skew] = [first_done_seconds, last_done_seconds, skew_seconds].map(digits);
    let [low, high] = ends.skew_ci95.map(digits);
    let start = time((last_start_seconds * 1e9) as u64);
    let rule = match stop.as_str() {
        "first" => "the first rank that ended stopped the others (stonewall)",
        _ => "each rank ran to its own end",
    };
    let ends_line = format!(
        "all ranks started within {start}; first done {first} s, last done {last} s, skew {skew} s (95%: {low} to {high} s); {rule}"
    );
    let of_hosts = match hosts.len() {
        1 => String::new(),
        _ => format!("of the hosts {:.4}, ", ends.jain_hosts),
    };
    let fairness = format!("Jain's index of the throughputs: {of_hosts}of the ranks {:.4}", ends.jain_ranks);
    let shared = shared.as_ref().map(|layout| {
        let order = if *reordered { ", each the share of a rank of another host" } else { "" };
        format!("one target, {layout}, shared by {}{order}", counted(ranks.len() as u64, "rank"))
    });
    let worst = hosts.iter().find(|host| host.host == *worst_host && hosts.len() > 1).map(|host| {
        let Latency { p50, p99, p999, .. } = host.latency_ns;
        let [p50, p99, p999] = [p50, p99, p999].map(time);
        format!("worst host: {worst_host}, p50 {p50}, p99 {p99}, p99.9 {p999}")
    });
    let slower = hosts.iter().filter(|host| host.is_slower).map(|host| {
        let ratio = host.relative_to_others.unwrap_or(1.0);
        format!(
            "host {} is slower than the others: {} per rank (95%, in pairs by repetition)",
            host.host,
            signed_percent(ratio - 1.0)
        )
    });
    let lines: Vec<String> =
        std::iter::once(ends_line).chain([fairness]).chain(shared).chain(worst).chain(slower).collect();
    lines.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::run;
    use crate::format::{Document, View};
    use crate::pattern::Rw;
    use crate::result::Report;

    fn host(name: &str, mbs: f64, is_slower: bool, run: &RunResult) -> HostResult {
        let mut rate = run.bytes_per_second;
        rate.mean = mbs * 1e6;
        HostResult {
            host: name.to_owned(),
            ranks: 2,
            bytes: 1,
            ios: 1,
            seconds: 1.0,
            bytes_per_second: rate,
            iops: run.iops,
            latency_ns: run.latency_ns,
            clock_offset_seconds: 0.5,
            clock_error_seconds: 2e-6,
            relative_to_others: Some(mbs / 100.0),
            is_slower,
        }
    }

    #[test]
    fn each_format_shows_the_hosts_and_names_the_slow_one() {
        let run = run("kernel-direct", Rw::Read, 4096, 1, &[190.0, 191.0], 0.5);
        let hosts = HostsResult {
            stop: "first".to_owned(),
            shared: Some("strided".to_owned()),
            reordered: true,
            worst_host: "b".to_owned(),
            ends: RanksEnd {
                last_start_seconds: 3e-6,
                first_done_seconds: 1.0,
                last_done_seconds: 1.25,
                skew_seconds: 0.25,
                skew_ci95: [0.2, 0.3],
                jain_hosts: 0.9975,
                jain_ranks: 0.99,
            },
            hosts: vec![host("a", 100.0, false, &run), host("b", 90.0, true, &run)],
            ranks: Vec::new(),
        };
        let report = Report::new(None, None, vec![RunResult { hosts: Some(Box::new(hosts)), ..run }]);
        let text = report.text(View::plain(None));
        for part in [
            "slower",
            "all ranks started within 3.00 µs; first done 1.00 s, last done 1.25 s, skew 0.250 s (95%: 0.200 to 0.300 s)",
            "stonewall",
            "of the hosts 0.9975, of the ranks 0.9900",
            "one target, strided",
            "worst host: b",
            "host b is slower than the others: -10.0% per rank",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let csv = (crate::format::Format::find("csv").unwrap().render)(&report, View::plain(None));
        assert!(csv.lines().any(|line| line.starts_with("host,") && line.ends_with(",b")), "{csv}");
    }
}
