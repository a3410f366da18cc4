//! `cargo xtask guest`: the NBD client of the Linux kernel on our server. Boots a Debian cloud kernel in QEMU, without
//! hardware virtualization, whose only disk is an export of `iopath serve` on the host. `guest/steps.sh` contains the
//! steps: mkfs, files, fsx, fio with verification, remount, fsck.
//!
//! Not a step of `cargo xtask test`, because it takes minutes. Prints a line for a missing program and skips the run.

mod image;
mod machine;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::{fsx, workspace};
pub(crate) use machine::{Guest, Machine};

/// The steps of the guest.
const STEPS: &str = include_str!("guest/steps.sh");

/// Programs that the steps use.
const CLIENT_PROGRAMS: &[&str] = &["nbd-client", "mkfs.ext4", "e2fsck", "fio"];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Path of the I/O of the server: `iopath-buffered`, `iopath-direct` or `iopath-raw`
    #[arg(long, value_name = "PATH", default_value = "iopath-buffered")]
    path: String,
    /// Size of the export
    #[arg(long, value_name = "N", default_value_t = 192, value_parser = clap::value_parser!(u64).range(64..))]
    mib: u64,
    /// Operations of fsx in the guest; 0 for none
    #[arg(long, value_name = "N", default_value_t = 1500)]
    fsx_ops: u64,
    /// Time limit of the guest
    #[arg(long, value_name = "N", default_value_t = 900)]
    seconds: u64,
}

/// Boots the guest; returns whether all of its steps succeeded.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let machine = match Machine::new() {
        Ok(machine) => machine,
        Err(error) => {
            println!("skipped: {error:#}");
            return Ok(true);
        }
    };
    let mut files = Vec::new();
    if options.fsx_ops > 0 {
        match fsx::install() {
            Ok(file) => files.push((file, "fsx")),
            Err(error) => println!("skipped: fsx in the guest: {error:#}"),
        }
    }
    let server = Server::start(machine.folder(), options)?;
    let variables = format!("port={} fsx_ops={}", server.port, options.fsx_ops);
    let guest = Guest { steps: STEPS, programs: CLIENT_PROGRAMS, files: &files, variables: &variables };
    let print = |time: Duration, message: &str| println!("{:6.1} s  {message}", time.as_secs_f64());
    let has_passed = machine.boot(&guest, Duration::from_secs(options.seconds), print)?;
    server.stop()?;
    Ok(has_passed)
}

/// The server on the host.
struct Server {
    process: Child,
    port: String,
    disk: PathBuf,
}

impl Server {
    fn start(folder: &Path, options: &Options) -> Result<Self> {
        let status = workspace::cargo().args(["build", "--quiet", "--package", "iopath-cli"]).status()?;
        ensure!(status.success(), "cannot build the program: {status}");
        let disk = folder.join("disk");
        std::fs::File::create(&disk)?.set_len(options.mib << 20)?;
        let mut process = Command::new(workspace::target_dir().join("debug/iopath"))
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--writable",
                "--export",
                "disk",
                "--path",
                &options.path,
            ])
            .arg(&disk)
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run iopath serve")?;
        let mut uri = String::new();
        BufReader::new(process.stdout.take().context("stdout is piped")?).read_line(&mut uri)?;
        let port = uri.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split('/').next());
        let Some(port) = port.map(str::to_owned) else {
            let status = process.wait()?;
            bail!("iopath serve printed no URI: {status}");
        };
        Ok(Self { process, port, disk })
    }

    /// Ends the server with SIGTERM. It must flush and succeed.
    fn stop(mut self) -> Result<()> {
        let status = Command::new("kill").arg(self.process.id().to_string()).status()?;
        ensure!(status.success(), "cannot signal the server");
        let status = self.process.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        std::fs::remove_file(&self.disk)?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_use_only_programs_and_modules_of_the_image() {
        let modules = machine::SETUP.lines().find_map(|line| line.strip_prefix("for module in "));
        let modules = modules.expect("a loop");
        assert_eq!(modules.trim_end_matches("; do").split(' ').collect::<Vec<_>>(), machine::MODULES);
        for program in CLIENT_PROGRAMS {
            let is_installed = machine::PROGRAMS.iter().any(|(name, _)| name == program);
            assert!(STEPS.contains(&format!("{program} ")) && is_installed, "{program}");
        }
    }
}
