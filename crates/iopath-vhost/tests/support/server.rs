//! Servers on scratch files.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iopath::{IoMode, Options, Unaligned, Volume};
use iopath_vhost::{VhostOptions, VhostServer};
use tempfile::TempDir;

use super::guest::HANG;

/// The size of a disk.
pub(crate) const DISK: u64 = 16 << 20;

/// A file, its server and its socket.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub folder: TempDir,
    pub server: Option<VhostServer>,
    pub volume: Volume,
}

pub(crate) fn direct() -> Options {
    Options::new().write(true).unaligned(Unaligned::Bounce)
}

pub(crate) fn buffered() -> Options {
    Options::new().write(true).mode(IoMode::Buffered).cache_bytes(4 << 20)
}

pub(crate) fn options(volume: &Volume, queues: u16) -> VhostOptions {
    VhostOptions {
        volume: volume.clone(),
        is_writable: true,
        queues,
        id: "a-name-that-is-longer-than-twenty".to_owned(),
        stop_limit: HANG,
        log: None,
    }
}

impl Scratch {
    /// A server of a file in which each byte depends on its place.
    pub(crate) fn new(queues: u16, options: &Options) -> Self {
        Self::with(queues, options, true)
    }

    pub(crate) fn with(queues: u16, open: &Options, is_writable: bool) -> Self {
        Self::changed(open, |options| VhostOptions { queues, is_writable, ..options })
    }

    /// The same with changed options.
    pub(crate) fn changed(open: &Options, change: impl FnOnce(VhostOptions) -> VhostOptions) -> Self {
        let folder = tempfile::tempdir_in(target_directory()).unwrap();
        let file = folder.path().join("disk");
        std::fs::write(&file, pattern(0, DISK as usize)).unwrap();
        Self::of(folder, &file, open, change)
    }

    /// A server of this file, with its socket in the folder.
    pub(crate) fn of(
        folder: TempDir,
        file: &Path,
        open: &Options,
        change: impl FnOnce(VhostOptions) -> VhostOptions,
    ) -> Self {
        let volume = Volume::open(file, open).unwrap();
        let mut scratch = Self { folder, server: None, volume };
        let listener = UnixListener::bind(scratch.socket()).unwrap();
        let options = change(options(&scratch.volume, 1));
        scratch.server = Some(VhostServer::start(listener, options).unwrap());
        scratch
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    pub(crate) fn server(&self) -> &VhostServer {
        self.server.as_ref().unwrap()
    }

    /// The first message of the server.
    pub(crate) fn message(&self) -> String {
        let began = Instant::now();
        loop {
            if let Some(message) = self.server().take_messages().into_iter().next() {
                return message;
            }
            assert!(began.elapsed() < HANG, "no message");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Bytes of the disk from `offset` on, at the start.
pub(crate) fn pattern(offset: u64, bytes: usize) -> Vec<u8> {
    (offset..offset + bytes as u64).map(|at| (at / 512 + at % 251) as u8).collect()
}

/// A folder of the build, on a filesystem with direct I/O. Examples have none.
fn target_directory() -> PathBuf {
    option_env!("CARGO_TARGET_TMPDIR").map_or_else(std::env::temp_dir, PathBuf::from)
}
