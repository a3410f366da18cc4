//! Several workloads on all ranks: sweeps, lists of values and presets.

use crate::{PROGRAM, directory, entries, json, mpirun, ranks, text};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// A sweep of two block sizes on files of this size for each rank.
fn sweep(folder: &Path, sizes: [usize; 2], more: &[&str]) -> Option<Output> {
    for (rank, size) in sizes.iter().enumerate() {
        fs::write(folder.join(format!("data-{rank}")), vec![1; *size]).unwrap();
    }
    let common =
        [PROGRAM, "sweep", "--path=kernel-buffered", "--bs=4k,256k", "--repeat=2", "--output=s.json"];
    let arguments = [&common[..], &["--target=data-{rank}"], more].concat();
    Some(mpirun(2, &arguments)?.current_dir(folder).output().unwrap())
}

fn resume(folder: &Path, count: u32) -> Output {
    let mut command = mpirun(count, &[PROGRAM, "sweep", "--resume", "s.json"]).unwrap();
    command.current_dir(folder).output().unwrap()
}

#[test]
fn all_ranks_measure_the_same_cells_and_rank_0_keeps_their_results() {
    let folder = directory();
    let Some(output) = sweep(folder.path(), [1 << 20, 512 << 10], &["--rw=read,randread"]) else { return };
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(stdout.matches("4 cells, 4 measured, 0 skipped").count(), 1, "{stdout}");
    assert_eq!(entries(folder.path()), ["data-0", "data-1", "s.json"]);
    let file = json(&folder.path().join("s.json"));
    assert_eq!((&file["complete"], &file["hosts"][0]["ranks"]), (&true.into(), &serde_json::json!([0, 1])));
    for cell in file["cells"].as_array().unwrap() {
        let run = &cell["run"];
        assert_eq!(run["bytes"], (2 * (1024 + 512)) << 10, "{}", cell["values"]);
        assert_eq!(run["latency_distribution"]["count"], run["ios"]);
        assert_eq!(run["hosts"]["ranks"].as_array().unwrap().len(), 2);
        assert_eq!(run["repeats"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn a_cell_that_one_rank_refuses_is_refused_on_all() {
    let folder = directory();
    let Some(output) = sweep(folder.path(), [1 << 20, 64 << 10], &[]) else { return };
    assert!(output.status.success(), "{}", text(&output.stderr));
    let file = json(&folder.path().join("s.json"));
    assert_eq!((&file["complete"], &file["cells"][0]["run"]["bytes"]), (&true.into(), &(2176 << 10).into()));
    assert_eq!(file["cells"][1]["run"], Value::Null);
    let reason = file["cells"][1]["skipped"].as_str().unwrap();
    assert!(reason.starts_with("rank 1 on host ") && reason.contains("65536 is not valid"), "{reason}");
}

#[test]
fn the_same_ranks_continue_a_sweep() {
    let folder = directory();
    let Some(output) = sweep(folder.path(), [1 << 20; 2], &[]) else { return };
    assert!(output.status.success(), "{}", text(&output.stderr));
    let path = folder.path().join("s.json");
    let mut file = json(&path);
    let kept = file["cells"][1].clone();
    file["complete"] = false.into();
    file["cells"][0]["run"] = Value::Null;
    fs::write(&path, file.to_string()).unwrap();
    let output = resume(folder.path(), 3);
    assert!(!output.status.success() && text(&output.stderr).contains("start the same ranks"), "{output:?}");
    let alone = Command::new(PROGRAM).args(["sweep", "--resume"]).arg(&path).output().unwrap();
    assert!(
        text(&alone.stderr).contains("2 ranks of MPI measured it; continue it with mpirun -n 2"),
        "{alone:?}"
    );
    let output = resume(folder.path(), 2);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let file = json(&path);
    assert_eq!((&file["complete"], &file["cells"][0]["run"]["bytes"]), (&true.into(), &(4 << 20).into()));
    assert_eq!(file["cells"][1], kept);
    let output = resume(folder.path(), 2);
    assert!(text(&output.stdout).contains("2 cells, 2 measured"), "a complete sweep is shown: {output:?}");
}

#[test]
fn a_rank_that_fails_ends_a_sweep_and_is_named() {
    let folder = directory();
    fs::write(folder.path().join("data-0"), vec![1; 1 << 16]).unwrap();
    let arguments =
        [PROGRAM, "sweep", "--path=kernel-buffered", "--bs=4k", "--target=data-{rank}", "--output=t.json"];
    let Some(mut command) = mpirun(2, &arguments) else { return };
    let output = command.current_dir(folder.path()).output().unwrap();
    let stderr = text(&output.stderr);
    assert!(!output.status.success() && stderr.contains("rank 1 on host "), "{stderr}");
    assert!(stderr.contains("data-1 does not exist"), "{stderr}");
    assert_eq!(json(&folder.path().join("t.json"))["complete"], false);
}

#[test]
fn settings_of_a_device_are_refused() {
    let folder = directory();
    let Some(output) = sweep(folder.path(), [1 << 20; 2], &["--set=scheduler=none"]) else { return };
    let stderr = text(&output.stderr);
    assert!(!output.status.success() && stderr.contains("iopath tune on each host"), "{stderr}");
    assert!(!folder.path().join("s.json").exists());
}

#[test]
fn lists_have_a_row_for_each_combination_of_all_ranks() {
    let folder = directory();
    for (rank, size) in [1 << 20, 64 << 10].into_iter().enumerate() {
        fs::write(folder.path().join(format!("data-{rank}")), vec![1; size]).unwrap();
    }
    let arguments = [
        PROGRAM,
        "run",
        "--path=kernel-buffered",
        "--bs=4k,16k,256k",
        "--rw=read,randread",
        "--repeat=3",
        "--target=data-{rank}",
        "--json=r.json",
    ];
    let Some(mut command) = mpirun(2, &arguments) else { return };
    let output = command.current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = json(&folder.path().join("r.json"));
    let runs = report["runs"].as_array().unwrap();
    let found: Vec<(&str, u64)> = runs
        .iter()
        .map(|run| (run["rw"].as_str().unwrap(), run["block_bytes"].as_u64().unwrap() >> 10))
        .collect();
    assert_eq!(found, [("read", 4), ("read", 16), ("randread", 4), ("randread", 16)]);
    for run in runs {
        assert_eq!(run["bytes"], 3 * (1088 << 10), "{run}");
        assert_eq!(run["latency_distribution"]["count"], run["ios"]);
        assert_eq!(run["repeats"].as_array().unwrap().len(), 3);
    }
    let skipped = report["skipped"].as_array().unwrap();
    assert_eq!(skipped.len(), 2);
    for one in skipped {
        let reason = one["reason"].as_str().unwrap();
        assert!(reason.starts_with("rank 1 on host "), "{reason}");
    }
}

#[test]
fn presets_run_on_all_ranks() {
    let folder = directory();
    let target = format!("--target={}", folder.path().display());
    let results = folder.path().join("r.json");
    let json_option = format!("--json={}", results.display());
    let arguments = ["run", "--preset=stream", "--size=4m", "--repeat=1", &target, &json_option];
    let Some(output) = ranks(2, &arguments) else { return };
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = json(&results);
    let bytes = |report: &Value| -> Vec<u64> {
        report["runs"].as_array().unwrap().iter().map(|run| run["bytes"].as_u64().unwrap()).collect()
    };
    assert_eq!(bytes(&report), [8 << 20, 8 << 20], "reads and writes of two ranks");
    assert_eq!(entries(folder.path()), ["r.json"]);
    for name in ["0-a", "0-b", "1-a", "1-b"] {
        fs::write(folder.path().join(name), vec![1; 4 << 20]).unwrap();
    }
    let targets = ["a", "b"].map(|name| format!("--target={}/{{rank}}-{name}", folder.path().display()));
    let arguments =
        ["run", "--preset=parallel", "--size=4m", "--repeat=1", &targets[0], &targets[1], &json_option];
    let output = ranks(2, &arguments).unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(bytes(&json(&results)), [8 << 20, 8 << 20], "each target of two ranks");
    assert!(text(&output.stdout).contains("Jain's index"), "{output:?}");
}

#[test]
fn results_that_rank_0_cannot_write_end_all_ranks_before_any_file_is_made() {
    let folder = directory();
    let target = format!("--target={}", folder.path().display());
    let results = format!("--json={}/missing/r.json", folder.path().display());
    let arguments = ["run", "--path=kernel-buffered", "--size=1m", &target, &results];
    let Some(output) = ranks(2, &arguments) else { return };
    let stderr = text(&output.stderr);
    assert!(!output.status.success() && stderr.contains("missing/r.json"), "{stderr}");
    assert!(entries(folder.path()).is_empty());
}
