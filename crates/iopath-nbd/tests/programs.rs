//! Programs of others at the other end of the server or client: libnbd's nbdinfo and nbdcopy, qemu-img, fio, and the servers nbdkit and
//! qemu-nbd. A test whose program is missing is skipped with a line.

mod sockets;

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use iopath::{IoMode, Options, Unaligned, Volume};
use iopath_nbd::{
    BlockState, ClientOperation, ClientOptions, Listen, NbdUri, Place, ReplyFormat, ServeOptions, Served,
    Server,
};

use crate::sockets::Client;

const SIZE: usize = 4 << 20;

/// Bytes with a pattern, the second and third MiB zeroes.
fn pattern() -> Vec<u8> {
    let is_hole = |at: usize| (1 << 20..3 << 20).contains(&at);
    (0..SIZE).map(|at| if is_hole(at) { 0 } else { (at / 7) as u8 | 1 }).collect()
}

fn is_installed(program: &str) -> bool {
    let found =
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// Output of a program that must succeed.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// A server of ours over a sparse file.
struct Ours {
    folder: tempfile::TempDir,
    uri: String,
    _server: Server,
}

impl Ours {
    fn new(mode: IoMode) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (socket, file) = (folder.path().join("socket"), folder.path().join("disk"));
        let disk = std::fs::File::create(&file).unwrap();
        disk.set_len(SIZE as u64).unwrap();
        for at in [0, 3 << 20] {
            disk.write_all_at(&pattern()[at..at + (1 << 20)], at as u64).unwrap();
        }
        disk.sync_all().unwrap();
        let volume =
            Volume::open(&file, &Options::new().mode(mode).write(true).unaligned(Unaligned::Bounce)).unwrap();
        let (name, description) = ("disk one".to_owned(), "pattern".to_owned());
        let export = Served { name, description, volume, is_writable: true };
        let server =
            Server::start(&Listen::Unix(socket.clone()), &[export], &ServeOptions::default()).unwrap();
        let uri =
            NbdUri { place: Place::Unix(socket), is_tls: false, export: "disk one".to_owned() }.to_string();
        Self { folder, uri, _server: server }
    }

    /// A path in the folder of the server.
    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn fill(&self) {
        let mut client = Client::connect(Path::new(&self.path("socket")), ClientOptions::export(""));
        let write = ClientOperation::Write { offset: 0, length: SIZE as u32, fua: true };
        client.execute(write, &mut vec![9; SIZE]).unwrap();
    }

    /// The bytes of the export.
    fn bytes(&self) -> Vec<u8> {
        let mut client = Client::connect(Path::new(&self.path("socket")), ClientOptions::export(""));
        let mut bytes = vec![1; SIZE];
        client.execute(ClientOperation::Read { offset: 0, length: SIZE as u32 }, &mut bytes).unwrap();
        bytes
    }
}

/// A direct and a buffered server.
fn ours() -> [Ours; 2] {
    [IoMode::Direct, IoMode::Buffered].map(Ours::new)
}

#[test]
fn nbdinfo_prints_the_export_and_its_holes() {
    if !is_installed("nbdinfo") {
        return;
    }
    let ours = &ours()[0];
    let info = run("nbdinfo", &[&ours.uri]);
    for expected in [
        "disk one",
        "export-size: 4194304",
        "description: pattern",
        "base:allocation",
        "can_multi_conn: true",
    ] {
        assert!(info.contains(expected), "{expected} is missing in: {info}");
    }
    assert!(run("nbdinfo", &["--list", &ours.uri]).contains("disk one"));
    let map = run("nbdinfo", &["--map", &ours.uri]);
    let rows: Vec<Vec<&str>> = map.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(rows, [["0", "1048576", "0"], ["1048576", "2097152", "3"], ["3145728", "1048576", "0"]]);
}

#[test]
fn nbdcopy_copies_in_both_directions_and_keeps_holes() {
    if !is_installed("nbdcopy") {
        return;
    }
    for ours in ours() {
        let file = ours.path("copy");
        run("nbdcopy", &[&ours.uri, &file]);
        assert!(std::fs::read(&file).unwrap() == pattern());
        assert!(std::fs::metadata(&file).unwrap().blocks() * 512 < SIZE as u64, "holes became data");
        ours.fill();
        run("nbdcopy", &["--flush", &file, &ours.uri]);
        assert!(ours.bytes() == pattern());
    }
}

