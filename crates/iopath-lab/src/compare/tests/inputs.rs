//! Comparisons of stalls, of sweeps, and of workloads and formats that differ in one condition.

use super::*;
use iopath_report::format::{Document, View};

/// Rates of a quiet storage on which each of these repetitions takes ten times as long.
fn with_stalls(stalled: &[usize]) -> Vec<f64> {
    let rate = |at: usize| 1e8 + 1e5 * (at % 7) as f64;
    (0..100).map(|at| if stalled.contains(&at) { rate(at) / 10.0 } else { rate(at) }).collect()
}

#[test]
fn a_few_stalls_are_no_difference_but_a_note() {
    let comparison = of(&result(&with_stalls(&[3])), &result(&with_stalls(&[9, 20])), "").unwrap();
    assert_eq!(primary(&comparison).verdict, Verdict::Same, "{}", comparison.text(View::plain(None)));
    let text = comparison.text(View::plain(Some(72)));
    assert!(text.contains("Stalls: 1 in A, 2 in B. These repetitions took at least 2 times"), "{text}");
    let quiet = of(&result(&with_stalls(&[])), &result(&with_stalls(&[])), "").unwrap();
    assert!(!quiet.text(View::plain(None)).contains("Stalls"), "{}", quiet.text(View::plain(None)));
}

#[test]
fn many_stalls_of_one_side_are_a_difference_even_if_the_other_repetitions_are_the_same() {
    let often: Vec<usize> = (0..9).map(|at| at * 10).collect();
    let comparison = of(&result(&with_stalls(&[])), &result(&with_stalls(&often)), "").unwrap();
    let metric = primary(&comparison);
    assert_eq!((metric.verdict, comparison.regression), (Verdict::Slower, true));
    let text = comparison.text(View::plain(None));
    assert!(
        text.contains("0 of 100 repetitions of A and 9 of 100 of B took at least 2 times as long"),
        "{text}"
    );
    let comparison = of(&result(&with_stalls(&often)), &result(&with_stalls(&[])), "").unwrap();
    assert_eq!((primary(&comparison).verdict, comparison.regression), (Verdict::Faster, false));
    // Faster, but with more stalls: neither.
    let faster: Vec<f64> = with_stalls(&often).iter().map(|rate| rate * 1.2).collect();
    let comparison = of(&result(&with_stalls(&[])), &result(&faster), "").unwrap();
    assert_eq!(primary(&comparison).verdict, Verdict::Inconclusive, "{}", comparison.text(View::plain(None)));
}

/// A sweep of two block sizes and two schedulers: the rates of each cell.
pub(super) fn sweep(rates: [Option<&[f64]>; 4]) -> Value {
    let whole = result(&[1e8]);
    let values = [("4k", "none"), ("4k", "bfq"), ("64k", "none"), ("64k", "bfq")];
    let cells: Vec<Value> = values
        .iter()
        .zip(rates)
        .map(|((bs, scheduler), rates)| {
            let mut run = rates.map(|rates| result(rates)["runs"][0].clone());
            if let Some(run) = &mut run {
                run["block_bytes"] = json!(iopath_report::size::parse_size(bs).unwrap());
            }
            json!({ "values": [bs, scheduler], "run": run })
        })
        .collect();
    json!({
        "schema": "iopath.sweep/1", "arguments": [], "seed": 1, "complete": true, "device": "vda",
        "host": whole["host"], "target": whole["target"], "cells": cells,
        "axes": [{ "name": "bs", "values": ["4k", "64k"] }, { "name": "scheduler", "values": ["none", "bfq"] }],
    })
}

#[test]
fn sweeps_are_compared_cell_by_cell() {
    let rates: &[f64] = &[1e8, 1.01e8, 0.99e8];
    let half = rates.iter().map(|rate| rate / 2.0).collect::<Vec<_>>();
    let a = sweep([Some(rates); 4]);
    let b = sweep([Some(rates), Some(&half), Some(rates), None]);
    let comparison = of(&a, &b, "").unwrap();
    let verdicts: Vec<Verdict> = comparison.runs.iter().map(|run| run.metrics[0].verdict).collect();
    assert_eq!(verdicts.iter().filter(|verdict| **verdict == Verdict::Slower).count(), 1, "{verdicts:?}");
    assert_eq!((comparison.runs.len(), comparison.unmatched[0].len()), (3, 1), "the cell that B lacks");
    // The settings of a sweep are conditions, and select its cells.
    let folder = Folder::with(&[("s", &b), ("r", &result(rates))]);
    let comparison = folder.compare("{}/s@bs=4096@scheduler=none", "{}/s@bs=4096@scheduler=bfq", "").unwrap();
    assert_eq!((comparison.runs.len(), primary(&comparison).verdict), (1, Verdict::Slower));
    // A sweep and a result of the same workload.
    let comparison = folder.compare("{}/s@bs=4096@scheduler=none", "{}/r", "").unwrap();
    assert_eq!(comparison.runs.len(), 1, "the scheduler of a result may differ");
    let error = of(&sweep([None; 4]), &a, "").unwrap_err().to_string();
    assert!(error.contains("cells: no cell is measured"), "{error}");
}

