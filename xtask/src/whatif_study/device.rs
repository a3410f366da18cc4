//! A loop device over a file on this machine, or over a modelled disk in real time: `iopath serve` exports the model,
//! nbdfuse mounts the export as a file. So the kernel's schedulers order requests for a disk whose time depends on
//! their order.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::workspace;

/// The size of a file on this machine.
const FILE_BYTES: u64 = 8 << 30;

/// The time until a mount appears.
const MOUNT_TIME: Duration = Duration::from_secs(20);

/// The storage beneath the loop device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Backing {
    Disk,
    Model(String),
}

impl FromStr for Backing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "disk" => Ok(Self::Disk),
            model if model.starts_with("model:") => Ok(Self::Model(model.to_owned())),
            _ => Err("use disk or model:NAME".to_owned()),
        }
    }
}

/// The reason why the study cannot run here.
pub(super) fn missing(backing: &Backing) -> Option<String> {
    if !Path::new("/dev/loop-control").exists() {
        return Some("this machine has no loop devices".to_owned());
    }
    if !workspace::is_root() {
        return Some("loop devices and I/O schedulers need root".to_owned());
    }
    if workspace::find_program("losetup").is_none() {
        return Some("losetup is not installed".to_owned());
    }
    let needs_mount = matches!(backing, Backing::Model(_));
    let can_mount = workspace::find_program("nbdfuse").is_some() && Path::new("/dev/fuse").exists();
    (needs_mount && !can_mount).then(|| "nbdfuse (package libnbd-bin) and /dev/fuse are needed".to_owned())
}

/// A loop device. Its drop removes the device and all beneath it.
#[derive(Debug)]
pub(super) struct Device {
    file: PathBuf,
    backing_file: PathBuf,
    children: Vec<Child>,
}

impl Device {
    pub(super) fn start(backing: &Backing, iopath: &Path, folder: &Path) -> Result<Self> {
        let backing_file = folder.join("disk");
        let mut device = Self { file: PathBuf::new(), backing_file, children: Vec::new() };
        match backing {
            Backing::Disk => device.fill()?,
            Backing::Model(name) => device.mount(name, iopath, folder)?,
        }
        let output = Command::new("losetup")
            .args(["--direct-io=on", "--show", "--find"])
            .arg(&device.backing_file)
            .output()?;
        ensure!(output.status.success(), "losetup: {}", String::from_utf8_lossy(&output.stderr));
        device.file = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        let dio = fs::read_to_string(device.setting("loop/dio"))?;
        ensure!(dio.trim() == "1", "the loop device has no direct I/O, so the page cache would serve it");
        Ok(device)
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Selects a scheduler of the kernel, and the requests that the loop device accepts at the same time: the number of
    /// its tags, which only changes without a scheduler.
    pub(super) fn set_scheduler(&self, name: &str, depth: u32) -> Result<()> {
        for (setting, value) in [
            ("queue/scheduler", "none"),
            ("queue/nr_requests", &depth.to_string()),
            ("queue/scheduler", name),
        ] {
            fs::write(self.setting(setting), value).with_context(|| format!("{setting}: {value}"))?;
        }
        Ok(())
    }

    fn setting(&self, name: &str) -> PathBuf {
        let device = self.file.file_name().unwrap_or_default();
        Path::new("/sys/block").join(device).join(name)
    }

    /// Writes a file with content: holes and unwritten extents need no disk.
    fn fill(&self) -> Result<()> {
        let output = Command::new("dd")
            .args(["if=/dev/urandom", "bs=4M", "oflag=direct", "status=none"])
            .arg(format!("of={}", self.backing_file.display()))
            .arg(format!("count={}", FILE_BYTES >> 22))
            .output()?;
        ensure!(output.status.success(), "dd: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    fn mount(&mut self, model: &str, iopath: &Path, folder: &Path) -> Result<()> {
        let socket = folder.join("socket");
        let _ = fs::remove_file(&socket);
        let mut server = Command::new(iopath)
            .args(["serve", model, "--writable", "--unix"])
            .arg(&socket)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdout = server.stdout.take().context("the server has no output")?;
        self.children.push(server);
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let uri = line
            .split_whitespace()
            .find(|word| word.starts_with("nbd"))
            .context("the server prints no URI")?;
        fs::write(&self.backing_file, "")?;
        let fuse = Command::new("nbdfuse").args(["-C", "4"]).arg(&self.backing_file).arg(uri).spawn()?;
        self.children.push(fuse);
        let begun = Instant::now();
        while fs::metadata(&self.backing_file)?.len() == 0 {
            if begun.elapsed() > MOUNT_TIME {
                bail!("nbdfuse did not mount {}", self.backing_file.display());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let quiet = |program: &str, argument: &[&Path]| {
            let _ = Command::new(program).args(argument).stderr(Stdio::null()).status();
        };
        if self.file != Path::new("") {
            quiet("losetup", &["-d".as_ref(), &self.file]);
        }
        // The last close of the loop device may be a moment later.
        thread::sleep(Duration::from_millis(200));
        quiet("umount", &[&self.backing_file]);
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_file(&self.backing_file);
    }
}
