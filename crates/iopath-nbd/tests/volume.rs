//! Volumes on exports of our own server: data of every path, limits, errors of single requests, and connections that
//! end.

use std::time::Duration;

use iopath::stripe::Member;
use iopath::testing::{Fault, Faults, MemoryConfig, MemoryDisk};
use iopath::{IoError, IoMode, Op, Options, Unaligned, Volume};
use iopath_nbd::{ConnectOptions, Listen, NbdUri, Patience, Place, ServeOptions, Served, Server, connect};
use tempfile::TempDir;

const SIZE: u64 = (8 << 20) + 1000;

/// A server over a disk in memory.
struct Setup {
    folder: TempDir,
    disk: MemoryDisk,
    faults: Faults,
    server: Option<Server>,
    listen: Listen,
}

impl Setup {
    fn new(listen: impl Fn(&TempDir) -> Listen) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = MemoryConfig { cache_bytes: 1 << 20, ..MemoryConfig::of_bytes(SIZE) };
        let disk = MemoryDisk::new(&config).unwrap();
        let listen = listen(&folder);
        let mut setup = Self { folder, disk, faults: Faults::new(1), server: None, listen };
        setup.start();
        setup
    }

    fn unix() -> Self {
        Self::new(|folder| Listen::Unix(folder.path().join("socket")))
    }

    fn start(&mut self) {
        let open = Options::new().write(true).unaligned(Unaligned::Bounce).faults(&self.faults);
        let volume = Volume::memory(&self.disk, &open).unwrap();
        let served = |name: &str, is_writable| Served {
            name: name.to_owned(),
            description: String::new(),
            volume: volume.clone(),
            is_writable,
        };
        let served = [served("disk", true), served("fixed", false)];
        let started = Server::start(&self.listen, &served, &ServeOptions::default()).unwrap();
        self.listen = started.places()[0].clone();
        self.server = Some(started);
    }

    fn stop(&mut self) {
        drop(self.server.take());
    }

    fn uri(&self, export: &str) -> NbdUri {
        let place = match &self.listen {
            Listen::Unix(path) => Place::Unix(path.clone()),
            Listen::Tcp(address) => Place::Tcp { host: address.ip().to_string(), port: address.port() },
        };
        NbdUri { place, is_tls: false, export: export.to_owned() }
    }

    fn volume(&self, options: &Options) -> Volume {
        let remote = connect(&self.uri("disk"), &ConnectOptions::default()).unwrap();
        Volume::remote(&remote, options).unwrap()
    }
}

/// Bytes that differ from place to place.
fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at / 512 * 31 + at % 251) as u8 ^ seed).collect()
}

#[test]
fn every_path_reads_what_it_wrote_over_both_kinds_of_socket() {
    let tcp = |_: &TempDir| Listen::Tcp("127.0.0.1:0".parse().unwrap());
    for setup in [Setup::unix(), Setup::new(tcp)] {
        for mode in [IoMode::Direct, IoMode::Raw, IoMode::Buffered] {
            for elevator in ["none", "deadline"] {
                let options =
                    Options::new().mode(mode).write(true).unaligned(Unaligned::Bounce).elevator(elevator);
                let volume = setup.volume(&options);
                assert_eq!(volume.facts().engine, "remote");
                // The last block is not whole: a raw volume reads whole blocks only.
                let last =
                    if mode == IoMode::Raw { (SIZE / 512 * 512 - 512, 512) } else { (SIZE - 700, 700) };
                for (offset, length) in [(0, 512), (4096, 5 << 20), (512, 70_000), last] {
                    let data = pattern(length, offset as u8);
                    volume.write_at(&data, offset).unwrap();
                    let mut read = vec![0; length];
                    volume.read_exact_at(&mut read, offset).unwrap();
                    assert!(read == data, "{mode:?} {elevator}: other bytes at {offset} + {length}");
                }
                volume.flush().unwrap();
                volume.write_durably_at(&pattern(4096, 9), 8192).unwrap();
                volume.write_zeroes(8192, 4096).unwrap();
                let mut read = vec![1; 4096];
                volume.read_exact_at(&mut read, 8192).unwrap();
                assert_eq!(read, vec![0; 4096]);
                volume.discard(0, 1 << 20).unwrap();
                volume.close().unwrap();
            }
        }
    }
}

