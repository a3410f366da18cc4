//! Ranks as threads run the protocol to its end: results, early ends and failures. Also the merge of many ranks.

use std::rc::Rc;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use iopath_bench::options::flag_of;
use iopath_bench::paths::find_path;
use iopath_bench::peers::{PeerPart, PeerRepeat, PeerTransfers, Peers};
use iopath_bench::progress::Silent;
use iopath_bench::share::Layout;
use iopath_bench::workload::BlockSize;
use iopath_bench::{BenchError, End, Repetitions, Workload};
use iopath_report::Rw;
use iopath_report::result::{Host, HostsResult, Latencies, Report, RunResult};
use iopath_report::sweep::{Axis, SweepFile};

use super::clock::Offset;
use super::merge::{Merge, Repetition};
use super::threads::{Thread, ranks};
use super::{Hello, Outcome, Plan, Stop, Team, wire};
use crate::sweep::{Planned, Sweep};

pub(super) fn hello(host: &str) -> Hello {
    Hello {
        version: "1".to_owned(),
        arguments: ["run", "--bs=4k"].map(str::to_owned).to_vec(),
        job_file: String::new(),
        is_virtual: false,
        host: host.to_owned(),
        machine: Host {
            kernel: "6.12".to_owned(),
            cpu: "c".to_owned(),
            cores: 2,
            memory_bytes: 1 << 30,
            idle_busy_cpus: None,
        },
    }
}

/// Transfers of 4 KiB, each with another latency.
pub(super) fn transfers(ios: u64) -> PeerTransfers {
    let mut latency_ns = Latencies::default();
    (0..ios).for_each(|number| latency_ns.record(1_000 * (number + 1), 1));
    PeerTransfers { bytes: 4096 * ios, ios, latency_ns }
}

fn workload() -> Workload {
    Workload {
        path: find_path("null").unwrap(),
        rw: Rw::RandRead,
        size_bytes: Some(1 << 22),
        repetitions: Repetitions::new(3u64).unwrap(),
        ..Workload::default()
    }
}

