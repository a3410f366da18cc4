//! Results as JSON: every run has the keys of the schema, and docs/result.md documents each of them.

use std::collections::BTreeSet;
use std::time::Duration;

use iopath_bench::paths::find_path;
use iopath_bench::progress::Silent;
use iopath_bench::{BenchError, Lab, Repetitions, Target, Workload};
use iopath_report::result::{Finding, Report, SCHEMA};
use serde_json::Value;

fn report() -> Report {
    let directory = tempfile::tempdir().unwrap();
    let workload = Workload {
        target: Some(directory.path().to_owned()),
        size_bytes: Some(1 << 20),
        repetitions: Repetitions::constant(2),
        ..Workload::default()
    };
    let target = Target::prepare(&workload, &mut Silent).unwrap();
    let lab = Lab::new(Duration::from_millis(1), &mut Silent);
    let mut runs = vec![lab.run(&workload, &target, &mut Silent).unwrap()];
    let cached = Workload { path: find_path("iopath-buffered").unwrap(), ..workload };
    match lab.run(&cached, &target, &mut Silent) {
        Err(BenchError::Direct(error)) => eprintln!("skipped the cache: {error}"),
        run => runs.push(run.unwrap()),
    }
    let mut report = Report::new(lab.host().cloned(), target.facts(), runs);
    let finding = Finding {
        id: "best".to_owned(),
        text: "text".to_owned(),
        evidence: "evidence".to_owned(),
        confidence: None,
        doubts: Vec::new(),
    };
    report.findings.push(finding);
    report
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect::<BTreeSet<_>>().into_iter().collect()
}

fn sorted<'a>(names: &[&'a str]) -> Vec<&'a str> {
    names.iter().copied().collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn the_keys_are_those_of_the_schema() {
    let json = serde_json::to_value(report()).unwrap();
    assert_eq!(json["schema"], SCHEMA);
    assert_eq!(keys(&json), sorted(&["schema", "clock", "host", "target", "runs", "findings"]));
    let run = &json["runs"][0];
    let run_keys = [
        "path",
        "clock",
        "rw",
        "block_bytes",
        "io_depth",
        "jobs",
        "workload",
        "latency_distribution",
        "warm",
        "served_by",
        "latency_every",
        "bytes",
        "ios",
        "seconds",
        "bytes_per_second",
        "iops",
        "latency_ns",
        "cpu",
        "threads",
        "device",
        "cache",
        "repeats",
        "warnings",
    ];
    assert_eq!(keys(run), sorted(&run_keys));
    for quantity in ["bytes_per_second", "iops"] {
        assert_eq!(keys(&run[quantity]), sorted(&["mean", "stddev", "ci95"]));
        assert_eq!(run[quantity]["ci95"].as_array().unwrap().len(), 2, "low and high");
    }
    assert_eq!(keys(&run["latency_ns"]), sorted(&["min", "mean", "p50", "p90", "p99", "p999", "max"]));
    let cpu = ["user_seconds", "system_seconds", "machine_seconds", "seconds_per_gib", "microseconds_per_io"];
    assert_eq!(keys(&run["cpu"]), sorted(&cpu));
    if !run["device"].is_null() {
        assert_eq!(
            keys(&run["device"]),
            sorted(&["reads", "read_bytes", "writes", "written_bytes", "queue"])
        );
    }
    assert!(run["cache"].is_null(), "only iopath's page cache has counters");
    if let Some(run) = json["runs"].get(1) {
        let cache = &run["cache"];
        assert_eq!(keys(cache), sorted(&["cache_bytes", "page_bytes", "readahead", "borrow", "used"]));
        assert_eq!(keys(&cache["used"]), keys(&run["repeats"][0]["cache"]));
        let pages = cache["used"]["hits"].as_u64().unwrap() + cache["used"]["misses"].as_u64().unwrap();
        assert!(pages + cache["used"]["joins"].as_u64().unwrap() >= 2 * (1 << 20) / 4096, "{cache}");
    }
    assert_eq!(run["repeats"].as_array().unwrap().len(), 2);
    assert_eq!(keys(&json["findings"][0]), sorted(&["id", "text", "evidence"]));
}

#[test]
fn a_report_reads_back_as_it_was_written() {
    let report = report();
    assert_eq!(serde_json::from_str::<Report>(&report.to_json()).unwrap(), report);
}

#[test]
fn every_key_is_documented() {
    let document = include_str!("../../../docs/result.md");
    let mut names = BTreeSet::new();
    collect(&serde_json::to_value(report()).unwrap(), &mut names);
    let missing: Vec<_> = names.iter().filter(|name| !document.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/result.md does not name {missing:?}");
}

fn collect(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                names.insert(name.clone());
                collect(value, names);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, names)),
        _ => {}
    }
}
