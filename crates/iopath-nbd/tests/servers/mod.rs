//! Servers of other projects, as processes that end with their test.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::support::Killed;

/// A server as soon as it listens; none, with a line on stderr, if its program is not installed.
pub(crate) fn listening(command: &mut Command, socket: &Path) -> Option<Killed> {
    let shown = format!("{command:?}");
    listening_unless_ended(command, socket).unwrap_or_else(|status| panic!("{shown} ended: {status}"))
}

/// [`listening`], or the status of a server that has ended before it listened, for programs without some function.
pub(crate) fn listening_unless_ended(
    command: &mut Command,
    socket: &Path,
) -> Result<Option<Killed>, ExitStatus> {
    let program = command.get_program().to_string_lossy().into_owned();
    let Ok(child) = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn() else {
        eprintln!("skipped: {program} is not installed");
        return Ok(None);
    };
    let (mut server, limit) = (Killed(child), Instant::now() + Duration::from_secs(60));
    while UnixStream::connect(socket).is_err() {
        if let Some(status) = server.0.try_wait().unwrap() {
            return Err(status);
        }
        assert!(Instant::now() < limit, "{command:?} does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(Some(server))
}