/// Runs a rank in a thread each. Returns the outcome of each.
fn run(
    hosts: &[&'static str],
    skews: &[f64],
    plan: Plan,
    of_rank: impl Fn(&Rc<Team>) -> Result<Report, BenchError> + Sync,
) -> Vec<Outcome> {
    let outcomes = run_ranks(ranks(skews), hosts, plan, of_rank);
    assert!(outcomes.iter().all(|one| one.is_complete));
    outcomes
}

fn run_ranks(
    ranks: Vec<Thread>,
    hosts: &[&'static str],
    plan: Plan,
    of_rank: impl Fn(&Rc<Team>) -> Result<Report, BenchError> + Sync,
) -> Vec<Outcome> {
    thread::scope(|scope| {
        let spawned: Vec<_> = ranks
            .into_iter()
            .zip(hosts)
            .map(|(rank, host)| {
                let of_rank = &of_rank;
                scope.spawn(move || {
                    let team = Rc::new(Team::meet(Box::new(rank), &hello(host), plan).unwrap());
                    let (report, failure) = match of_rank(&team) {
                        Ok(report) => (Some(report.clone()), report.failure),
                        Err(error) => (None, Some(error.to_string())),
                    };
                    let outcome = team.finish(report, failure);
                    team.close();
                    outcome
                })
            })
            .collect();
        spawned.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn measure(team: &Rc<Team>, workload: &Workload) -> Result<Report, BenchError> {
    let peers: Rc<dyn Peers> = team.clone();
    iopath_bench::report_with(workload, Some(peers), &mut Silent)
}

fn hosts_of(report: &Report) -> &HostsResult {
    report.runs[0].hosts.as_ref().unwrap()
}

#[test]
fn the_result_is_the_sum_of_all_ranks_on_one_clock() {
    let plan = Plan { shared: Some(Layout::Random), ..Plan::default() };
    // The clocks differ by more than the run takes.
    let outcomes = run(&["a", "a", "b"], &[0.0, 700.0, -900.0], plan, |team| {
        measure(team, &Workload { share: Some(team.share().unwrap()), ..workload() })
    });
    assert!(outcomes.iter().all(|one| one.is_complete && one.failure.is_none()));
    assert!(outcomes[1..].iter().all(|one| one.report.is_none()));
    let report = outcomes[0].report.as_ref().unwrap();
    let (run, hosts) = (&report.runs[0], hosts_of(report));
    assert_eq!(run.repeats.len(), 3);
    // Each of three ranks draws a third of 1024 blocks.
    assert_eq!((run.ios, run.bytes), (3 * 3 * 341, 3 * 3 * 341 * 4096));
    let distribution = run.latency_distribution.as_ref().unwrap();
    assert_eq!((distribution.count, distribution.latencies.count()), (run.ios, run.ios));
    assert!(run.seconds < 60.0 && hosts.ends.last_done_seconds < 60.0, "{hosts:?}");
    assert!(hosts.ends.skew_ci95[0] <= hosts.ends.skew_seconds);
    let ranks: Vec<_> = hosts.ranks.iter().map(|rank| (rank.rank, &*rank.host, rank.local_rank)).collect();
    assert_eq!(ranks, [(0, "a", 0), (1, "a", 1), (2, "b", 0)]);
    assert!((hosts.ranks[1].clock_offset_seconds - 700.0).abs() < 1.0, "{hosts:?}");
    assert_eq!(hosts.hosts.iter().map(|host| host.ios).sum::<u64>(), run.ios);
    let facts: Vec<_> = report.hosts.iter().map(|host| (&*host.name, host.ranks.clone())).collect();
    assert_eq!(facts, [("a", vec![0, 1]), ("b", vec![2])]);
}

#[test]
fn the_first_rank_that_ends_stops_the_others() {
    let plan = Plan { stop: Stop::First, ..Plan::default() };
    let outcomes = run(&["a", "b"], &[0.0; 2], plan, |team| {
        // The pass of one rank is short; the other would run for a day.
        let time = End::Time(std::time::Duration::from_secs(86_400));
        measure(team, &Workload { end: if team.rank() == 1 { End::Pass } else { time }, ..workload() })
    });
    let report = outcomes[0].report.as_ref().unwrap();
    assert_eq!((hosts_of(report).stop.as_str(), report.runs[0].repeats.len()), ("first", 3));
}

/// Two blocks; the range of rank 1 has no room for the second one.
fn two_blocks(rank: u32) -> Vec<Workload> {
    let size_bytes = Some(if rank == 1 { 1 << 16 } else { 1 << 20 });
    [1 << 12, 1 << 20]
        .map(|bytes| Workload { block_size: BlockSize::constant(bytes), size_bytes, ..workload() })
        .into()
}

#[test]
fn a_combination_that_one_rank_refuses_is_skipped_on_all() {
    let outcomes = run(&["a", "b"], &[0.0; 2], Plan::default(), |team| {
        let mut workloads = two_blocks(team.rank());
        workloads.push(Workload { block_size: BlockSize::constant(1 << 13), ..workloads[0].clone() });
        crate::report_all_with(&workloads, Some(team), &mut Silent)
    });
    assert!(outcomes.iter().all(|one| one.failure.is_none()), "{outcomes:?}");
    let report = outcomes[0].report.as_ref().unwrap();
    // The repetitions of the combinations alternate, in another order in each round.
    let found: Vec<_> =
        report.runs.iter().map(|run| (run.block_bytes, run.bytes, run.repeats.len())).collect();
    let bytes = 3 * ((1 << 20) + (1 << 16));
    assert_eq!(found, [(1 << 12, bytes, 3), (1 << 13, bytes, 3)]);
    let [skipped] = &report.skipped[..] else { panic!("{:?}", report.skipped) };
    assert!(skipped.reason.starts_with("rank 1 on host b: "), "{skipped:?}");
}

#[test]
fn all_combinations_refused_are_an_error_that_names_the_rank_once() {
    let outcomes = run(&["a", "b"], &[0.0; 2], Plan::default(), |team| {
        let workloads = two_blocks(team.rank()).split_off(1);
        let twice = [workloads[0].clone(), Workload { rw: Rw::Read, ..workloads[0].clone() }];
        crate::report_all_with(&twice, Some(team), &mut Silent)
    });
    let failure = outcomes[0].failure.as_deref().unwrap();
    assert!(failure.starts_with("rank 1 on host b: ") && failure.matches("rank ").count() == 1, "{failure}");
}

#[test]
fn a_sweep_has_the_same_cells_on_all_ranks_and_rank_0_keeps_them() {
    let directory = tempfile::tempdir().unwrap();
    let files = Mutex::new(Vec::new());
    run(&["a", "b"], &[0.0; 2], Plan::default(), |team| {
        let axes = vec![Axis { name: "bs".to_owned(), values: ["4k", "1m"].map(str::to_owned).into() }];
        let values = vec![vec!["4k".to_owned()], vec!["1m".to_owned()]];
        let mut file = SweepFile::new(Vec::new(), 1, axes, values);
        let planned = |workload| Ok(Planned { workload, settings: Vec::new() });
        let cells: Vec<_> = two_blocks(team.rank()).into_iter().map(planned).collect();
        let path = directory.path().join(team.rank().to_string());
        let sweep = Sweep { cells: &cells, path: &path, names: flag_of, team: Some(team.clone()) };
        sweep.run(&mut file, &mut Vec::new(), &mut Silent).unwrap();
        files.lock().unwrap().push((team.rank(), file));
        Ok(Report::new(None, None, Vec::new()))
    });
    let mut files = files.into_inner().unwrap();
    files.sort_by_key(|(rank, _)| *rank);
    for (_, file) in &files {
        assert!(file.complete && file.cells[0].run.is_some());
        let reason = file.cells[1].skipped.as_deref().unwrap();
        assert!(reason.starts_with("rank 1 on host b: "), "{reason}");
    }
    let file = &files[0].1;
    assert_eq!(file.cells[0].run.as_ref().unwrap().bytes, 3 * ((1 << 20) + (1 << 16)));
    assert_eq!(file.hosts.iter().map(|host| &*host.name).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(crate::sweep::read(&directory.path().join("0")).unwrap().cells, file.cells);
    assert!(!directory.path().join("1").exists(), "only rank 0 has the file");
}

#[test]
fn a_rank_that_fails_ends_all_and_the_complete_repetitions_stay() {
    let outcomes = run(&["a", "b", "c"], &[0.0; 3], Plan::default(), |team| {
        let report = measure(team, &Workload { repetitions: Repetitions::new(2u64).unwrap(), ..workload() })?;
        if team.rank() == 2 {
            return Ok(Report { failure: Some("the disk is gone".to_owned()), ..report });
        }
        // The others begin another measurement, and wait for the rank that has failed.
        measure(team, &workload())
            .map_or_else(|error| Ok(Report { failure: Some(error.to_string()), ..report }), Ok)
    });
    let expected = "rank 2 on host c: the disk is gone";
    assert_eq!(outcomes[0].failure.as_deref(), Some(expected));
    let report = outcomes[0].report.as_ref().unwrap();
    assert_eq!((report.failure.as_deref(), report.runs[0].repeats.len()), (Some(expected), 2));
    assert!(outcomes.iter().all(|one| one.is_complete));
}

#[test]
fn a_rank_that_dies_within_an_exchange_ends_all_and_the_complete_repetitions_stay() {
    // Its facts, then the start and the results of two repetitions: it dies in its fifth gather or after it.
    for (gathers, complete) in [(1, 0), (4, 1), (5, 2)] {
        let dying =
            |(rank, thread): (usize, Thread)| if rank == 1 { thread.dies_after(gathers) } else { thread };
        let dying = ranks(&[0.0; 3]).into_iter().enumerate().map(dying).collect();
        let outcomes = run_ranks(dying, &["a", "b", "c"], Plan::default(), |team| measure(team, &workload()));
        assert!(outcomes.iter().all(|one| !one.is_complete), "{outcomes:?}");
        let report = outcomes[0].report.as_ref();
        assert_eq!(report.map_or(0, |report| report.runs[0].repeats.len()), complete, "{gathers}");
    }
}

#[test]
fn a_rank_that_cannot_begin_ends_all_before_any_measurement() {
    let outcomes = run(&["a", "b"], &[0.0; 2], Plan::default(), |team| {
        let missing = Workload {
            path: find_path("kernel-direct").unwrap(),
            target: Some("/missing".into()),
            ..workload()
        };
        measure(team, &if team.rank() == 1 { missing } else { workload() })
    });
    assert!(outcomes[0].report.is_none());
    let failure = outcomes[0].failure.as_deref().unwrap();
    assert!(failure.starts_with("rank 1 on host b: /missing does not exist"), "{failure}");
}

#[test]
fn ranks_with_other_options_do_not_meet() {
    let refused: Vec<Option<String>> = thread::scope(|scope| {
        let meet = |(number, rank): (usize, Thread)| {
            scope.spawn(move || {
                let mut hello = hello("a");
                hello.arguments.push(format!("--iodepth={}", number / 2));
                Team::meet(Box::new(rank), &hello, Plan::default()).unwrap_err()
            })
        };
        let spawned: Vec<_> = ranks(&[0.0; 3]).into_iter().enumerate().map(meet).collect();
        spawned.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    assert!(refused[0].as_ref().unwrap().contains("`--iodepth=1`"), "{refused:?}");
    assert_eq!(refused[1..], [None, None]);
}

/// A result of many ranks, each with latencies of its own.
fn merged(ranks: u64, repetitions: u32, latencies: u64) -> RunResult {
    let hosts: Vec<String> = (0..ranks).map(|rank| format!("host-{}", rank / 4)).collect();
    let hellos: Vec<Hello> = hosts.iter().map(|host| hello(host)).collect();
    let part = |rank: u64| {
        let mut latency_ns = Latencies::default();
        (0..latencies).for_each(|number| latency_ns.record(50_000 + 701 * number + rank, 1 + number % 3));
        let all = PeerTransfers { bytes: 1 << 30, ios: latency_ns.count(), latency_ns };
        PeerPart { started: 1.0, ended: 11.0 + rank as f64 * 1e-4, all, directions: None }
    };
    let repetition = |number| Repetition {
        series: 0,
        ranks: (0..ranks)
            .map(|rank| {
                let repeat = PeerRepeat { number, cpu: Some([1.0, 2.0, 4.0]), parts: vec![part(rank)] };
                wire::decode(&wire::encode(&repeat)).unwrap()
            })
            .collect(),
        offsets: vec![Offset { seconds: 0.0, error: 1e-5 }; ranks as usize],
    };
    let repetitions: Vec<Repetition> = (1..=repetitions).map(repetition).collect();
    let merge = Merge {
        plan: Plan::default(),
        hosts: &hosts,
        hellos: &hellos,
        repetitions: &repetitions,
        ends: None,
    };
    let base =
        iopath_bench::report(&Workload { size_bytes: Some(1 << 20), ..workload() }, &mut Silent).unwrap();
    let begun = Instant::now();
    let merged = merge.report(base).unwrap().runs.remove(0);
    println!("{ranks} ranks merged in {:.3} s", begun.elapsed().as_secs_f64());
    merged
}

#[test]
fn a_thousand_ranks_merge_exactly() {
    let run = merged(1000, 3, 2000);
    let hosts = run.hosts.as_ref().unwrap();
    assert_eq!((hosts.hosts.len(), hosts.ranks.len(), run.repeats.len()), (250, 1000, 3));
    assert_eq!(run.bytes, 3000 << 30);
    let mut expected = Latencies::default();
    for rank in 0..1000 {
        (0..2000).for_each(|number| expected.record(50_000 + 701 * number + rank, 3 * (1 + number % 3)));
    }
    assert_eq!(run.latency_distribution.as_ref().unwrap().latencies, expected);
    let ends = hosts.ends;
    assert!((ends.skew_seconds - 0.0999).abs() < 1e-9 && ends.jain_ranks > 0.99, "{ends:?}");
    assert!(
        (ends.skew_ci95[0] - 0.09988).abs() < 1e-9 && (ends.skew_ci95[1] - 0.09992).abs() < 1e-9,
        "{ends:?}"
    );
    // The machine counts once for the four ranks of a host.
    let cpu = run.cpu.unwrap();
    assert_eq!((cpu.user_seconds, cpu.machine_seconds), (3000.0, 3000.0));
}
