//! `iopath serve --vhost-user` as a process: its socket, its end, and what it refuses. The device: `iopath-vhost`.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use crate::serving::Serving;
use crate::support::{iopath, scratch_directory, with_default_signals};
use rustix::process::Signal;

/// The features that the device offers.
fn features(socket: &str) -> u64 {
    let mut stream = UnixStream::connect(socket).unwrap();
    // GET_FEATURES, version 1, no payload.
    stream.write_all(&[1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).unwrap();
    u64::from_le_bytes(reply[12..].try_into().unwrap())
}

const READ_ONLY: u64 = 1 << 5;

#[test]
fn a_disk_is_served_until_a_signal() {
    let Some(folder) = scratch_directory() else { return };
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (disk, socket) = (path("disk"), path("socket"));
    std::fs::write(&disk, vec![7; 1 << 20]).unwrap();
    let arguments = ["serve", &disk, "--vhost-user", &socket, "--queues", "2"];
    for (signal, more, is_read_only) in [
        (Signal::TERM, &["--writable"][..], false),
        (Signal::INT, &["--path", "iopath-buffered", "--cache", "1m", "--elevator", "deadline"], true),
    ] {
        let mut serving = Serving::start(&[&arguments[..], more].concat());
        assert_eq!(serving.line(), socket);
        assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(features(&socket) & READ_ONLY != 0, is_read_only);
        let refused = iopath(&[&arguments[..], &["--share"]].concat()).output().unwrap();
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && message.contains(&socket), "a server listens: {message}");
        // A connected front end does not delay the end.
        let silent = UnixStream::connect(&socket).unwrap();
        let (code, stderr) = serving.end(signal);
        assert_eq!(code, Some(0), "{stderr}");
        assert!(stderr.contains("front ends, 0 requests"), "{stderr}");
        assert!(!Path::new(&socket).exists());
        drop(silent);
    }
}

#[test]
fn a_killed_server_leaves_a_socket_that_the_next_one_replaces() {
    let Some(folder) = scratch_directory() else { return };
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (disk, socket) = (path("disk"), path("socket"));
    std::fs::write(&disk, vec![7; 1 << 20]).unwrap();
    let arguments = ["serve", &disk, "--writable", "--vhost-user", &socket];
    let mut killed = Serving::start(&arguments);
    killed.line();
    drop(killed);
    assert!(Path::new(&socket).exists());
    let mut serving = Serving::start(&arguments);
    assert_eq!(serving.line(), socket);
    assert_ne!(features(&socket), 0);
    assert_eq!(serving.end(Signal::TERM).0, Some(0));
}

#[test]
fn a_disk_has_a_request_log_and_metrics() {
    let Some(folder) = scratch_directory() else { return };
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (disk, socket, log, metrics) = (path("disk"), path("socket"), path("log"), path("metrics.prom"));
    std::fs::write(&disk, vec![7; 1 << 20]).unwrap();
    let arguments = ["serve", &disk, "--vhost-user", &socket, "--log", &log, "--metrics", &metrics];
    let mut serving = Serving::start(&arguments);
    assert_eq!(serving.line(), socket);
    assert_ne!(features(&socket), 0);
    let (code, stderr) = serving.end(Signal::TERM);
    assert_eq!(code, Some(0), "{stderr}");
    let output = iopath(&["log", &log]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let metrics = std::fs::read_to_string(metrics).unwrap();
    assert!(metrics.contains("iopath_accepted_connections_total 1"), "{metrics}");
}

#[test]
fn many_queues_need_no_higher_limit_of_open_files() {
    let Some(folder) = scratch_directory() else { return };
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (disk, socket) = (path("disk"), path("socket"));
    std::fs::write(&disk, vec![7; 1 << 20]).unwrap();
    let serve = with_default_signals(&iopath(&["serve", &disk, "--vhost-user", &socket, "--queues", "40"]));
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -S -n 64; exec \"$0\" \"$@\""]).arg(serve.get_program());
    command.args(serve.get_args()).envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut serving = Serving::spawn(command);
    assert_eq!(serving.line(), socket);
    assert_eq!(serving.end(Signal::TERM).0, Some(0));
}

#[test]
fn a_disk_has_one_target_and_no_options_of_nbd() {
    let Some(folder) = scratch_directory() else { return };
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (disk, socket) = (path("disk"), path("socket"));
    std::fs::write(&disk, vec![7; 1 << 20]).unwrap();
    for (more, expected) in [
        (&["other"][..], "2 targets for one disk"),
        (&["--unix", "x"], "cannot be used with"),
        (&["--export", "x"], "cannot be used with"),
        (&["--queues", "0"], "invalid value"),
        (&["--queues", "257"], "invalid value"),
    ] {
        let arguments = [&["serve", &disk, "--vhost-user", &socket][..], more].concat();
        let refused = iopath(&arguments).output().unwrap();
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{more:?}: {message}");
        assert!(message.contains(expected), "{more:?}: {message}");
    }
    assert!(!Path::new(&socket).exists());
}
