//! `iopath serve` as a process: its URI, its end on a signal, and targets that it refuses.

mod support;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdout, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use support::{iopath, scratch_directory};

struct Serving {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Serving {
    fn start(arguments: &[&str]) -> Self {
        let mut command = iopath(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Ends the process and returns its exit code and messages.
    fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (self.child.wait().unwrap().code(), stderr)
    }
}

#[test]
fn a_server_prints_its_uris_and_ends_on_a_signal() {
    let Some(folder) = scratch_directory() else { return };
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (one, two, socket) = (path("one"), path("two"), path("socket"));
    for file in [&one, &two] {
        std::fs::write(file, vec![7; 1 << 20]).unwrap();
    }
    for signal in [Signal::TERM, Signal::INT] {
        let mut serving = Serving::start(&["serve", &one, &two, "--export", "first", "--unix", &socket]);
        assert_eq!(serving.line(), format!("nbd+unix:///first?socket={socket}"));
        assert_eq!(serving.line(), format!("nbd+unix:///two?socket={socket}"));
        assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
        let (code, stderr) = serving.end(signal);
        assert_eq!(code, Some(0), "{stderr}");
        assert!(stderr.contains("served 0 connections"), "{stderr}");
        assert!(!std::path::Path::new(&socket).exists());
    }
    let mut serving = Serving::start(&["serve", &one, "--listen", "0"]);
    assert!(serving.line().starts_with("nbd://127.0.0.1:"));
    assert_eq!(serving.end(Signal::TERM).0, Some(0));
}

/// Writes a certificate that its own key signs, for both ends.
fn write_certificate(certificate: &str, key: &str) {
    let names = vec!["localhost".to_owned()];
    let issued = rcgen::generate_simple_self_signed(names).unwrap();
    std::fs::write(certificate, issued.cert.pem()).unwrap();
    std::fs::write(key, issued.signing_key.serialize_pem()).unwrap();
}

#[test]
fn a_server_with_a_certificate_refuses_plain_clients_unless_it_allows_them() {
    let Some(folder) = scratch_directory() else { return };
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, certificate, key) = (path("disk"), path("ca-cert.pem"), path("key.pem"));
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    write_certificate(&certificate, &key);
    let socket = path("socket");
    let tls = ["serve", &file, "--unix", &socket, "--tls-cert", &certificate, "--tls-key", &key];
    for (mode, accepts_plain, accepts_tls) in [
        (None, false, true),
        (Some("require"), false, true),
        (Some("allow"), true, true),
        (Some("off"), true, false),
    ] {
        let mode: Vec<&str> = mode.into_iter().flat_map(|mode| ["--tls", mode]).collect();
        let mut serving = Serving::start(&[&tls[..], &mode].concat());
        let uri = serving.line();
        let scheme = if accepts_tls { "nbds+unix" } else { "nbd+unix" };
        assert_eq!(uri, format!("{scheme}:///disk?socket={socket}"));
        let plain = format!("nbd+unix:///disk?socket={socket}");
        let encrypted =
            format!("nbds+unix:///disk?socket={socket}&tls-certificates={}", folder.path().display());
        for (uri, is_accepted) in [(plain, accepts_plain), (encrypted, accepts_tls)] {
            let Ok(output) = std::process::Command::new("nbdinfo").args(["--size", &uri]).output() else {
                eprintln!("skipped: nbdinfo is not installed");
                continue;
            };
            assert_eq!(output.status.success(), is_accepted, "{mode:?} {uri}: {output:?}");
        }
        assert_eq!(serving.end(Signal::TERM).0, Some(0));
    }
}

#[test]
fn targets_and_places_that_cannot_be_served_are_refused_by_name() {
    let Some(folder) = scratch_directory() else { return };
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let file = path("file");
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    for (arguments, expected) in [
        (vec!["serve", &path("none")], "none"),
        (vec!["serve", &file, &file], "two exports have the name"),
        (vec!["serve", &file, "--export", "a", "--export", "b"], "2 names for 1 targets"),
        (vec!["serve", &file, "--unix", &path("no/socket")], "cannot listen on"),
        (vec!["serve", &file, "--unix", &file], "cannot listen on"),
        (vec!["serve", &file, "--listen", "host:port:x"], "HOST:PORT"),
        (vec!["serve", &file, "--overwrite"], "--writable"),
        (vec!["serve", &file, "--tls", "require"], "--tls-cert"),
        (vec!["serve", &file, "--tls-cert", &file], "--tls-key"),
        (vec!["serve", &file, "--tls-cert", &file, "--tls-key", &file], "PEM"),
        (vec!["serve", &file, "--tls-cert", &path("none"), "--tls-key", &file], "PEM"),
    ] {
        let output = iopath(&arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains(expected), "{arguments:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    assert_eq!(std::fs::read(&file).unwrap().len(), 1 << 20, "a refused socket destroyed a file");
}
