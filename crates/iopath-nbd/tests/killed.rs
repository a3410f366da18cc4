//! A server that is killed with SIGKILL: every byte that it acknowledged with a flush, or with forced unit access
//! (FUA), is in the file. The power of the machine stays on, so the page cache of the kernel survives; the page cache
//! of the server does not. A second test restarts the server several times below a volume, which connects anew.
//!
//! `IOPATH_KILL_ROUNDS` sets the number of rounds, `IOPATH_KILL_SEED` the first seed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use iopath::{IoError, IoMode, Options, Unaligned, Volume};
use iopath_nbd::{
    ClientOperation, ClientOptions, ConnectOptions, Listen, NbdUri, Place, ServeOptions, Served, Server,
    connect,
};

use crate::sockets::Client;
use crate::support::Killed;

const BLOCK: usize = 4096;
const SECTOR: usize = 512;
const BLOCKS: usize = 256;
const CLIENTS: usize = 3;

/// The folder of the server process, with the file `disk` and the socket; absent in the process of the tests.
const FOLDER: &str = "IOPATH_KILL_FOLDER";
const MODE: &str = "IOPATH_KILL_MODE";

/// Runs only in the process that a round starts, until that process is killed.
#[test]
#[ignore = "the server process of the other test"]
fn server_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let mode = if std::env::var(MODE).unwrap() == "buffered" { IoMode::Buffered } else { IoMode::Direct };
    let options = Options::new().mode(mode).write(true).unaligned(Unaligned::Bounce).cache_bytes(4 << 20);
    let volume = Volume::open(folder.join("disk"), &options).unwrap();
    let export = Served { name: String::new(), description: String::new(), volume, is_writable: true };
    let options = ServeOptions { workers: 2, ..ServeOptions::default() };
    let _server = Server::start(&Listen::Unix(folder.join("socket")), &[export], &options).unwrap();
    loop {
        thread::park();
    }
}

/// Starts the process that serves `disk` in a folder.
fn start_server(folder: &Path, mode: &str) -> Killed {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "killed::server_process", "--ignored"]).env(FOLDER, folder).env(MODE, mode);
    Killed(command.stdout(Stdio::null()).spawn().unwrap())
}

/// A new file of zeroes for the server.
fn create_disk(folder: &Path) -> File {
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(true).open(folder.join("disk")).unwrap();
    file.set_len((BLOCKS * BLOCK) as u64).unwrap();
    file
}

/// The versions of a block. A version is a number that each sector of the block contains.
#[derive(Clone, Copy, Default)]
struct Versions {
    sent: u64,
    completed: u64,
    /// Acknowledged by a flush or with FUA.
    durable: u64,
}

impl Versions {
    /// Panics if a sector is older than the acknowledged version, or was never sent.
    fn check(&self, bytes: &[u8], what: &str) {
        let Self { sent, durable, .. } = self;
        for sector in bytes.chunks(SECTOR) {
            let found = u64::from_le_bytes(sector[..8].try_into().unwrap());
            assert!(
                (*durable..=*sent).contains(&found),
                "{what} has version {found}; {durable} was acknowledged and {sent} sent"
            );
        }
    }
}

/// Blocks with this version.
fn blocks_of(version: u64, count: usize) -> Vec<u8> {
    version.to_le_bytes().into_iter().cycle().take(count * BLOCK).collect()
}

struct Random(u64);

impl Random {
    /// A number below `end` (splitmix64).
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }
}

struct Round<'a> {
    folder: &'a Path,
    seed: u64,
    blocks: Mutex<[Versions; BLOCKS]>,
}

