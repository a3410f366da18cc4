//! A server without free descriptors. The only test of this program, because the limit is that of the process.

#![cfg(not(miri))]

use std::fs::File;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{Options, Volume};
use iopath_nbd::{Listen, Listener, ServeOptions, Served, Server, raise_descriptor_limit};
use rustix::process::{Resource, getrlimit, setrlimit};

#[test]
fn a_server_without_free_descriptors_says_so_once_and_goes_on_later() {
    let folder = tempfile::tempdir().unwrap();
    let volume = Volume::memory(&MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20)).unwrap(), &Options::new());
    let export = Served {
        name: "disk".to_owned(),
        description: String::new(),
        volume: volume.unwrap(),
        is_writable: false,
    };
    let socket = folder.path().join("socket");
    let exports = [export];
    let server = Server::start(&Listen::Unix(socket.clone()), &exports, &ServeOptions::default()).unwrap();
    let unused = Listener::bind(&Listen::Unix(folder.path().join("unused"))).unwrap();
    let greets = |mut stream: UnixStream| {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.read_exact(&mut [0; 18])
    };
    greets(UnixStream::connect(&socket).unwrap()).unwrap();
    while server.totals().connections > 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(100);
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut held: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    // A server that cannot have all of its descriptors does not start: with one of them, a thread would end unnoticed.
    held.pop();
    let workers = 1;
    let refused =
        Server::start_on(vec![unused], &exports, &ServeOptions { workers, ..ServeOptions::default() });
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()));
    // The listener of the refused server is closed, and its descriptor is free, too.
    held.extend(File::open("/dev/null"));
    let waiting = UnixStream::connect(&socket).unwrap();
    let (mut messages, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(60));
    while !messages.iter().any(|message: &String| message.contains("cannot accept connections")) {
        assert!(Instant::now() < deadline, "the server says nothing: {messages:?}");
        std::thread::sleep(Duration::from_millis(5));
        messages.extend(server.take_messages());
    }
    // Two further attempts, which are no news.
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(server.take_messages(), [""; 0]);
    drop(held);
    greets(waiting).unwrap();
    raise_descriptor_limit();
    assert_eq!(getrlimit(Resource::Nofile).current, limit.maximum);
}
