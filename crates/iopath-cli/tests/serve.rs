//! `iopath serve` as a process: its URI, its end on a signal, and targets that it refuses.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;

use crate::serving::{Serving, client, succeeds};
use crate::support::{becomes_true, iopath, scratch_directory};
use rustix::process::{Pid, Signal, kill_process};

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
    let mut serving = Serving::start(&["serve", &one, &two, "--unix", &socket, "--json", "-"]);
    let mut json = String::new();
    while !json.ends_with("\n}\n") {
        json += &(serving.line() + "\n");
        assert!(json.len() < 10_000, "{json}");
    }
    let exports: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(exports["schema"], "iopath.serve/1");
    assert_eq!(exports["pid"], serving.child.id());
    assert_eq!(exports["exports"][1]["target"], two.as_str());
    assert_eq!(exports["exports"][1]["uri"], format!("nbd+unix:///two?socket={socket}"));
    assert_eq!(serving.end(Signal::TERM).0, Some(0));
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
            let Some(output) = client("nbdinfo", &["--size", &uri]) else { continue };
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

/// A client that asks for 8 MiB and does not read them.
fn deaf_client(socket: &str, export: &str) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    let mut sent = b"\0\0\0\x03IHAVEOPT\0\0\0\x01".to_vec();
    sent.extend((export.len() as u32).to_be_bytes());
    sent.extend(export.as_bytes());
    for cookie in 0..8u64 {
        sent.extend([0x25, 0x60, 0x95, 0x13, 0, 0, 0, 0]);
        sent.extend(cookie.to_be_bytes());
        sent.extend([0; 8]);
        sent.extend((1u32 << 20).to_be_bytes());
    }
    stream.write_all(&sent).unwrap();
    // The greeting, the reply to the option, and the start of the first reply.
    stream.read_exact(&mut [0; 18 + 10 + 16]).unwrap();
    stream
}

#[test]
fn the_first_signal_completes_requests_and_the_second_ends_the_server_at_once() {
    let Some(folder) = scratch_directory() else { return };
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, socket) = (path("disk"), path("socket"));
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    for reads_on in [true, false] {
        let mut serving = Serving::start(&["serve", &file, "--unix", &socket]);
        serving.line();
        let mut stream = deaf_client(&socket, "disk");
        let is_blocked = || rustix::io::ioctl_fionread(&stream).unwrap() > 64 << 10;
        assert!(becomes_true(is_blocked), "no replies fill the buffer of the socket");
        kill_process(Pid::from_child(&serving.child), Signal::TERM).unwrap();
        assert!(becomes_true(|| UnixStream::connect(&socket).is_err()), "the server still listens");
        assert!(serving.child.try_wait().unwrap().is_none(), "the server dropped replies");
        if reads_on {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            assert!(rest.len() > 1 << 20, "{} bytes after the signal", rest.len());
            assert_eq!(serving.child.wait().unwrap().code(), Some(0));
        } else {
            kill_process(Pid::from_child(&serving.child), Signal::TERM).unwrap();
            assert_eq!(serving.child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
            let _ = std::fs::remove_file(&socket);
        }
    }
}

#[test]
fn the_log_has_the_requests_of_each_client_as_a_stream() {
    let Some(folder) = scratch_directory() else { return };
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, socket, log) = (path("disk"), path("socket"), path("log"));
    std::fs::write(&file, vec![7; 4 << 20]).unwrap();
    let mut serving = Serving::start(&["serve", &file, "--unix", &socket, "--log", &log]);
    let uri = serving.line();
    for _ in 0..2 {
        if succeeds("nbdcopy", &["--connections=1", &uri, "null:"]).is_none() {
            return;
        }
    }
    let (code, stderr) = serving.end(Signal::TERM);
    assert_eq!(code, Some(0), "{stderr}");
    let output = iopath(&["log", &log, "--json"]).output().unwrap();
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let streams = summary["streams"].as_array().unwrap();
    let mut numbers: Vec<(u64, u64)> = streams
        .iter()
        .map(|stream| (stream["stream"].as_u64().unwrap(), stream["bytes"].as_u64().unwrap()))
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [(1, 4 << 20), (2, 4 << 20)], "{summary}");
    // The file of a user is not replaced.
    let refused = iopath(&["serve", &file, "--unix", &socket, "--log", &file, "--force"]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is the target"), "{refused:?}");
}

#[test]
fn a_file_is_served_by_one_writer_or_by_readers_unless_it_is_shared() {
    let Some(folder) = scratch_directory() else { return };
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let file = path("disk");
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    let sockets = ["first", "second", "third"].map(path);
    let serve = |socket: &str, more: &[&str]| {
        let mut serving = Serving::start(&[&["serve", &file, "--unix", socket], more].concat());
        assert!(serving.line().starts_with("nbd+unix:"), "{more:?}");
        serving
    };
    let refused = |arguments: &[&str], expected: &[&str]| {
        let output = iopath(arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{arguments:?}");
        for expected in expected {
            assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
        }
    };
    let writer = serve(&sockets[0], &["--writable"]);
    let named = [&*file, "is locked by", "--share"];
    refused(&["serve", &file, "--unix", &sockets[1], "--writable"], &named);
    refused(&["serve", &file, "--unix", &sockets[1]], &named);
    let run = ["run", "--path", "kernel-direct", "--rw", "write", "--overwrite", "--target", &file];
    refused(&run, &named[..2]);
    let shared = [serve(&sockets[1], &["--writable", "--share"]), serve(&sockets[2], &["--share"])];
    for server in shared.into_iter().chain([writer]) {
        assert_eq!(server.end(Signal::TERM).0, Some(0));
    }
    let readers = [serve(&sockets[0], &[]), serve(&sockets[1], &[])];
    refused(&["serve", &file, "--unix", &sockets[2], "--writable"], &named);
    for server in readers {
        assert_eq!(server.end(Signal::TERM).0, Some(0));
    }
    assert_eq!(serve(&sockets[0], &["--writable"]).end(Signal::TERM).0, Some(0));
}
