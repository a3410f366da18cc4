//! Clients that stop in the middle of a message, or are slow: the others are served at all times, and the data of the
//! slow ones is right when they continue.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{IoMode, Options, Unaligned, Volume};
use iopath_nbd::{Listen, ServeOptions, Served, Server};

use crate::sockets::Raw;

const SIZE: u64 = 64 << 20;
const MIB: u32 = 1 << 20;

/// A server with one thread over a disk in memory.
struct Setup {
    server: Server,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Setup {
    fn new(options: ServeOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let disk = MemoryDisk::new(&MemoryConfig::of_bytes(SIZE)).unwrap();
        let open = Options::new().mode(IoMode::Direct).write(true).unaligned(Unaligned::Bounce);
        let volume = Volume::memory(&disk, &open).unwrap();
        let export =
            Served { name: "disk".to_owned(), description: String::new(), volume, is_writable: true };
        let socket = folder.path().join("socket");
        let options = ServeOptions { workers: 1, ..options };
        let server = Server::start(&Listen::Unix(socket.clone()), &[export], &options).unwrap();
        Self { server, socket, _folder: folder }
    }

    /// A server that waits long for slow clients.
    fn patient() -> Self {
        Self::new(ServeOptions { patience: Duration::from_secs(3600), ..ServeOptions::default() })
    }

    /// Waits until the server has noticed that clients left.
    fn wait_for_connections(&self, count: u32) {
        while self.server.totals().connections != count {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The byte at an offset.
fn byte(offset: u64) -> u8 {
    (offset >> 12) as u8 ^ (offset >> 20) as u8
}

fn bytes(offset: u64, length: u32) -> Vec<u8> {
    (offset..offset + u64::from(length)).map(byte).collect()
}

fn write(client: &mut Raw, offset: u64, data: &[u8]) {
    client.send(1, offset, offset, data.len() as u32);
    client.0.write_all(data).unwrap();
    assert_eq!(client.reply(), (0, offset));
}

/// Reads and writes as a client that came later, of one buffer and of several.
fn assert_served(socket: &Path) {
    let mut client = Raw::connect(socket);
    for length in [4096, MIB] {
        let offset = SIZE - u64::from(length);
        let data = vec![length as u8 ^ 7; length as usize];
        write(&mut client, offset, &data);
        client.send(0, 5, offset, length);
        assert_eq!(client.reply(), (0, 5));
        assert!(client.receive(length as usize) == data);
    }
}

#[test]
fn clients_that_do_not_read_leave_buffers_for_every_other_client() {
    let setup = Setup::patient();
    let mut client = Raw::connect(&setup.socket);
    let length = 128 << 10;
    let offset = |number: u64| number % 16 * u64::from(length);
    (0..16).for_each(|number| write(&mut client, offset(number), &bytes(offset(number), length)));
    drop(client);
    // The first two are alone when they come, and may hold half of the buffers each.
    let mut deaf = Vec::new();
    for count in 0..4 {
        setup.wait_for_connections(count);
        let mut client = Raw::connect(&setup.socket);
        (0..256).for_each(|number| client.send(0, number, offset(number), length));
        deaf.push(client);
        if count > 0 {
            assert_served(&setup.socket);
        }
    }
    for client in &mut deaf {
        for _ in 0..256 {
            let (error, number) = client.reply();
            assert_eq!(error, 0);
            assert!(client.receive(length as usize) == bytes(offset(number), length), "read {number}");
        }
    }
    assert_served(&setup.socket);
}

#[test]
fn more_slow_writers_than_buffers_leave_a_buffer_for_every_other_client() {
    let setup = Setup::patient();
    let length = 128 << 10;
    let mut slow: Vec<Raw> = (0..300).map(|_| Raw::connect(&setup.socket)).collect();
    for (number, client) in (0..).zip(&mut slow) {
        client.send(1, number, number * u64::from(length), length);
        client.0.write_all(&bytes(number * u64::from(length), 1000)).unwrap();
    }
    assert_served(&setup.socket);
    // All of them continue, one after the other.
    for (number, client) in (0..).zip(&mut slow) {
        let offset = number * u64::from(length);
        client.0.write_all(&bytes(offset + 1000, length - 1000)).unwrap();
        assert_eq!(client.reply(), (0, number));
        client.send(0, 9, offset, length);
        assert_eq!(client.reply(), (0, 9));
        assert!(client.receive(length as usize) == bytes(offset, length), "write {number}");
    }
}

#[test]
fn a_client_that_does_not_read_its_replies_can_still_send_a_write() {
    let setup = Setup::patient();
    let mut client = Raw::connect(&setup.socket);
    // The other connections make the share of this one small.
    let _others: Vec<Raw> = (0..300).map(|_| Raw::connect(&setup.socket)).collect();
    for number in 0..16 {
        client.send(0, number, 0, 128 << 10);
    }
    let data = vec![3; 4 << 20];
    client.send(1, 99, 0, data.len() as u32);
    client.0.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    client.0.write_all(&data).unwrap();
    let mut replies = Vec::new();
    for _ in 0..17 {
        let (error, cookie) = client.reply();
        assert_eq!(error, 0);
        if cookie != 99 {
            client.receive(128 << 10);
        }
        replies.push(cookie);
    }
    replies.sort_unstable();
    assert!(replies.into_iter().eq((0..16).chain([99])));
}

#[test]
fn a_client_that_drips_is_disconnected() {
    let patience = Duration::from_secs(1);
    let setup = Setup::new(ServeOptions { patience, ..ServeOptions::default() });
    let mut client = Raw::connect(&setup.socket);
    client.0.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    client.send(1, 0, 0, MIB);
    // Never silent for as long as the patience; 1 MiB would take hours.
    for _ in 0..6000 {
        let sent = client.0.write_all(b"x");
        let is_waiting = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        if sent.is_err() || !client.0.read(&mut [0; 1]).is_err_and(|error| is_waiting(&error)) {
            return;
        }
    }
    panic!("the client is still connected");
}
