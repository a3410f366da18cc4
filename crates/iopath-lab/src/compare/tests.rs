//! Comparisons of files: verdicts and refusals. Formats and damaged input are in `tests/documents.rs`.

mod documents;
mod inputs;
mod tools;

use iopath_report::format::{Document, View};
use std::fs;

use iopath_report::stats::noise::Noise;
use serde_json::{Value, json};

use super::*;
use iopath_report::compare::MetricComparison;

/// A result of iopath with these throughputs.
fn result(rates: &[f64]) -> Value {
    let repeat = |rate: &f64| {
        let time = 1e12 / rate;
        json!({
            "bytes_per_second": rate, "iops": rate / 4096.0,
            "latency_ns": {"min": 1, "mean": time, "p50": time, "p90": time, "p99": time * 2.0, "p999": time * 3.0, "max": 9},
            "cpu": {"user_seconds": 0.1, "system_seconds": 0.1, "machine_seconds": 0.2, "seconds_per_gib": 0.5, "microseconds_per_io": 2.0},
        })
    };
    json!({
        "schema": "iopath.result/1", "clock": "real",
        "host": {"kernel": "6.1", "cpu": "a cpu", "cores": 2, "memory_bytes": 8_u64 << 30, "idle_busy_cpus": 0.0},
        "target": {"path": "/data/f", "kind": "file", "scratch": false, "size_bytes": 1 << 30, "filesystem": "ext4",
            "disk": {"name": "vda", "model": null, "scheduler": "none", "read_ahead_kb": 128}},
        "runs": [{
            "path": "kernel-direct", "clock": "real", "rw": "randread", "block_bytes": 4096, "io_depth": 1, "jobs": 1,
            "warm": false, "served_by": "storage", "latency_every": 1, "cache": null,
            "repeats": rates.iter().map(repeat).collect::<Vec<_>>(),
        }],
    })
}

/// fio's JSON of one job.
fn fio(bandwidth: f64) -> Value {
    json!({
        "fio version": "fio-3.33", "global options": {"ioengine": "libaio", "bs": "4k"},
        "jobs": [{
            "jobname": "j", "error": 0, "job options": {"rw": "randread", "blocksize": "8k", "iodepth": "4"},
            "read": {"io_bytes": 1 << 30, "bw_bytes": bandwidth, "iops": bandwidth / 8192.0, "total_ios": 131_072,
                "lat_ns": {"mean": 50_000.0}, "clat_ns": {"mean": 49_000.0, "percentile": {"50.000000": 48_000, "99.000000": 90_000}}},
            "write": {"io_bytes": 0, "bw_bytes": 0, "iops": 0.0, "total_ios": 0},
            "job_runtime": 10_000, "usr_cpu": 10.0, "sys_cpu": 20.0,
        }],
    })
}

/// The runs of a text with one document.
fn parse(file: &str, text: &str) -> Result<Vec<data::Run>, CompareError> {
    source::parse(file, text).map(|mut documents| documents.remove(0))
}

/// A folder with files, and the comparison of arguments that name them with `{}` for the folder.
struct Folder(tempfile::TempDir);

impl Folder {
    fn with(files: &[(&str, &Value)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, value) in files {
            fs::write(folder.path().join(name), value.to_string()).unwrap();
        }
        Self(folder)
    }

    fn options(&self, a: &str, b: &str) -> CompareOptions {
        let side = |text: &str| text.replace("{}", self.0.path().to_str().unwrap());
        CompareOptions { sides: [side(a), side(b)], threshold: 0.03, metric: None, vary: Vec::new() }
    }

    fn compare(&self, a: &str, b: &str, vary: &str) -> Result<Comparison, CompareError> {
        let vary = vary.split_whitespace().map(str::to_owned).collect();
        compare_files(&CompareOptions { vary, ..self.options(a, b) })
    }
}

fn of(a: &Value, b: &Value, vary: &str) -> Result<Comparison, CompareError> {
    Folder::with(&[("a", a), ("b", b)]).compare("{}/a", "{}/b", vary)
}

