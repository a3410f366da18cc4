//! `iopath serve` against other NBD servers, over a unix socket and with fio's nbd engine as the client. The data is
//! cached in all servers: in the page cache of iopath, in that of the kernel, or in the memory of the server.
//! `client.rs` compares clients, `encrypted.rs` servers with TLS, `modelled.rs` the latency of a served model with the
//! model.
//!
//! The CPU time is that of the server alone, over the whole run of the client.

mod client;
mod encrypted;
mod modelled;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::cpu;
use super::figures::Goal;
use super::report::Figure;
use super::side::{TargetFile, number};
use super::turns::{Turns, alternate};
use crate::workspace;

/// The start of the names of all figures, for `--only`.
const NAME: &str = "nbd";

/// Longest time until a server accepts clients: it allocates its cache first.
const START: Duration = Duration::from_secs(60);

/// A server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    Ours,
    NbdkitFile,
    NbdkitMemory,
    QemuStorageDaemon,
}

/// The load of one or several clients.
#[derive(Debug, Clone, Copy)]
struct Load {
    block_size: &'static str,
    depth: u32,
    connections: u32,
}

/// A load, and the goals for the rate and for the CPU time of a request against each peer.
struct Row {
    name: &'static str,
    load: Load,
    peers: &'static [(Peer, Goal, Goal)],
}

const ROWS: &[Row] = &[
    Row {
        name: "nbd, 4 KiB random read, depth 32",
        load: Load { block_size: "4k", depth: 32, connections: 1 },
        peers: &[
            (Peer::NbdkitFile, Goal::AtLeast(1.5), Goal::AtMost(0.6)),
            (Peer::NbdkitMemory, Goal::AtLeast(1.0), Goal::AtMost(0.6)),
            (Peer::QemuStorageDaemon, Goal::Free, Goal::AtMost(1.0)),
        ],
    },
    Row {
        name: "nbd, 1 MiB random read, depth 4",
        load: Load { block_size: "1m", depth: 4, connections: 1 },
        peers: &[
            (Peer::NbdkitFile, Goal::AtLeast(1.3), Goal::AtMost(1.0)),
            (Peer::QemuStorageDaemon, Goal::Free, Goal::AtMost(1.0)),
        ],
    },
];

/// The sum of 64 connections against that of 4.
const MANY_NAME: &str = "nbd, 64 connections against 4";
const MANY: Load = Load { block_size: "4k", depth: 8, connections: 64 };
const FEW: Load = Load { connections: 4, ..MANY };

/// Whether `--only` selects these figures.
pub(super) fn is_selected(only: Option<&str>) -> bool {
    only.is_none_or(|text| NAME.contains(text) || names().any(|name| name.contains(text)))
}

/// The names of the figures.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    server_names().chain([client::NAME, modelled::NAME]).chain(encrypted::names())
}

fn server_names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name).chain([MANY_NAME])
}

/// Measures each group of figures with a selected name, in rounds of all sides.
pub(super) fn measure(
    only: Option<&str>,
    rounds: u32,
    seconds: u32,
    target: &TargetFile,
) -> Vec<Result<Vec<Figure>>> {
    let is_selected = |name: &str| only.is_none_or(|text| name.contains(text));
    let mut measured = Vec::new();
    if server_names().any(is_selected) {
        measured.push(measure_servers(rounds, seconds, target));
    }
    if is_selected(client::NAME) {
        measured.push(client::measure(rounds, target));
    }
    if is_selected(modelled::NAME) {
        measured.push(modelled::measure(rounds, seconds));
    }
    if encrypted::names().any(is_selected) {
        measured.push(encrypted::measure(rounds, target));
    }
    measured
}

/// Requests a second, and CPU time of the server for each, in microseconds.
#[derive(Debug, Clone, Copy)]
struct Run {
    iops: f64,
    cpu_us: f64,
}

/// Measures the figures of the servers, in rounds of all sides. Prints a line for a missing program.
fn measure_servers(rounds: u32, seconds: u32, target: &TargetFile) -> Result<Vec<Figure>> {
    let has_engine =
        Command::new("fio").arg("--enghelp=nbd").output().is_ok_and(|output| output.status.success());
    if !has_engine {
        eprintln!("skipped: {NAME}: no fio with the engine nbd is installed (package fio)");
        return Ok(Vec::new());
    }
    let mut figures = Vec::new();
    for row in ROWS {
        let is_installed = |peer: &Peer| {
            let program = peer.program();
            let is_found = workspace::find_program(program).is_some();
            if !is_found {
                eprintln!("skipped: {} against {}: {program} is not installed", row.name, peer.label());
            }
            is_found
        };
        let peers: Vec<_> = row.peers.iter().filter(|(peer, ..)| is_installed(peer)).collect();
        let mut sides = vec![(Peer::Ours, row.load)];
        sides.extend(peers.iter().map(|(peer, ..)| (*peer, row.load)));
        let turns = alternate(row.name, rounds, sides.len(), |side| {
            let (peer, load) = sides[side];
            run_once(peer, load, seconds, target)
        })?;
        for (side, (peer, rate, cost)) in (1..).zip(peers) {
            figures.extend(pair(row.name, peer.label(), &turns, side, (*rate, *cost)));
        }
    }
    let loads = [MANY, FEW];
    let turns =
        alternate(MANY_NAME, rounds, loads.len(), |side| run_once(Peer::Ours, loads[side], seconds, target))?;
    figures.extend(pair(MANY_NAME, "4 connections", &turns, 1, (Goal::AtLeast(1.0), Goal::Free)));
    Ok(figures)
}

