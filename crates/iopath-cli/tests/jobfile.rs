//! `iopath run JOBFILE`: results, options that replace keys, and refused keys. The lab tests the keys.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::support::{iopath, json_of};

/// A directory with a job file.
fn with_file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs.fio");
    fs::write(&file, text).unwrap();
    (directory, file)
}

fn run(file: &Path, args: &[&str]) -> Output {
    iopath(&["run"]).arg(file).args(args).current_dir(file.parent().unwrap()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const JOBS: &str = "[global]\nsize=256k\nfilename=data\n[first]\nrw=write\n[second]\nstonewall\nrw=randread\nbs=8k\n[third]\n";

#[test]
fn a_job_file_gives_a_result_for_each_job_and_group() {
    let (directory, file) = with_file(JOBS);
    let report = json_of(&run(&file, &["--json"]));
    let names: Vec<_> =
        report["runs"].as_array().unwrap().iter().map(|run| run["job"]["name"].clone()).collect();
    assert_eq!(names, ["first", "second", "third"]);
    assert_eq!(report["groups"][1]["jobs"], serde_json::json!(["second", "third"]));
    assert_eq!(report["groups"][1]["ios"], 32 + 64);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "only the job file remains");
    let text = String::from_utf8(run(&file, &[]).stdout).unwrap();
    assert!(text.trim_start().starts_with("job ") && text.contains("second, third"), "{text}");
}

#[test]
fn options_replace_the_keys_of_all_jobs() {
    let (_directory, file) =
        with_file("[a]\nsize=1g\nfilename=/dev/nothing\nioengine=libaio\ndirect=1\n[b]\nsize=1g\n");
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().to_str().unwrap();
    let args = ["--size", "64k", "--target", target, "--path", "kernel-buffered", "--section", "a", "--json"];
    let report = json_of(&run(&file, &args));
    assert_eq!((report["runs"].as_array().unwrap().len(), &report["runs"][0]["ios"]), (1, &16.into()));
    assert!(report["runs"][0]["job"]["target"].as_str().unwrap().starts_with(target));
}

#[test]
fn an_unsupported_key_is_an_error_or_a_warning() {
    let (_directory, file) = with_file("[a]\nsize=64k\nthp=1\n");
    let output = run(&file, &[]);
    let name = format!("{}:3: ", file.display());
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).starts_with(&format!("iopath: {name}key `thp` is not supported")),
        "{}",
        stderr(&output)
    );
    let output = run(&file, &["--lenient", "--json"]);
    assert!(stderr(&output).contains(&format!("iopath: {name}ignored: key `thp`")), "{}", stderr(&output));
    assert_eq!(json_of(&output)["runs"][0]["ios"], 16);
}

#[test]
fn a_file_that_cannot_be_run_is_refused_before_any_target_is_made() {
    for (text, code, named) in [
        ("bs=4k\n", 2, ":1: the key is in no section"),
        ("[a]\nsize=64k\nrate=1k\niodepth=4\nioengine=null\n", 2, "iodepth"),
        ("[a]\nsize=64k\nfilename=/no/such/directory/x\n", 1, "/no/such/directory does not exist"),
        ("[a]\n", 2, "size is missing"),
    ] {
        let (directory, file) = with_file(text);
        let output = run(&file, &[]);
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(stderr(&output).contains(named), "{}", stderr(&output));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
    let output = iopath(&["run", "/no/such.fio"]).output().unwrap();
    assert!(stderr(&output).contains("cannot read job file /no/such.fio"), "{}", stderr(&output));
}

#[test]
fn a_file_of_the_user_needs_permission() {
    let (directory, file) = with_file(JOBS);
    let data = directory.path().join("data");
    fs::write(&data, vec![7; 256 << 10]).unwrap();
    let output = run(&file, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("destroys its contents") && stderr(&output).contains("--overwrite"));
    let output = run(&file, &["--overwrite", "--json", "data"]);
    assert!(stderr(&output).contains("is the target"), "{}", stderr(&output));
    assert_eq!(fs::read(&data).unwrap(), vec![7; 256 << 10]);
    assert_eq!(json_of(&run(&file, &["--overwrite", "--json"]))["runs"][0]["ios"], 64);
}

#[test]
fn options_of_a_workload_are_refused_with_a_job_file() {
    let (_directory, file) = with_file(JOBS);
    for option in [&["--bs", "4k"][..], &["--rw", "read"], &["--warm"], &["--seed", "3"]] {
        let output = run(&file, option);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("cannot be used with"), "{}", stderr(&output));
    }
    let output = iopath(&["run", "--path", "null", "--lenient"]).output().unwrap();
    assert!(stderr(&output).contains("JOBFILE"), "{}", stderr(&output));
}

#[test]
fn a_mixed_job_has_reads_and_writes_apart() {
    let (_directory, file) = with_file(
        "[mixed]\nrw=randrw\nrwmixread=75\nsize=1m\nrandom_distribution=zipf:1.2\n[reads]\nsize=64k\nstonewall\n",
    );
    let report = json_of(&run(&file, &["--json"]));
    let [mixed, reads] = &report["runs"].as_array().unwrap()[..] else { panic!("two jobs") };
    let ios = |direction: &str| mixed["directions"][direction]["ios"].as_u64().unwrap();
    assert_eq!(ios("read") + ios("write"), 256);
    assert!((150..235).contains(&ios("read")), "{}", ios("read"));
    assert!(reads.get("directions").is_none());
    let text = String::from_utf8(run(&file, &[]).stdout).unwrap();
    assert!(text.contains("mixed  reads") && text.contains("mixed  writes"), "{text}");
}

