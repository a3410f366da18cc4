//! Clients that send more than they read, and many connections in a short time: memory stays bounded, and other clients
//! are served.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{IoMode, Options, Unaligned, Volume};
use iopath_nbd::{ClientOperation, ClientOptions, Listen, ServeOptions, Served, Server};

use crate::sockets::Client;

/// A server over a disk in memory.
fn serve(folder: &Path, options: &ServeOptions) -> Server {
    let config = MemoryConfig { cache_bytes: 1 << 20, ..MemoryConfig::of_bytes(8 << 20) };
    let disk = MemoryDisk::new(&config).unwrap();
    let open = Options::new().mode(IoMode::Buffered).unaligned(Unaligned::Bounce);
    let volume = Volume::memory(&disk, &open).unwrap();
    let export = Served { name: "disk".to_owned(), description: String::new(), volume, is_writable: false };
    Server::start(&Listen::Unix(folder.join("socket")), &[export], options).unwrap()
}

/// Completes reads for `duration`. Returns their number and the longest.
fn read_for(client: &mut Client, duration: Duration) -> (u32, Duration) {
    let (end, mut count, mut longest) = (Instant::now() + duration, 0, Duration::ZERO);
    while Instant::now() < end {
        let started = Instant::now();
        client.execute(ClientOperation::Read { offset: 4096, length: 4096 }, &mut [0; 4096]).unwrap();
        longest = longest.max(started.elapsed());
        count += 1;
    }
    (count, longest)
}

#[test]
fn the_server_reads_a_bounded_number_of_requests_of_a_client_that_reads_no_replies() {
    let folder = tempfile::tempdir().unwrap();
    let _server = serve(folder.path(), &ServeOptions { workers: 1, ..ServeOptions::default() });
    let socket = folder.path().join("socket");
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    // Fixed newstyle without zeroes, and EXPORT_NAME: transmission with simple replies follows.
    stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x04disk").unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
    stream.set_nonblocking(true).unwrap();
    // Requests with an unknown command: each gets an error at once, without I/O.
    let requests = b"\x25\x60\x95\x13\0\0\0\x77cookie!!offset!!leng".repeat(1024);
    let (mut sent, mut full_since) = (0usize, None::<Instant>);
    let patience = Duration::from_secs(2);
    while full_since.is_none_or(|since| since.elapsed() < patience) {
        match stream.write(&requests[sent % 28..]) {
            Ok(count) => (sent, full_since) = (sent + count, None),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                full_since.get_or_insert_with(Instant::now);
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("{error}"),
        }
        assert!(sent < 16 << 20, "the server has read {sent} bytes of requests and keeps all replies");
    }
    let mut client = Client::connect(&socket, ClientOptions::export("disk"));
    assert!(read_for(&mut client, Duration::from_millis(100)).0 > 0);
}

#[test]
fn a_flood_of_connections_does_not_stop_a_client() {
    let folder = tempfile::tempdir().unwrap();
    let options = ServeOptions { workers: 2, connections_max: 64, ..ServeOptions::default() };
    let server = serve(folder.path(), &options);
    let socket = folder.path().join("socket");
    let mut client = Client::connect(&socket, ClientOptions::export("disk"));
    let duration = Duration::from_secs(2);
    let (connects, (reads, longest)) = std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let (end, mut connects) = (Instant::now() + duration, 0);
            // Up to 10,000 a second. The last ones stay half-open, without a byte.
            let mut open = std::collections::VecDeque::new();
            while Instant::now() < end {
                if let Ok(stream) = UnixStream::connect(&socket) {
                    connects += 1;
                    open.push_back(stream);
                }
                if open.len() > 32 {
                    open.pop_front();
                }
                if connects % 100 == 0 {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            connects
        });
        let read = read_for(&mut client, duration);
        (flood.join().unwrap(), read)
    });
    println!("{connects} connections in {duration:?}; {reads} reads, the longest {longest:?}");
    assert!(connects > 200, "{connects} connections are no flood");
    assert!(reads > 50, "{reads} reads during the flood");
    assert!(longest < Duration::from_secs(2), "a read waited for {longest:?}");
    let limit = Instant::now() + Duration::from_secs(20);
    while server.totals().connections > 1 {
        assert!(Instant::now() < limit, "connections of the flood are still counted");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn silent_handshakes_do_not_lock_out_a_client() {
    let folder = tempfile::tempdir().unwrap();
    let (connections_max, handshakes_max) = (4, 4);
    let options = ServeOptions { workers: 2, connections_max, handshakes_max, ..ServeOptions::default() };
    let server = serve(folder.path(), &options);
    let socket = folder.path().join("socket");
    let silent: Vec<_> = (0..100).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let mut clients: Vec<_> =
        (0..connections_max).map(|_| Client::connect(&socket, ClientOptions::export("disk"))).collect();
    for client in &mut clients {
        client.execute(ClientOperation::Read { offset: 0, length: 4096 }, &mut [0; 4096]).unwrap();
    }
    assert!(
        Client::try_connect(&socket, ClientOptions::export("disk")).is_none(),
        "the clients have a limit too"
    );
    assert!(server.totals().connections <= connections_max + handshakes_max);
    drop(silent);
}
