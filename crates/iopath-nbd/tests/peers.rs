//! Our client with the servers of others: nbdkit with its filters, qemu-nbd, qemu-storage-daemon. Random operations
//! through a volume agree with a model, also while a server is killed and restarted. A test whose program is missing is
//! skipped with a line.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use iopath::{IoError, IoMode, Options, Unaligned, Volume};
use iopath_nbd::{ConnectOptions, NbdUri, Patience, Place, connect};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};
use tempfile::TempDir;

use crate::servers::listening;
use crate::support::Killed;

const SIZE: u64 = 16 << 20;

/// A server of another project, and its socket.
struct Peer {
    server: Option<Killed>,
    program: &'static str,
    arguments: Vec<String>,
    /// In the system's folder with a short path, since the paths of sockets have at most 107 bytes.
    folder: TempDir,
}

impl Peer {
    /// Starts `program`; `SOCKET` and `FILE` in the arguments are replaced. None: it is not installed.
    fn start(program: &'static str, arguments: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let [socket, file] = ["socket", "disk"].map(|name| folder.path().join(name));
        std::fs::File::create(&file).unwrap().set_len(SIZE).unwrap();
        let replaced = |argument: &&str| {
            argument.replace("SOCKET", socket.to_str().unwrap()).replace("FILE", file.to_str().unwrap())
        };
        let arguments: Vec<String> = arguments.iter().map(replaced).collect();
        let mut peer = Self { server: None, program, arguments, folder };
        peer.restart();
        peer.server.is_some().then_some(peer)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Kills the server, if it runs, and starts it.
    fn restart(&mut self) {
        drop(self.server.take());
        let _ = std::fs::remove_file(self.socket());
        let mut command = Command::new(self.program);
        self.server = listening(command.args(&self.arguments).stderr(Stdio::null()), &self.socket());
    }

    fn uri(&self, export: &str) -> NbdUri {
        NbdUri { place: Place::Unix(self.socket()), is_tls: false, export: export.to_owned() }
    }

    fn volume(&self, export: &str, options: &Options) -> Volume {
        let remote = connect(&self.uri(export), &ConnectOptions::default()).unwrap();
        Volume::remote(&remote, options).unwrap()
    }
}

fn writable() -> Options {
    Options::new().write(true).unaligned(Unaligned::Bounce)
}

/// Random reads, writes, zeroes and flushes in units of `block`, against a model.
fn exercise(volume: &Volume, block: u64, seed: u64, count: u32) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut model = vec![0; SIZE as usize];
    volume.write_at(&model, 0).unwrap();
    for _ in 0..count {
        let blocks = 1 + random.next_u64() % if random.next_u64().is_multiple_of(8) { 256 } else { 8 };
        let length = (blocks * block).min(SIZE);
        let offset = random.next_u64() % ((SIZE - length) / block + 1) * block;
        let range = offset as usize..(offset + length) as usize;
        match random.next_u64() % 8 {
            0..=2 => {
                let mut data = vec![0; length as usize];
                random.fill_bytes(&mut data);
                volume.write_at(&data, offset).unwrap();
                model[range].copy_from_slice(&data);
            }
            3 => {
                volume.write_zeroes(offset, length).unwrap();
                model[range].fill(0);
            }
            4 => volume.flush().unwrap(),
            _ => {
                let mut data = vec![1; length as usize];
                volume.read_exact_at(&mut data, offset).unwrap();
                assert!(data == model[range], "other bytes at {offset} + {length}, seed {seed}");
            }
        }
    }
    let mut data = vec![1; SIZE as usize];
    volume.read_exact_at(&mut data, 0).unwrap();
    assert!(data == model, "other bytes at the end, seed {seed}");
}

