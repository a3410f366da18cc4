//! `iopath fit`: its file, its output, and its refusals. The quality of fits is tested in the lab.

use std::fs;
use std::path::Path;

use crate::serving::Serving;
use crate::support::{iopath, json_of, scratch_directory};
use serde_json::Value;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The stderr of a fit that must fail, with its exit code.
fn refused(args: &[&str]) -> (String, Option<i32>) {
    let output = iopath(&["fit"]).args(args).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && stderr.lines().count() == 1, "{stderr}");
    (stderr, output.status.code())
}

#[test]
fn the_file_of_a_fit_is_a_target_and_states_its_error() {
    let directory = directory();
    let file = directory.path().join("my.toml");
    let fit = |more: &[&str]| {
        let args = ["fit", "model:cloud", "--time", "2s", "--output"];
        iopath(&args).arg(&file).args(more).output().unwrap()
    };
    let json = json_of(&fit(&["--json", "-"]));
    assert_eq!((&json["schema"], &json["clock"]), (&"iopath.fit/1".into(), &"virtual".into()));
    assert_eq!((&json["kind"], &json["target"]["kind"]), (&"cloud".into(), &"model".into()));
    assert!(json["held_back"].as_array().unwrap().len() >= 15, "{json}");
    assert!(json["error"]["median"].as_f64().unwrap() < 0.3, "{}", json["error"]);
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.starts_with("# Fitted by iopath") && text.contains("held back from the fit: median"),
        "{text}"
    );
    assert!(text.contains("[source]\ncapacity_gib = \"the size of the measured target\""), "{text}");
    let target = format!("model:{}", file.display());
    let args = ["run", "--path", "iopath-direct", "--rw", "randread", "--runtime", "1", "--json", "-"];
    let run = iopath(&[&args[..], &["--target", &target]].concat()).output().unwrap();
    let iops = json_of(&run)["runs"][0]["iops"]["mean"].as_f64().unwrap();
    assert!((700.0..1500.0).contains(&iops), "the latency of the virtual disk: {iops}");
    // The file of an earlier fit may be replaced; the text shows the figures held back.
    let again = fit(&[]);
    let stdout = String::from_utf8(again.stdout).unwrap();
    assert!(
        stdout.contains("randread 4 KiB depth 8") && stdout.contains("use it as --target model:"),
        "{stdout}"
    );
}

#[test]
fn a_file_of_the_user_is_not_replaced() {
    let directory = directory();
    let notes = directory.path().join("notes");
    fs::write(&notes, "mine").unwrap();
    let name = notes.to_str().unwrap();
    let (text, _) = refused(&["model:cloud", "-o", name]);
    assert!(text.contains("was not written by iopath") && text.contains("--output"), "{text}");
    let (text, _) = refused(&[name, "-o", name, "--force"]);
    assert!(text.contains("is the target"), "{text}");
    assert_eq!(fs::read_to_string(&notes).unwrap(), "mine");
}

#[test]
fn a_fifo_is_no_model_file_and_no_target() {
    let directory = directory();
    let fifo = directory.path().join("fifo");
    if !std::process::Command::new("mkfifo").arg(&fifo).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: mkfifo failed");
        return;
    }
    // The open of a FIFO without a reader would block without end.
    let (text, code) = refused(&["model:cloud", "-o", fifo.to_str().unwrap(), "--time", "2s"]);
    assert!(text.contains("is a FIFO, which blocks until a process reads it: name a file"), "{text}");
    assert_eq!(code, Some(1), "{text}");
    let model = directory.path().join("my.toml");
    let (text, code) = refused(&[fifo.to_str().unwrap(), "-o", model.to_str().unwrap()]);
    assert!(text.contains("is a pipe; name a regular file, a directory or a block device"), "{text}");
    assert_eq!(code, Some(1), "{text}");
}

#[test]
fn a_fit_that_is_impossible_is_refused_in_one_line_and_leaves_no_file() {
    let directory = directory();
    let file = directory.path().join("my.toml");
    let name = file.to_str().unwrap();
    let small = directory.path().join("small");
    fs::write(&small, vec![1; 1 << 20]).unwrap();
    let [empty, block] = ["empty", "block"].map(|name| directory.path().join(name));
    fs::write(&empty, []).unwrap();
    fs::write(&block, [1; 4096]).unwrap();
    for (args, message, code) in [
        (vec!["/none/such", "-o", name], "/none/such does not exist", 1),
        (vec!["model:tape", "-o", name], "`tape`", 2),
        (vec![small.to_str().unwrap(), "-o", name], "and a fit needs 32 MiB at least", 1),
        (vec![empty.to_str().unwrap(), "-o", name], "holds 0 bytes", 1),
        (vec![block.to_str().unwrap(), "-o", name], "holds 4 KiB, and a fit needs 32 MiB at least", 1),
        (vec!["/dev/null", "-o", name], "is a character device", 1),
        // A filesystem in which no file can be created.
        (vec!["/proc", "-o", name], "no scratch file can be created in /proc", 1),
        (vec!["model:cloud", "-o", "-"], "the model is not written to stdout", 2),
        (vec!["model:cloud", "-o", name, "--time", "0.1s"], "is too short for a fit; the minimum is 2 s", 2),
        (
            vec!["model:cloud", "-o", name, "--time", "9999999d"],
            "is too long for a fit; the maximum is 86400 s",
            2,
        ),
    ] {
        let (text, exit) = refused(&args);
        assert!(text.contains(message), "{text}");
        assert_eq!(exit, Some(code), "{text}");
    }
    assert!(!file.exists());
}

