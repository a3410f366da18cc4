//! The server with TLS: our client and those of others, certificates of clients, and clients that are slow or hostile.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{Options, Unaligned, Volume};
use iopath_nbd::{
    ClientOperation, ClientOptions, Listen, ServeOptions, ServeTls, Served, Server, TlsClient, TlsError,
    TlsServer,
};

use crate::certificates::Certificates;
use crate::sockets::Client;

const SIZE: u64 = 8 << 20;

struct Setup {
    folder: tempfile::TempDir,
    server: Server,
}

impl Setup {
    fn new(options: &ServeOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { server: start(&Listen::Unix(folder.path().join("socket")), options), folder }
    }

    fn with(server: TlsServer, is_required: bool) -> Self {
        let tls = Some(ServeTls { server, is_required });
        Self::new(&ServeOptions { tls, ..ServeOptions::default() })
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn client(&self, tls: &TlsClient) -> Option<Client> {
        Client::connect_tls(&self.socket(), ClientOptions::export("disk"), tls)
    }
}

fn start(listen: &Listen, options: &ServeOptions) -> Server {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(SIZE)).unwrap();
    let volume = Volume::memory(&disk, &Options::new().write(true).unaligned(Unaligned::Bounce)).unwrap();
    let served = Served { name: "disk".to_owned(), description: String::new(), volume, is_writable: true };
    Server::start(listen, &[served], options).unwrap()
}

/// Writes and reads 3 MiB.
fn exercise(client: &mut Client) {
    let mut data: Vec<u8> = (0..3 << 20).map(|at: u32| (at % 253) as u8).collect();
    let length = data.len() as u32;
    client.execute(ClientOperation::Write { offset: 4096, length, fua: true }, &mut data).unwrap();
    let mut read = vec![0; data.len()];
    client.execute(ClientOperation::Read { offset: 4096, length }, &mut read).unwrap();
    assert!(read == data, "other bytes than were written");
}

#[test]
fn a_client_with_tls_reads_what_it_wrote() {
    let certificates = Certificates::new();
    for is_required in [false, true] {
        let setup = Setup::with(certificates.server(false), is_required);
        exercise(&mut setup.client(&certificates.client(false)).unwrap());
    }
}

#[test]
fn a_plain_client_is_refused_only_if_tls_is_required() {
    let certificates = Certificates::new();
    let setup = Setup::with(certificates.server(false), false);
    exercise(&mut Client::connect(&setup.socket(), ClientOptions::export("disk")));
    let setup = Setup::with(certificates.server(false), true);
    let socket = setup.socket();
    let refused = std::panic::catch_unwind(|| Client::connect(&socket, ClientOptions::export("disk")));
    assert!(refused.is_err(), "a plain client was accepted");
}

#[test]
fn a_server_that_asks_for_certificates_accepts_only_its_clients() {
    let (ours, others) = (Certificates::new(), Certificates::new());
    let setup = Setup::with(ours.server(true), true);
    exercise(&mut setup.client(&ours.client(true)).unwrap());
    assert!(setup.client(&ours.client(false)).is_none(), "a client without a certificate was accepted");
    let files = others.files("client");
    let stranger = TlsClient::load(&ours.path("ca-cert.pem"), Some(&files)).unwrap();
    assert!(setup.client(&stranger).is_none(), "a certificate of another authority was accepted");
    let messages = setup.server.take_messages();
    assert!(messages.iter().any(|message| message.contains("TLS")), "{messages:?}");
    // A client refuses a server of another authority, and the server goes on.
    assert!(setup.client(&others.client(true)).is_none());
    exercise(&mut setup.client(&ours.client(true)).unwrap());
}

#[test]
fn files_that_are_no_certificates_are_refused_by_name() {
    let certificates = Certificates::new();
    let mut files = certificates.files("server");
    files.certificate = certificates.path("server-key.pem");
    let error = TlsServer::load(&files, None).unwrap_err();
    assert!(matches!(error, TlsError::NoCertificate(_)), "{error}");
    let mut files = certificates.files("server");
    files.key = certificates.path("client-key.pem");
    let error = TlsServer::load(&files, None).unwrap_err();
    assert!(matches!(error, TlsError::Unusable { .. }), "{error}");
    files.key = certificates.path("none.pem");
    let error = TlsServer::load(&files, None).unwrap_err();
    assert!(error.to_string().contains("none.pem"), "{error}");
}

/// A client that has asked for TLS and has read the reply.
fn before_tls(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x05\0\0\0\0").unwrap();
    stream.read_exact(&mut [0; 18 + 20]).unwrap();
    stream
}

/// Waits until the server has closed `stream`, and returns the bytes that it sent.
fn read_to_close(mut stream: UnixStream) -> usize {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (mut buffer, mut total) = ([0; 4096], 0);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return total,
            Ok(count) => total += count,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return total,
            Err(error) => panic!("the connection is open: {error}"),
        }
    }
}