#[test]
fn random_operations_on_each_server_agree_with_a_model() {
    let size = SIZE.to_string();
    let servers: [(&'static str, &[&str], &str); 6] = [
        ("nbdkit", &["-f", "-U", "SOCKET", "memory", &size], ""),
        ("nbdkit", &["-f", "-U", "SOCKET", "file", "FILE"], ""),
        (
            "nbdkit",
            &["-f", "-U", "SOCKET", "--filter=delay", "memory", &size, "rdelay=1ms", "wdelay=1ms"],
            "",
        ),
        ("qemu-nbd", &["-t", "-f", "raw", "-k", "SOCKET", "FILE"], ""),
        ("qemu-nbd", &["-t", "-e", "8", "-f", "raw", "-k", "SOCKET", "-x", "disk", "FILE"], "disk"),
        (
            "qemu-storage-daemon",
            &[
                "--blockdev",
                "driver=file,node-name=f,filename=FILE",
                "--nbd-server",
                "addr.type=unix,addr.path=SOCKET",
                "--export",
                "type=nbd,id=e,node-name=f,name=disk,writable=on",
            ],
            "disk",
        ),
    ];
    for (seed, (program, arguments, export)) in servers.into_iter().enumerate() {
        let Some(peer) = Peer::start(program, arguments) else { continue };
        for mode in [IoMode::Direct, IoMode::Buffered] {
            let volume = peer.volume(export, &writable().mode(mode).cache_bytes(1 << 20));
            exercise(&volume, 512, seed as u64, 60);
            volume.close().unwrap();
        }
    }
}

#[test]
fn the_block_sizes_of_a_server_are_respected() {
    let size = SIZE.to_string();
    let policy = [
        "-f",
        "-U",
        "SOCKET",
        "--filter=blocksize-policy",
        "memory",
        &size,
        "blocksize-minimum=4096",
        "blocksize-preferred=65536",
        "blocksize-maximum=131072",
        "blocksize-error-policy=error",
    ];
    let Some(peer) = Peer::start("nbdkit", &policy) else { return };
    let volume = peer.volume("", &writable());
    assert_eq!((volume.facts().block_bytes, volume.facts().request_bytes_max), (4096, 131_072));
    exercise(&volume, 512, 1, 100);
}

#[test]
fn a_server_with_a_limited_rate_serves_every_request() {
    let size = SIZE.to_string();
    let arguments = ["-f", "-U", "SOCKET", "--filter=rate", "memory", &size, "rate=200M", "burstiness=0.1"];
    let Some(peer) = Peer::start("nbdkit", &arguments) else { return };
    exercise(&peer.volume("", &writable()), 512, 1, 40);
}

#[test]
fn errors_of_a_server_fail_their_request_only() {
    let size = SIZE.to_string();
    let arguments =
        ["-f", "-U", "SOCKET", "--filter=error", "memory", &size, "error-pread=EIO", "error-pread-rate=20%"];
    let Some(peer) = Peer::start("nbdkit", &arguments) else { return };
    let volume = peer.volume("", &writable());
    let data = vec![7; SIZE as usize];
    volume.write_at(&data, 0).unwrap();
    let (mut failed, mut read) = (0, vec![0; 4096]);
    for block in 0..400 {
        match volume.read_exact_at(&mut read, block * 4096) {
            Ok(()) => assert!(read == data[..4096]),
            Err(error) => {
                assert_eq!(error.errno(), IoError::Media.errno());
                failed += 1;
            }
        }
    }
    assert!((1..400).contains(&failed), "{failed} of 400 reads failed");
}

#[test]
fn a_server_that_leaves_further_connections_waiting_is_opened_soon() {
    let Some(peer) = Peer::start("qemu-nbd", &["-t", "-r", "-f", "raw", "-k", "SOCKET", "FILE"]) else {
        return;
    };
    let begun = Instant::now();
    let patience = Patience { connect: Duration::from_secs(600), ..Patience::default() };
    let options = ConnectOptions { connections: 4, patience, ..ConnectOptions::default() };
    let remote = connect(&peer.uri(""), &options).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(120), "opened after {:?}", begun.elapsed());
    assert!(remote.facts().is_read_only);
    Volume::remote(&remote, &Options::new()).unwrap().read_exact_at(&mut [0; 4096], 0).unwrap();
}

#[test]
fn the_last_connection_ends_with_the_volume() {
    let size = SIZE.to_string();
    let arguments = ["-f", "-U", "SOCKET", "--filter=exitlast", "memory", &size];
    // The test for the socket connects first, so the server may end before the volume is opened.
    let Some(mut peer) = Peer::start("nbdkit", &arguments) else { return };
    let Ok(remote) = connect(&peer.uri(""), &ConnectOptions::default()) else { return };
    let volume = Volume::remote(&remote, &Options::new()).unwrap();
    volume.read_exact_at(&mut [0; 4096], 0).unwrap();
    drop((volume, remote));
    let server = &mut peer.server.as_mut().unwrap().0;
    let end = Instant::now() + Duration::from_secs(60);
    while server.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end, "a connection remains");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The file keeps the writes of a killed server in the kernel, so all data must be there: a flush may still fail.
#[test]
fn random_operations_survive_a_server_that_is_killed_and_restarted() {
    let arguments = ["-f", "-U", "SOCKET", "file", "FILE"];
    let Some(mut peer) = Peer::start("nbdkit", &arguments) else { return };
    let volume = peer.volume("", &writable());
    let is_over = AtomicBool::new(false);
    let (mut restarts, mut losses) = (0, 0);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
            let mut model = vec![0; SIZE as usize];
            let mut lost = 0;
            while !is_over.load(Ordering::Relaxed) {
                let offset = random.next_u64() % (SIZE / 65536) * 65536;
                let range = offset as usize..offset as usize + 65536;
                match random.next_u64() % 8 {
                    0..=3 => {
                        let data = vec![random.next_u64() as u8; 65536];
                        volume.write_at(&data, offset).unwrap();
                        model[range].copy_from_slice(&data);
                    }
                    4 => match volume.flush() {
                        Ok(()) => {}
                        Err(error) => {
                            assert_eq!(error.errno(), IoError::Disconnected.errno(), "{error}");
                            lost += 1;
                        }
                    },
                    _ => {
                        let mut data = vec![1; 65536];
                        volume.read_exact_at(&mut data, offset).unwrap();
                        assert!(data == model[range], "other bytes at {offset}");
                    }
                }
            }
            let mut data = vec![1; SIZE as usize];
            volume.read_exact_at(&mut data, 0).unwrap();
            assert!(data == model, "other bytes at the end");
            lost
        });
        for _ in 0..8 {
            std::thread::sleep(Duration::from_millis(150));
            peer.restart();
            restarts += 1;
        }
        is_over.store(true, Ordering::Relaxed);
        losses = worker.join().unwrap();
    });
    assert!(losses > 0, "no flush of {restarts} restarts reported writes that may be lost");
}
