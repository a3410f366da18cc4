//! The server of a round: the example `fuse_file` in a process of its own, mounted, and unmounted whatever happens.
//! What the processes on it do is in `round.rs`.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::variant::Variant;
use crate::workspace;

const TICK: Duration = Duration::from_millis(10);

/// How long the server may take to mount, and to write everything back after it was unmounted.
const PATIENCE: Duration = Duration::from_secs(60);

/// A mounted volume. Dropping it kills the server and unmounts; the data may be lost.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    directory: PathBuf,
    log: PathBuf,
}

impl Server {
    /// Starts `program` and returns when `directory` is mounted. Nothing is left behind if that fails.
    pub(super) fn start(
        program: &Path,
        variant: &Variant,
        backing: &Path,
        directory: &Path,
        log: &Path,
    ) -> Result<Self> {
        let stderr = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = Command::new(program)
            .args(variant.server_arguments())
            .args([backing, directory])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            // Out of reach of ctrl-C, which xtask handles.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let mut server = Self { child, directory: directory.to_owned(), log: log.to_owned() };
        let started = Instant::now();
        while !is_mounted(directory) {
            if let Some(status) = server.child.try_wait()? {
                bail!("{status}: {}", server.log_end());
            }
            if started.elapsed() > PATIENCE {
                bail!("nothing mounted after {} s: {}", PATIENCE.as_secs(), server.log_end());
            }
            sleep(TICK);
        }
        Ok(server)
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Unmounts and waits until the server has written everything back; an error if it failed or hangs.
    pub(super) fn unmount(mut self) -> Result<()> {
        let started = Instant::now();
        while is_mounted(&self.directory) && !unmount(&self.directory, false) {
            // Something may look into each new directory for a moment, an indexer for one.
            if started.elapsed() > Duration::from_secs(5) {
                bail!("{} cannot be unmounted", self.directory.display());
            }
            sleep(TICK);
        }
        match self.wait(PATIENCE)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("the server ended with {status}: {}", self.log_end()),
            None => {
                let trace = backtrace(self.id(), &self.log);
                bail!(
                    "the server hangs: it has not ended {} s after the unmount; {trace}",
                    PATIENCE.as_secs()
                )
            }
        }
    }

    fn wait(&mut self, patience: Duration) -> Result<Option<ExitStatus>> {
        let started = Instant::now();
        loop {
            let ended = self.child.try_wait()?;
            if ended.is_some() || started.elapsed() > patience {
                return Ok(ended);
            }
            sleep(TICK);
        }
    }

    /// The last lines that the server wrote.
    pub(super) fn log_end(&self) -> String {
        last_lines(&self.log, 8)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The kernel ends all requests with an error when the server is gone, so that nobody waits for one.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if is_mounted(&self.directory) && !unmount(&self.directory, true) {
            eprintln!("xtask: {} is still mounted; `umount -l` it", self.directory.display());
        }
    }
}

/// Why nothing can be mounted here, if so.
pub(super) fn missing() -> Option<&'static str> {
    if !Path::new("/dev/fuse").exists() {
        return Some("there is no /dev/fuse: `modprobe fuse`, or allow the device to the container");
    }
    let can_mount = workspace::is_root() || fusermount().is_some();
    (!can_mount).then_some("mounting needs root or fusermount3 (package fuse3)")
}

fn fusermount() -> Option<PathBuf> {
    ["fusermount3", "fusermount"].into_iter().find_map(workspace::find_program)
}

/// Unmounts; `lazily` also where a process has a file open. True if that was done.
pub(super) fn unmount(directory: &Path, lazily: bool) -> bool {
    let mut command = match fusermount() {
        Some(program) if !workspace::is_root() => {
            let mut command = Command::new(program);
            command.arg(if lazily { "-uz" } else { "-u" });
            command
        }
        _ => {
            let mut command = Command::new("umount");
            command.args(lazily.then_some("-l"));
            command
        }
    };
    let status = command.arg(directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    status.status().is_ok_and(|status| status.success())
}

/// Whether something is mounted on `directory`. Does not touch it: a stat waits for the server.
pub(super) fn is_mounted(directory: &Path) -> bool {
    mounted_below(directory).iter().any(|mounted| mounted == directory)
}

/// What is mounted on `directory` and below.
pub(super) fn mounted_below(directory: &Path) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mount_points(&mounts).filter(|mounted| mounted.starts_with(directory)).collect()
}

/// The second column of `proc_mounts(5)`, in which some characters are octal.
fn mount_points(mounts: &str) -> impl Iterator<Item = PathBuf> {
    let column = |line: &str| line.split(' ').nth(1).map(str::to_owned);
    mounts.lines().filter_map(column).map(|path| path.replace("\\040", " ").replace("\\134", "\\").into())
}

/// Where the threads of a process wait, written beside its log if gdb is here. Returns what to say about it.
pub(super) fn backtrace(process: u32, log: &Path) -> String {
    let path = log.with_extension("backtrace");
    let Some(gdb) = workspace::find_program("gdb") else {
        return "gdb is not installed, so there is no backtrace".to_owned();
    };
    let written = File::create(&path).and_then(|file| {
        Command::new(gdb)
            .args(["-batch", "-ex", "thread apply all backtrace", "-p", &process.to_string()])
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(Stdio::null())
            .status()
    });
    match written {
        Ok(_) => format!("where its threads wait is in {}", path.display()),
        Err(error) => format!("no backtrace: {error}"),
    }
}

/// The last `count` lines of a file.
pub(super) fn last_lines(path: &Path, count: usize) -> String {
    let text = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_mount_points_with_spaces() {
        let mounts = "proc /proc proc rw 0 0\niopath /a/b\\040c fuse rw 0 0\n";
        let points: Vec<_> = mount_points(mounts).collect();
        assert_eq!(points, [Path::new("/proc"), Path::new("/a/b c")]);
        assert!(!is_mounted(Path::new("/no/such/directory")));
    }

    #[test]
    fn a_server_that_ends_before_it_has_mounted_is_an_error_with_its_message() {
        let scratch = tempfile::tempdir().expect("a folder");
        let program = scratch.path().join("server");
        fs::write(&program, "#!/bin/sh\necho no such thing >&2\nexit 3\n").expect("a script");
        let mut permissions = fs::metadata(&program).expect("the script").permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
        fs::set_permissions(&program, permissions).expect("permissions");
        let variant = super::super::variant::all()[0];
        let log = scratch.path().join("log");
        let error = Server::start(&program, &variant, &log, scratch.path(), &log).expect_err("it ends");
        let message = error.to_string();
        assert!(message.contains("exit status: 3") && message.contains("no such thing"), "{message}");
    }
}
