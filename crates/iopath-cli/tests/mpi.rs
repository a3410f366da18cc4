//! Ranks of MPI on this machine: `cargo test -p iopath-cli --features mpi --test mpi`. Skipped by a line without
//! `mpirun`. Figures of a known rate are in docs/hosts.md.

#[path = "mpi/cluster.rs"]
mod cluster;
#[allow(dead_code, unused_imports, reason = "each test program uses some of the helpers")]
mod support;
#[path = "mpi/sweep.rs"]
mod sweep;

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The time after which a launch that hangs is ended.
const GUARD: &str = "120";

const PROGRAM: &str = env!("CARGO_BIN_EXE_iopath");

/// `mpirun` with these arguments, if it is installed.
fn mpirun(ranks: u32, arguments: &[&str]) -> Option<Command> {
    let known = Command::new("mpirun").arg("--version").output();
    if !known.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: mpirun is not installed");
        return None;
    }
    let mut command = Command::new("timeout");
    command.args([GUARD, "mpirun", "--oversubscribe", "-n", &ranks.to_string()]).args(arguments);
    // As root, Open MPI needs a permission; other launchers ignore it.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("NO_COLOR", "1").env("COLUMNS", "1000").stdin(Stdio::null());
    Some(command)
}

/// Runs `iopath` on this number of ranks.
fn ranks(count: u32, arguments: &[&str]) -> Option<Output> {
    Some(mpirun(count, &[&[PROGRAM][..], arguments].concat())?.output().unwrap())
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

fn entries(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|one| one.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn rank_0_shows_one_table_of_all_ranks_and_no_file_stays() {
    let folder = directory();
    let results = folder.path().join("results.json");
    let arguments = [
        "run",
        "--path=kernel-buffered",
        "--rw=randrw",
        "--size=1m",
        "--repeat=2",
        "--target",
        folder.path().to_str().unwrap(),
        "--json",
        results.to_str().unwrap(),
    ];
    let Some(output) = ranks(4, &arguments) else { return };
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stdout.matches("Jain's index").count(), 1, "{stdout}");
    assert_eq!(entries(folder.path()), ["results.json"]);
    let report = json(&results);
    let run = &report["runs"][0];
    assert_eq!(run["bytes"], 8 << 20, "{run}");
    assert_eq!(run["latency_distribution"]["count"], run["ios"]);
    assert_eq!(run["repeats"].as_array().unwrap().len(), 2);
    let sum = |field: &str| {
        run["directions"]["read"][field].as_u64().unwrap()
            + run["directions"]["write"][field].as_u64().unwrap()
    };
    assert_eq!(sum("ios"), run["ios"].as_u64().unwrap());
    let of_ranks: Vec<u64> = run["hosts"]["ranks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rank| rank["bytes"].as_u64().unwrap())
        .collect();
    assert_eq!(of_ranks, [2 << 20; 4]);
    assert_eq!(report["hosts"][0]["ranks"], serde_json::json!([0, 1, 2, 3]));
    // The scratch files of four ranks.
    assert_eq!(report["hosts"][0]["targets"].as_array().unwrap().len(), 4);
}

#[test]
fn a_job_file_runs_on_all_ranks_with_the_names_of_each() {
    let folder = directory();
    let file = folder.path().join("jobs.fio");
    let jobs = "[global]\nsize=256k\nbs=4k\n[fill]\nrw=write\nfilename=data-{rank}\n[read]\nstonewall\nrw=read\nfilename=data-{local_rank}\n";
    fs::write(&file, jobs).unwrap();
    (0..2)
        .for_each(|rank| fs::write(folder.path().join(format!("data-{rank}")), vec![0; 256 << 10]).unwrap());
    let results = folder.path().join("results.json");
    let arguments = ["run", file.to_str().unwrap(), "--overwrite", "--json", results.to_str().unwrap()];
    let Some(mut command) = mpirun(2, &[&[PROGRAM][..], &arguments].concat()) else { return };
    let output = command.current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = json(&results);
    let runs = report["runs"].as_array().unwrap();
    let bytes: Vec<(&str, u64)> = runs
        .iter()
        .map(|run| (run["job"]["name"].as_str().unwrap(), run["bytes"].as_u64().unwrap()))
        .collect();
    assert_eq!(bytes, [("fill", 512 << 10), ("read", 512 << 10)]);
}

/// A server, which ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn ranks_share_one_export_block_by_block() {
    let folder = directory();
    let socket = folder.path().join("socket");
    let serve = ["serve", "model:ssd-nvme", "--unix", socket.to_str().unwrap()];
    let Some(output) = ranks(1, &["--version"]) else { return };
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut server = Server(Command::new(PROGRAM).args(serve).stdout(Stdio::piped()).spawn().unwrap());
    let mut uri = String::new();
    BufReader::new(server.0.stdout.as_mut().unwrap()).read_line(&mut uri).unwrap();
    let results = folder.path().join("results.json");
    let target = format!("--target={}", uri.trim());
    let common = [
        "run",
        "--path=iopath-direct",
        "--bs=64k",
        "--size=8m",
        "--repeat=1",
        "--json",
        results.to_str().unwrap(),
    ];
    for (layout, rw) in [("strided", "read"), ("segmented", "read"), ("random", "randread")] {
        let [shared, rw] = [format!("--shared={layout}"), format!("--rw={rw}")];
        let arguments = [&common[..], &[&target, &shared, &rw]].concat();
        let output = ranks(4, &arguments).unwrap();
        assert!(output.status.success(), "{layout}: {}", text(&output.stderr));
        let report = json(&results);
        assert_eq!(report["runs"][0]["bytes"], 8 << 20, "{layout}: together, the ranks read the range once");
        assert_eq!(report["runs"][0]["hosts"]["shared"], layout);
    }
    let wrong = [&common[..], &[&target, "--shared=strided", "--rw=randread"]].concat();
    let output = ranks(2, &wrong).unwrap();
    let stderr = text(&output.stderr);
    assert!(
        !output.status.success() && stderr.contains("--shared=strided: it needs a sequential pattern"),
        "{stderr}"
    );
}

#[test]
fn ranks_with_other_options_are_refused_before_any_file_is_made() {
    let folder = directory();
    let target = format!("--target={}", folder.path().display());
    let one = [PROGRAM, "run", "--path=kernel-buffered", &target, "--size=1m", "--bs=4k"];
    let other = [":", "-n", "1", PROGRAM, "run", "--path=kernel-buffered", &target, "--size=1m", "--bs=8k"];
    let Some(mut command) = mpirun(1, &[&one[..], &other].concat()) else { return };
    let output = command.output().unwrap();
    let stderr = text(&output.stderr);
    assert!(!output.status.success());
    assert!(stderr.contains("rank 1 on host ") && stderr.contains("has the argument `--bs=8k`"), "{stderr}");
    assert_eq!(stderr.matches("iopath: ").count(), 1, "{stderr}");
    assert!(entries(folder.path()).is_empty());
}

#[test]
fn a_model_is_refused_because_its_time_is_not_common() {
    let Some(output) = ranks(2, &["run", "--path=iopath-direct", "--target=model:ssd-nvme", "--repeat=1"])
    else {
        return;
    };
    let stderr = text(&output.stderr);
    assert!(!output.status.success() && stderr.contains("iopath serve model:NAME"), "{stderr}");
}

#[test]
fn a_rank_that_fails_ends_all_and_is_named_with_its_error() {
    let folder = directory();
    for rank in [0, 2] {
        fs::create_dir(folder.path().join(rank.to_string())).unwrap();
    }
    let target = format!("--target={}/{{rank}}", folder.path().display());
    let arguments = ["run", "--path=kernel-buffered", "--size=1m", "--runtime=60s", &target];
    let started = Instant::now();
    let Some(output) = ranks(3, &arguments) else { return };
    let stderr = text(&output.stderr);
    assert!(!output.status.success(), "{stderr}");
    let expected = format!("{}/1 does not exist", folder.path().display());
    assert!(stderr.contains("rank 1 on host ") && stderr.contains(&expected), "{stderr}");
    assert!(started.elapsed() < Duration::from_secs(60), "the run of the others would take three minutes");
    assert!(entries(&folder.path().join("0")).is_empty() && entries(&folder.path().join("2")).is_empty());
}

/// The parent of a process.
fn parent(pid: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| Some(line.strip_prefix("PPid:")?.trim().to_owned()))
}