#[test]
fn clients_that_are_slow_or_hostile_in_the_handshake_are_closed_while_others_are_served() {
    let certificates = Certificates::new();
    let tls = Some(ServeTls { server: certificates.server(false), is_required: true });
    let patience = Duration::from_millis(600);
    let setup = Setup::new(&ServeOptions { tls, patience, workers: 1, ..ServeOptions::default() });
    let silent = before_tls(&setup.socket());
    let mut garbage = before_tls(&setup.socket());
    garbage.write_all(&[0x16; 600]).unwrap();
    // A record of 16 KiB that arrives byte by byte.
    let mut slow = before_tls(&setup.socket());
    slow.write_all(&[0x16, 3, 1, 0x3f, 0xff, 1]).unwrap();
    let mut client = setup.client(&certificates.client(false)).unwrap();
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        let _ = slow.write_all(&[0]);
        exercise(&mut client);
    }
    assert!(read_to_close(garbage) > 0, "no alert states the reason");
    for stream in [silent, slow] {
        read_to_close(stream);
    }
    let limit = Instant::now() + Duration::from_secs(10);
    while setup.server.totals().connections > 1 {
        assert!(Instant::now() < limit, "a closed connection is still counted");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_client_that_does_not_read_encrypted_replies_does_not_stop_others() {
    let certificates = Certificates::new();
    let tls = Some(ServeTls { server: certificates.server(false), is_required: true });
    let patience = Duration::from_secs(2);
    let setup = Setup::new(&ServeOptions { tls, patience, workers: 1, ..ServeOptions::default() });
    let mut deaf = setup.client(&certificates.client(false)).unwrap();
    for _ in 0..100 {
        deaf.send_only(ClientOperation::Read { offset: 0, length: 1 << 20 });
    }
    exercise(&mut setup.client(&certificates.client(false)).unwrap());
    let limit = Instant::now() + Duration::from_secs(20);
    while setup.server.totals().connections > 0 {
        assert!(Instant::now() < limit, "a client that does not read is still connected");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Output of a program that must succeed; `None` if it is missing.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let Ok(output) = Command::new(program).args(arguments).output() else {
        eprintln!("skipped: {program} is not installed");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {text}{errors}");
    Some(text)
}

/// Servers with TLS that ask for a certificate, on a unix socket and a TCP port, and the URIs of libnbd for them.
fn of_libnbd(certificates: &Certificates, folder: &Path) -> Vec<(Server, String)> {
    let tls = Some(ServeTls { server: certificates.server(true), is_required: true });
    let options = ServeOptions { tls, ..ServeOptions::default() };
    let directory = certificates.folder().display();
    let unix = start(&Listen::Unix(folder.join("socket")), &options);
    let of_unix =
        format!("nbds+unix:///disk?socket={}/socket&tls-certificates={directory}", folder.display());
    let tcp = start(&Listen::Tcp(([127, 0, 0, 1], 0).into()), &options);
    let [Listen::Tcp(address)] = tcp.places() else { panic!("a port") };
    let of_tcp = format!("nbds://localhost:{}/disk?tls-certificates={directory}", address.port());
    vec![(unix, of_unix), (tcp, of_tcp)]
}

#[test]
fn libnbd_copies_in_both_directions_over_tls() {
    let (certificates, folder) = (Certificates::new(), tempfile::tempdir().unwrap());
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let data: Vec<u8> = (0..SIZE).map(|at| (at / 7) as u8).collect();
    std::fs::write(path("from"), &data).unwrap();
    for (server, uri) in of_libnbd(&certificates, folder.path()) {
        let Some(info) = run("nbdinfo", &[&uri]) else { return };
        assert!(info.contains("TLS") && info.contains("export-size: 8388608"), "{info}");
        run("nbdcopy", &["--flush", &path("from"), &uri]);
        run("nbdcopy", &[&uri, &path("to")]);
        assert!(std::fs::read(path("to")).unwrap() == data, "{uri}: other bytes");
        assert!(server.totals().accepted > 2);
    }
}

#[test]
fn qemu_reads_and_writes_over_tls() {
    let (certificates, folder) = (Certificates::new(), tempfile::tempdir().unwrap());
    let servers = of_libnbd(&certificates, folder.path());
    let [Listen::Tcp(address)] = servers[1].0.places() else { panic!("a port") };
    let credentials =
        format!("tls-creds-x509,id=tls,endpoint=client,dir={}", certificates.folder().display());
    let image = format!(
        "driver=nbd,server.type=inet,server.host=localhost,server.port={},export=disk,tls-creds=tls",
        address.port()
    );
    let arguments = ["info", "--object", &credentials, "--image-opts", &image];
    let Some(info) = run("qemu-img", &arguments) else { return };
    assert!(info.contains("8388608"), "{info}");
    let from = folder.path().join("from");
    std::fs::write(&from, (0..SIZE).map(|at| (at / 11) as u8).collect::<Vec<u8>>()).unwrap();
    let from = format!("driver=raw,file.driver=file,file.filename={}", from.display());
    let options = ["--object", &credentials, "--image-opts"];
    let convert = ["-n", "--target-image-opts", &from, &image];
    run("qemu-img", &[&["convert"][..], &options, &convert].concat());
    run("qemu-img", &[&["compare"][..], &options, &[&from, &image]].concat());
}