fn primary(comparison: &Comparison) -> &MetricComparison {
    &comparison.runs[0].metrics[0]
}

#[test]
fn each_verdict_has_its_case() {
    let base = [100e6, 101e6, 99e6, 100.5e6];
    let times = |factor: f64| base.map(|rate| rate * factor);
    let verdict = |other: &[f64]| {
        let comparison = of(&result(&base), &result(other), "").unwrap();
        let metric = primary(&comparison);
        assert_eq!(metric.metric, "iops", "random reads");
        (metric.verdict, comparison.regression)
    };
    assert_eq!(verdict(&times(1.1)), (Verdict::Faster, false));
    assert_eq!(verdict(&times(0.9)), (Verdict::Slower, true));
    assert_eq!(verdict(&times(1.001)), (Verdict::Same, false));
    assert_eq!(verdict(&[80e6, 125e6, 90e6]), (Verdict::Inconclusive, false));
}

#[test]
fn the_text_has_the_difference_the_interval_and_the_verdict() {
    let comparison = of(&result(&[100e6, 101e6, 99e6]), &result(&[110e6, 111e6, 109e6]), "").unwrap();
    let text = comparison.text(View::plain(None));
    for part in ["randread, bs 4096", "+10.0%", "B is faster than A (iops; 3 repetitions each)", "p99"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let narrow = comparison.text(View::plain(Some(72)));
    assert!(narrow.lines().skip(2).all(|line| line.chars().count() <= 72), "{narrow}");
    assert!(narrow.contains("+10.0%") && narrow.contains("faster"), "{narrow}");
    let json: Value = serde_json::from_str(&comparison.to_json()).unwrap();
    assert_eq!(json["runs"][0]["metrics"][0]["verdict"], "faster");
    let [low, high] = primary(&comparison).ci95.unwrap();
    assert!(low > 0.06 && high < 0.14 && low < 0.1 && high > 0.1, "{low} {high}");
}

#[test]
fn a_single_repetition_needs_two_more_and_has_no_interval() {
    let comparison = of(&result(&[100e6]), &result(&[50e6]), "").unwrap();
    let metric = primary(&comparison);
    assert_eq!(
        (metric.verdict, metric.ci95, metric.more_repetitions),
        (Verdict::Inconclusive, None, Some(2))
    );
    assert!(comparison.text(View::plain(None)).contains("inconclusive: 2 more repetitions needed"));
}

#[test]
fn different_conditions_are_refused_by_name_unless_they_are_intended() {
    let a = result(&[1e8, 1.01e8, 0.99e8]);
    for (pointer, value, key) in [
        ("/runs/0/block_bytes", json!(8192), "bs"),
        ("/runs/0/rw", json!("read"), "rw"),
        ("/runs/0/io_depth", json!(32), "iodepth"),
        ("/runs/0/path", json!("kernel-uring"), "path"),
        ("/runs/0/served_by", json!("memory"), "served-by"),
        ("/target/path", json!("/data/g"), "target"),
        ("/target/size_bytes", json!(1 << 20), "size"),
        ("/host/cpu", json!("another cpu"), "cpu"),
        ("/host/kernel", json!("6.2"), "kernel"),
    ] {
        let mut b = a.clone();
        *b.pointer_mut(pointer).unwrap() = value;
        let text = of(&a, &b, "").unwrap_err().to_string();
        assert!(text.starts_with(&format!("A and B differ in {key} (")), "{text}");
        assert!(text.ends_with(&format!("--vary {key}")), "{text}");
        for vary in [key, "all"] {
            let comparison = of(&a, &b, vary).unwrap();
            assert_eq!(comparison.runs[0].differences[0].key, key);
        }
        assert!(of(&a, &b, "numjobs").is_err(), "another intended difference");
    }
    let mut b = a.clone();
    b["target"]["disk"]["scheduler"] = json!("bfq");
    assert_eq!(of(&a, &b, "").unwrap().runs[0].differences[0].key, "scheduler", "a setting is shown");
    let error = of(&a, &a, "colour").unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("--vary colour"), "{error}");
}