/// The process of a rank: a child of `mpirun`, which is a child of `timeout`.
fn process_of(rank: u32, launcher: &Child) -> Option<i32> {
    let variable = format!("OMPI_COMM_WORLD_RANK={rank}");
    let is_wanted = |pid: &String| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|word| word == variable.as_bytes())
            && parent(pid).and_then(|mpirun| parent(&mpirun)) == Some(launcher.id().to_string())
    };
    let names = fs::read_dir("/proc").ok()?.filter_map(|one| one.ok()?.file_name().into_string().ok());
    names.filter(|name| name.parse::<i32>().is_ok()).find(is_wanted)?.parse().ok()
}

/// Kills a rank of three as soon as rank 0 has written this line, and returns all lines.
fn killed_at(line: &str, rank: u32, folder: &Path, arguments: &[&str]) -> Option<String> {
    let target = format!("--target={}", folder.display());
    let results = format!("--json={}/results.json", folder.display());
    let common = [PROGRAM, "run", "--path=kernel-buffered", &target, &results];
    let mut command = mpirun(3, &[&common[..], arguments].concat())?;
    // Open MPI kills the other ranks two seconds after its warning, which is too short on a busy machine.
    command.env("OMPI_MCA_odls_base_sigkill_timeout", "5");
    let mut launcher = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // The lines of rank 0 reach the launcher.
    let mut lines = BufReader::new(launcher.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut stderr: Vec<String> = Vec::new();
    for one in lines.by_ref() {
        let is_wanted = one.contains(line);
        stderr.push(one);
        if is_wanted {
            break;
        }
    }
    let Some(pid) = process_of(rank, &launcher) else {
        let _ = launcher.kill();
        let _ = launcher.wait();
        eprintln!("skipped: this launcher does not name ranks as Open MPI does");
        return None;
    };
    let killed = Instant::now();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    stderr.extend(lines);
    let stderr = stderr.join("\n");
    assert!(!launcher.wait().unwrap().success(), "{stderr}");
    assert!(killed.elapsed() < Duration::from_secs(60), "the others would measure for longer");
    // The launcher names the rank.
    assert!(stderr.contains(&format!("rank {rank}")), "{stderr}");
    Some(stderr)
}

#[test]
fn a_killed_rank_ends_all_and_the_complete_repetitions_stay() {
    let folder = directory();
    let arguments = ["--size=1m", "--runtime=1s", "--repeat=100"];
    let Some(_) = killed_at("measuring, 3 of 100", 1, folder.path(), &arguments) else { return };
    // The others have removed the file of the killed rank.
    assert_eq!(entries(folder.path()), ["results.json"]);
    let report = json(&folder.path().join("results.json"));
    assert_eq!(report["runs"][0]["partial"], true);
    assert!(!report["runs"][0]["repeats"].as_array().unwrap().is_empty());
}

#[test]
fn a_rank_that_is_killed_in_an_exchange_or_while_it_makes_its_file_leaves_none() {
    let folder = directory();
    // Nearly all of the time, the ranks exchange: a repetition has 16 transfers.
    let tiny = ["--size=64k", "--repeat=10000"];
    let Some(_) = killed_at("measuring, 20 of 10000", 2, folder.path(), &tiny) else { return };
    assert_eq!(entries(folder.path()), ["results.json"]);
    fs::remove_file(folder.path().join("results.json")).unwrap();
    let large = ["--size=512m", "--runtime=60s", "--repeat=100"];
    killed_at("writing a scratch file", 1, folder.path(), &large).unwrap();
    assert!(entries(folder.path()).is_empty(), "{:?}", entries(folder.path()));
}

#[test]
fn hosts_have_names_and_clocks_of_their_own() {
    let folder = directory();
    // Two hosts: namespaces with names, and with clocks that differ by 500 s.
    let script = "r=$OMPI_COMM_WORLD_RANK; exec unshare --uts --time --monotonic $((r / 2 * 500)) --fork sh -c \
                  'hostname node-$((OMPI_COMM_WORLD_RANK / 2)); exec \"$@\"' sh \"$@\"";
    let probe =
        Command::new("unshare").args(["--uts", "--time", "--monotonic", "5", "--fork", "true"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no permission for namespaces");
        return;
    }
    let file = folder.path().join("data");
    fs::write(&file, vec![7; 4 << 20]).unwrap();
    let (target, results) = (format!("--target={}", file.display()), folder.path().join("results.json"));
    let arguments = [
        "sh",
        "-c",
        script,
        "sh",
        PROGRAM,
        "run",
        "--path=kernel-buffered",
        &target,
        "--shared=segmented",
        "--reorder",
        "--stop=first",
        "--repeat=2",
        "--json",
        results.to_str().unwrap(),
    ];
    let Some(mut command) = mpirun(4, &arguments) else { return };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = json(&results);
    let names: Vec<&str> =
        report["hosts"].as_array().unwrap().iter().map(|host| host["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["node-0", "node-1"]);
    let hosts = &report["runs"][0]["hosts"];
    assert_eq!(
        (&hosts["reordered"], &hosts["stop"]),
        (&Value::Bool(true), &Value::String("first".to_owned()))
    );
    // The clocks differ by minutes, and the run takes no minute on the common one.
    let seconds = report["runs"][0]["seconds"].as_f64().unwrap();
    assert!(seconds < 60.0, "{seconds}");
    let error = hosts["hosts"][1]["clock_error_seconds"].as_f64().unwrap();
    assert!(error > 0.0 && error < 60.0, "{error}");
}