#[test]
fn qemu_img_converts_compares_and_maps() {
    if !is_installed("qemu-img") {
        return;
    }
    for ours in ours() {
        let (file, uri) = (ours.path("image"), &ours.uri);
        run("qemu-img", &["convert", "-f", "raw", "-O", "raw", uri, &file]);
        assert!(std::fs::read(&file).unwrap() == pattern());
        run("qemu-img", &["compare", "-f", "raw", "-F", "raw", uri, &file]);
        assert!(run("qemu-img", &["map", "-f", "raw", "--output=json", uri]).contains("\"length\": 2097152"));
        ours.fill();
        run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &file, uri]);
        assert!(ours.bytes() == pattern());
        run("qemu-img", &["bench", "-f", "raw", "-c", "200", "-d", "16", "-s", "4096", uri]);
    }
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !is_installed("fio") || !run("fio", &["--enghelp"]).contains("nbd") {
        return;
    }
    for ours in ours() {
        let uri = format!("--uri={}", ours.uri);
        let job =
            ["--name=v", "--ioengine=nbd", "--rw=randwrite", "--bs=512-300k", "--bs_unaligned", "--size=4m"];
        let checks = ["--iodepth=16", "--verify=crc32c", "--fsync=64", "--loops=4", &uri];
        run("fio", &[&job[..], &checks].concat());
    }
}

/// A server of others, killed on drop.
struct Peer(Child);

impl Peer {
    /// Starts a server and waits for its socket.
    fn start(program: &str, arguments: &[&str], socket: &Path) -> Self {
        let child = Command::new(program).args(arguments).stdout(Stdio::null()).spawn().unwrap();
        let peer = Self(child);
        let limit = Instant::now() + Duration::from_secs(20);
        while std::os::unix::net::UnixStream::connect(socket).is_err() {
            assert!(Instant::now() < limit, "{program} opened no socket");
            std::thread::sleep(Duration::from_millis(20));
        }
        peer
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes, zeroes and reads through the server at `socket`, in each format that a client can ask for.
fn exercise(socket: &Path, export: &str, has_allocation: bool) {
    for format in [ReplyFormat::Simple, ReplyFormat::Structured, ReplyFormat::Extended] {
        let mut client = Client::connect(socket, ClientOptions { format, ..ClientOptions::export(export) });
        assert_eq!(client.negotiated.size, SIZE as u64);
        let mut data = pattern()[..100_000].to_vec();
        client
            .execute(ClientOperation::Write { offset: 512, length: 100_000, fua: true }, &mut data)
            .unwrap();
        let zeroes = ClientOperation::WriteZeroes { offset: 8192, length: 8192, fua: false, no_hole: false };
        client.execute(zeroes, &mut []).unwrap();
        client.execute(ClientOperation::Flush, &mut []).unwrap();
        data[8192 - 512..16384 - 512].fill(0);
        let mut read = vec![1; 100_000];
        client.execute(ClientOperation::Read { offset: 512, length: 100_000 }, &mut read).unwrap();
        assert!(read == data, "other bytes than were written");
        if format != ReplyFormat::Simple && has_allocation {
            client.execute(ClientOperation::BlockStatus { offset: 0, length: SIZE as u64 }, &mut []).unwrap();
            let last = client.extents.last().unwrap();
            assert!(
                last.state.contains(BlockState::ZERO) && client.extents.len() > 1,
                "{:?}",
                client.extents
            );
        }
        client.execute(ClientOperation::Trim { offset: 0, length: 1 << 20, fua: false }, &mut []).unwrap();
    }
}

#[test]
fn a_client_works_with_nbdkit() {
    if !is_installed("nbdkit") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let _server = Peer::start("nbdkit", &["-f", "-U", socket.to_str().unwrap(), "memory", "4M"], &socket);
    exercise(&socket, "", true);
}

#[test]
fn a_client_works_with_qemu_nbd() {
    if !is_installed("qemu-nbd") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (socket, image) = (folder.path().join("socket"), folder.path().join("image"));
    std::fs::File::create(&image).unwrap().set_len(SIZE as u64).unwrap();
    let arguments = [
        "-f",
        "raw",
        "-k",
        socket.to_str().unwrap(),
        "-x",
        "name",
        "-t",
        "--discard=unmap",
        image.to_str().unwrap(),
    ];
    let _server = Peer::start("qemu-nbd", &arguments, &socket);
    exercise(&socket, "name", true);
}
