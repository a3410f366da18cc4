//! The JSON of every command is valid by its schema in docs/schema, has no key that the schema lacks, and states its
//! origin.

use std::fs;

use crate::support::schema::check;
use crate::support::{iopath, json_of};
use serde_json::{Value, json};

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The checked output of a command.
fn document(args: &[&str]) -> Value {
    let document = json_of(&iopath(args).args(["--json", "-"]).output().unwrap());
    check(&document, args);
    document
}

#[test]
fn results_of_models_are_valid_and_state_every_setting_of_their_workload() {
    let run = ["run", "--path", "iopath-direct", "--target", "model:cloud", "--size", "16m"];
    let with = |more: &[&'static str]| [&run[..], more].concat();
    let document_of = |more: &[&'static str]| document(&with(more));
    let mixed = document_of(&[
        "--rw",
        "randrw",
        "--rwmixread",
        "70",
        "--runtime",
        "2",
        "--seed",
        "9",
        "--random-distribution",
        "zipf:1.2",
        "--elevator",
        "deadline:read_expire_ms=100",
        "--device-depth",
        "4",
        "--iodepth",
        "8",
        "--host",
        "p3-2002",
    ]);
    let workload = &mixed["runs"][0]["workload"];
    let expected = json!({
        "seed": 9, "start_bytes": 0, "size_bytes": 16 << 20, "runtime_seconds": 2.0, "io_bytes": null, "repetitions": 3,
        "read_percent": 70, "distribution": "zipf:1.2", "elevator": "deadline:read_expire_ms=100", "engine": null,
        "device_depth": 4,
    });
    assert_eq!(workload, &expected);
    let run = &mixed["runs"][0];
    assert_eq!(run["latency_distribution"]["count"], run["ios"]);
    let sum = |key: &str| {
        let of = |direction: &str| run["repeats"][0]["directions"][direction][key].as_f64().unwrap();
        of("read") + of("write")
    };
    assert!((sum("iops") / run["repeats"][0]["iops"].as_f64().unwrap() - 1.0).abs() < 1e-9);
    let sequential = document_of(&["--rw", "read", "--thinktime", "1ms"]);
    assert_eq!(sequential["runs"][0]["workload"]["distribution"], Value::Null);
    document_of(&["--target", "model:ssd-nvme", "--rate-iops", "100", "--runtime", "1"]);
}

#[test]
fn results_of_this_machine_are_valid() {
    let folder = directory();
    let target = folder.path().to_str().unwrap();
    for path in ["kernel-buffered", "iopath-buffered", "iopath-direct", "null"] {
        let args = ["run", "--path", path, "--size", "1m", "--target", target];
        let args = if path == "null" { &args[..5] } else { &args };
        let output = iopath(args).args(["--json", "-"]).output().unwrap();
        if !output.status.success() {
            eprintln!("skipped {path}: {}", String::from_utf8_lossy(&output.stderr));
            continue;
        }
        let document = json_of(&output);
        check(&document, args);
        let workload = &document["runs"][0]["workload"];
        assert_eq!(workload["engine"].is_string(), path.starts_with("iopath"), "{path}: {workload}");
        assert_eq!(workload["elevator"].is_string(), !path.starts_with("kernel"), "{path}: {workload}");
    }
    document(&["survey", target, "--time", "2s"]);
    document(&["survey", target, "--time", "2s", "--all"]);
    document(&["survey", "model:cloud", "--time", "60s"]);
}

#[test]
fn results_of_job_files_are_valid_and_have_the_keys_of_each_job() {
    let folder = directory();
    let file = folder.path().join("jobs.fio");
    fs::write(&file, "[global]\nsize=1m\nbs=64k\n[first]\nrw=randrw\ntime_based\nruntime=200ms\n[second]\nstonewall\nrw=write\n")
        .unwrap();
    let args = ["run", file.to_str().unwrap(), "--target", folder.path().to_str().unwrap()];
    let document = document(&args);
    let options = document["runs"][0]["job"]["options"].to_string();
    assert_eq!(
        options,
        r#"[["size","1m"],["bs","64k"],["rw","randrw"],["time_based","1"],["runtime","200ms"]]"#
    );
}

/// A command whose duration differs little between two runs.
const SLEEP: &str = "sleep 0.1";

#[test]
fn comparisons_and_logs_are_valid() {
    let folder = directory();
    let [result, log] = ["result", "log"].map(|name| folder.path().join(name));
    let (result, log) = (result.to_str().unwrap(), log.to_str().unwrap());
    let run =
        ["run", "--path", "iopath-direct", "--target", "model:cloud", "--rw", "randrw", "--runtime", "1"];
    let output = iopath(&run).args(["--log", log, "--json", result]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    check(&serde_json::from_slice(&fs::read(result).unwrap()).unwrap(), &run);
    let files = document(&["compare", result, result, "--vary", "bs"]);
    assert_eq!((&files["host"], &files["vary"]), (&Value::Null, &json!(["bs"])));
    let live =
        document(&["compare", "--live", SLEEP, SLEEP, "--repetitions-max", "2", "--threshold", "900%"]);
    assert!(live["host"]["kernel"].is_string(), "{live}");
    document(&["log", log]);
    document(&["log", log, "--stream", "0"]);
}

#[test]
fn other_documents_are_valid() {
    let folder = directory();
    let elevators = document(&["elevators"]);
    assert!(elevators["elevators"].as_array().unwrap().len() > 4);
    assert_eq!(document(&["experiment", "closest", "--set", "ios=1000"])["host"], Value::Null);
    let sweep = folder.path().join("sweep.json");
    let args = [
        "sweep",
        "--path",
        "iopath-direct",
        "--target",
        "model:ide-2001",
        "--size",
        "1m",
        "--bs",
        "3,4k,64k",
    ];
    let output = iopath(&args).arg("--output").arg(&sweep).args(["--format", "json"]).output().unwrap();
    let shown = json_of(&output);
    check(&shown, &args);
    assert_eq!(shown, serde_json::from_slice::<Value>(&fs::read(&sweep).unwrap()).unwrap());
    assert!(shown["cells"][0]["skipped"].is_string(), "{shown}");
    // The settings of any block device; a container may have none.
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let devices = devices.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut outputs = devices.map(|name| iopath(&["tune", &name, "--json", "-"]).output().unwrap());
    match outputs.find(|output| output.status.success()) {
        Some(output) => check(&json_of(&output), &["tune"]),
        None => eprintln!("skipped tune: no block device here"),
    }
    let model = folder.path().join("model.toml");
    document(&["fit", "model:ssd-sata", "--output", model.to_str().unwrap(), "--time", "2s"]);
    let file = folder.path().join("file");
    fs::write(&file, [1; 8192]).unwrap();
    let args = ["map", file.to_str().unwrap()];
    let output = iopath(&args).args(["--json", "-"]).output().unwrap();
    if output.status.success() {
        check(&json_of(&output), &args);
    } else {
        eprintln!("skipped map: {}", String::from_utf8_lossy(&output.stderr));
    }
}
