//! One round: mounts a new volume, runs fsx on each of its files, unmounts it, and compares the backing file with the
//! content of the mounted files. The caller selects variant and seed.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::diagnosis::{backtrace, last_lines};
use super::scratch::JobFiles;
use super::server::Server;
use super::variant::Variant;

const TICK: Duration = Duration::from_millis(10);

/// Processes without progress for this time are reported as hanging.
const HANG: Duration = Duration::from_secs(30);

/// The byte that fills the backing file of a mapped volume before the round.
const STALE: u8 = 0x5a;

/// The programs of a round.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) server: PathBuf,
    pub(super) fsx: PathBuf,
}

/// Runs the operations of the variant from `seed`. Unmounts the volume, also after an error.
pub(super) fn run(
    programs: &Programs,
    files: &JobFiles,
    variant: &Variant,
    seed: u64,
    is_stopped: &dyn Fn() -> bool,
) -> Result<()> {
    let backing = files.backing(variant.medium)?;
    match fs::remove_file(&backing) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    if variant.stale_bytes() > 0 {
        fs::write(&backing, vec![STALE; variant.stale_bytes() as usize])?;
    }
    let directory = files.mount();
    let log = files.file("server.log");
    let server = Server::start(&programs.server, variant, &backing, &directory, &log)
        .context("the volume cannot be mounted")?;

    let mut workers = Workers::default();
    let config = files.file("fsx.toml");
    fs::write(&config, variant.fsx_config())?;
    for process in 0..variant.layout.processes {
        let name = process.to_string();
        let log = files.file(&format!("fsx-{name}.log"));
        let mut command = Command::new(&programs.fsx);
        command
            .args(["-S", &seed.wrapping_mul(variant.layout.processes).wrapping_add(process).to_string()])
            .args(["-N", &variant.layout.ops.to_string()])
            .arg("-f")
            .arg(&config)
            .arg("-P")
            .arg(files.directory())
            .arg(directory.join(&name))
            .env("RUST_BACKTRACE", "0")
            .stdout(Stdio::null())
            .stderr(File::create(&log)?);
        workers.start(command, format!("fsx on file {name}"), log)?;
    }
    let watched = workers.watch(HANG, is_stopped);
    let shown = files.file("shown");
    let watched = watched.and_then(|()| {
        let log = files.file("cat.log");
        let mut command = Command::new("cat");
        command
            .args((0..variant.layout.processes).map(|process| directory.join(process.to_string())))
            .stdout(File::create(&shown)?)
            .stderr(File::create(&log)?);
        workers.start(command, "cat of all files".to_owned(), log)?;
        workers.watch(HANG, is_stopped)
    });
    if let Err(error) = watched {
        let mut message = format!("{error:#}");
        if error.is::<Hung>() {
            message = format!("{message}; {}", backtrace(server.id(), &log));
        }
        let server_log = server.log_end();
        if !server_log.is_empty() {
            message = format!("{message}\nlog of the server: {server_log}");
        }
        // End the server first: a process that waits for the server cannot be killed.
        drop(server);
        drop(workers);
        bail!(message);
    }
    server.unmount()?;
    if variant.is_in_place() {
        compare(&backing, &shown, variant.mapper.is_none())?;
    }
    Ok(())
}

/// Checks that the backing file has the content of the files after the last flush. With `is_whole`, it must not be
/// longer.
fn compare(backing: &Path, shown: &Path, is_whole: bool) -> Result<()> {
    let (stored, shown) = (fs::read(backing)?, fs::read(shown)?);
    ensure!(
        stored.len() >= shown.len() && (!is_whole || stored.len() == shown.len()),
        "the backing file has {} bytes after the unmount, the volume had {}",
        stored.len(),
        shown.len()
    );
    let differing = stored.iter().zip(&shown).filter(|(stored, shown)| stored != shown).count();
    let first = stored.iter().zip(&shown).position(|(stored, shown)| stored != shown);
    match first {
        None => Ok(()),
        Some(offset) => bail!(
            "the backing file differs from the volume after flush and unmount: {differing} bytes, the first at \
             offset {offset}"
        ),
    }
}

/// Processes that use the mounted files. Drop kills them.
#[derive(Debug, Default)]
struct Workers {
    running: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    child: Child,
    name: String,
    log: PathBuf,
}

/// Processes without progress.
#[derive(Debug)]
struct Hung(String);