#[test]
fn workloads_of_another_order_or_verification_are_not_compared() {
    let mut a = result(&[1e8, 1.01e8, 0.99e8]);
    a["runs"][0]["workload"] = json!({"distribution": "random"});
    of(&a, &a, "").unwrap();
    for (key, value, name) in [
        ("skip_bytes", json!(-8192), "skip"),
        ("random_run", json!(8), "random-run"),
        ("random_percent", json!(30), "percentage-random"),
        ("align_bytes", json!(512), "ba"),
        ("ios_max", json!(1000), "number-ios"),
        ("rate_process", json!("poisson"), "rate-process"),
        ("flush_every", json!(4), "fsync"),
        ("verify", json!({"after": true, "backlog": null, "fatal": false}), "verify"),
    ] {
        let mut b = a.clone();
        b["runs"][0]["workload"][key] = value;
        let error = of(&a, &b, "").unwrap_err().to_string();
        assert!(error.contains(name), "{key}: {error}");
        assert_eq!(of(&a, &b, name).unwrap().runs[0].differences[0].key, name);
    }
}

#[test]
fn runs_of_a_sweep_find_their_partners_and_a_selection_chooses() {
    let mut a = result(&[1e8, 1.01e8, 0.99e8]);
    let mut other = result(&[2e8, 2.02e8, 1.98e8])["runs"][0].clone();
    other["path"] = json!("iopath-direct");
    a["runs"].as_array_mut().unwrap().push(other);
    let mut b = a.clone();
    b["runs"].as_array_mut().unwrap().reverse();
    let comparison = of(&a, &b, "").unwrap();
    assert_eq!(comparison.runs.len(), 2);
    assert!(
        comparison.runs.iter().all(|run| run.metrics[0].verdict == Verdict::Same),
        "{}",
        comparison.text(View::plain(None))
    );
    let folder = Folder::with(&[("s", &a)]);
    let two = folder.compare("{}/s@path=kernel-direct", "{}/s@path=iopath-direct", "").unwrap();
    assert_eq!(primary(&two).verdict, Verdict::Faster);
    let error = folder.compare("{}/s", "{}/s", "path").unwrap_err().to_string();
    assert!(error.contains("differ only in path") && error.contains("FILE@KEY=VALUE"), "{error}");
    let error = folder.compare("{}/s@path=x", "{}/s", "").unwrap_err().to_string();
    assert!(error.contains("has path x; known are: iopath-direct, kernel-direct"), "{error}");
    b["runs"].as_array_mut().unwrap().pop();
    let comparison = of(&a, &b, "").unwrap();
    assert_eq!((comparison.runs.len(), comparison.unmatched[0].len()), (1, 1));
}

#[test]
fn each_of_several_files_is_one_repetition() {
    // Within a file the rates agree, between files they differ by 20%: three repetitions, not nine.
    let file = |rate: f64| result(&[rate, rate * 1.001, rate * 0.999]);
    let folder = Folder::with(&[
        ("a1", &file(1e8)),
        ("a2", &file(1.2e8)),
        ("a3", &file(1.1e8)),
        ("b1", &file(1.05e8)),
        ("b2", &file(1.25e8)),
        ("b3", &file(1.2e8)),
    ]);
    let comparison = folder.compare("{}/a1,{}/a2,{}/a3", "{}/b1,{}/b2,{}/b3", "").unwrap();
    assert_eq!(comparison.runs[0].repetitions, [3, 3]);
    assert_eq!(primary(&comparison).verdict, Verdict::Inconclusive);
    let with_medium = |medium: &str| {
        let mut other = file(1e8);
        other["runs"][0]["served_by"] = json!(medium);
        Folder::with(&[("a1", &file(1e8)), ("a2", &other)]).compare("{}/a1,{}/a2", "{}/a1", "")
    };
    assert!(with_medium("unknown").is_ok(), "an unknown medium may be the same");
    let error = with_medium("memory").unwrap_err().to_string();
    assert!(error.contains("served-by (storage, memory)"), "{error}");
    let mut other = file(1e8);
    other["runs"][0]["io_depth"] = json!(2);
    let folder = Folder::with(&[("a1", &file(1e8)), ("a2", &other)]);
    let error = folder.compare("{}/a1,{}/a2", "{}/a1", "").unwrap_err().to_string();
    assert!(error.contains("not repetitions of the same workloads: iodepth (1, 2)"), "{error}");
}