#[test]
fn a_file_with_a_hole_is_refused() {
    let Some(directory) = scratch_directory() else { return };
    let [sparse, model] = ["sparse", "my.toml"].map(|name| directory.path().join(name));
    fs::File::create(&sparse).unwrap().set_len(64 << 20).unwrap();
    let (text, code) = refused(&[sparse.to_str().unwrap(), "-o", model.to_str().unwrap()]);
    assert!(text.contains("has a hole or an unwritten extent at offset 0") && code == Some(1), "{text}");
    assert!(!model.exists());
}

#[test]
fn a_model_that_cannot_be_written_still_shows_its_error() {
    if !Path::new("/dev/full").exists() {
        eprintln!("skipped: there is no /dev/full");
        return;
    }
    let output = iopath(&["fit", "model:cloud", "--time", "2s", "-o", "/dev/full"]).output().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(stdout.contains("held back from the fit: median") && !stdout.contains("Written to"), "{stdout}");
    assert!(stderr.contains("cannot write the model to /dev/full"), "{stderr}");
    assert_eq!(output.status.code(), Some(1), "{stderr}");
}

#[test]
fn a_log_of_equal_requests_is_refused_and_a_mixed_log_is_fitted() {
    let directory = directory();
    let [log, file] = ["log", "my.toml"].map(|name| directory.path().join(name));
    let record = |rw: &str| {
        let args =
            ["run", "--path", "iopath-direct", "--target", "model:cloud", "--rw", rw, "--iodepth", "8"];
        let run =
            iopath(&args).args(["--size", "16m", "--repeat", "1", "--force", "--log"]).arg(&log).output();
        assert!(run.unwrap().status.success());
    };
    record("randread");
    let name = log.to_str().unwrap();
    let (text, code) = refused(&[name, "-o", file.to_str().unwrap()]);
    assert!(text.contains("about the same operation, size and depth") && code == Some(1), "{text}");
    record("randrw");
    let args = ["fit", name, "--time", "2s", "--json", "-", "-o"];
    let json = json_of(&iopath(&args).arg(&file).output().unwrap());
    assert_eq!((&json["log"], &json["target"]), (&Value::from(name), &Value::Null));
    assert_eq!(json["held_back"][0]["quantity"], "latency-ns");
    let warnings = json["warnings"].to_string();
    assert!(warnings.contains("have about the same size"), "{warnings}");
    assert!(fs::read_to_string(&file).unwrap().contains("request log"));
}

#[test]
fn a_directory_is_measured_in_a_scratch_file_that_is_removed() {
    let Some(directory) = scratch_directory() else { return };
    let models = self::directory();
    let file = models.path().join("my.toml");
    let output =
        iopath(&["fit", "--time", "8s", "--json", "-", "-o"]).arg(&file).arg(directory.path()).output();
    let output = output.unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    if output.status.success() {
        let json = json_of(&output);
        assert_eq!((&json["clock"], &json["target"]["scratch"]), (&"real".into(), &true.into()));
        assert!(json["rounds"].as_u64().unwrap() >= 1 && file.exists());
    } else {
        // A busy machine may be too noisy: then there is a reason and no file.
        let stderr = String::from_utf8(output.stderr).unwrap();
        let known = ["too noisy", "no kind of model describes", "completed"];
        assert!(known.iter().any(|reason| stderr.contains(reason)) && !file.exists(), "{stderr}");
    }
}

#[test]
fn an_export_of_a_modelled_disk_is_fitted_as_a_disk_of_its_size() {
    let Some(folder) = scratch_directory() else { return };
    let socket = folder.path().join("socket");
    let mut serving = Serving::start(&["serve", "model:sata-2006", "--unix", socket.to_str().unwrap()]);
    let uri = serving.line();
    let file = folder.path().join("fitted.toml");
    let fitted = iopath(&["fit", &uri, "--time", "12s", "--json", "-", "-o", file.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(serving.end(rustix::process::Signal::TERM).0, Some(0));
    let stderr = String::from_utf8_lossy(&fitted.stderr);
    if !fitted.status.success()
        && ["is too noisy to fit", "no kind of model describes"].iter().any(|one| stderr.contains(one))
    {
        return eprintln!("skipped: this machine is too busy: {stderr}");
    }
    let json = json_of(&fitted);
    assert_eq!(json["kind"], "disk", "{json}");
    assert_eq!(json["clock"], "real");
    assert!(json["warnings"].to_string().contains("writes were not measured"), "{json}");
    assert!(!json["held_back"].as_array().unwrap().is_empty(), "{json}");
    // Only the model of a disk follows the sequential reads as well as the random ones.
    let error = |name: &str| {
        let candidates = json["candidates"].as_array().unwrap();
        candidates.iter().find(|one| one["name"] == name).unwrap()["held_back"].as_f64().unwrap()
    };
    assert!(error("disk") < error("cloud") && error("disk") < error("flash"), "{json}");
}
