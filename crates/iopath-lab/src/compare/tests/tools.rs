//! Comparisons of fio with iopath, and of files in which several jobs have one name.

use super::*;

/// A job in fio's JSON: name, group, options and bytes per second of its reads.
fn section(name: &str, group: u64, options: Value, rate: f64) -> Value {
    let mut job = fio(rate)["jobs"][0].clone();
    job["jobname"] = json!(name);
    job["groupid"] = json!(group);
    job["job options"] = options;
    job
}

fn fio_with(jobs: &[Value]) -> Value {
    json!({ "fio version": "fio-3.33", "global options": {}, "jobs": jobs })
}

fn workloads(comparison: &Comparison) -> Vec<&str> {
    comparison.runs.iter().map(|run| run.workload.as_str()).collect()
}

#[test]
fn jobs_of_one_name_are_workloads_of_their_own() {
    let of = |group, bs: &str, rate| section("j", group, json!({ "rw": "read", "bs": bs }), rate);
    let a = fio_with(&[of(0, "4k", 1e8), of(0, "64k", 2e8), of(1, "4k", 3e8)]);
    let runs = parse("f", &a.to_string()).unwrap();
    let rates: Vec<f64> = runs.iter().map(|run| run.values(data::THROUGHPUT).unwrap()[0]).collect();
    assert_eq!(rates, [1e8, 2e8, 3e8], "nothing is added");
    let comparison = super::of(&a, &a, "").unwrap();
    assert_eq!(
        workloads(&comparison),
        [
            "j, group 1, read, bs 4096, iodepth 1, numjobs 1",
            "j, read, bs 65536, iodepth 1, numjobs 1",
            "j, group 2, read, bs 4096, iodepth 1, numjobs 1",
        ]
    );
    let b = fio_with(&[of(0, "4k", 1e8), of(0, "64k", 2e8)]);
    for (a, b, side) in [(&a, &b, 0), (&b, &a, 1)] {
        let comparison = super::of(a, b, "").unwrap();
        assert_eq!(comparison.runs.len(), 2);
        assert_eq!(comparison.unmatched[side], ["j, group 2, read, bs 4096, iodepth 1, numjobs 1"]);
    }
}

#[test]
fn a_result_with_fewer_clones_is_refused() {
    let clone = || section("j", 0, json!({ "rw": "read", "numjobs": "2" }), 1e8);
    let (whole, half) = (fio_with(&[clone(), clone()]), fio_with(&[clone()]));
    assert!(of(&whole, &half, "").is_ok(), "one entry has all clones with group_reporting");
    let one = || section("j", 0, json!({ "rw": "read" }), 1e8);
    let error = of(&fio_with(&[one(), one()]), &fio_with(&[one()]), "").unwrap_err().to_string();
    assert!(error.starts_with("A and B differ in clones (2, 1)"), "{error}");
}

/// A result of iopath for a job that reads or writes a file of 16 MiB.
fn ours(workload: &Value) -> Value {
    let mut whole = result(&[1e8, 1.01e8, 0.99e8]);
    whole["target"]["scratch"] = json!(true);
    whole["target"]["size_bytes"] = json!(16 << 20);
    let run = &mut whole["runs"][0];
    run["job"] = json!({ "name": "j", "group": 1, "target": "/scratch" });
    run["workload"] =
        json!({ "start_bytes": 0, "size_bytes": 16 << 20, "runtime_seconds": 1.0, "distribution": "random" });
    for (key, value) in workload.as_object().unwrap() {
        match key.as_str() {
            "block_bytes" | "io_depth" | "rate_iops" | "think_ns" | "block_sizes" | "path" => {
                run[key] = value.clone();
            }
            _ => run["workload"][key] = value.clone(),
        }
    }
    whole
}

#[test]
fn a_job_of_fio_and_the_same_job_here_differ_in_the_tool_and_the_start_of_a_latency() {
    for (options, workload) in [
        (json!({}), json!({ "block_bytes": 4096 })),
        (
            json!({ "blocksize": "8k", "thinktime": "1ms" }),
            json!({ "block_bytes": 8192, "think_ns": 1_000_000 }),
        ),
        (json!({ "bs": "4KB", "fsync": "0", "verify": "0", "zero_buffers": "0" }), json!({})),
        (
            json!({ "ioengine": "io_uring", "iodepth": "0x20" }),
            json!({ "path": "kernel-uring", "io_depth": 32 }),
        ),
        (json!({ "ioengine": "psync", "iodepth": "32" }), json!({ "io_depth": 1 })),
        (
            json!({ "rate_iops": "1k", "rate_process": "poisson" }),
            json!({ "rate_iops": 1024.0, "rate_process": "poisson" }),
        ),
        (json!({ "rate": "4m" }), json!({ "rate_iops": 1024.0, "rate_process": "linear" })),
        (json!({ "bssplit": "4k/50:8k" }), json!({ "block_bytes": 8192, "block_sizes": "4096/50:8192/50" })),
        (json!({ "random_distribution": "zipf:1.20" }), json!({ "distribution": "zipf:1.2" })),
        (
            json!({ "filename": "x", "size": "8m", "offset": "4m" }),
            json!({ "start_bytes": 4 << 20, "size_bytes": 12 << 20 }),
        ),
    ] {
        let mut given = json!({ "rw": "randread", "size": "16m", "direct": "1" });
        given.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        // With a rate, fio measures from the submission, and a run here from the time that is due.
        let differ = if workload.get("rate_iops").is_some() { "tool,latency-from" } else { "tool" };
        let (a, b) = (fio_with(&[section("j", 0, given, 1e8)]), ours(&workload));
        for (a, b) in [(&a, &b), (&b, &a)] {
            let refused = of(a, b, "").unwrap_err().to_string();
            let expected = format!("name intended differences: --vary {differ}");
            assert!(refused.ends_with(&expected), "{options}: {refused}");
            of(a, b, &differ.replace(',', " ")).unwrap_or_else(|error| panic!("{options}: {error}"));
        }
    }
}

#[test]
fn other_conditions_of_fio_and_iopath_are_named() {
    for (option, value, key) in [
        ("bs", "64k", "bs (65536, 4096)"),
        ("direct", "0", "direct (false, true)"),
        ("size", "8m", "range (0 bytes..8 MiB, 0 bytes..16 MiB)"),
        ("rw", "randwrite", "rw (randwrite, randread)"),
        ("fsync", "1", "fsync (1, none)"),
        ("verify", "crc32c", "verify (crc32c, none)"),
        ("thinktime", "5", "thinktime (5000 ns, none)"),
        ("random_distribution", "pareto:0.2", "random-distribution (pareto:0.2, random)"),
    ] {
        let mut given = json!({ "rw": "randread", "size": "16m", "direct": "1" });
        given[option] = json!(value);
        if option == "fsync" {
            given["rw"] = json!("randwrite");
        }
        let error =
            of(&fio_with(&[section("j", 0, given, 1e8)]), &ours(&json!({})), "tool").unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    }
}
