//! `cargo xtask guest`: the NBD client of the Linux kernel on our server. Boots a Debian cloud kernel in QEMU, without hardware
//! virtualization, whose only disk is an export of `iopath serve` on the host. `guest/init.sh` contains the steps: mkfs,
//! files, fsx, fio with verification, remount, fsck.
//!
//! Not a step of `cargo xtask test`, because it takes minutes. Prints a line for a missing program and skips the run.

mod image;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::{fsx, workspace};
use image::Image;

/// Programs, and the packages of Debian that contain them.
const PROGRAMS: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("nbd-client", "nbd-client"),
    ("mkfs.ext4", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("fio", "fio"),
    ("xz", "xz-utils"),
    ("dpkg-deb", "dpkg"),
];

/// Modules in the order in which they depend on each other.
const MODULES: &[&str] = &["failover", "net_failover", "virtio_net", "nbd"];

/// The package whose dependency is the newest kernel of this series.
const KERNEL: &str = "linux-image-6.12-cloud-amd64";

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
    let folder = workspace::target_dir().join("xtask/guest");
    std::fs::create_dir_all(&folder)?;
    if let Err(error) = install_programs() {
        println!("skipped: {error:#}");
        return Ok(true);
    }
    let kernel = match kernel(&folder) {
        Ok(kernel) => kernel,
        Err(error) => {
            println!("skipped: no kernel for the guest: {error:#}");
            return Ok(true);
        }
    };
    let archive = folder.join("initramfs");
    std::fs::write(&archive, archive_of(&kernel, options.fsx_ops > 0)?)?;
    let server = Server::start(&folder, options)?;
    let mut guest = Command::new("qemu-system-x86_64");
    guest
        .args([
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
            "-smp",
            "2",
            "-m",
            "768",
            "-nographic",
            "-no-reboot",
        ])
        .args(["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="])
        .arg("-kernel")
        .arg(image_of(&kernel)?)
        .arg("-initrd")
        .arg(&archive)
        .arg("-append")
        .arg(format!(
            // On a busy host the virtual timer may be late, which is no defect of the guest.
            "console=ttyS0 panic=-1 quiet no_timer_check rdinit=/init port={} fsx_ops={}",
            server.port, options.fsx_ops
        ))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let has_passed = watch(guest, Duration::from_secs(options.seconds))?;
    server.stop()?;
    Ok(has_passed)
}

/// Installs missing programs, where this process may.
fn install_programs() -> Result<()> {
    let is_missing = |program: &str| workspace::find_program(program).is_none();
    let missing: Vec<_> = PROGRAMS.iter().filter(|(program, _)| is_missing(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = missing.iter().map(|(program, _)| *program).collect();
    let packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    let hint = format!("missing: {}; install the packages {}", names.join(", "), packages.join(", "));
    ensure!(workspace::is_root() && !is_missing("apt-get"), "{hint}");
    let arguments = ["install", "--yes", "--no-install-recommends"];
    let status = Command::new("apt-get").args(arguments).args(&packages).stdout(Stdio::null()).status()?;
    ensure!(status.success(), "{hint}");
    Ok(())
}

/// The folder of an unpacked kernel package, which is downloaded once.
fn kernel(folder: &Path) -> Result<PathBuf> {
    let kernel = folder.join("kernel");
    if image_of(&kernel).is_ok() {
        return Ok(kernel);
    }
    let output =
        Command::new("apt-cache").args(["depends", KERNEL]).output().context("cannot run apt-cache")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let package = text.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    let package =
        package.with_context(|| format!("apt-cache has no package {KERNEL}; run apt-get update"))?;
    let status = Command::new("apt-get").current_dir(folder).args(["download", package]).status()?;
    ensure!(status.success(), "apt-get download {package}: {status}");
    let file = first_with(folder, &format!("{package}_"))?;
    let status = Command::new("dpkg-deb").arg("-x").arg(&file).arg(&kernel).status()?;
    ensure!(status.success(), "dpkg-deb -x {}: {status}", file.display());
    std::fs::remove_file(file)?;
    Ok(kernel)
}

/// The image of the kernel.
fn image_of(kernel: &Path) -> Result<PathBuf> {
    first_with(&kernel.join("boot"), "vmlinuz-")
}

/// The first file of a folder whose name begins with `start`.
fn first_with(folder: &Path, start: &str) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let found = entries.flatten().find(|entry| entry.file_name().to_string_lossy().starts_with(start));
    Ok(found.with_context(|| format!("no {start}* in {}", folder.display()))?.path())
}

/// The initial file system.
fn archive_of(kernel: &Path, has_fsx: bool) -> Result<Vec<u8>> {
    let mut image = Image::default();
    for folder in ["proc", "sys", "dev", "tmp", "mnt", "etc"] {
        image.add_folder(folder);
    }
    image.add("etc/mtab", b"");
    image.add("init", include_bytes!("guest/init.sh"));
    for program in ["busybox", "nbd-client", "mkfs.ext4", "e2fsck", "fio"] {
        let file = workspace::find_program(program).with_context(|| format!("{program} is missing"))?;
        image.add_program(&file, &format!("bin/{program}"))?;
    }
    for module in MODULES {
        image.add(&format!("modules/{module}.ko"), &image::module(kernel, module)?);
    }
    if has_fsx {
        match fsx::install() {
            Ok(file) => image.add_program(&file, "bin/fsx")?,
            Err(error) => println!("skipped: fsx in the guest: {error:#}"),
        }
    }
    Ok(image.finish())
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

/// Runs the guest, and prints its lines. Returns whether it reported success.
fn watch(mut command: Command, limit: Duration) -> Result<bool> {
    let mut guest = command.spawn().context("cannot run qemu-system-x86_64")?;
    let output = BufReader::new(guest.stdout.take().context("stdout is piped")?);
    let (sender, lines) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        // The console sends arbitrary bytes.
        for line in output.split(b'\n').map_while(Result::ok) {
            let _ = sender.send(String::from_utf8_lossy(&line).trim_end().to_owned());
        }
    });
    let started = Instant::now();
    let (mut has_passed, mut log) = (false, Vec::new());
    while let Some(left) = limit.checked_sub(started.elapsed()) {
        let Ok(line) = lines.recv_timeout(left) else { break };
        if let Some(message) = line.split_once("guest: ").map(|(_, message)| message) {
            println!("{:6.1} s  {message}", started.elapsed().as_secs_f64());
            has_passed |= message == "PASSED";
        }
        log.push(line);
    }
    let _ = guest.kill();
    let _ = guest.wait();
    let _ = reader.join();
    if !has_passed {
        let start = log.len().saturating_sub(60);
        println!("the last lines of the console:\n{}", log[start..].join("\n"));
    }
    Ok(has_passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_use_only_programs_and_modules_of_the_image() {
        let script = include_str!("guest/init.sh");
        let modules = script.lines().find_map(|line| line.strip_prefix("for module in ")).expect("a loop");
        assert_eq!(modules.trim_end_matches("; do").split(' ').collect::<Vec<_>>(), MODULES);
        for program in ["nbd-client", "mkfs.ext4", "e2fsck", "fio"] {
            assert!(
                script.contains(&format!("{program} ")) && PROGRAMS.iter().any(|(name, _)| *name == program)
            );
        }
    }
}