/// The figures of the first side against another.
fn pair(
    name: &str,
    peer: &'static str,
    turns: &Turns<Run>,
    other: usize,
    (rate, cost): (Goal, Goal),
) -> [Figure; 2] {
    let figure = |metric: &str, unit, value: fn(&Run) -> f64, goal| Figure {
        name: format!("{name}: {metric}"),
        unit,
        peer,
        value: turns.samples(0, value),
        peer_value: turns.samples(other, value),
        goal,
        others: Some(turns.others),
    };
    [
        figure("IOPS", "I/O/s", |run| run.iops, rate),
        figure("CPU per I/O, server", "µs", |run| run.cpu_us, cost),
    ]
}

fn run_once(peer: Peer, load: Load, seconds: u32, target: &TargetFile) -> Result<Run> {
    let socket = socket();
    let server = Started::new(peer, target, &socket)?;
    let warm_up = if peer == Peer::NbdkitMemory { "--rw=write" } else { "--rw=read" };
    fio(&socket, target.mib, &[warm_up, "--bs=1m", "--iodepth=4"])?;
    let before = cpu::process_seconds(server.0.id())?;
    let result = fio(
        &socket,
        target.mib,
        &[
            "--rw=randread",
            &format!("--bs={}", load.block_size),
            &format!("--iodepth={}", load.depth),
            &format!("--numjobs={}", load.connections),
            &format!("--runtime={seconds}"),
            "--time_based",
            "--norandommap",
            "--randrepeat=0",
            "--group_reporting",
        ],
    )?;
    let cpu_seconds = cpu::process_seconds(server.0.id())? - before;
    let ios = number(&result, "/jobs/0/read/total_ios")?;
    Ok(Run { iops: number(&result, "/jobs/0/read/iops")?, cpu_us: cpu_seconds * 1e6 / ios })
}

/// Runs fio on the first `mib` MiB of the export, and parses its JSON.
fn fio(socket: &Path, mib: u64, arguments: &[&str]) -> Result<Value> {
    let output = Command::new("fio")
        .args(["--name=nbd", "--thread", "--ioengine=nbd", "--output-format=json"])
        .arg(format!("--uri=nbd+unix:///?socket={}", socket.display()))
        .arg(format!("--size={mib}m"))
        .args(arguments)
        .output()
        .context("cannot run fio")?;
    ensure!(output.status.success(), "fio: {}", String::from_utf8_lossy(&output.stderr).trim());
    let text = String::from_utf8(output.stdout)?;
    let json = text.find('{').with_context(|| format!("fio printed no JSON: {text}"))?;
    Ok(serde_json::from_str(&text[json..])?)
}

/// The path of a new socket. Not in the scratch folder: the path of a socket has at most 107 bytes.
fn socket() -> PathBuf {
    let socket = std::env::temp_dir().join(format!("iopath-bench-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&socket);
    socket
}

/// A running server, and its socket. Both end at drop.
struct Started(Child, PathBuf);

impl Started {
    fn new(peer: Peer, target: &TargetFile, socket: &Path) -> Result<Self> {
        Self::run(peer.command(target, socket), socket)
    }

    fn run(mut command: Command, socket: &Path) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        let mut started = Self(child, socket.to_owned());
        let limit = Instant::now() + START;
        while std::os::unix::net::UnixStream::connect(socket).is_err() {
            if let Some(status) = started.0.try_wait()? {
                bail!("{command:?}: {status}");
            }
            ensure!(Instant::now() < limit, "{command:?} accepts no client");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(started)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_file(&self.1);
    }
}

impl Peer {
    const fn label(self) -> &'static str {
        match self {
            Self::Ours => "iopath serve",
            Self::NbdkitFile => "nbdkit file",
            Self::NbdkitMemory => "nbdkit memory",
            Self::QemuStorageDaemon => "qemu-storage-daemon",
        }
    }

    const fn program(self) -> &'static str {
        match self {
            Self::Ours => "iopath",
            Self::NbdkitFile | Self::NbdkitMemory => "nbdkit",
            Self::QemuStorageDaemon => "qemu-storage-daemon",
        }
    }

    /// The command that serves `target` as the default export.
    fn command(self, target: &TargetFile, socket: &Path) -> Command {
        let file = &target.path;
        let path = |name: &str, path: &PathBuf| format!("{name}{}", path.display());
        let socket = socket.to_path_buf();
        let mut command = match self {
            Self::Ours => workspace::iopath(),
            _ => Command::new(self.program()),
        };
        match self {
            Self::Ours => command
                .args(["serve", "--path", "iopath-buffered", "--cache", &format!("{}m", target.mib * 2)])
                .arg("--unix")
                .arg(socket)
                .arg(file),
            Self::NbdkitFile => command.args(["-f", "-r", "-U"]).arg(socket).arg("file").arg(file),
            Self::NbdkitMemory => {
                command.args(["-f", "-U"]).arg(socket).args(["memory", &format!("{}M", target.mib)])
            }
            Self::QemuStorageDaemon => command
                .args(["--blockdev", &path("driver=file,node-name=file,read-only=on,filename=", file)])
                .args(["--nbd-server", &path("addr.type=unix,max-connections=0,addr.path=", &socket)])
                .args(["--export", "type=nbd,id=export,node-name=file,name="]),
        };
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_name_selects_the_figures() {
        assert!(is_selected(None) && is_selected(Some("nbd")) && is_selected(Some("64 connections")));
        assert!(!is_selected(Some("zram")));
    }

    #[test]
    fn every_server_serves_the_same_file_at_the_same_socket() {
        let target = TargetFile { path: "t/disk".into(), mib: 64 };
        for peer in [Peer::Ours, Peer::NbdkitFile, Peer::QemuStorageDaemon] {
            let command = format!("{:?}", peer.command(&target, Path::new("t/socket")));
            assert!(command.contains("t/disk") && command.contains("t/socket"), "{command}");
        }
    }
}
