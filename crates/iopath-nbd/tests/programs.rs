//! Programs of others at the other end of the server or client: libnbd's nbdinfo and nbdcopy, qemu-img, fio, and the
//! servers nbdkit and qemu-nbd. A test whose program is missing is skipped with a line.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};

use iopath::{IoMode, Options, Unaligned, Volume};
use iopath_nbd::{
    BlockState, ClientOperation, ClientOptions, Listen, NbdUri, Place, ReplyFormat, ServeOptions, Served,
    Server, TransmissionFlags,
};

use crate::servers::listening;
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

/// Output of a program that must succeed. Its files in the current directory, such as the verify state of fio, are
/// outside of the tree.
fn run(program: &str, arguments: &[&str]) -> String {
    let output =
        Command::new(program).args(arguments).current_dir(env!("CARGO_TARGET_TMPDIR")).output().unwrap();
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
        let blocks = std::fs::metadata(ours.path("disk")).unwrap().blocks();
        assert!(blocks * 512 < SIZE as u64, "the copy of a sparse file occupies {blocks} sectors");
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

/// Runs a script with libnbd's module for Python. False: it is not installed.
fn python(script: &str, arguments: &[&str]) -> bool {
    const PYTHON: &str = "/usr/bin/python3";
    let found = Command::new(PYTHON).args(["-c", "import nbd"]).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        eprintln!("skipped: libnbd's module for Python is not installed");
        return false;
    }
    run(PYTHON, &[&["-c", script][..], arguments].concat());
    true
}

#[test]
fn libnbd_for_python_finds_holes_and_fast_zeroes_exact() {
    for ours in ours() {
        let script = r#"
import errno, nbd, sys
h = nbd.NBD()
h.add_meta_context("base:allocation")
h.connect_uri(sys.argv[1])
MIB = 1 << 20
def extents():
    found = []
    def extent(context, offset, entries, error):
        found.extend(zip(entries[::2], entries[1::2]))
    h.block_status(h.get_size(), 0, extent)
    return found
assert extents() == [(MIB, 0), (2 * MIB, 3), (MIB, 0)], extents()
h.pwrite(b"x" * 4096, 2 * MIB)
h.flush()
assert extents() == [(MIB, 0), (MIB, 3), (4096, 0), (MIB - 4096, 3), (MIB, 0)], extents()
assert h.can_fast_zero() and h.can_trim() and h.can_fua() and h.can_df() and h.can_cache()
h.zero(4096, 2 * MIB, nbd.CMD_FLAG_FAST_ZERO)
h.flush()
assert h.pread(4096, 2 * MIB) == bytes(4096)
assert extents() == [(MIB, 0), (2 * MIB, 3), (MIB, 0)], extents()
# Parts of blocks are written, which is not faster than a write.
try:
    h.zero(100, 5000, nbd.CMD_FLAG_FAST_ZERO)
    raise SystemExit("a slow write of zeroes was accepted as a fast one")
except nbd.Error as error:
    assert error.errno == "ENOTSUP", error.errno
h.zero(100, 5000)
assert h.pread(100, 5000) == bytes(100) and h.pread(1, 4999) != b"\0" and h.pread(1, 5100) != b"\0"
h.zero(65536, 131072, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FAST_ZERO)
assert h.pread(65536, 131072) == bytes(65536)
h.trim(MIB, 3 * MIB, nbd.CMD_FLAG_FUA)
assert extents()[-1] == (3 * MIB, 3), extents()
h.cache(MIB, 0)
def chunk(data, offset, status, error):
    assert len(data) in (65536, 4096) and offset >= 0
h.pread_structured(65536, 0, chunk, nbd.CMD_FLAG_DF)
h.shutdown()
"#;
        if !python(script, &[&ours.uri]) {
            return;
        }
    }
}

#[test]
fn fast_zeroes_are_offered_only_where_they_are_fast() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let disk =
        iopath::testing::MemoryDisk::new(&iopath::testing::MemoryConfig::of_bytes(SIZE as u64)).unwrap();
    let volume = Volume::memory(&disk, &Options::new().write(true)).unwrap();
    let served = Served { name: String::new(), description: String::new(), volume, is_writable: true };
    let _server = Server::start(&Listen::Unix(socket.clone()), &[served], &ServeOptions::default()).unwrap();
    let flags = Client::connect(&socket, ClientOptions::export("")).negotiated.flags;
    assert!(flags.contains(TransmissionFlags::SEND_WRITE_ZEROES));
    assert!(!flags.contains(TransmissionFlags::SEND_FAST_ZERO), "a disk in memory writes each zero");
}

#[test]
fn qemu_storage_daemon_writes_through_the_export() {
    if !is_installed("nbdcopy") {
        return;
    }
    for ours in ours() {
        let (file, again) = (ours.path("copy"), ours.path("again"));
        run("nbdcopy", &[&ours.uri, &file]);
        ours.fill();
        let node = format!(
            "driver=nbd,node-name=n,server.type=unix,server.path={},export=disk one",
            ours.path("socket")
        );
        let listen = format!("addr.type=unix,addr.path={again}");
        let export = "type=nbd,id=e,node-name=n,name=again,writable=on";
        let arguments = ["--blockdev", &node, "--nbd-server", &listen, "--export", export];
        let mut daemon = Command::new("qemu-storage-daemon");
        let Some(_daemon) = listening(daemon.args(arguments), Path::new(&again)) else { return };
        run("nbdcopy", &["--flush", &file, &format!("nbd+unix:///again?socket={again}")]);
        assert!(ours.bytes() == pattern());
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
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let mut nbdkit = Command::new("nbdkit");
    nbdkit.args(["-f", "-U", socket.to_str().unwrap(), "memory", "4M"]);
    let Some(_server) = listening(&mut nbdkit, &socket) else { return };
    exercise(&socket, "", true);
}

#[test]
fn a_client_works_with_qemu_nbd() {
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
    let Some(_server) = listening(Command::new("qemu-nbd").args(arguments), &socket) else { return };
    exercise(&socket, "name", true);
}