#[test]
fn an_error_of_the_device_fails_that_request_only() {
    let setup = Setup::unix();
    let volume = setup.volume(&Options::new().write(true));
    for (op, error) in
        [(Op::Write, IoError::NoSpace), (Op::Read, IoError::Media), (Op::Flush, IoError::Media)]
    {
        setup.faults.add(Fault::error(error).on(op).times(1));
        let mut block = vec![0; 4096];
        let mut act = || match op {
            Op::Write => volume.write_at(&block, 0),
            Op::Read => volume.read_exact_at(&mut block, 0),
            _ => volume.flush(),
        };
        assert_eq!(act().unwrap_err().errno(), error.errno(), "{op}");
        act().unwrap();
    }
}

#[test]
fn a_read_only_export_is_not_opened_for_writing() {
    let setup = Setup::unix();
    let remote = connect(&setup.uri("fixed"), &ConnectOptions::default()).unwrap();
    let refused = Volume::remote(&remote, &Options::new().write(true)).unwrap_err().to_string();
    assert!(refused.contains("nbd+unix:///fixed") && refused.contains("read-only"), "{refused}");
    Volume::remote(&remote, &Options::new()).unwrap().read_exact_at(&mut [0; 4096], 0).unwrap();
}

#[test]
fn an_unknown_export_and_a_missing_server_are_errors_that_name_the_uri() {
    let mut setup = Setup::unix();
    let missing = connect(&setup.uri("other"), &ConnectOptions::default()).unwrap_err().to_string();
    assert!(missing.contains("nbd+unix:///other") && missing.contains("other"), "{missing}");
    setup.stop();
    let gone = connect(&setup.uri("disk"), &ConnectOptions::default()).unwrap_err().to_string();
    assert!(gone.contains("nbd+unix:///disk?socket=") && gone.contains("; start "), "{gone}");
    let tls = NbdUri { is_tls: true, ..setup.uri("disk") };
    assert!(connect(&tls, &ConnectOptions::default()).unwrap_err().to_string().contains("tls-certificates"));
}

#[test]
fn a_stripe_of_two_exports_and_a_file_reads_what_it_wrote() {
    let (first, second) = (Setup::unix(), Setup::unix());
    let file = first.folder.path().join("file");
    std::fs::File::create(&file).unwrap().set_len(SIZE).unwrap();
    let remotes =
        [&first, &second].map(|setup| connect(&setup.uri("disk"), &ConnectOptions::default()).unwrap());
    let members = [Member::Remote(&remotes[0]), Member::Path(&file), Member::Remote(&remotes[1])];
    let options = Options::new().write(true).unaligned(Unaligned::Bounce);
    let volume = match Volume::open_stripe_of(&members, 128 << 10, &options) {
        Ok(volume) => volume,
        Err(error) => return println!("skipped: {error}"),
    };
    let data = pattern(3 << 20, 3);
    volume.write_at(&data, 0).unwrap();
    let mut read = vec![0; data.len()];
    volume.read_exact_at(&mut read, 0).unwrap();
    assert!(read == data);
    volume.flush().unwrap();
    let twice = [Member::Remote(&remotes[0]); 2];
    assert!(Volume::open_stripe_of(&twice, 128 << 10, &Options::new()).is_err());
}

#[test]
fn reads_survive_a_restart_of_the_server() {
    let mut setup = Setup::unix();
    let volume = setup.volume(&Options::new().write(true));
    let data = pattern(1 << 20, 5);
    volume.write_at(&data, 0).unwrap();
    volume.flush().unwrap();
    for _ in 0..3 {
        setup.stop();
        let reader = std::thread::spawn({
            let volume = volume.clone();
            move || {
                let mut read = vec![0; 1 << 20];
                volume.read_exact_at(&mut read, 0).map(|()| read)
            }
        });
        std::thread::sleep(Duration::from_millis(100));
        setup.start();
        assert!(reader.join().unwrap().unwrap() == data, "other bytes after the restart");
    }
    // Nothing was written since the last flush, so a flush is covered.
    volume.flush().unwrap();
}