impl Round<'_> {
    /// Writes and flushes until the server is gone. Each client writes its own blocks; a flush covers the blocks of
    /// all.
    fn run_client(&self, number: usize, mut client: Client) -> Option<()> {
        let mut random = Random(self.seed << 8 | number as u64);
        let mut version = 0;
        loop {
            if random.below(8) == 0 {
                let covered = self.blocks.lock().unwrap().map(|block| block.completed);
                client.try_execute(ClientOperation::Flush, &mut [])?.unwrap();
                for (block, covered) in self.blocks.lock().unwrap().iter_mut().zip(covered) {
                    block.durable = block.durable.max(covered);
                }
                continue;
            }
            let count = 1 + random.below(4) as usize;
            let first =
                random.below((BLOCKS / CLIENTS - count) as u64) as usize + number * (BLOCKS / CLIENTS);
            let fua = random.below(8) == 0;
            version += 1;
            let blocks = first..first + count;
            self.blocks.lock().unwrap()[blocks.clone()].iter_mut().for_each(|block| block.sent = version);
            let mut data = blocks_of(version, count);
            let (offset, length) = ((first * BLOCK) as u64, data.len() as u32);
            client.try_execute(ClientOperation::Write { offset, length, fua }, &mut data)?.unwrap();
            for block in &mut self.blocks.lock().unwrap()[blocks] {
                block.completed = version;
                block.durable = if fua { version } else { block.durable };
            }
        }
    }

    /// Compares the file with the acknowledged versions. Returns the number of blocks with one.
    fn check(&self, file: &File) -> usize {
        let blocks = self.blocks.lock().unwrap();
        for (number, block) in blocks.iter().enumerate() {
            let mut bytes = [0; BLOCK];
            file.read_exact_at(&mut bytes, (number * BLOCK) as u64).unwrap();
            block.check(&bytes, &format!("seed {}: block {number} of the file", self.seed));
        }
        blocks.iter().filter(|block| block.durable > 0).count()
    }

    /// One round. Returns the number of blocks that the server acknowledged as durable.
    fn run(&self) -> usize {
        let file = create_disk(self.folder);
        let socket = self.folder.join("socket");
        let mode = if self.seed.is_multiple_of(4) { "direct" } else { "buffered" };
        let server = start_server(self.folder, mode);
        let limit = Instant::now() + Duration::from_secs(60);
        let connect = || loop {
            if let Some(client) = Client::try_connect(&socket, ClientOptions::export("")) {
                return client;
            }
            assert!(Instant::now() < limit, "seed {}: the server does not start", self.seed);
            thread::sleep(Duration::from_millis(2));
        };
        let clients: Vec<Client> = (0..CLIENTS).map(|_| connect()).collect();
        thread::scope(|scope| {
            for (number, client) in clients.into_iter().enumerate() {
                scope.spawn(move || self.run_client(number, client));
            }
            thread::sleep(Duration::from_micros(2000 + Random(self.seed).below(40_000)));
            drop(server);
        });
        self.check(&file)
    }
}

/// A number in the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn data_acknowledged_by_a_flush_or_fua_survives_a_killed_server() {
    let (rounds, first) = (number("IOPATH_KILL_ROUNDS", 20), number("IOPATH_KILL_SEED", 1));
    let folder = tempfile::tempdir().unwrap();
    let mut durable = 0;
    for seed in first..first + rounds {
        let blocks = Mutex::new([Versions::default(); BLOCKS]);
        durable += Round { folder: folder.path(), seed, blocks }.run();
    }
    println!("{rounds} rounds, {durable} blocks acknowledged as durable");
    assert!(durable > 0, "no round acknowledged any block");
}

/// A volume on the export, and the versions of its blocks.
struct Program {
    volume: Volume,
    is_cached: bool,
    random: Random,
    blocks: [Versions; BLOCKS],
    version: u64,
    /// Flushes that failed, because writes may be lost.
    losses: u64,
}

impl Program {
    fn write(&mut self, first: usize, count: usize, is_forced: bool) {
        self.version += 1;
        let blocks = &mut self.blocks[first..first + count];
        for block in blocks.iter_mut() {
            block.sent = self.version;
        }
        let (data, offset) = (blocks_of(self.version, count), (first * BLOCK) as u64);
        let written = if is_forced {
            self.volume.write_durably_at(&data, offset)
        } else {
            self.volume.write_at(&data, offset)
        };
        match written {
            Ok(()) => {
                for block in blocks {
                    block.completed = self.version;
                    block.durable = if is_forced { self.version } else { block.durable };
                }
            }
            // The forced write of a page cache ends in a flush, which reports losses.
            Err(error) => self.lose(&error),
        }
    }

