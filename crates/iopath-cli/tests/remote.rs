//! Commands on an NBD URI: `iopath run`, `iopath survey`, `iopath log` and `iopath serve` on exports of `iopath serve`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Output, Stdio};

use crate::support::{becomes_true, iopath_without_engine as iopath, json_of, scratch_directory};

/// A running `iopath serve`, killed at the end.
struct Serving {
    child: Child,
    uris: Vec<String>,
}

impl Serving {
    fn start(arguments: &[&str], count: usize) -> Self {
        let mut command = iopath(&["serve"]);
        let mut child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(count);
        let uris = lines.collect::<Result<_, _>>().unwrap();
        Self { child, uris }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(arguments: &[&str]) -> Output {
    iopath(&[&["run", "--repeat", "1"], arguments].concat()).output().unwrap()
}

fn refusal(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(!output.status.success(), "{arguments:?} was not refused");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn commands_measure_exports_of_servers() {
    let Some(folder) = scratch_directory() else { return };
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (one, two, log) = (path("one"), path("two"), path("run.log"));
    for file in [&one, &two] {
        std::fs::write(file, vec![7; 16 << 20]).unwrap();
    }
    // The scratch directory may have a path that is too long for a socket.
    let sockets = tempfile::tempdir().unwrap();
    let socket = |name: &str| sockets.path().join(name);
    let (writable, fixed, proxy) = (socket("w"), socket("r"), socket("p"));
    let writable = Serving::start(&[&one, &two, "--writable", "--unix", writable.to_str().unwrap()], 2);
    let fixed = Serving::start(&[&one, "--share", "--unix", fixed.to_str().unwrap()], 1);
    let [first, second] = [0, 1].map(|number| writable.uris[number].as_str());
    for path in ["iopath-direct", "iopath-buffered", "iopath-raw"] {
        let output = run(&["--path", path, "--rw", "read", "--bs", "16k", "--target", first, "--json", "-"]);
        let result = json_of(&output);
        assert_eq!(result["target"]["kind"], "remote export", "{path}");
    }
    // Logs, stripes, proxies.
    let stripe = format!("stripe:128k:{first},{second}");
    let logged = run(&["--path", "iopath-direct", "--bs", "64k", "--target", &stripe, "--log", &log]);
    assert!(logged.status.success(), "{}", String::from_utf8_lossy(&logged.stderr));
    let summary = iopath(&["log", &log]).output().unwrap();
    assert!(summary.status.success(), "{}", String::from_utf8_lossy(&summary.stderr));
    let proxy = Serving::start(&[&fixed.uris[0], "--export", "again", "--unix", proxy.to_str().unwrap()], 1);
    let through = run(&["--path", "iopath-buffered", "--bs", "64k", "--target", &proxy.uris[0]]);
    assert!(through.status.success(), "{}", String::from_utf8_lossy(&through.stderr));
    let job = path("job.fio");
    let of_uri =
        format!("[read]\nrw=read\nbs=64k\nsize=4m\nfilename={}\n", fixed.uris[0].replace(':', "\\:"));
    std::fs::write(&job, of_uri).unwrap();
    let jobs = iopath(&["run", &job, "--path", "iopath-direct"]).output().unwrap();
    assert!(jobs.status.success(), "{}", String::from_utf8_lossy(&jobs.stderr));
    // Writes need permission, here and at the server.
    let write = ["--path", "iopath-direct", "--rw", "randwrite", "--bs", "4k", "--size", "4m", "--verify"];
    let refused = refusal(&[&write[..], &["--target", first]].concat());
    assert!(refused.contains("--overwrite"), "{refused}");
    let refused = refusal(&[&write[..], &["--overwrite", "--target", &fixed.uris[0]]].concat());
    assert!(refused.contains("read-only"), "{refused}");
    let written = run(&[&write[..], &["--overwrite", "--target", first]].concat());
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    // Paths of the kernel need a file or device.
    let refused = refusal(&["--path", "kernel-direct", "--target", first]);
    assert!(refused.contains("export of a server") && refused.contains("iopath-direct"), "{refused}");
    let refused = refusal(&["--path", "iopath-direct", "--target", "nbd+unix:///x?socket=/no/such/socket"]);
    assert!(refused.contains("nbd+unix:///x?socket=/no/such/socket"), "{refused}");
    // A survey only reads, with the paths of iopath.
    let survey = json_of(&iopath(&["survey", first, "--time", "3s", "--json", "-"]).output().unwrap());
    assert_eq!(survey["target"]["kind"], "remote export");
    let paths: Vec<_> =
        survey["runs"].as_array().unwrap().iter().map(|run| run["path"].as_str().unwrap()).collect();
    assert!(paths.contains(&"iopath-direct"), "{paths:?}");
    assert!(!paths.iter().any(|path| path.starts_with("kernel")), "{paths:?}");
}

#[test]
#[ignore = "the client tries for half a minute to connect anew"]
fn a_server_that_ends_during_a_run_keeps_the_complete_repetitions() {
    let Some(folder) = scratch_directory() else { return };
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, json) = (path("one"), path("result.json"));
    std::fs::write(&file, vec![7; 8 << 20]).unwrap();
    let sockets = tempfile::tempdir().unwrap();
    let socket = sockets.path().join("ends");
    let mut serving = Serving::start(&[&file, "--unix", socket.to_str().unwrap()], 1);
    let errors = tempfile::NamedTempFile::new().unwrap();
    let read = || std::fs::read_to_string(errors.path()).unwrap();
    let mut command = iopath(&["run", "--path", "iopath-direct", "--rw", "randread", "--iodepth", "4"]);
    command.args(["--runtime", "200ms", "--repeat", "100", "--target", &serving.uris[0], "--json", &json]);
    let child = command.stdout(Stdio::piped()).stderr(errors.reopen().unwrap()).spawn().unwrap();
    let begun = becomes_true(|| read().contains("measuring, 3 of 100"));
    serving.child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(begun && output.status.code() == Some(1), "{}", read());
    let stderr = read();
    let line = stderr.lines().last().unwrap();
    for part in
        [serving.uris[0].as_str(), "the server has ended", "the results have the complete repetitions"]
    {
        assert!(line.contains(part), "{part}: {line}");
    }
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["runs"][0]["partial"], true);
}

/// Runs the program, and kills and restarts the server in the middle of the measurement.
fn run_over_a_kill(serving: &mut Serving, server: &[&str], arguments: &[&str]) -> (Output, String) {
    let errors = tempfile::NamedTempFile::new().unwrap();
    let read = || std::fs::read_to_string(errors.path()).unwrap();
    let mut command = iopath(&["run", "--repeat", "1", "--runtime", "4s", "--path", "iopath-direct"]);
    command.args(["--target", &serving.uris[0], "--iodepth", "8", "--bs", "4k", "--verify"]).args(arguments);
    let child = command.stdout(Stdio::piped()).stderr(errors.reopen().unwrap()).spawn().unwrap();
    assert!(becomes_true(|| read().contains("measuring, 1 of 1")), "{}", read());
    std::thread::sleep(std::time::Duration::from_millis(400));
    serving.child.kill().unwrap();
    serving.child.wait().unwrap();
    *serving = Serving::start(server, 1);
    (child.wait_with_output().unwrap(), read())
}

#[test]
fn verification_over_a_killed_server_finds_no_fault_and_reports_unflushed_writes() {
    let Some(folder) = scratch_directory() else { return };
    let file = folder.path().join("one").to_str().unwrap().to_owned();
    std::fs::write(&file, vec![7; 4 << 20]).unwrap();
    let sockets = tempfile::tempdir().unwrap();
    let socket = sockets.path().join("killed");
    let server = [&file, "--writable", "--path", "iopath-buffered", "--unix", socket.to_str().unwrap()];
    let mut serving = Serving::start(&server, 1);
    let uri = serving.uris[0].clone();
    let whole = ["--path", "iopath-direct", "--bs", "4k", "--verify", "--target", uri.as_str()];
    let written = run(&[&whole[..], &["--rw", "write", "--overwrite"]].concat());
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    // Flushed data survives, and reads are sent again.
    let (output, errors) = run_over_a_kill(&mut serving, &server, &["--rw", "randread", "--json", "-"]);
    assert!(output.status.success(), "{errors}");
    assert_no_faults(&json_of(&output));
    // Writes that no flush covers may be lost: the run fails, and names the server.
    let writing = ["--rw", "randwrite", "--overwrite", "--fsync", "64"];
    let (output, errors) = run_over_a_kill(&mut serving, &server, &writing);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let line = errors.lines().last().unwrap();
    assert!(line.contains(&uri) && line.contains("may have lost writes since the last flush"), "{errors}");
    // Each block is of one write, an earlier or a later one.
    assert_no_faults(&json_of(&run(&[&whole[..], &["--rw", "read", "--json", "-"]].concat())));
}

/// The run has checked blocks, and found no fault (exit code 0).
fn assert_no_faults(result: &serde_json::Value) {
    let verify = &result["runs"][0]["verify"];
    assert!(verify["blocks"].as_u64().unwrap() > 0 && verify["first"] == serde_json::json!([]), "{verify}");
}
