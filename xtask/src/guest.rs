//! `cargo xtask guest`: the NBD client of the Linux kernel on our server. Boots a Debian cloud kernel in QEMU, without
//! hardware virtualization, whose only disk is an export of `iopath serve` on the host. `guest/steps.sh` contains the
//! steps: mkfs, files, fsx, fio with verification, remount, fsck. With `--vhost-user`, the disk is a vhost-user-blk
//! device, and the steps are in `guest/vhost.sh`. With `--attach`, `iopath attach` runs in the guest:
//! `guest/attach.sh`. With `--loop`, it is compared with a loop device there: `guest/loop.sh`.
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

/// The steps of the guest whose disk is an export.
const STEPS: &str = include_str!("guest/steps.sh");

/// The steps of the guest with a vhost-user-blk device.
const VHOST_STEPS: &str = include_str!("guest/vhost.sh");

/// The steps of the guest that attaches targets.
const ATTACH_STEPS: &str = include_str!("guest/attach.sh");

/// The steps of the guest that compares attached targets with loop devices.
const LOOP_STEPS: &str = include_str!("guest/loop.sh");

/// The size of a disk for targets, in MiB.
const FILE_MIB: u64 = 1024;

/// Programs that the steps use.
const CLIENT_PROGRAMS: &[&str] =
    &["nbd-client", "mkfs.ext4", "e2fsck", "mkfs.xfs", "xfs_repair", "fio", "losetup"];

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
    /// `iopath attach` runs in the guest, and is compared with a loop device; name a release build with --program
    #[arg(long, conflicts_with_all = ["vhost_user", "path", "attach"], requires = "program")]
    r#loop: bool,
    /// The program `iopath`; default: a debug build of the workspace
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
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

/// What the disk of the guest is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disk {
    /// An NBD export of a server on the host.
    Export,
    /// A vhost-user-blk device of a server on the host.
    VhostUser,
    /// A file, for the targets of the program in the guest.
    File,
}

impl Options {
    /// The disk and the steps of the guest.
    fn guest(&self) -> (Disk, &'static str) {
        match self {
            Self { attach: true, .. } => (Disk::File, ATTACH_STEPS),
            Self { r#loop: true, .. } => (Disk::File, LOOP_STEPS),
            Self { vhost_user: true, .. } => (Disk::VhostUser, VHOST_STEPS),
            _ => (Disk::Export, STEPS),
        }
    }
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
    let folder = machine.folder();
    let mut files = Vec::new();
    if options.fsx_ops > 0 {
        match fsx::install() {
            Ok(file) => files.push((file, "fsx")),
            Err(error) => println!("skipped: fsx in the guest: {error:#}"),
        }
    }
    let program = match &options.program {
        Some(program) => program.clone(),
        None => build_program()?,
    };
    let (disk, steps) = options.guest();
    let file = folder.join("disk");
    let mib = if disk == Disk::File { FILE_MIB } else { options.mib };
    std::fs::File::create(&file)?.set_len(mib << 20)?;
    let (mut server, qemu) = match disk {
        Disk::File => {
            files.push((stripped(&program, folder), "iopath"));
            (None, vec!["-drive".to_owned(), format!("file={},format=raw,if=virtio", file.display())])
        }
        Disk::Export => (Some(Server::start(disk, &program, &file, options)?), Vec::new()),
        Disk::VhostUser => (Some(Server::start(disk, &program, &file, options)?), disk_of_qemu(folder)),
    };
    let port = server.as_ref().map_or("", |server| server.port.as_str());
    let variables = format!("port={port} fsx_ops={}", options.fsx_ops);
    let steps = format!("{FILE_SYSTEM}{steps}");
    let programs = CLIENT_PROGRAMS;
    let guest = Guest { steps: &steps, programs, files: &files, variables: &variables, qemu: &qemu };
    let mut restarted = Ok(());
    let report = |time: Duration, message: &str| {
        println!("{:6.1} s  {message}", time.as_secs_f64());
        if let Some(server) = server.as_mut().filter(|_| message == "kill") {
            restarted = server.restart();
        }
    };
    let has_passed = machine.boot(&guest, Duration::from_secs(options.seconds), report)?;
    restarted?;
    if let Some(server) = server {
        server.stop()?;
    }
    std::fs::remove_file(file)?;
    Ok(has_passed)
}

/// The program for the guest, which has its files in memory: symbols take most of it.
fn stripped(program: &Path, folder: &Path) -> PathBuf {
    let file = folder.join("iopath");
    let status = Command::new("strip").arg("-o").arg(&file).arg(program).status();
    if status.is_ok_and(|status| status.success()) { file } else { program.to_owned() }
}

/// Builds the program.
fn build_program() -> Result<PathBuf> {
    let status = workspace::cargo()
        .args(["build", "--quiet", "--package", "iopath-cli", "--features", "full"])
        .status()?;
    ensure!(status.success(), "cannot build the program: {status}");
    Ok(workspace::target_dir().join("debug/iopath"))
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
    command: Command,
    disk: Disk,
    process: Child,
    port: String,
}

impl Server {
    fn start(disk: Disk, program: &Path, file: &Path, options: &Options) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["serve", "--writable", "--path", &options.path]);
        if disk == Disk::VhostUser {
            let folder = file.parent().context("the disk is in a folder")?;
            command.args(["--queues", "2", "--vhost-user"]).arg(socket_of(folder));
        } else {
            command.args(["--listen", "127.0.0.1:0", "--export", "disk"]);
        }
        command.arg(file).stdout(Stdio::piped());
        let (process, port) = serve(&mut command, disk)?;
        Ok(Self { command, disk, process, port })
    }

    /// Kills the server, and starts the next one on the same disk.
    fn restart(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        (self.process, self.port) = serve(&mut self.command, self.disk)?;
        Ok(())
    }

    /// Ends the server with SIGTERM. It must flush and succeed.
    fn stop(mut self) -> Result<()> {
        let status = Command::new("kill").arg(self.process.id().to_string()).status()?;
        ensure!(status.success(), "cannot signal the server");
        let status = self.process.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

/// Starts a server and waits until it is ready. Returns its port, which a disk of a virtual machine does not have.
fn serve(command: &mut Command, disk: Disk) -> Result<(Child, String)> {
    let mut process = command.spawn().context("cannot run iopath serve")?;
    let mut place = String::new();
    BufReader::new(process.stdout.take().context("stdout is piped")?).read_line(&mut place)?;
    let port = match disk {
        Disk::Export => place.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split('/').next()),
        _ => Some("").filter(|_| !place.is_empty()),
    };
    let Some(port) = port.map(str::to_owned) else {
        let status = process.wait()?;
        bail!("iopath serve printed no place: {status}");
    };
    Ok((process, port))
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
        let all = [FILE_SYSTEM, STEPS, VHOST_STEPS, ATTACH_STEPS, LOOP_STEPS];
        for program in CLIENT_PROGRAMS {
            let is_installed = machine::PROGRAMS.iter().any(|(name, _)| name == program);
            let used = format!("{program} ");
            let is_used = all.iter().any(|steps| steps.contains(&used));
            assert!(is_used && is_installed, "{program}");
        }
    }
}
