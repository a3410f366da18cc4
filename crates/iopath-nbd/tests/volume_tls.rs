//! Volumes on encrypted exports: of our own server, of nbdkit and of qemu-nbd. Certificates that do not fit are
//! refused.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{IoMode, Options, Unaligned, Volume};
use iopath_nbd::{ConnectOptions, Listen, ServeOptions, ServeTls, Served, Server, connect};

use crate::certificates::Certificates;
use crate::servers::listening_unless_ended;

const SIZE: u64 = 8 << 20;

/// A server on a unix socket and one on a port, over the same disk.
struct Setup {
    certificates: Certificates,
    disk: MemoryDisk,
    folder: tempfile::TempDir,
}

impl Setup {
    fn new() -> Self {
        let disk = MemoryDisk::new(&MemoryConfig::of_bytes(SIZE)).unwrap();
        Self { certificates: Certificates::new(), disk, folder: tempfile::tempdir().unwrap() }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn start(&self, listen: &Listen, is_encrypted: bool) -> Server {
        let open = Options::new().write(true).unaligned(Unaligned::Bounce);
        let volume = Volume::memory(&self.disk, &open).unwrap();
        let served =
            Served { name: "disk".to_owned(), description: String::new(), volume, is_writable: true };
        let tls =
            is_encrypted.then(|| ServeTls { server: self.certificates.server(true), is_required: true });
        Server::start(listen, &[served], &ServeOptions { tls, ..ServeOptions::default() }).unwrap()
    }

    fn start_unix(&self, is_encrypted: bool) -> Server {
        self.start(&Listen::Unix(self.socket()), is_encrypted)
    }

    fn uri(&self, certificates: &Certificates) -> String {
        let (socket, folder) = (self.socket(), certificates.folder());
        format!("nbds+unix:///disk?socket={}&tls-certificates={}", socket.display(), folder.display())
    }
}

fn open(uri: &str, options: &Options) -> Result<Volume, String> {
    let (uri, connect_options) = ConnectOptions::parse(uri).map_err(|error| error.to_string())?;
    let remote = connect(&uri, &connect_options).map_err(|error| error.to_string())?;
    Volume::remote(&remote, options).map_err(|error| error.to_string())
}

/// Bytes that differ from place to place.
fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at / 512 * 31 + at % 251) as u8 ^ seed).collect()
}

/// Writes and reads short and long ranges.
fn exercise(volume: &Volume, seed: u8) {
    for (offset, length) in [(0, 512), (4096, 5 << 20), (512, 70_000), (SIZE - 700, 700)] {
        let data = pattern(length, seed ^ offset as u8);
        volume.write_at(&data, offset).unwrap();
        let mut read = vec![0; length];
        volume.read_exact_at(&mut read, offset).unwrap();
        assert!(read == data, "other bytes at {offset} + {length}");
    }
    volume.flush().unwrap();
}

#[test]
fn every_path_reads_what_it_wrote_over_both_kinds_of_socket() {
    let setup = Setup::new();
    let _unix = setup.start_unix(true);
    let tcp = setup.start(&Listen::Tcp("127.0.0.1:0".parse().unwrap()), true);
    let [Listen::Tcp(address)] = tcp.places() else { panic!("a port") };
    let folder = setup.certificates.folder().display();
    for uri in [
        setup.uri(&setup.certificates),
        format!("nbds://localhost:{}/disk?tls-certificates={folder}&connections=3", address.port()),
        format!("nbds://127.0.0.1:{}/disk?tls-type=x509&tls-certificates={folder}", address.port()),
    ] {
        for mode in [IoMode::Direct, IoMode::Buffered] {
            let options = Options::new().mode(mode).write(true).unaligned(Unaligned::Bounce);
            let volume = open(&uri, &options).unwrap();
            exercise(&volume, 1);
            // Long reads and writes in both directions at once fill the sockets.
            std::thread::scope(|scope| {
                for part in 0..4 {
                    let volume = &volume;
                    scope.spawn(move || {
                        let (offset, data) = (part << 21, pattern(2 << 20, part as u8));
                        let mut read = vec![0; data.len()];
                        for _ in 0..4 {
                            volume.write_at(&data, offset).unwrap();
                            volume.read_exact_at(&mut read, offset).unwrap();
                            assert!(read == data, "other bytes in part {part}");
                        }
                    });
                }
            });
            volume.close().unwrap();
        }
    }
}

