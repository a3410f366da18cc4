//! The server of a round: the example `fuse_file` in a separate process, which mounts a volume. The volume is always
//! unmounted. The processes that use the volume are in `round.rs`.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::diagnosis::{backtrace, last_lines};
use super::mount::{is_mounted, unmount};
use super::variant::Variant;

const TICK: Duration = Duration::from_millis(10);

/// Time limit for mounting, and for the write-back after unmounting.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A mounted volume. Drop kills the server and unmounts; data may be lost.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    directory: PathBuf,
    log: PathBuf,
}

impl Server {
    /// Starts `program`, and returns when `directory` is mounted. After a failure, no process and no mount remains.
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
            // In a process group of its own, so that ctrl-C reaches only xtask, which ends the server.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let mut server = Self { child, directory: directory.to_owned(), log: log.to_owned() };
        let started = Instant::now();
        while !is_mounted(directory) {
            if let Some(status) = server.child.try_wait()? {
                bail!("{status}: {}", server.log_end());
            }
            if started.elapsed() > TIME_LIMIT {
                bail!("the server has not mounted after {} s: {}", TIME_LIMIT.as_secs(), server.log_end());
            }
            sleep(TICK);
        }
        Ok(server)
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Unmounts, and waits until the server has written back all data. Returns an error if the server fails or hangs.
    pub(super) fn unmount(mut self) -> Result<()> {
        let started = Instant::now();
        while is_mounted(&self.directory) && !unmount(&self.directory, false) {
            // Another program, such as an indexer, may briefly have the new directory open.
            if started.elapsed() > Duration::from_secs(5) {
                bail!("{} cannot be unmounted", self.directory.display());
            }
            sleep(TICK);
        }
        match self.wait(TIME_LIMIT)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("the server ended with {status}: {}", self.log_end()),
            None => {
                let trace = backtrace(self.id(), &self.log);
                bail!(
                    "the server hangs: it has not ended {} s after the unmount; {trace}",
                    TIME_LIMIT.as_secs()
                )
            }
        }
    }

    fn wait(&mut self, time_limit: Duration) -> Result<Option<ExitStatus>> {
        let started = Instant::now();
        loop {
            let ended = self.child.try_wait()?;
            if ended.is_some() || started.elapsed() > time_limit {
                return Ok(ended);
            }
            sleep(TICK);
        }
    }

    /// The last lines of the server's log.
    pub(super) fn log_end(&self) -> String {
        last_lines(&self.log, 8)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // When the server ends, the kernel fails all requests, so that no process waits.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if is_mounted(&self.directory) && !unmount(&self.directory, true) {
            let directory = self.directory.display();
            eprintln!("xtask: {directory} is still mounted; run `umount -l {directory}`");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_server_that_ends_before_mounting_is_an_error_with_its_message() {
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
