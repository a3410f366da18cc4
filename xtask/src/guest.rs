//! `cargo xtask guest`: the NBD client of the Linux kernel on our server. Boots a Debian cloud kernel in QEMU, without
//! hardware virtualization, whose only disk is an export of `iopath serve` on the host. `guest/steps.sh` contains the
//! steps: mkfs, files, fsx, fio with verification, remount, fsck. With `--vhost-user`, the disk is a vhost-user-blk
//! device, and the steps are in `guest/vhost.sh`. With `--attach`, `iopath attach` runs in the guest:
//! `guest/attach.sh`.
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

/// The functions that all steps share.
const FILE_SYSTEM: &str = include_str!("guest/file_system.sh");

/// The steps of the guest with a vhost-user-blk device.
const VHOST_STEPS: &str = include_str!("guest/vhost.sh");

/// The steps of the guest that attaches targets.
const ATTACH_STEPS: &str = include_str!("guest/attach.sh");

/// The steps of the guest.
const STEPS: &str = include_str!("guest/steps.sh");

/// Programs that the steps use.
const CLIENT_PROGRAMS: &[&str] = &["nbd-client", "mkfs.ext4", "e2fsck", "mkfs.xfs", "xfs_repair", "fio"];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Path of the I/O of the server: `iopath-buffered`, `iopath-direct` or `iopath-raw`
    #[arg(long, value_name = "PATH", default_value = "iopath-buffered")]
    path: String,
    /// The disk is a vhost-user-blk device, whose server is killed and started again, instead of an NBD export
    #[arg(long)]
    vhost_user: bool,
    /// `iopath attach` runs in the guest: file systems on its devices, whose server is killed and continued
    #[arg(long, conflicts_with_all = ["vhost_user", "path"])]
    attach: bool,
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
    build_program()?;
    if options.attach {
        return attach(&machine, files, options);
    }
    let mut server = Server::start(machine.folder(), options)?;
    let variables = format!("port={} fsx_ops={}", server.port, options.fsx_ops);
    let steps = format!("{FILE_SYSTEM}{}", if options.vhost_user { VHOST_STEPS } else { STEPS });
    let qemu = if options.vhost_user { disk_of_qemu(machine.folder()) } else { Vec::new() };
    let programs = CLIENT_PROGRAMS;
    let guest = Guest { steps: &steps, programs, files: &files, variables: &variables, qemu: &qemu };
    let mut restarted = Ok(());
    let report = |time: Duration, message: &str| {
        println!("{:6.1} s  {message}", time.as_secs_f64());
        if message == "kill" {
            restarted = server.restart(machine.folder(), options);
        }
    };
    let has_passed = machine.boot(&guest, Duration::from_secs(options.seconds), report)?;
    restarted?;
    server.stop()?;
    Ok(has_passed)
}

/// Boots a guest with the program and a disk for its targets.
fn attach(machine: &Machine, mut files: Vec<(PathBuf, &'static str)>, options: &Options) -> Result<bool> {
    let program = machine.folder().join("iopath");
    // Symbols take most of the file, and the guest has its files in memory.
    let status = Command::new("strip").arg("-o").arg(&program).arg(program_of_workspace()).status();
    match status {
        Ok(status) if status.success() => files.push((program, "iopath")),
        _ => files.push((program_of_workspace(), "iopath")),
    }
    let disk = machine.folder().join("disk");
    std::fs::File::create(&disk)?.set_len(1 << 30)?;
    let qemu = ["-drive".to_owned(), format!("file={},format=raw,if=virtio", disk.display())];
    let steps = format!("{FILE_SYSTEM}{ATTACH_STEPS}");
    let variables = format!("fsx_ops={}", options.fsx_ops);
    let programs = CLIENT_PROGRAMS;
    let guest = Guest { steps: &steps, programs, files: &files, variables: &variables, qemu: &qemu };
    let report = |time: Duration, message: &str| println!("{:6.1} s  {message}", time.as_secs_f64());
    let has_passed = machine.boot(&guest, Duration::from_secs(options.seconds), report)?;
    std::fs::remove_file(disk)?;
    Ok(has_passed)
}

/// Builds the program.
fn build_program() -> Result<()> {
    let status = workspace::cargo()
        .args(["build", "--quiet", "--package", "iopath-cli", "--features", "full"])
        .status()?;
    ensure!(status.success(), "cannot build the program: {status}");
    Ok(())
}

fn program_of_workspace() -> PathBuf {
    workspace::target_dir().join("debug/iopath")
}

/// The socket of the device.
fn socket_of(folder: &Path) -> PathBuf {
    folder.join("vhost.sock")
}

/// The arguments of QEMU for a vhost-user-blk device, which needs the memory of the guest as a shared file.
fn disk_of_qemu(folder: &Path) -> Vec<String> {
    let chardev = format!("socket,id=disk,reconnect=1,path={}", socket_of(folder).display());
    [
        ("-object", "memory-backend-memfd,id=memory,size=768M,share=on"),
        ("-numa", "node,memdev=memory"),
        ("-chardev", &chardev),
        ("-device", "vhost-user-blk-pci,chardev=disk,num-queues=2"),
    ]
    .iter()
    .flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()])
    .collect()
}

/// The server on the host.
struct Server {
    process: Child,
    port: String,
    disk: PathBuf,
}

impl Server {
    fn start(folder: &Path, options: &Options) -> Result<Self> {
        let disk = folder.join("disk");
        std::fs::File::create(&disk)?.set_len(options.mib << 20)?;
        Self::serve(folder, options, disk)
    }

    /// Kills the server, and starts the next one on the same disk.
    fn restart(&mut self, folder: &Path, options: &Options) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        *self = Self::serve(folder, options, self.disk.clone())?;
        Ok(())
    }

    fn serve(folder: &Path, options: &Options, disk: PathBuf) -> Result<Self> {
        let mut command = Command::new(program_of_workspace());
        command.args(["serve", "--writable", "--path", &options.path]);
        if options.vhost_user {
            command.args(["--queues", "2", "--vhost-user"]).arg(socket_of(folder));
        } else {
            command.args(["--listen", "127.0.0.1:0", "--export", "disk"]);
        }
        let mut process =
            command.arg(&disk).stdout(Stdio::piped()).spawn().context("cannot run iopath serve")?;
        let mut uri = String::new();
        BufReader::new(process.stdout.take().context("stdout is piped")?).read_line(&mut uri)?;
        if options.vhost_user {
            ensure!(!uri.is_empty(), "iopath serve printed no socket");
            return Ok(Self { process, port: String::new(), disk });
        }
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
            let used = format!("{program} ");
            let is_used = STEPS.contains(&used) || FILE_SYSTEM.contains(&used);
            assert!(is_used && is_installed, "{program}");
        }
    }
}
