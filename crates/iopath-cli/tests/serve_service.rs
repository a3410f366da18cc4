//! `iopath serve` as a service: sockets that a service manager or libnbd opened, and messages to the manager.

mod serving;
mod support;

use std::net::TcpListener;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serving::{Serving, client, succeeds};
use support::{iopath, scratch_directory};

const PROGRAM: &str = env!("CARGO_BIN_EXE_iopath");

fn disk(folder: &tempfile::TempDir) -> String {
    let file = folder.path().join("disk");
    std::fs::write(&file, (0..1 << 20).map(|at| (at / 5) as u8).collect::<Vec<u8>>()).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn libnbd_starts_the_server_by_socket_activation() {
    let Some(folder) = scratch_directory() else { return };
    let (file, copy) = (disk(&folder), folder.path().join("copy"));
    let copy = copy.to_str().unwrap();
    let Some(size) = succeeds("nbdinfo", &["--size", "--", "[", PROGRAM, "serve", &file, "]"]) else {
        return;
    };
    assert_eq!(size, "1048576\n");
    succeeds("nbdcopy", &["--", "[", PROGRAM, "serve", &file, "--path", "iopath-buffered", "]", copy]);
    assert!(std::fs::read(copy).unwrap() == std::fs::read(&file).unwrap());
    // The place is that of the socket.
    let refused = client("nbdinfo", &["--", "[", PROGRAM, "serve", &file, "--listen", "0", "]"]).unwrap();
    assert!(!refused.status.success());
}

#[test]
fn systemd_starts_the_server_at_the_first_connection() {
    let Some(folder) = scratch_directory() else { return };
    let (file, socket) = (disk(&folder), folder.path().join("socket"));
    let mut command = Command::new("systemd-socket-activate");
    // systemd has no port 0.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    command.arg("-l").arg(&socket).args(["-l", &address, PROGRAM, "serve", &file]);
    if Command::new("systemd-socket-activate").arg("--version").output().is_err() {
        eprintln!("skipped: systemd-socket-activate is not installed");
        return;
    }
    let serving = Serving::spawn(command);
    let limit = Instant::now() + Duration::from_secs(20);
    while UnixStream::connect(&socket).is_err() {
        assert!(Instant::now() < limit, "no socket");
        std::thread::sleep(Duration::from_millis(20));
    }
    for uri in [format!("nbd+unix:///?socket={}", socket.display()), format!("nbd://{address}/")] {
        if let Some(size) = succeeds("nbdinfo", &["--size", &uri]) {
            assert_eq!(size, "1048576\n");
        }
    }
    std::thread::sleep(Duration::from_millis(500));
    let (code, stderr) = serving.end(Signal::TERM);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(socket.exists(), "the socket belongs to systemd");
}

#[test]
fn the_service_manager_receives_ready_status_and_stopping() {
    let Some(folder) = scratch_directory() else { return };
    let (file, socket, manager) =
        (disk(&folder), folder.path().join("socket"), folder.path().join("manager"));
    let messages = UnixDatagram::bind(&manager).unwrap();
    messages.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let receive = || {
        let mut buffer = [0; 4096];
        let count = messages.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    };
    let mut command = iopath(&["serve", &file, "--unix", socket.to_str().unwrap()]);
    command.env("NOTIFY_SOCKET", &manager);
    let mut serving = Serving::spawn(command);
    let uri = serving.line();
    let ready = receive();
    assert!(ready.contains("READY=1\n") && ready.contains(&format!("STATUS=serving {uri}")), "{ready}");
    let client = UnixStream::connect(&socket).unwrap();
    let status = receive();
    assert!(status.contains("STATUS=1 clients, 0 IOPS"), "{status}");
    drop(client);
    assert_eq!(serving.end(Signal::TERM).0, Some(0));
    let last = std::iter::repeat_with(receive).find(|message| message.contains("STOPPING=1"));
    assert!(last.is_some());
}