#[test]
fn a_trend_widens_the_interval_of_independent_results() {
    let falling =
        |from: f64| -> Vec<f64> { (0..6).map(|index| from * (1.0 - 0.02 * f64::from(index))).collect() };
    // B continues where A ended.
    let comparison = of(&result(&falling(1e8)), &result(&falling(0.88e8)), "").unwrap();
    let metric = primary(&comparison);
    assert_eq!(metric.verdict, Verdict::Inconclusive, "{}", comparison.text(View::plain(None)));
    assert!(metric.reason.as_ref().unwrap().contains("--live"));
    let comparison = of(&result(&falling(1e8)), &result(&falling(0.4e8)), "").unwrap();
    assert_eq!(primary(&comparison).verdict, Verdict::Slower, "more than the trend");
}

/// A result with reads and writes of each repetition. The latency of the writes is `slower` times that of the reads.
fn mixed(rates: &[f64], slower: f64) -> Value {
    let mut whole = result(rates);
    let run = &mut whole["runs"][0];
    run["rw"] = json!("randrw");
    for repeat in run["repeats"].as_array_mut().unwrap() {
        let part = |factor: f64| {
            let mut part = repeat.clone();
            for time in part["latency_ns"].as_object_mut().unwrap().values_mut() {
                *time = json!(time.as_f64().unwrap() * factor);
            }
            part
        };
        repeat["directions"] = json!({ "read": part(1.0), "write": part(slower) });
    }
    whole
}

#[test]
fn reads_and_writes_of_a_mixed_pattern_are_compared_apart() {
    let rates = [1e8, 1.01e8, 0.99e8, 1.005e8];
    let comparison = of(&mixed(&rates, 1.0), &mixed(&rates, 1.5), "").unwrap();
    let workloads: Vec<&str> = comparison.runs.iter().map(|run| run.workload.as_str()).collect();
    assert_eq!(workloads.len(), 3, "{workloads:?}");
    assert!(workloads[1].contains("read") && workloads[2].contains("write"), "{workloads:?}");
    let p99 = |run: &RunComparison| {
        run.metrics.iter().find(|metric| metric.metric == "p99").map(|metric| metric.verdict).unwrap()
    };
    assert_eq!(p99(&comparison.runs[1]), Verdict::Same, "{}", comparison.text(View::plain(None)));
    assert_eq!(p99(&comparison.runs[2]), Verdict::Slower);
    let folder = Folder::with(&[("m", &mixed(&rates, 1.0))]);
    let only = folder.compare("{}/m@direction=write", "{}/m@direction=write", "").unwrap();
    assert_eq!(only.runs.len(), 1);
}

/// A result of a job file with these jobs: name, group and rates.
fn jobs(jobs: &[(&str, u32, &[f64])]) -> Value {
    let mut whole = result(&[1e8]);
    let runs: Vec<Value> = jobs
        .iter()
        .map(|(name, group, rates)| {
            let mut run = result(rates)["runs"][0].clone();
            run["job"] = json!({ "name": name, "group": group, "target": "/data/f" });
            run
        })
        .collect();
    whole["runs"] = runs.into();
    whole
}

