//! The storage of a target: empties the page caches above it before a cold repetition, and counts the bytes that
//! storage transfers during a repetition. `served.rs` interprets the counts.

use std::fs::{self, File};
use std::io;
use std::ops::{Add, Sub};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use iopath_os::target::{Beneath, Submitter, Target, Transform, drop_cached_down_to};

use crate::counters::{DiskCounters, KernelThreadsIo, ProcessIo};
use crate::error::BenchError;

/// Network interfaces that carry no data from outside of the machine.
const LOOPBACK: &str = "lo";

/// Block devices without storage of their own: their bytes are in memory or on another device.
const NOT_STORAGE: [&str; 5] = ["loop", "ram", "zram", "dm-", "md"];

/// Bytes that storage transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct StorageBytes {
    pub(crate) read: u64,
    pub(crate) written: u64,
}

impl Sub for StorageBytes {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            read: self.read.saturating_sub(before.read),
            written: self.written.saturating_sub(before.written),
        }
    }
}

impl Add for StorageBytes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { read: self.read + other.read, written: self.written + other.written }
    }
}

impl std::iter::Sum for StorageBytes {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Self::add)
    }
}

impl From<DiskCounters> for StorageBytes {
    fn from(disk: DiskCounters) -> Self {
        Self { read: disk.read_bytes, written: disk.written_bytes }
    }
}

impl From<ProcessIo> for StorageBytes {
    fn from(process: ProcessIo) -> Self {
        Self { read: process.read_bytes, written: process.written_bytes }
    }
}

impl StorageBytes {
    fn min(self, other: Self) -> Self {
        Self { read: self.read.min(other.read), written: self.written.min(other.written) }
    }
}

/// The counters of a target's storage at one moment.
#[derive(Debug)]
pub(crate) struct StorageCounts {
    bytes: StorageBytes,
    submitted: Option<Submitted>,
}

/// The bytes submitted by the threads that may perform the I/O of a target on a loop device.
#[derive(Debug)]
struct Submitted {
    kernel: KernelThreadsIo,
    /// Bytes of this process, to the target. Includes the storage beneath it, if the kernel forwards I/O there without
    /// another thread.
    own: StorageBytes,
    /// Of the target.
    target: StorageBytes,
}

impl StorageCounts {
    /// The bytes transferred since `before`.
    pub(crate) fn since(&self, before: &Self) -> StorageBytes {
        let transferred = self.bytes - before.bytes;
        match (&self.submitted, &before.submitted) {
            (Some(after), Some(before)) => transferred.min(after.since(before)),
            _ => transferred,
        }
    }
}

impl Submitted {
    /// None without one of the counters.
    fn read(target_disk: &str) -> Option<Self> {
        Some(Self {
            kernel: KernelThreadsIo::read()?,
            own: ProcessIo::of_self()?.into(),
            target: DiskCounters::of(target_disk)?.into(),
        })
    }

    /// The bytes submitted to storage since `before`. A thread's bytes count at each device that it submits them to.
    fn since(&self, before: &Self) -> StorageBytes {
        let passed_on = (self.own - before.own) - (self.target - before.target);
        StorageBytes::from(self.kernel.since(&before.kernel)) + passed_on
    }
}

/// Bytes of a target that are in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resident {
    /// Of the target itself.
    pub(crate) bytes: u64,
    /// Of files beneath the target: they serve reads that miss the target's own pages.
    pub(crate) bytes_beneath: u64,
}

impl Resident {
    pub(crate) fn all(self) -> u64 {
        self.bytes + self.bytes_beneath
    }
}

/// The page caches above a target's storage, and the counter that shows transfers of the storage.
#[derive(Debug)]
pub struct Storage {
    /// The target first, then the files beneath it.
    caches: Vec<Cache>,
    counter: Counter,
    transforms: Vec<Transform>,
}

/// A file or device with pages in the page cache.
#[derive(Debug)]
struct Cache {
    path: PathBuf,
    /// Pages are dropped up to this offset.
    end: u64,
    /// Pages that remained in the page cache after the last drop.
    stayed: AtomicU64,
}

/// The counter of transfers of the storage.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Counter {
    /// Of this process: its threads submit the I/O.
    Process,
    /// Of these disks, but at most the bytes that kernel threads and this process submitted: other programs use the
    /// disks, too.
    KernelThreads { disks: Vec<String>, target: String },
    /// Of these disks. Empty for memory, which transfers nothing.
    Disks(Vec<String>),
    /// Of all disks and network interfaces of the machine: a server does the I/O.
    Machine,
    /// No counter.
    None,
}

impl Storage {
    /// For a path without a target.
    pub(crate) fn none() -> Self {
        Self { caches: Vec::new(), counter: Counter::None, transforms: Vec::new() }
    }

    /// For the first `size_bytes` of a target.
    pub(crate) fn of(target: &Target, size_bytes: u64) -> Self {
        let Beneath { cached_files, disks, submitter, transforms } = Beneath::of(target);
        let cache = |path: PathBuf, end| Cache { path, end, stayed: AtomicU64::new(0) };
        let own = std::iter::once(cache(target.path.clone(), size_bytes));
        Self {
            transforms,
            caches: own.chain(cached_files.into_iter().map(|path| cache(path, u64::MAX))).collect(),
            counter: match (submitter, target.backing.disk()) {
                (Submitter::Caller, _) => Counter::Process,
                (Submitter::Kernel, Some(disk)) if Submitted::read(&disk.name).is_some() => {
                    Counter::KernelThreads { disks, target: disk.name.clone() }
                }
                (Submitter::Kernel | Submitter::Memory, _) => Counter::Disks(disks),
                (Submitter::Server, _) => Counter::Machine,
                (Submitter::Unknown, _) => Counter::None,
            },
        }
    }

