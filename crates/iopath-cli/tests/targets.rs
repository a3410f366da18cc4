//! `iopath run` on several targets of this machine at the same time.

use crate::loops::{Alone, Loop, text};
use crate::support::{iopath, json_of, scratch_directory};
use serde_json::Value;

#[test]
fn several_targets_run_at_the_same_time_and_have_results_of_their_own() {
    let Some(directory) = scratch_directory() else { return };
    let files = ["a", "b", "c"].map(|name| directory.path().join(name));
    for file in &files {
        std::fs::write(file, vec![1; 1 << 20]).unwrap();
    }
    let two = files[..2].iter().map(|file| file.to_str().unwrap()).collect::<Vec<_>>().join(",");
    for path in ["kernel-buffered", "iopath-direct", "iopath-buffered"] {
        let run =
            iopath(&["run", "--path", path, "--bs", "64k", "--numjobs", "2", "--repeat", "2", "--json", "-"])
                .args(["--target", &two, "--target"])
                .arg(&files[2])
                .output()
                .unwrap();
        let report = json_of(&run);
        let result = &report["runs"][0];
        assert_eq!(result["bytes"], 3 * 2 * (1 << 20), "all bytes of three files, twice");
        let targets = result["targets"].as_array().unwrap();
        let names: Vec<&str> = targets.iter().map(|target| target["target"].as_str().unwrap()).collect();
        assert_eq!(names, files.each_ref().map(|file| file.to_str().unwrap()), "{path}");
        assert!(targets.iter().all(|target| target["bytes"] == 2 * (1 << 20)), "{path}: {targets:?}");
        assert_eq!(report["more_targets"].as_array().map(Vec::len), Some(2));
        let end = |name: &str| result["targets_end"][name].as_f64().unwrap();
        let [first, end_of_all] = ["first_done_seconds", "last_done_seconds"].map(end);
        assert!(first > 0.0 && first <= end_of_all);
        assert!((end("skew_seconds") - (end_of_all - first)).abs() < 1e-9);
        assert!((0.0..=1.0).contains(&end("jain")), "{path}");
        // The sum counts until the last target is done.
        let seconds: f64 =
            result["repeats"].as_array().unwrap().iter().map(|one| one["seconds"].as_f64().unwrap()).sum();
        assert!((seconds / 2.0 - end_of_all).abs() < 1e-6, "{path}: {seconds} {end_of_all}");
    }
}

#[test]
fn directories_get_a_scratch_file_each_and_the_table_shows_skew_and_fairness() {
    let [Some(first), Some(second)] = [scratch_directory(), scratch_directory()] else { return };
    let run = iopath(&[
        "run",
        "--path",
        "kernel-direct",
        "--rw",
        "write",
        "--bs",
        "64k",
        "--size",
        "1m",
        "--target",
    ])
    .arg(first.path())
    .arg("--target")
    .arg(second.path())
    .output()
    .unwrap();
    let table = String::from_utf8(run.stdout).unwrap();
    assert!(table.contains("skew") && table.contains("Jain's index"), "{table}");
    assert_eq!(table.matches(".iopath-scratch-").count(), 2, "{table}");
    for directory in [&first, &second] {
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}

#[test]
fn models_have_the_same_output() {
    let run = iopath(&[
        "run",
        "--path",
        "iopath-direct",
        "--target",
        "model:cloud,model:hdd-20tb",
        "--rw",
        "randread",
    ])
    .args(["--runtime", "1s", "--json", "-"])
    .output()
    .unwrap();
    let report = json_of(&run);
    assert_eq!(report["runs"][0]["targets"].as_array().map(Vec::len), Some(2));
    assert!(report["runs"][0]["targets_end"]["jain"].as_f64().unwrap() < 1.0, "{report}");
}

#[test]
fn models_and_storage_do_not_mix_and_each_target_must_suit() {
    let Some(directory) = scratch_directory() else { return };
    let file = directory.path().join("a,b");
    std::fs::write(&file, vec![1; 1 << 20]).unwrap();
    let file = file.to_str().unwrap();
    let both = ["--path", "iopath-direct", "--target", file, "--target"];
    for (more, code, named) in [
        (&["model:cloud"][..], 2, "all models"),
        (&["/no/such"], 1, "/no/such does not exist"),
        (&["model:cloud", "--bs", "64k"], 2, "all models"),
    ] {
        let run = iopath(&["run"]).args(both).args(more).output().unwrap();
        let line = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(code), "{more:?}: {line}");
        assert!(line.contains(named), "{more:?}: {line}");
    }
    let run = iopath(&["run", "--path", "iopath-direct", "--target", file, "--bs", "64k", "--json", "-"]);
    let report = json_of(&{ run }.output().unwrap());
    assert_eq!(report["more_targets"], Value::Null, "a comma in the name of a file");
}

#[test]
fn the_default_page_holds_a_block_of_the_target() {
    let alone = or_skip!(Alone::wait());
    // Linux 6.14 and later.
    let device = or_skip!(Loop::new(&alone, 8, &["--sector-size", "8192"]));
    let device = text(&device.device);
    let run = ["run", "--path", "iopath-buffered", "--size", "1m", "--repeat", "1", "--target", device];
    let report = json_of(&iopath(&[&run[..], &["--json", "-"]].concat()).output().unwrap());
    assert_eq!(report["runs"][0]["cache"]["page_bytes"], 8192, "{report}");
    let small = iopath(&[&run[..], &["--page", "4k"]].concat()).output().unwrap();
    let stderr = String::from_utf8_lossy(&small.stderr);
    assert!(!small.status.success() && stderr.contains("--page"), "{stderr}");
}