#[test]
fn results_of_job_files_are_compared_job_by_job() {
    let same: &[f64] = &[1e8, 1.01e8, 0.99e8, 1.005e8];
    let slow: &[f64] = &[0.7e8, 0.71e8, 0.69e8, 0.705e8];
    let a = jobs(&[("log", 1, same), ("scan", 2, same), ("old", 3, same)]);
    let b = jobs(&[("scan", 1, slow), ("log", 2, same)]);
    let comparison = of(&a, &b, "").unwrap();
    let verdicts: Vec<(bool, Verdict)> =
        comparison.runs.iter().map(|run| (run.workload.starts_with("log"), run.metrics[0].verdict)).collect();
    assert_eq!(
        verdicts,
        [(true, Verdict::Same), (false, Verdict::Slower)],
        "{}",
        comparison.text(View::plain(None))
    );
    assert!(comparison.regression && comparison.unmatched[0].len() == 1, "{:?}", comparison.unmatched);
    assert!(comparison.runs[0].differences.iter().any(|one| one.key == "group"), "the group may change");
    let twins = jobs(&[("j", 1, same), ("j", 2, slow)]);
    let comparison = of(&twins, &twins, "").unwrap();
    assert_eq!(comparison.runs.len(), 2, "jobs of one name differ in their group");
    assert!(comparison.is_conclusive());
    let comparison = of(&a, &jobs(&[("log", 1, same)]), "").unwrap();
    assert!(!comparison.is_conclusive() && !comparison.regression, "jobs without a partner");
}

#[test]
fn a_requested_metric_decides_and_an_unknown_one_is_refused() {
    let (a, mut b) = (result(&[1e8, 1.01e8, 0.99e8]), result(&[1e8, 1.01e8, 0.99e8]));
    for (index, repeat) in b["runs"][0]["repeats"].as_array_mut().unwrap().iter_mut().enumerate() {
        repeat["cpu"]["seconds_per_gib"] = json!(1.0 + 0.01 * index as f64);
    }
    let folder = Folder::with(&[("a", &a), ("b", &b)]);
    let with = |metric: &str| {
        compare_files(&CompareOptions { metric: Some(metric.to_owned()), ..folder.options("{}/a", "{}/b") })
    };
    let comparison = with("cpu").unwrap();
    assert_eq!((primary(&comparison).verdict, comparison.regression), (Verdict::Costlier, true));
    assert!(!with("throughput").unwrap().regression);
    assert!(with("time").unwrap_err().to_string().contains("A and B have no time"));
}

#[test]
fn a_repetition_without_a_transfer_is_a_regression_and_not_noise() {
    let (running, mut stopped) = (result(&[1e8, 1e8, 1e8]), result(&[1e8, 1e8, 1e8]));
    for key in ["iops", "bytes_per_second"] {
        stopped["runs"][0]["repeats"][1][key] = json!(0);
    }
    for time in stopped["runs"][0]["repeats"][1]["latency_ns"].as_object_mut().unwrap().values_mut() {
        *time = json!(0);
    }
    let comparison = of(&running, &stopped, "").unwrap();
    let metric = primary(&comparison);
    assert_eq!((metric.verdict, metric.difference, comparison.regression), (Verdict::Slower, None, true));
    let text = comparison.text(View::plain(None));
    assert!(
        text.contains("B is slower than A (iops; 3 repetitions each): no transfer completed in 1 of 3"),
        "{text}"
    );
    // At a fixed rate, the latency decides.
    let folder = Folder::with(&[("a", &running), ("b", &stopped)]);
    let options = CompareOptions { metric: Some("p99".to_owned()), ..folder.options("{}/a", "{}/b") };
    assert!(compare_files(&options).unwrap().regression);
    let comparison = of(&stopped, &running, "").unwrap();
    assert_eq!((primary(&comparison).verdict, comparison.regression), (Verdict::Faster, false));
    let comparison = of(&stopped, &stopped, "").unwrap();
    assert_eq!(primary(&comparison).verdict, Verdict::Inconclusive);
}

#[test]
fn a_value_of_zero_has_no_ratio() {
    let (a, mut b) = (result(&[1e8, 1e8]), result(&[1e8, 1e8]));
    b["runs"][0]["repeats"][1]["cpu"]["seconds_per_gib"] = json!(0);
    let folder = Folder::with(&[("a", &a), ("b", &b)]);
    let options = CompareOptions { metric: Some("cpu".to_owned()), ..folder.options("{}/a", "{}/b") };
    let comparison = compare_files(&options).unwrap();
    let metric = primary(&comparison);
    assert_eq!((metric.verdict, metric.difference), (Verdict::Inconclusive, None));
    assert!(comparison.text(View::plain(None)).contains("a value of 0 has no ratio"));
}

