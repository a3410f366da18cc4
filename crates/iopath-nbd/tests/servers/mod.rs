//! Servers of other projects, as processes that end with their test.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::Killed;

/// Starts a server and waits until it listens on a unix socket. None, with a line on stderr: it is not installed, or it
/// ends because it lacks a feature.
pub(crate) fn listening(command: &mut Command, socket: &Path) -> Option<Killed> {
    let program = command.get_program().to_string_lossy().into_owned();
    let Ok(child) = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn() else {
        eprintln!("skipped: {program} is not installed");
        return None;
    };
    let (mut server, limit) = (Killed(child), Instant::now() + Duration::from_secs(60));
    while UnixStream::connect(socket).is_err() {
        if let Some(status) = server.0.try_wait().unwrap() {
            eprintln!("skipped: {command:?} ended: {status}");
            return None;
        }
        assert!(Instant::now() < limit, "{command:?} does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(server)
}