#[test]
fn a_job_file_runs_on_a_model_with_a_log_and_ends_at_its_steady_state() {
    let (directory, file) = with_file(
        "[global]\nioengine=libaio\ndirect=1\niodepth=4\nsize=64m\n[writes]\nrw=randwrite\nfsync=8\nruntime=60\n\
         time_based\nss=iops:30%\nss_dur=2\nss_interval=200ms\n",
    );
    let log = directory.path().join("run.log");
    let args = ["--target", "model:cloud", "--log", log.to_str().unwrap()];
    let report = json_of(&run(&file, &[&args[..], &["--json"]].concat()));
    assert_eq!(report["clock"], "virtual");
    let job = &report["runs"][0];
    assert_eq!(
        (job["path"].as_str(), job["steady_state"]["reached"].as_bool()),
        (Some("iopath-direct"), Some(true))
    );
    assert!(job["flushes"]["count"].as_u64().unwrap() > 1, "{job}");
    assert!(job["seconds"].as_f64().unwrap() < 30.0, "{job}");
    let text = String::from_utf8(run(&file, &args).stdout).unwrap();
    assert!(text.contains("steady state of writes: after "), "{text}");
    let page = iopath(&["log", log.to_str().unwrap()]).output().unwrap();
    assert!(page.status.success() && String::from_utf8_lossy(&page.stdout).contains("flush"));
}

#[test]
fn a_size_in_percent_is_of_the_target_with_and_without_a_job_file() {
    let (directory, file) = with_file("[a]\nsize=1m\nbs=4k\n");
    let data = directory.path().join("data");
    fs::write(&data, vec![1; 1_000_000]).unwrap();
    let args = ["--size", "50%", "--json", "--target", data.to_str().unwrap()];
    // 500,000 bytes hold 122 whole blocks.
    assert_eq!(json_of(&run(&file, &args))["runs"][0]["bytes"], 122 * 4096);
    let single = iopath(&["run", "--path", "kernel-buffered", "--repeat", "1"]).args(args).output().unwrap();
    assert_eq!(json_of(&single)["runs"][0]["bytes"], 122 * 4096);
    for (size, named) in
        [("0%", "use 1% to 100%"), ("101%", "use 1% to 100%"), ("50%", "has no size of its own")]
    {
        let args = ["run", "--path", "kernel-buffered", "--size", size, "--target", "."];
        let output = iopath(&args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{size}");
        assert!(stderr(&output).contains(named), "{size}: {}", stderr(&output));
    }
}

#[test]
fn a_run_on_storage_ends_at_its_steady_state_or_says_that_it_was_not_reached() {
    let directory = tempfile::tempdir().unwrap();
    let with = |runtime: &str, criterion: &str| {
        let steady = format!("--steady-state={criterion}");
        let args = [
            "run",
            "--path",
            "kernel-buffered",
            "--size",
            "1m",
            "--repeat",
            "1",
            "--runtime",
            runtime,
            "--json",
        ];
        let mut run = iopath(&args);
        json_of(
            &run.args([&*steady, "--steady-window", "500ms", "--target"])
                .arg(directory.path())
                .output()
                .unwrap(),
        )
    };
    let steady = &with("60", "iops:1000%:1000%")["runs"][0];
    assert_eq!(steady["steady_state"]["reached"], true, "{steady}");
    let reached = steady["steady_state"]["repeats"][0]["reached_seconds"].as_f64().unwrap();
    assert!((0.5..30.0).contains(&reached) && steady["seconds"].as_f64().unwrap() < 40.0, "{reached}");
    let never = &with("1", "bw:0%:0%")["runs"][0];
    assert_eq!(never["steady_state"]["reached"], false);
    assert!(never["warnings"].to_string().contains("the steady state was not reached in 1 of 1"), "{never}");
}

#[test]
fn a_distribution_of_a_single_workload_changes_its_offsets() {
    let run = |distribution: &str| {
        let args = [
            "run",
            "--path",
            "iopath-direct",
            "--target",
            "model:hdd-20tb",
            "--rw",
            "randread",
            "--size",
            "1t",
        ];
        let more = ["--runtime", "2s", "--json", "--random-distribution", distribution];
        json_of(&iopath(&[&args[..], &more[..]].concat()).output().unwrap())["runs"][0]["iops"]["mean"]
            .as_f64()
            .unwrap()
    };
    // Short seeks are faster than long ones.
    assert!(run("normal:1") > 1.1 * run("random"));
    let args = ["run", "--path", "null", "--random-distribution", "zipf:0"];
    let output = iopath(&args).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("zipf:THETA"), "{}", stderr(&output));
}

#[test]
fn several_targets_are_refused_as_wrong_arguments() {
    let (_directory, file) = with_file(JOBS);
    let output = run(&file, &["--target", "a", "--target", "b"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("a job file has one --target"), "{}", stderr(&output));
}

#[test]
fn jobs_on_a_model_run_on_a_modelled_host() {
    let (_directory, file) = with_file("[a]\nrw=randread\nsize=256k\n");
    let on_model = ["--target", "model:cloud", "--path", "iopath-direct", "--json"];
    let run_on = |host: &str| run(&file, &[&on_model[..], &["--host", host]].concat());
    assert!(
        json_of(&run(&file, &on_model))["runs"][0]["cpu"].is_null(),
        "without a host, CPU work takes no time"
    );
    assert!(json_of(&run_on("server-2006"))["runs"][0]["cpu"].is_object());
    let refused = run_on("server-2060");
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("server-2060"), "{}", stderr(&refused));
}
