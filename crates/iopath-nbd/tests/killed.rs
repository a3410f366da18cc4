//! A server that is killed with SIGKILL: every byte that it acknowledged with a flush, or with forced unit access (FUA), is in
//! the file. The power of the machine stays on, so the page cache of the kernel survives; the page cache of the server does
//! not.
//!
//! `IOPATH_KILL_ROUNDS` sets the number of rounds, `IOPATH_KILL_SEED` the first seed.

mod sockets;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use iopath::{IoMode, Options, Unaligned, Volume};
use iopath_nbd::{ClientOperation, ClientOptions, Listen, ServeOptions, Served, Server};

use crate::sockets::Client;

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

/// The versions of a block. A version is a number that each sector of the block contains.
#[derive(Clone, Copy, Default)]
struct Versions {
    sent: u64,
    completed: u64,
    /// Acknowledged by a flush or with FUA.
    durable: u64,
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
    fn start_server(&self) -> Child {
        let mode = if self.seed.is_multiple_of(4) { "direct" } else { "buffered" };
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "server_process", "--ignored"])
            .env(FOLDER, self.folder)
            .env(MODE, mode)
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Writes and flushes until the server is gone. Each client writes its own blocks; a flush covers the blocks of all.
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
            let mut data: Vec<u8> = (version.to_le_bytes().into_iter()).cycle().take(count * BLOCK).collect();
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
            for sector in bytes.chunks(SECTOR) {
                let found = u64::from_le_bytes(sector[..8].try_into().unwrap());
                assert!(
                    block.durable <= found && found <= block.sent,
                    "seed {}: block {number} has version {found}; {} was acknowledged and {} sent",
                    self.seed,
                    block.durable,
                    block.sent
                );
            }
        }
        blocks.iter().filter(|block| block.durable > 0).count()
    }

    /// One round. Returns the number of blocks that the server acknowledged as durable.
    fn run(&self) -> usize {
        let disk = self.folder.join("disk");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&disk).unwrap();
        file.set_len((BLOCKS * BLOCK) as u64).unwrap();
        let socket = self.folder.join("socket");
        let _ = std::fs::remove_file(&socket);
        let mut server = self.start_server();
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
            server.kill().unwrap();
            server.wait().unwrap();
        });
        self.check(&file)
    }
}

#[test]
fn data_acknowledged_by_a_flush_or_fua_survives_a_killed_server() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
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