/// The settings of a workload in a result.
fn workload() -> Value {
    json!({ "seed": 1, "start_bytes": 0, "size_bytes": 1 << 30, "runtime_seconds": 1.0, "repetitions": 3 })
}

#[test]
fn a_condition_that_only_one_workload_has_is_a_difference() {
    let mut a = result(&[1e8, 1.01e8, 0.99e8]);
    a["runs"][0]["workload"] = workload();
    for (pointer, value, key) in [
        ("/rate_iops", json!(100.0), "rate-iops"),
        ("/think_ns", json!(1000), "thinktime"),
        ("/block_sizes", json!("4096/50:8192/50"), "bssplit"),
        ("/model_host", json!({ "name": "p3-2002" }), "host"),
        ("/workload/size_bytes", json!(4096), "range"),
    ] {
        let mut b = a.clone();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        b.pointer_mut(&format!("/runs/0{parent}")).unwrap()[name] = value;
        for (a, b) in [(&a, &b), (&b, &a)] {
            let text = of(a, b, "").unwrap_err().to_string();
            assert!(text.contains(&format!("A and B differ in {key} (")), "{text}");
            assert!(of(a, b, key).is_ok());
        }
    }
    let mut b = a.clone();
    b["more_targets"] = json!([{ "path": "/data/g" }]);
    assert!(of(&a, &b, "").unwrap_err().to_string().contains("differ in more-targets (none"));
    // The content of transfers and their distances, in files of fio.
    for (option, value) in [("zero_buffers", "1"), ("rate_process", "poisson"), ("verify", "crc32c")] {
        let mut a = fio(1e8);
        a["jobs"][0]["job options"]["rate_iops"] = json!("100");
        let mut b = a.clone();
        b["jobs"][0]["job options"][option] = json!(value);
        let text = of(&a, &b, "").unwrap_err().to_string();
        assert!(text.contains(&option.replace("rate_process", "rate-process")), "{text}");
    }
}

#[test]
fn each_format_is_refused_against_another_unless_the_difference_is_intended() {
    let rates: &[f64] = &[1e8, 1.01e8, 0.99e8];
    let job = jobs(&[("j", 1, rates)]);
    let folder = Folder::with(&[
        ("ours", &result(rates)),
        ("fio", &fio(1e8)),
        ("sweep", &sweep([Some(rates); 4])),
        ("job", &job),
    ]);
    let table = "blocksize R R R R(avg, R(std R\n(bytes) (s) (s) (s) MB/s) MB/s) (IOPS)\n4096 10 10.1 9.9 100 1 25600\n";
    fs::write(folder.0.path().join("table"), table).unwrap();
    let one = |name: &str| {
        if name == "sweep" { "{}/sweep@bs=4096@scheduler=none".to_owned() } else { format!("{{}}/{name}") }
    };
    for a in ["ours", "fio", "sweep", "job", "table"] {
        for b in ["ours", "fio", "sweep", "job", "table"] {
            let (side_a, side_b) = (one(a), one(b));
            let tool = |name| match name {
                "fio" | "table" => name,
                _ => "iopath",
            };
            let plain = folder.compare(&side_a, &side_b, "");
            if tool(a) == tool(b) {
                assert!(plain.is_ok(), "{a} {b}: {:?}", plain.unwrap_err().to_string());
            } else {
                let text = plain.unwrap_err().to_string();
                assert!(text.contains("tool ("), "{a} {b}: {text}");
                let intended = folder.compare(&side_a, &side_b, "all");
                assert!(intended.is_ok(), "{a} {b}: {}", intended.unwrap_err());
            }
        }
    }
}