impl std::fmt::Display for Hung {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Hung {}

impl Workers {
    fn start(&mut self, mut command: Command, name: String, log: PathBuf) -> Result<()> {
        let child = command.stdin(Stdio::null()).process_group(0).spawn();
        let child = child.with_context(|| format!("cannot run {}", command.get_program().display()))?;
        self.running.push(Worker { child, name, log });
        Ok(())
    }

    /// Waits until all processes have ended. Returns an error, and does not end the processes, if one fails, if none
    /// makes progress for `hang`, or if `is_stopped`.
    fn watch(&mut self, hang: Duration, is_stopped: &dyn Fn() -> bool) -> Result<()> {
        let mut last = (0, Instant::now());
        while !self.running.is_empty() {
            ensure!(!is_stopped(), "stopped");
            let mut index = 0;
            while let Some(worker) = self.running.get_mut(index) {
                match worker.child.try_wait()? {
                    Some(status) if status.success() => drop(self.running.swap_remove(index)),
                    Some(status) => bail!(failure(worker, status)),
                    None => index += 1,
                }
            }
            let progress = self.running.iter().map(|worker| switches(worker.child.id())).sum();
            if progress != last.0 {
                last = (progress, Instant::now());
            } else if last.1.elapsed() > hang {
                let names: Vec<_> = self.running.iter().map(|worker| worker.name.as_str()).collect();
                bail!(Hung(format!("no progress for {} s: {} hang", hang.as_secs_f64(), names.join(", "))));
            }
            sleep(TICK);
        }
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.running {
            let _ = worker.child.kill();
        }
        for worker in &mut self.running {
            let _ = worker.child.wait();
        }
    }
}

/// The failure of a worker, with the first lines of its log. The rest of the log lists the last thousand operations.
fn failure(worker: &Worker, status: ExitStatus) -> String {
    let log = last_lines(&worker.log, usize::MAX);
    let lines: Vec<_> = log.lines().filter(|line| !line.is_empty()).take(4).collect();
    format!("{}: {status}; the whole log is in {}\n{}", worker.name, worker.log.display(), lines.join("\n"))
}

/// Context switches of a process: each operation on a mounted file increases them. See proc(5).
fn switches(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let count = |line: &str| line.split_once("ctxt_switches:")?.1.trim().parse::<u64>().ok();
    status.lines().filter_map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(script: &str, hang: Duration, is_stopped: bool) -> Result<()> {
        let scratch = tempfile::tempdir()?;
        let log = scratch.path().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", script]).stderr(File::create(&log)?);
        let mut workers = Workers::default();
        workers.start(command, "the script".to_owned(), log)?;
        workers.watch(hang, &|| is_stopped)
    }

    #[test]
    fn a_process_that_fails_is_an_error_with_its_first_lines() {
        let error = watch("echo miscompare >&2; exit 1", HANG, false).expect_err("it fails").to_string();
        assert!(error.contains("exit status: 1") && error.contains("miscompare"), "{error}");
    }

    #[test]
    fn only_processes_without_progress_hang() {
        let error = watch("exec sleep 60", Duration::from_millis(300), false).expect_err("it sleeps");
        assert!(error.is::<Hung>(), "{error}");
        watch("for i in 1 2 3 4 5 6; do sleep 0.1; done", Duration::from_millis(400), false)
            .expect("it makes progress");
    }

    #[test]
    fn a_stop_ends_the_wait() {
        let error = watch("exec sleep 60", HANG, true).expect_err("it is stopped").to_string();
        assert_eq!(error, "stopped");
    }

    #[test]
    fn an_outdated_backing_file_is_an_error() {
        let scratch = tempfile::tempdir().expect("a folder");
        let file = |name: &str, bytes: &[u8]| {
            let path = scratch.path().join(name);
            fs::write(&path, bytes).expect("a file");
            path
        };
        let shown = file("shown", b"abcdef");
        compare(&file("same", b"abcdef"), &shown, true).expect("the same bytes");
        compare(&file("longer", b"abcdefg"), &shown, false).expect("more bytes at the end");
        compare(&file("longer", b"abcdefg"), &shown, true).expect_err("not the same size");
        let error = compare(&file("old", b"abcxyf"), &shown, true).expect_err("other bytes").to_string();
        assert!(error.contains("2 bytes") && error.contains("offset 3"), "{error}");
    }
}
