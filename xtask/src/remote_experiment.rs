//! `cargo xtask remote-experiment`: the published reads from a remote target, in real life. `iopath serve` serves a
//! loop device in a network namespace, behind a link of 1 Gbit/s (`link.rs`). The client of iopath reads it
//! sequentially through its page cache, with the published block sizes, readahead and longest requests, and with
//! `--guest` the client of the Linux kernel does, too (`kernel.rs`). Prints a table of Markdown beside the published
//! figures.
//!
//! Needs root, `ip`, `tc` and `losetup`; prints a line and skips the run without them.

mod kernel;
mod link;
mod published;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::workspace;
use link::Link;
use published::{Published, Row};

/// Readahead and longest request in KiB, as published.
const SETTINGS: [(u32, u32); 3] = [(128, 512), (512, 512), (512, 64)];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Size of each read
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(64..))]
    mib: u64,
    /// Reads of each setting; the figure is their mean
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Rate of the link in Mbit/s
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    mbit: u32,
    /// Also read with the NBD client of the Linux kernel, in the guest of `cargo xtask guest`
    #[arg(long)]
    guest: bool,
    /// Only these block sizes in KiB
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    block_kib: Vec<u64>,
}

/// Measures and prints the table. Returns false if the guest failed; other failures are errors.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if let Some(reason) = missing() {
        println!("skipped: {reason}");
        return Ok(true);
    }
    workspace::build_iopath()?;
    let link = match Link::new(options.mbit) {
        Ok(link) => link,
        Err(error) => {
            println!("skipped: no network namespace with a limited link: {error:#}");
            return Ok(true);
        }
    };
    let disk = Disk::new(options.mib)?;
    let server = Server::start(&link, &disk)?;
    let published = Published::read()?;
    let mut blocks = published.blocks();
    if !options.block_kib.is_empty() {
        blocks.retain(|bytes| options.block_kib.contains(&(bytes >> 10)));
        ensure!(!blocks.is_empty(), "none of these block sizes is published: {:?}", options.block_kib);
    }
    let mut rows = Vec::new();
    for block in blocks {
        let read = |readahead: &str, request_kib| server.read(options, block, readahead, request_kib);
        let mut ours = Vec::new();
        for (readahead_kib, request_kib) in SETTINGS {
            ours.push(read(&format!("linux:{readahead_kib}k"), request_kib)?);
        }
        let auto = read("auto", 512)?;
        let rates: Vec<_> = ours.iter().chain([&auto]).map(|rate| format!("{rate:.1}")).collect();
        eprintln!("{} KiB blocks: {} MiB/s", block >> 10, rates.join(", "));
        rows.push(Row { block, ours, kernel: Vec::new(), auto });
    }
    let has_passed = !options.guest || kernel::read(&server, options, &mut rows)?;
    println!("{}", published::table(&published, &SETTINGS, &rows));
    Ok(has_passed)
}

/// The reason why the experiment cannot run here.
fn missing() -> Option<String> {
    if !workspace::is_root() {
        return Some("network namespaces and loop devices need root".to_owned());
    }
    let missing = ["ip", "tc", "losetup"].into_iter().find(|name| workspace::find_program(name).is_none())?;
    Some(format!("{missing} is not installed (packages iproute2 and mount)"))
}

/// A file below a read-only loop device with direct I/O.
struct Disk {
    file: PathBuf,
    device: PathBuf,
}

impl Disk {
    fn new(mib: u64) -> Result<Self> {
        let folder = workspace::target_dir().join("xtask");
        std::fs::create_dir_all(&folder)?;
        let file = folder.join(format!("remote-experiment-{}", std::process::id()));
        let mut disk = Self { file, device: PathBuf::new() };
        let mut bytes = vec![0; 1 << 20];
        let mut random = std::fs::File::open("/dev/urandom")?;
        std::io::Read::read_exact(&mut random, &mut bytes)?;
        let mut file = std::fs::File::create(&disk.file)?;
        for _ in 0..mib {
            std::io::Write::write_all(&mut file, &bytes)?;
        }
        file.sync_all()?;
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show", "--read-only", "--direct-io=on"]).arg(&disk.file);
        disk.device = link::output(&mut losetup)?.trim().into();
        Ok(disk)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if !self.device.as_os_str().is_empty() {
            let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
        }
        let _ = std::fs::remove_file(&self.file);
    }
}

/// `iopath serve` at the other end of the link.
struct Server {
    process: Child,
    uri: String,
}

impl Server {
    fn start(link: &Link, disk: &Disk) -> Result<Self> {
        let mut command = link.remote_command(&workspace::iopath_path());
        command.args(["serve", "--path", "iopath-direct", "--export", "disk"]);
        command.args(["--listen", &format!("{}:0", link::SERVER)]).arg(&disk.device);
        let mut process =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("cannot run ip netns")?;
        let mut uri = String::new();
        BufReader::new(process.stdout.take().context("stdout is piped")?).read_line(&mut uri)?;
        let uri = uri.trim().to_owned();
        if !uri.starts_with("nbd://") {
            let status = process.wait()?;
            bail!("iopath serve printed no URI: {status}");
        }
        Ok(Self { process, uri })
    }

    fn port(&self) -> Result<&str> {
        let port = self.uri.strip_prefix("nbd://").and_then(|rest| rest.split(['/', ':']).nth(1));
        port.with_context(|| format!("no port in {}", self.uri))
    }

    /// Reads the export through the page cache of the client; in MiB/s.
    fn read(&self, options: &Options, block: u64, readahead: &str, request_kib: u32) -> Result<f64> {
        let mut command = workspace::iopath();
        command.args(["run", "--path", "iopath-buffered", "--rw", "read", "--json", "-"]);
        command.args(["--bs", &block.to_string(), "--readahead", readahead]);
        command.args(["--size", &format!("{}m", options.mib), "--repeat", &options.repeat.to_string()]);
        command.arg("--target").arg(format!("{}?request-size={}", self.uri, request_kib << 10));
        let result: Value = serde_json::from_str(&link::output(&mut command)?)?;
        let rate = result.pointer("/runs/0/bytes_per_second/mean").and_then(Value::as_f64);
        Ok(rate.context("the result has no rate")? / f64::from(1 << 20))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