#[test]
fn the_whole_comparison_has_at_most_5_percent_of_false_alarms() {
    const TRIALS: u32 = 400;
    let alarms = (0..TRIALS).filter(|trial| {
        let samples = Noise::Gaussian.samples(u64::from(*trial), [5, 5], 1.0);
        let runs = [&samples[0], &samples[1]].map(|rates| {
            let text = result(rates).to_string();
            parse("f", &text).unwrap().remove(0)
        });
        let compared =
            vec![verdict::compare([&runs[0], &runs[1]], ["A", "B"], None, Design::Independent).unwrap()];
        let decisions = verdict::decide(&compared, 1.03f64.ln(), ALPHA);
        decisions[0].iter().any(|one| !matches!(one.verdict, Verdict::Same | Verdict::Inconclusive))
    });
    let share = alarms.count() as f64 / f64::from(TRIALS);
    eprintln!("false alarms in any of six metrics: {:.2}%", share * 100.0);
    assert!(share <= 0.05 + 3.0 * (0.05 * 0.95 / f64::from(TRIALS)).sqrt(), "{share}");
}

#[test]
fn a_drift_from_a_to_b_is_no_difference_once_the_repetitions_show_it() {
    const TRIALS: u32 = 400;
    for count in [3, 5, 10] {
        let alarms = (0..TRIALS).filter(|trial| {
            let mut generator = iopath_report::random::generator(u64::from(*trial), [9, 9]);
            // B follows A: each repetition is 1% slower than the one before, with noise of 2%.
            let all: Vec<f64> = (0..2 * count)
                .map(|at| {
                    1e8 * 0.99f64.powi(at)
                        * (1.0 + 0.02 * iopath_report::stats::noise::normal(&mut generator))
                })
                .collect();
            let runs = [&all[..count as usize], &all[count as usize..]].map(|values| {
                let mut run = data::Run::default();
                run.sample(data::THROUGHPUT, Some(values.to_vec()));
                run
            });
            let compared =
                vec![verdict::compare([&runs[0], &runs[1]], ["A", "B"], None, Design::Independent).unwrap()];
            let verdict = verdict::decide(&compared, 1.03f64.ln(), ALPHA)[0][0].verdict;
            !matches!(verdict, Verdict::Same | Verdict::Inconclusive)
        });
        let share = alarms.count() as f64 / f64::from(TRIALS);
        eprintln!("false alarms of a drift of 1% per repetition, {count} repetitions: {:.1}%", share * 100.0);
        assert!(count < 10 || share <= 0.05, "{count}: {share}");
    }
}

#[test]
fn the_interval_of_an_inconclusive_metric_includes_zero() {
    // Alone, p = 0.02 to 0.04 is significant; among the six metrics it is not.
    let (a, b) = ([100e6, 104e6, 96e6, 101e6], [91e6, 96e6, 88e6, 95e6]);
    let comparison = of(&result(&a), &result(&b), "").unwrap();
    let corrected: Vec<_> = comparison.runs[0].metrics.iter().filter(|one| one.reason.is_some()).collect();
    assert!(!corrected.is_empty(), "{}", comparison.text(View::plain(None)));
    for metric in comparison.runs[0].metrics.iter().filter(|one| one.verdict != Verdict::Same) {
        let [low, high] = metric.ci95.unwrap();
        let is_clear = metric.verdict != Verdict::Inconclusive;
        assert_eq!(is_clear, low > 0.0 || high < 0.0, "{}", comparison.text(View::plain(None)));
    }
    let text = comparison.text(View::plain(None));
    assert!(text.contains("latency, p50, p90, p99, p999: the interval is that of 6 comparisons"), "{text}");
    assert!(corrected.iter().all(|one| one.p_value.unwrap() < ALPHA));
}
