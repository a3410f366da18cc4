//! `iopath serve` as a service: sockets that a service manager or libnbd opened, and messages to the manager.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::serving::{Serving, client, succeeds};
use crate::support::{iopath, scratch_directory};
use rustix::process::{Pid, Signal, kill_process};

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
    greets(&socket);
    for uri in [format!("nbd+unix:///?socket={}", socket.display()), format!("nbd://{address}/")] {
        if let Some(size) = succeeds("nbdinfo", &["--size", &uri]) {
            assert_eq!(size, "1048576\n");
        }
    }
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
    messages.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
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

/// Starts a shell that starts a server in the background and writes its process id.
fn shell_with_server(script: &str, arguments: &[&str], stdin: Option<UnixListener>) -> (Child, Pid) {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, PROGRAM]).args(arguments).env_remove("SYSTEMD_EXEC_PID");
    shell.stdin(stdin.map_or_else(Stdio::null, |listener| OwnedFd::from(listener).into()));
    let mut shell = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (shell, Pid::from_raw(line.trim().parse().unwrap()).unwrap())
}

/// The messages up to the end of every process that has the pipe, the server among them.
fn read_to_end(mut pipe: impl Read + Send + 'static, server: Option<Pid>) -> String {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        let _ = pipe.read_to_string(&mut text);
        let _ = sender.send(text);
    });
    receiver.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| {
        let _ = server.map(|server| kill_process(server, Signal::KILL));
        panic!("the server outlived its parent");
    })
}

/// Waits until the server answers.
fn greets(socket: &Path) {
    let limit = Instant::now() + Duration::from_secs(60);
    let mut greeting = [0; 18];
    while UnixStream::connect(socket).and_then(|mut stream| stream.read_exact(&mut greeting)).is_err() {
        assert!(Instant::now() < limit, "no server");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
}

const OWN_SOCKET: &str = r#""$0" serve "$1" --unix "$2" --exit-with-parent >/dev/null & echo $!; wait"#;

/// Passes a socket that listens, as libnbd and systemd do.
const PASSED_SOCKET: &str = r#"exec 3<&0
sh -c 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" serve "$1"' "$0" "$1" & echo $!; wait"#;

#[test]
fn a_server_that_its_parent_started_for_itself_ends_with_it() {
    let Some(folder) = scratch_directory() else { return };
    let (file, socket) = (disk(&folder), folder.path().join("socket"));
    for (script, is_passed) in [(OWN_SOCKET, false), (PASSED_SOCKET, true)] {
        let _ = std::fs::remove_file(&socket);
        let listener = is_passed.then(|| UnixListener::bind(&socket).unwrap());
        let (mut shell, server) = shell_with_server(script, &[&file, socket.to_str().unwrap()], listener);
        greets(&socket);
        shell.kill().unwrap();
        shell.wait().unwrap();
        let messages = read_to_end(shell.stderr.take().unwrap(), Some(server));
        assert!(messages.contains("iopath: served 1 connections"), "{messages}");
    }
}

/// The variable says that systemd started this process, not one of its parents.
#[test]
fn a_server_of_a_service_manager_goes_on_without_it() {
    let Some(folder) = scratch_directory() else { return };
    let (file, socket, other) = (disk(&folder), folder.path().join("socket"), folder.path().join("other"));
    let managed = PASSED_SOCKET.replace("LISTEN_FDS=1", "LISTEN_FDS=1 SYSTEMD_EXEC_PID=$$");
    let start = |script: &str, socket: &Path| {
        let started = shell_with_server(script, &[&file], Some(UnixListener::bind(socket).unwrap()));
        greets(socket);
        started
    };
    let ((mut shell, server), (mut without, ends)) = (start(&managed, &socket), start(PASSED_SOCKET, &other));
    for shell in [&mut shell, &mut without] {
        shell.kill().unwrap();
        shell.wait().unwrap();
    }
    // When a server without a manager has found its parent gone, the other one has checked as well.
    read_to_end(without.stderr.take().unwrap(), Some(ends));
    greets(&socket);
    kill_process(server, Signal::TERM).unwrap();
    let messages = read_to_end(shell.stderr.take().unwrap(), Some(server));
    assert!(messages.contains("iopath: served 2 connections"), "{messages}");
}

#[test]
fn a_client_that_fails_before_it_reads_leaves_no_server() {
    let Some(folder) = scratch_directory() else { return };
    let file = disk(&folder);
    let mut command = Command::new("nbdcopy");
    command.args(["--", "[", PROGRAM, "serve", &file, "]", "/nonexistent/copy"]);
    let Ok(mut client) = command.stderr(Stdio::piped()).spawn() else {
        eprintln!("skipped: nbdcopy is not installed");
        return;
    };
    let stderr = client.stderr.take().unwrap();
    assert!(!client.wait().unwrap().success());
    // The server has the pipe as long as it runs.
    let messages = read_to_end(stderr, None);
    assert!(messages.contains("/nonexistent/copy"), "{messages}");
}
