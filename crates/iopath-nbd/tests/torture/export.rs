//! The server of a trial. A server and its clients are in one process.

use std::sync::Mutex;

use iopath::elevator::ELEVATORS;
use iopath::testing::MemoryDisk;
use iopath::{IoMode, Options, Unaligned, Volume};
use iopath_nbd::{ConnectOptions, Listen, NbdUri, Place, ServeOptions, Served, Server, connect};
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use tempfile::TempDir;

use crate::backend::Export;
use crate::settings::pick;

/// A disk, and the way to serve it.
#[derive(Debug)]
struct Setup {
    disk: MemoryDisk,
    folder: TempDir,
    mode: IoMode,
    elevator: &'static str,
    workers: usize,
    connections: usize,
    server: Mutex<Option<Server>>,
}

/// A random setup of the server for this disk.
pub(crate) fn new(disk: MemoryDisk, random: &mut Xoshiro256PlusPlus) -> Box<dyn Export> {
    Box::new(Setup {
        disk,
        folder: tempfile::tempdir().expect("a folder for a socket"),
        mode: *pick(random, &[IoMode::Direct, IoMode::Buffered]),
        elevator: pick(random, ELEVATORS).name,
        workers: random.random_range(1..=2),
        connections: random.random_range(1..=3),
        server: Mutex::default(),
    })
}

impl Setup {
    fn start(&self, listen: &Listen) -> Server {
        let options = Options::new().mode(self.mode).elevator(self.elevator).write(true);
        let options = options.unaligned(Unaligned::Bounce).cache_bytes(128 << 10);
        let volume = Volume::memory(&self.disk, &options).expect("a volume on the disk");
        let served = Served { name: String::new(), description: String::new(), volume, is_writable: true };
        let options = ServeOptions { workers: self.workers, ..ServeOptions::default() };
        Server::start(listen, &[served], &options).expect("a server")
    }
}

impl Export for Setup {
    fn disk(&self) -> &MemoryDisk {
        &self.disk
    }

    fn open(&self, options: &Options) -> Volume {
        let socket = self.folder.path().join("socket");
        let mut server = self.server.lock().expect("no panic");
        server.get_or_insert_with(|| self.start(&Listen::Unix(socket.clone())));
        let uri = NbdUri { place: Place::Unix(socket), is_tls: false, export: String::new() };
        let connect_options = ConnectOptions { connections: self.connections, ..ConnectOptions::default() };
        let remote = connect(&uri, &connect_options).unwrap_or_else(|error| panic!("{error}"));
        Volume::remote(&remote, options).unwrap_or_else(|error| panic!("{error}"))
    }

    fn stop(&self) {
        drop(self.server.lock().expect("no panic").take());
    }

    fn is_cached(&self) -> bool {
        self.mode == IoMode::Buffered
    }
}