#[test]
fn a_flush_after_a_restart_fails_if_writes_were_not_flushed() {
    let mut setup = Setup::unix();
    let volume = setup.volume(&Options::new().write(true));
    volume.write_at(&pattern(4096, 1), 0).unwrap();
    setup.stop();
    setup.start();
    let error = volume.flush().unwrap_err();
    assert_eq!(error.errno(), IoError::Disconnected.errno());
    let text = error.to_string();
    assert!(text.contains("nbd+unix:///disk") && text.contains("not flushed"), "{text}");
    // The loss is reported. Later writes are covered.
    volume.write_at(&pattern(4096, 2), 0).unwrap();
    volume.flush().unwrap();
}

#[test]
fn forced_writes_need_no_flush_over_a_restart() {
    let mut setup = Setup::unix();
    let volume = setup.volume(&Options::new().write(true));
    volume.write_durably_at(&pattern(4096, 1), 0).unwrap();
    setup.stop();
    setup.start();
    volume.flush().unwrap();
}

#[test]
fn a_server_that_stays_away_is_an_error_that_names_it_within_the_limit() {
    let mut setup = Setup::unix();
    // One limit ends the wait; the other one would come long after the guard against hangs.
    let patient = Patience {
        reconnect_attempts: u32::MAX,
        reconnect: Duration::from_secs(3600),
        ..Patience::default()
    };
    for patience in [
        Patience { reconnect_attempts: 0, ..patient },
        Patience { reconnect: Duration::from_millis(300), ..patient },
        Patience { reconnect_attempts: 3, ..patient },
    ] {
        let options = ConnectOptions { patience, ..ConnectOptions::default() };
        let remote = connect(&setup.uri("disk"), &options).unwrap();
        let volume = Volume::remote(&remote, &Options::new()).unwrap();
        setup.stop();
        let started = std::time::Instant::now();
        let error = volume.read_exact_at(&mut [0; 4096], 4096).unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(120), "{patience:?}: {:?}", started.elapsed());
        assert_eq!(error.errno(), IoError::Disconnected.errno());
        let text = error.to_string();
        assert!(text.contains("nbd+unix:///disk?socket="), "{text}");
        // A later request finds the server again.
        setup.start();
        volume.read_exact_at(&mut [0; 4096], 4096).unwrap();
    }
}

/// Unmounts at drop.
struct Mounted(TempDir);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_of_the_server_reaches_the_client_as_enospc() {
    let mounted = Mounted(tempfile::tempdir().unwrap());
    let mut mount = std::process::Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(mounted.0.path());
    if !mount.output().is_ok_and(|output| output.status.success()) {
        return println!("skipped: no tmpfs can be mounted");
    }
    let file = mounted.0.path().join("disk");
    std::fs::File::create(&file).unwrap().set_len(SIZE).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for mode in [IoMode::Direct, IoMode::Buffered] {
        let open = Options::new().mode(mode).write(true).unaligned(Unaligned::Bounce);
        let volume = match Volume::open(&file, &open) {
            Ok(volume) => volume,
            Err(error) => return println!("skipped: {error}"),
        };
        let served =
            Served { name: "disk".to_owned(), description: String::new(), volume, is_writable: true };
        let socket = folder.path().join(format!("{mode:?}"));
        let _server =
            Server::start(&Listen::Unix(socket.clone()), &[served], &ServeOptions::default()).unwrap();
        let uri = NbdUri { place: Place::Unix(socket), is_tls: false, export: "disk".to_owned() };
        let remote = connect(&uri, &ConnectOptions::default()).unwrap();
        let volume = Volume::remote(&remote, &Options::new().write(true)).unwrap();
        let written = volume.write_at(&pattern(6 << 20, 1), 0).and_then(|()| volume.flush());
        assert_eq!(written.unwrap_err().errno(), IoError::NoSpace.errno(), "{mode:?}");
        // The connection is kept, and other requests succeed.
        volume.read_exact_at(&mut [0; 4096], 0).unwrap();
    }
}
