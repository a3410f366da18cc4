//! A guest: a Debian cloud kernel in QEMU, without hardware virtualization, whose first process is a script. Installs
//! what that needs. The script sends messages, which are lines of the console that begin with `guest: `.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::image::{self, Image};
use crate::workspace;

/// Programs, and the packages of Debian that contain them.
pub(super) const PROGRAMS: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("nbd-client", "nbd-client"),
    ("mkfs.ext4", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("xfs_repair", "xfsprogs"),
    ("fio", "fio"),
    ("losetup", "mount"),
    ("xz", "xz-utils"),
    ("dpkg-deb", "dpkg"),
];

/// Modules in the order in which they depend on each other.
pub(super) const MODULES: &[&str] =
    &["failover", "net_failover", "virtio_net", "virtio_blk", "nbd", "libcrc32c", "xfs", "loop", "ublk_drv"];

/// The package whose dependency is the newest kernel of this series.
const KERNEL: &str = "linux-image-6.12-cloud-amd64";

/// The start of each script: file systems, modules and network.
pub(super) const SETUP: &str = include_str!("setup.sh");

/// The message of a script that succeeded.
const PASSED: &str = "PASSED";

/// A kernel and the programs to boot it with.
pub(crate) struct Machine {
    folder: PathBuf,
    kernel: PathBuf,
}

/// The contents of a guest.
pub(crate) struct Guest<'a> {
    /// The steps that follow the setup.
    pub(crate) steps: &'a str,
    /// Programs of the host in `/bin`.
    pub(crate) programs: &'a [&'a str],
    /// More programs by their file.
    pub(crate) files: &'a [(PathBuf, &'a str)],
    /// More arguments of QEMU, such as devices.
    pub(crate) qemu: &'a [String],
    /// Variables of the script: words of the kernel's command line, such as `port=1`.
    pub(crate) variables: &'a str,
}

impl Machine {
    /// Installs the programs and downloads the kernel, unless they are there.
    ///
    /// # Errors
    /// The reason why no guest can boot here.
    pub(crate) fn new() -> Result<Self> {
        let folder = workspace::target_dir().join("xtask/guest");
        std::fs::create_dir_all(&folder)?;
        install_programs()?;
        let kernel = kernel(&folder).context("no kernel for the guest")?;
        Ok(Self { folder, kernel })
    }

    /// The folder for files of guests.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Boots a guest, and passes each message to `report`. Returns whether its steps succeeded; prints the end of its
    /// console otherwise.
    pub(crate) fn boot(
        &self,
        guest: &Guest<'_>,
        limit: Duration,
        report: impl FnMut(Duration, &str),
    ) -> Result<bool> {
        let archive = self.folder.join("initramfs");
        std::fs::write(&archive, self.archive_of(guest)?)?;
        let mut command = Command::new("qemu-system-x86_64");
        command
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
            .arg(image_of(&self.kernel)?)
            .arg("-initrd")
            .arg(&archive)
            .arg("-append")
            // On a busy host the virtual timer may be late, which is no defect of the guest.
            .arg(format!("console=ttyS0 panic=-1 quiet no_timer_check rdinit=/init {}", guest.variables))
            .args(guest.qemu)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        watch(command, limit, report)
    }

    /// The initial file system.
    fn archive_of(&self, guest: &Guest<'_>) -> Result<Vec<u8>> {
        let mut image = Image::default();
        for folder in ["proc", "sys", "dev", "tmp", "mnt", "etc"] {
            image.add_folder(folder);
        }
        image.add("etc/mtab", b"");
        image.add("init", format!("{SETUP}{}", guest.steps).as_bytes());
        for program in ["busybox"].iter().chain(guest.programs) {
            let file = workspace::find_program(program).with_context(|| format!("{program} is missing"))?;
            image.add_program(&file, &format!("bin/{program}"))?;
        }
        for (file, name) in guest.files {
            image.add_program(file, &format!("bin/{name}"))?;
        }
        for module in MODULES {
            image.add(&format!("modules/{module}.ko"), &image::module(&self.kernel, module)?);
        }
        Ok(image.finish())
    }
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

/// Runs the guest. Returns whether it reported success.
fn watch(mut command: Command, limit: Duration, mut report: impl FnMut(Duration, &str)) -> Result<bool> {
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
    let mut has_passed = false;
    let mut log = Vec::new();
    while let Some(left) = limit.checked_sub(started.elapsed()) {
        let Ok(line) = lines.recv_timeout(left) else { break };
        if let Some(message) = line.split_once("guest: ").map(|(_, message)| message) {
            report(started.elapsed(), message);
            has_passed |= message == PASSED;
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
