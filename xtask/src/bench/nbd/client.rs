//! The client of iopath with its page cache and readahead against clients without readahead: sequential reads of 16 KiB
//! from `iopath serve`, which has the data in its page cache.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::super::figures::Goal;
use super::super::report::Figure;
use super::super::side::{TargetFile, number};
use super::super::turns::alternate;
use super::{Peer, Started, fio, socket};
use crate::fsx::mount;
use crate::workspace;

pub(super) const NAME: &str = "nbd, client, sequential 16 KiB read";

/// Longest time until FUSE shows the export as a file.
const MOUNT: Duration = Duration::from_secs(20);

/// A client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    /// With the page cache and readahead of iopath.
    Ours,
    /// Direct reads of fio from a file of FUSE: each read is a request.
    Nbdfuse,
    /// One read in flight.
    QemuImg,
}

impl Client {
    const fn label(self) -> &'static str {
        match self {
            Self::Ours => "iopath run",
            Self::Nbdfuse => "nbdfuse, direct",
            Self::QemuImg => "qemu-img bench",
        }
    }

    const fn program(self) -> &'static str {
        match self {
            Self::Ours => "iopath",
            Self::Nbdfuse => "nbdfuse",
            Self::QemuImg => "qemu-img",
        }
    }

    /// The reason why it cannot run here.
    fn missing(self) -> Option<&'static str> {
        if workspace::find_program(self.program()).is_none() {
            return Some("it is not installed");
        }
        mount::missing().filter(|_| self == Self::Nbdfuse)
    }

    /// Reads the whole export once; in MB/s.
    fn read(self, socket: &Path, target: &TargetFile) -> Result<f64> {
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        match self {
            Self::Ours => ours(&uri, target),
            Self::Nbdfuse => nbdfuse(&uri, target),
            Self::QemuImg => qemu_img(&uri, target),
        }
    }
}

/// Measures the figures, in rounds of all clients. Prints a line for a missing program.
pub(super) fn measure(rounds: u32, target: &TargetFile) -> Result<Vec<Figure>> {
    let mut clients = vec![Client::Ours];
    for client in [Client::Nbdfuse, Client::QemuImg] {
        match client.missing() {
            None => clients.push(client),
            Some(reason) => eprintln!("skipped: {NAME} against {}: {reason}", client.label()),
        }
    }
    let socket = socket();
    let _server = Started::new(Peer::Ours, target, &socket)?;
    fio(&socket, target.mib, &["--rw=read", "--bs=1m", "--iodepth=4"])?;
    let turns = alternate(NAME, rounds, clients.len(), |side| clients[side].read(&socket, target))?;
    let figures = clients.iter().enumerate().skip(1).map(|(side, peer)| Figure {
        name: NAME.to_owned(),
        unit: "MB/s",
        peer: peer.label(),
        value: turns.samples(0, |&rate| rate),
        peer_value: turns.samples(side, |&rate| rate),
        goal: Goal::AtLeast(3.0),
        others: Some(turns.others),
    });
    Ok(figures.collect())
}

/// The cache is smaller than the export, so that nothing is read twice from it.
fn ours(uri: &str, target: &TargetFile) -> Result<f64> {
    let mut command = workspace::iopath();
    command.args(["run", "--path", "iopath-buffered", "--rw", "read", "--bs", "16k", "--repeat", "1"]);
    command.args(["--cache", "16m", "--target", uri, "--size", &format!("{}m", target.mib), "--json", "-"]);
    let result: Value = serde_json::from_slice(output(command)?.as_bytes())?;
    Ok(number(&result, "/runs/0/bytes_per_second/mean")? / 1e6)
}

fn qemu_img(uri: &str, target: &TargetFile) -> Result<f64> {
    let mut command = Command::new("qemu-img");
    command.args(["bench", "-f", "raw", "-t", "none", "-d", "1", "-s", "16384", "-c"]);
    command.arg((target.mib * 64).to_string()).arg(uri);
    let text = output(command)?;
    let seconds = seconds_of(&text).with_context(|| format!("qemu-img printed no time: {text}"))?;
    Ok((target.mib << 20) as f64 / seconds / 1e6)
}

/// The time in "Run completed in 1.234 seconds."
fn seconds_of(text: &str) -> Option<f64> {
    text.split_once("Run completed in ")?.1.split(' ').next()?.parse().ok()
}

fn nbdfuse(uri: &str, target: &TargetFile) -> Result<f64> {
    let mounted = Mounted::new(uri)?;
    let mut command = Command::new("fio");
    command.args(["--name=fuse", "--thread", "--ioengine=psync", "--direct=1", "--readonly", "--rw=read"]);
    command.args(["--bs=16k", "--output-format=json", &format!("--size={}m", target.mib)]);
    command.arg(format!("--filename={}", mounted.file().display()));
    let text = output(command)?;
    let json = text.find('{').with_context(|| format!("fio printed no JSON: {text}"))?;
    let result: Value = serde_json::from_str(&text[json..])?;
    Ok(number(&result, "/jobs/0/read/bw_bytes")? / 1e6)
}

/// The output of a command that must succeed.
fn output(mut command: Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?)
}

/// An export as a file of FUSE. Unmounted at drop.
struct Mounted {
    process: Child,
    folder: PathBuf,
}

impl Mounted {
    fn new(uri: &str) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("iopath-bench-{}.mnt", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let mut command = Command::new("nbdfuse");
        command.arg("--readonly").arg(folder.join("disk")).arg(uri).stdin(Stdio::null());
        let mut mounted = Self { process: command.spawn().context("cannot run nbdfuse")?, folder };
        let limit = Instant::now() + MOUNT;
        while !mounted.file().exists() {
            let ended = mounted.process.try_wait()?;
            ensure!(ended.is_none() && Instant::now() < limit, "nbdfuse shows no file: {ended:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(mounted)
    }

    fn file(&self) -> PathBuf {
        self.folder.join("disk")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !mount::unmount(&self.folder, true) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
        let _ = std::fs::remove_dir(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_qemu_img_is_read() {
        let text =
            "Sending 64 read requests, 16384 bytes each, 1 in parallel\nRun completed in 0.125 seconds.\n";
        assert_eq!(seconds_of(text), Some(0.125));
        assert_eq!(seconds_of("qemu-img: error"), None);
    }
}