    /// Layers beneath the target that change the bytes.
    pub fn transforms(&self) -> &[Transform] {
        &self.transforms
    }

    /// Files beneath the target that the kernel reads through the page cache.
    pub fn cached_files(&self) -> impl Iterator<Item = &Path> {
        self.caches.iter().skip(1).map(|cache| cache.path.as_path())
    }

    /// Whether threads of this process submit the I/O, so that its own counters show it.
    pub(crate) fn is_accessed_by_process(&self) -> bool {
        self.counter == Counter::Process
    }

    /// Whether the target lies in memory, as on tmpfs.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(&self.counter, Counter::Disks(disks) if disks.is_empty())
    }

    /// Drops the pages of the target and of the files beneath it from the page cache. Returns the bytes that are still
    /// resident; none without a target.
    pub(crate) fn drop_cached(&self) -> Result<Option<Resident>, BenchError> {
        let Some((own, beneath)) = self.caches.split_first() else { return Ok(None) };
        let mut resident = Resident { bytes: own.drop_pages()?, bytes_beneath: 0 };
        for cache in beneath {
            // This process may lack access to files of other users and mount namespaces.
            resident.bytes_beneath += cache.drop_pages().unwrap_or(0);
        }
        Ok(Some(resident))
    }

    /// Whether the counts include transfers of other programs.
    pub(crate) fn counts_others(&self) -> bool {
        match &self.counter {
            Counter::Disks(disks) => !disks.is_empty(),
            Counter::Machine => true,
            Counter::Process | Counter::KernelThreads { .. } | Counter::None => false,
        }
    }

    /// The counters so far; none where no counter shows transfers.
    pub(crate) fn counts(&self) -> Option<StorageCounts> {
        let of_disks = |disks: &[String]| -> Option<StorageBytes> {
            disks.iter().map(|disk| DiskCounters::of(disk).map(StorageBytes::from)).sum()
        };
        let (bytes, submitted) = match &self.counter {
            Counter::Process => (ProcessIo::of_self()?.into(), None),
            Counter::KernelThreads { disks, target } => (of_disks(disks)?, Some(Submitted::read(target)?)),
            Counter::Disks(disks) => (of_disks(disks)?, None),
            Counter::Machine => {
                let network = network_bytes(&fs::read_to_string("/proc/net/dev").ok()?);
                (all_disks() + network, None)
            }
            Counter::None => return None,
        };
        Some(StorageCounts { bytes, submitted })
    }
}

impl Cache {
    /// Returns the bytes that are still resident.
    fn drop_pages(&self) -> Result<u64, BenchError> {
        let file = File::open(&self.path).map_err(|source| match source.kind() {
            // The file existed when the target was inspected.
            io::ErrorKind::NotFound => BenchError::Gone { target: self.path.clone() },
            _ => BenchError::open(&self.path, false)(source),
        })?;
        let stayed = self.stayed.load(Ordering::Relaxed);
        let left = drop_cached_down_to(&file, 0..self.end, stayed)?;
        self.stayed.store(left.resident, Ordering::Relaxed);
        Ok(left.resident * left.page_bytes)
    }
}

/// All transfers of disks. Excludes devices that lie on other devices: their bytes would count twice.
fn all_disks() -> StorageBytes {
    let disks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let names = disks.filter_map(|entry| entry.file_name().into_string().ok());
    let storage = names.filter(|name| !NOT_STORAGE.iter().any(|prefix| name.starts_with(prefix)));
    storage.filter_map(|name| DiskCounters::of(&name.replace('!', "/"))).map(StorageBytes::from).sum()
}

/// Bytes received and sent by all network interfaces (`proc_pid_net(5)`).
fn network_bytes(dev: &str) -> StorageBytes {
    let interfaces = dev.lines().filter_map(|line| line.split_once(':'));
    let counted = interfaces.filter(|(name, _)| name.trim() != LOOPBACK).map(|(_, counts)| {
        let counts: Vec<u64> = counts.split_whitespace().map_while(|count| count.parse().ok()).collect();
        StorageBytes {
            read: counts.first().copied().unwrap_or(0),
            written: counts.get(8).copied().unwrap_or(0),
        }
    });
    counted.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_bytes_are_summed_over_all_interfaces_but_loopback() {
        let dev = "Inter-|   Receive  |  Transmit\n face |bytes    packets |bytes\n\
            \x20   lo: 999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0\n\
            \x20 eth0: 100 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n\
            \x20 eth1:   5 1 0 0 0 0 0 0  2 1 0 0 0 0 0 0\n";
        assert_eq!(network_bytes(dev), StorageBytes { read: 105, written: 22 });
        assert_eq!(network_bytes("unknown"), StorageBytes::default());
    }

    #[test]
    fn memory_transfers_nothing() {
        let memory = Target::of_memory(1 << 20);
        let storage = Storage::of(&memory, 1 << 20);
        assert_eq!(storage.counter, Counter::Disks(Vec::new()));
        let counts = storage.counts().unwrap();
        assert_eq!(counts.since(&counts), StorageBytes::default());
        assert!(!storage.counts_others());
        assert_eq!(Storage::none().drop_cached().unwrap(), None);
    }
}
