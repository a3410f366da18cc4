//! Ranks on four hosts that share one export: fairness by elevator, and a slow host. A host is a network namespace,
//! with a name and a mount namespace of its own; `agent.sh` enters it for `mpirun`. Skipped by a line where the machine
//! does not allow namespaces.

use crate::{PROGRAM, Server, directory, json, mpirun, text};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// The hosts.
const HOSTS: u32 = 4;

/// The network of the hosts. The last address is that of the server.
const NETWORK: &str = "10.213.7";

/// Hosts with a bridge between them, removed at the end.
struct Cluster {
    /// What sets the names apart from those of other tests.
    tag: String,
}

impl Cluster {
    fn new() -> Option<Self> {
        mpirun(1, &[])?;
        let cluster = Self { tag: format!("io{}", std::process::id() % 100_000) };
        if let Err(problem) = cluster.build() {
            eprintln!("skipped: no network namespaces: {problem}");
            return None;
        }
        Some(cluster)
    }

    fn host(&self, number: u32) -> String {
        format!("{}-node-{number}", self.tag)
    }

    fn build(&self) -> Result<(), String> {
        let bridge = format!("{}-br", self.tag);
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&["address", "add", &format!("{NETWORK}.254/24"), "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])?;
        for number in 0..HOSTS {
            let (host, veth) = (self.host(number), format!("{}-v{number}", self.tag));
            ip(&["netns", "add", &host])?;
            ip(&["link", "add", &veth, "type", "veth", "peer", "name", "eth0", "netns", &host])?;
            ip(&["link", "set", &veth, "master", &bridge, "up"])?;
            ip(&["-n", &host, "address", "add", &format!("{NETWORK}.{}/24", number + 1), "dev", "eth0"])?;
            ip(&["-n", &host, "link", "set", "eth0", "up"])?;
            ip(&["-n", &host, "link", "set", "lo", "up"])?;
        }
        Ok(())
    }

    /// Runs `iopath` on a rank of each host. The folder `own` is another one on each of them.
    fn run(&self, folder: &Path, arguments: &[&str]) -> Value {
        let own = folder.join("own");
        let _ = std::fs::create_dir(&own);
        let agent = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mpi/agent.sh");
        let network = format!("{NETWORK}.0/24");
        let hosts: Vec<String> = (0..HOSTS).map(|number| self.host(number)).collect();
        let hosts = hosts.join(",");
        let results = folder.join("results.json");
        let launch = ["--mca", "plm_rsh_agent", agent, "--mca", "btl", "tcp,self", "--host", &hosts];
        let networks =
            ["--mca", "btl_tcp_if_include", &network, "--mca", "oob_tcp_if_include", &network, PROGRAM];
        let results_option = format!("--json={}", results.display());
        let arguments = [&launch[..], &networks, arguments, &["--force", &results_option]].concat();
        let mut command = mpirun(HOSTS, &arguments).unwrap();
        let output = command.env("HOST_DIRECTORY", &own).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        json(&results)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for number in 0..HOSTS {
            let _ = ip(&["netns", "delete", &self.host(number)]);
        }
        let _ = ip(&["link", "delete", &format!("{}-br", self.tag)]);
    }
}

/// Runs `ip`.
fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(text(&output.stderr).trim().to_owned()) }
}

/// Starts `iopath serve` in the network of the hosts. Returns the addresses of its exports, too.
fn serve(targets: &[&str], arguments: &[&str]) -> (Server, Vec<String>) {
    let listen = format!("--listen={NETWORK}.254:0");
    let mut command = Command::new(PROGRAM);
    command.arg("serve").args(targets).arg(listen).args(arguments).stdout(Stdio::piped());
    let mut server = Server(command.spawn().unwrap());
    let lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let uris = lines.take(targets.len()).map(Result::unwrap).collect();
    (server, uris)
}

/// Both tests in one, because both need the same addresses.
#[test]
fn an_unfair_elevator_and_a_slow_host_show() {
    let Some(cluster) = Cluster::new() else { return };
    let folder = directory();
    // Each rank reads a part of a disk without command queueing, and the elevator decides whose request is next.
    let fairness = |elevator: &str| {
        let (_server, uris) = serve(&["model:ide-2001"], &["--elevator", elevator]);
        let target = format!("--target={}", uris[0]);
        let common = ["run", "--path=iopath-direct", "--shared=segmented", "--rw=read", "--bs=64k"];
        let report = cluster.run(
            folder.path(),
            &[&common[..], &["--iodepth=4", "--size=48m", "--repeat=2", &target]].concat(),
        );
        let run = &report["runs"][0];
        assert_eq!(run["bytes"], 96 << 20);
        let ends = &run["hosts"]["ends"];
        let figure = |name: &str| ends[name].as_f64().unwrap();
        [figure("skew_seconds") / figure("last_done_seconds"), figure("jain_hosts")]
    };
    // The nearest request is the next one of the same rank.
    let unfair = fairness("closest:patience=1000000");
    let fair = fairness("fair");
    assert!(unfair[0] > 2.0 * fair[0] && unfair[1] < fair[1], "skew and Jain: {unfair:?}, fair {fair:?}");
    assert!(fair[1] > 0.9, "{fair:?}");

    // One of the hosts has a slower volume.
    let names: Vec<String> = (0..HOSTS).map(|number| cluster.host(number)).collect();
    let exports: Vec<&str> = names.iter().flat_map(|name| ["--export", name]).collect();
    let [fast, slow] = ["model:ide-2001", "model:ide-2001?rotation_rpm=3600"];
    let (_server, uris) = serve(&[fast, fast, slow, fast], &exports);
    let target = uris[0].replace(&names[0], "{host}");
    let target = format!("--target={target}");
    let common = ["run", "--path=iopath-direct", "--rw=randread", "--bs=4k", "--size=1g", "--runtime=2s"];
    let report = cluster.run(folder.path(), &[&common[..], &["--repeat=5", &target]].concat());
    let hosts = report["runs"][0]["hosts"]["hosts"].as_array().unwrap();
    let slower: Vec<(&str, f64)> = hosts
        .iter()
        .filter(|host| host["is_slower"] == true)
        .map(|host| (host["host"].as_str().unwrap(), host["relative_to_others"].as_f64().unwrap()))
        .collect();
    assert!(matches!(slower[..], [(name, ratio)] if name == names[2] && ratio < 0.9), "{slower:?} {hosts:?}");

    // A directory of the same name is another one on each host: each rank makes and removes its file in its own.
    let own = format!("--target={}/own", folder.path().display());
    let report = cluster.run(
        folder.path(),
        &["run", "--path=kernel-buffered", "--rw=write", "--size=1m", "--repeat=1", &own],
    );
    assert_eq!(report["hosts"].as_array().unwrap().len(), 4);
    assert_eq!(report["runs"][0]["bytes"], 4 << 20);
}