    /// Flushes until no write can be lost.
    fn flush(&mut self) {
        while let Err(error) = self.volume.flush() {
            self.lose(&error);
        }
        self.blocks.iter_mut().for_each(|block| block.durable = block.durable.max(block.completed));
    }

    /// Writes each block again whose last write no flush has covered.
    fn lose(&mut self, error: &iopath::Error) {
        assert_eq!(error.errno(), IoError::Disconnected.errno(), "{error}");
        self.losses += 1;
        if self.is_cached {
            self.volume.accept_loss().unwrap();
        }
        for number in 0..BLOCKS {
            if self.blocks[number].sent > self.blocks[number].durable {
                self.write(number, 1, false);
            }
        }
    }

    fn read(&self, number: usize, seed: u64) {
        let mut bytes = [0; BLOCK];
        self.volume.read_exact_at(&mut bytes, (number * BLOCK) as u64).unwrap();
        self.blocks[number].check(&bytes, &format!("seed {seed}: block {number} of the volume"));
    }

    /// Random operations until `is_done`, then a flush.
    fn run(&mut self, seed: u64, is_done: impl Fn() -> bool) {
        while !is_done() {
            let count = 1 + self.random.below(4) as usize;
            let first = self.random.below((BLOCKS - count) as u64) as usize;
            match self.random.below(16) {
                0 => self.flush(),
                1 => self.write(first, count, true),
                2..=5 => self.read(first, seed),
                _ => self.write(first, count, false),
            }
        }
        self.flush();
    }
}

#[test]
fn a_volume_that_connects_anew_loses_nothing_that_a_flush_acknowledged() {
    let (rounds, first) = (number("IOPATH_KILL_ROUNDS", 6), number("IOPATH_KILL_SEED", 1));
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let uri = NbdUri { place: Place::Unix(socket.clone()), is_tls: false, export: String::new() };
    let mut losses = 0;
    for seed in first..first + rounds {
        // The paths of the server and of the volume.
        let serving = if seed.is_multiple_of(3) { "direct" } else { "buffered" };
        let mode = if seed.is_multiple_of(2) { IoMode::Direct } else { IoMode::Buffered };
        let file = create_disk(folder.path());
        let mut server = Some(start_server(folder.path(), serving));
        let limit = Instant::now() + Duration::from_secs(60);
        let remote = loop {
            match connect(&uri, &ConnectOptions::default()) {
                Ok(remote) => break remote,
                Err(error) => assert!(Instant::now() < limit, "seed {seed}: {error}"),
            }
            thread::sleep(Duration::from_millis(2));
        };
        let options = Options::new().mode(mode).write(true).cache_bytes(256 << 10);
        let volume = Volume::remote(&remote, &options).unwrap();
        let (random, is_cached) = (Random(seed), mode == IoMode::Buffered);
        let blocks = [Versions::default(); BLOCKS];
        let mut program = Program { volume, is_cached, random, blocks, version: 0, losses: 0 };
        thread::scope(|scope| {
            let killer = scope.spawn(|| {
                let mut random = Random(!seed);
                for _ in 0..3 {
                    thread::sleep(Duration::from_micros(2000 + random.below(60_000)));
                    drop(server.take());
                    server = Some(start_server(folder.path(), serving));
                }
            });
            program.run(seed, || killer.is_finished());
        });
        for number in 0..BLOCKS {
            program.read(number, seed);
        }
        drop(server);
        Round { folder: folder.path(), seed, blocks: Mutex::new(program.blocks) }.check(&file);
        losses += program.losses;
    }
    println!("{rounds} rounds, {losses} flushes reported a possible loss");
    assert!(losses > 0, "no flush reported a loss: no server was killed between a write and its flush");
}