#[test]
fn a_restart_of_the_server_is_survived_with_encryption() {
    let setup = Setup::new();
    let mut server = Some(setup.start_unix(true));
    let volume = open(&setup.uri(&setup.certificates), &Options::new().write(true)).unwrap();
    let data = pattern(1 << 20, 5);
    volume.write_at(&data, 0).unwrap();
    volume.flush().unwrap();
    for _ in 0..3 {
        drop(server.take());
        let reader = std::thread::spawn({
            let volume = volume.clone();
            move || {
                let mut read = vec![0; 1 << 20];
                volume.read_exact_at(&mut read, 0).map(|()| read)
            }
        });
        std::thread::sleep(Duration::from_millis(100));
        server = Some(setup.start_unix(true));
        assert!(reader.join().unwrap().unwrap() == data, "other bytes after the restart");
    }
    volume.flush().unwrap();
}

#[test]
fn certificates_that_do_not_fit_are_refused() {
    let (setup, others) = (Setup::new(), Certificates::new());
    let _server = setup.start_unix(true);
    let refused = |uri: &str| open(uri, &Options::new()).expect_err("must be refused");
    let ours = setup.uri(&setup.certificates);
    // The server has a certificate of another authority.
    let error = refused(&setup.uri(&others));
    assert!(error.contains("TLS") && error.contains("nbds+unix:///disk"), "{error}");
    let error = refused(&format!("{ours}&tls-hostname=elsewhere.example"));
    assert!(error.contains("TLS"), "{error}");
    open(&format!("{ours}&tls-hostname=127.0.0.1"), &Options::new()).unwrap();
    // The server refuses the certificate of the client, verified or not.
    let error = refused(&format!("{}&tls-verify-peer=0", setup.uri(&others)));
    assert!(!error.is_empty());
    for name in ["client-cert.pem", "client-key.pem"] {
        std::fs::copy(setup.certificates.path(name), others.path(name)).unwrap();
    }
    refused(&setup.uri(&others));
    let volume = open(&format!("{}&tls-verify-peer=0", setup.uri(&others)), &Options::new()).unwrap();
    volume.read_exact_at(&mut [0; 4096], 0).unwrap();
    std::fs::remove_file(others.path("client-key.pem")).unwrap();
    let error = refused(&setup.uri(&others));
    assert!(error.contains("client-key.pem"), "{error}");
    let error = refused(&format!("nbds+unix:///disk?socket={}", setup.socket().display()));
    assert!(error.contains("tls-certificates"), "{error}");
}

#[test]
fn an_encrypted_client_never_continues_without_encryption() {
    let setup = Setup::new();
    let _server = setup.start_unix(false);
    let uri = setup.uri(&setup.certificates);
    let error = open(&uri, &Options::new()).expect_err("the server has no TLS");
    assert!(error.contains("no TLS"), "{error}");
    // Parameters of TLS without TLS, and kinds of TLS that are missing.
    for (uri, word) in [
        (uri.replace("nbds", "nbd"), "nbds"),
        (format!("{uri}&tls-type=psk"), "pre-shared keys"),
        (format!("{uri}&tls-psk-file=/keys"), "pre-shared keys"),
        (format!("{uri}&tls-verify-peer=perhaps"), "tls-verify-peer"),
    ] {
        let error = ConnectOptions::parse(&uri).expect_err(&uri).to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn exports_of_nbdkit_and_qemu_are_read_and_written_over_tls() {
    let setup = Setup::new();
    let folder = setup.certificates.folder().display().to_string();
    let image = setup.folder.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(SIZE).unwrap();
    let mut nbdkit = Command::new("nbdkit");
    let socket = setup.folder.path().join("nbdkit");
    nbdkit.args(["-f", "--exit-with-parent", "--tls=require", "--tls-verify-peer"]);
    nbdkit.arg(format!("--tls-certificates={folder}")).arg("-U").arg(&socket).arg("memory");
    nbdkit.arg(format!("{SIZE}"));
    let mut qemu = Command::new("qemu-nbd");
    let of_qemu = setup.folder.path().join("qemu");
    let credentials = format!("tls-creds-x509,id=tls,endpoint=server,dir={folder},verify-peer=yes");
    qemu.args(["--object", &credentials, "--tls-creds", "tls", "-t", "-f", "raw", "--shared", "4", "-k"]);
    qemu.arg(&of_qemu).arg(&image);
    for (command, socket) in [(&mut nbdkit, socket), (&mut qemu, of_qemu)] {
        let shown = format!("{command:?}");
        let _server = match listening_unless_ended(command, &socket) {
            Ok(Some(server)) => server,
            Ok(None) => continue,
            Err(status) => {
                eprintln!("skipped: {shown} ended: {status}");
                continue;
            }
        };
        let uri = format!("nbds+unix:///?socket={}&tls-certificates={folder}", socket.display());
        let options = Options::new().write(true).unaligned(Unaligned::Bounce);
        exercise(&open(&uri, &options).unwrap_or_else(|error| panic!("{command:?}: {error}")), 7);
    }
}
