//! The storage of one trial: a disk in memory, also behind a server, storage of a program, a file or a stripe of files,
//! optionally with a mapped file on it. Creates it, opens it as a volume, and removes it. `trial.rs` and `ops.rs` have
//! the operations.

#[allow(dead_code, reason = "the example runs in other tests")]
#[path = "../../examples/own_device.rs"]
mod own_device;

use crate::settings::{Settings, Target, pick};
use iopath::mapped::{Boundary, FileLayout, FileMap, MAPPERS, MapperKind};
use iopath::source::Source as _;
use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{AlignedBuf, Engine, Options, Volume};
use own_device::CheckedDisk;
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::path::{Path, PathBuf};

/// The size of the storage below a mapped file: enough for the file, and for blocks that I/O in flight retains.
const MAPPED_ON_BYTES: u64 = 4 << 20;
const MEMBERS_MAX: usize = 3;

/// The storage of one trial.
#[derive(Debug)]
pub(crate) struct Backend {
    on: Storage,
    engine: Engine,
    /// A mapped file on it. Its mapping is in memory, so no file survives a power failure.
    mapped: Option<(FileMap, Boundary)>,
}

/// A disk in memory behind a server.
pub(crate) trait Export: std::fmt::Debug {
    fn disk(&self) -> &MemoryDisk;
    /// A volume on the export. Starts the server if none runs.
    fn open(&self, options: &Options) -> Volume;
    /// Ends the server.
    fn stop(&self);
    /// Whether the server has a page cache of its own.
    fn is_cached(&self) -> bool;
}

#[derive(Debug)]
enum Storage {
    Memory(MemoryDisk),
    /// Storage of a program.
    Own(CheckedDisk),
    Export(Box<dyn Export>),
    File(Scratch),
    Stripe {
        members: Vec<Scratch>,
        chunk_bytes: u64,
    },
}

impl Backend {
    /// New storage of `size` zeroes, rounded up to whole chunks on a stripe.
    pub(crate) fn new(settings: &Settings, size: usize, random: &mut Xoshiro256PlusPlus) -> Self {
        // No volume has a mapped file on an export.
        let is_mapped = random.random_range(0..3) == 0 && !matches!(settings.target, Target::Export(_));
        let bytes = if is_mapped { MAPPED_ON_BYTES } else { size as u64 };
        let on = match settings.target.path() {
            // No volume has a mapped file on it.
            None if !is_mapped
                && matches!(settings.target, Target::Memory)
                && random.random_range(0..4) == 0 =>
            {
                Storage::Own(CheckedDisk::new(bytes))
            }
            None => {
                let config = MemoryConfig {
                    block_bytes: *pick(random, &[512, 512, 4096]),
                    cache_bytes: *pick(random, &[0, 8 << 10, 1 << 20, 1 << 20]),
                    fua: random.random_range(0..if settings.threads == 1 { 2 } else { 4 }) == 0,
                    ..MemoryConfig::of_bytes(bytes)
                };
                let disk = MemoryDisk::new(&config).expect("memory for a disk");
                match settings.target {
                    Target::Export(export) => Storage::Export(export(disk, random)),
                    _ => Storage::Memory(disk),
                }
            }
            Some(path) if random.random_range(0..4) == 0 => Storage::stripe(path, bytes, random),
            Some(path) => Storage::File(Scratch::new(path.to_owned(), bytes)),
        };
        let backend = Self { on, engine: settings.engine, mapped: None };
        let mapped = is_mapped.then(|| backend.map(size as u64, random));
        Self { mapped, ..backend }
    }

    /// A mapped file of `size_bytes` bytes. The storage below is filled with other bytes.
    fn map(&self, size_bytes: u64, random: &mut Xoshiro256PlusPlus) -> (FileMap, Boundary) {
        let raw = self.open(&Options::new().write(true));
        let bytes = raw.size_bytes();
        let mut stale = AlignedBuf::new(bytes as usize).expect("memory");
        stale.fill(0xbb);
        raw.write_at(&stale, 0).and_then(|()| raw.flush()).expect("new storage can be written");
        // An identity map behaves like the storage itself, which other trials test.
        let changing: Vec<&MapperKind> = MAPPERS.iter().filter(|kind| kind.name != "identity").collect();
        let mapper = pick(random, &changing).name;
        let blocks: &[u32] = if mapper == "indirect" { &[1024, 4096] } else { &[512, 4096, 16 << 10] };
        let layout = FileLayout {
            block_bytes: (*pick(random, blocks)).max(raw.facts().block_bytes),
            size_bytes,
            capacity_bytes: bytes,
        };
        let file = FileMap::fresh(mapper, &layout).expect("a mapping of a new file");
        (file, *pick(random, &Boundary::ALL))
    }

    pub(crate) fn open(&self, options: &Options) -> Volume {
        let mut options = options.clone().engine(self.engine);
        let mapped = self.mapped.as_ref().map(|(file, boundary)| {
            options = options.clone().boundary(*boundary);
            file
        });
        match (&self.on, mapped) {
            (Storage::Memory(disk), None) => Volume::memory(disk, &options),
            (Storage::Memory(disk), Some(file)) => Volume::memory_mapped(disk, file, &options),
            (Storage::Own(disk), None) => Volume::of_source(disk.clone(), &options),
            (Storage::Own(_), Some(_)) => unreachable!("it has no mapped file"),
            (Storage::Export(export), None) => Ok(export.open(&options)),
            (Storage::Export(_), Some(_)) => unreachable!("an export has no mapped file"),
            (Storage::File(scratch), None) => Volume::open(scratch.path(), &options),
            (Storage::File(scratch), Some(file)) => Volume::open_mapped(scratch.path(), file, &options),
            (Storage::Stripe { members, chunk_bytes }, None) => {
                Volume::open_stripe(&paths(members), *chunk_bytes, &options)
            }
            (Storage::Stripe { members, chunk_bytes }, Some(file)) => {
                Volume::open_mapped_stripe(&paths(members), *chunk_bytes, file, &options)
            }
        }
        .unwrap_or_else(|error| panic!("it opened before: {error}"))
    }

    /// Changes its size while no volume is open on it.
    pub(crate) fn resize(&self, size: usize) {
        match &self.on {
            _ if self.mapped.is_some() => {
                self.open(&Options::new().write(true)).resize(size as u64).expect("a size that it can have");
            }
            Storage::Memory(disk) => disk.resize(size as u64).expect("memory for a disk"),
            Storage::Own(disk) => disk.resize(size as u64).expect("any size"),
            Storage::Export(export) => {
                // A server states the size once.
                export.stop();
                export.disk().resize(size as u64).expect("memory for a disk");
            }
            Storage::File(scratch) => {
                let file = std::fs::OpenOptions::new().write(true).open(scratch.path());
                file.and_then(|file| file.set_len(size as u64)).expect("a size that it can have");
            }
            Storage::Stripe { .. } => unreachable!("a stripe is never resized"),
        }
    }

    /// Whether its size may change while no volume is open on it.
    pub(crate) const fn can_resize(&self) -> bool {
        self.mapped.is_some() || !matches!(self.on, Storage::Stripe { .. })
    }

    /// Whether an open volume may change its size.
    pub(crate) const fn can_resize_open(&self) -> bool {
        self.can_resize() && !matches!(self.on, Storage::Export(_))
    }

    /// Whether there is a page cache below the volume.
    pub(crate) fn is_cached(&self) -> bool {
        matches!(&self.on, Storage::Export(export) if export.is_cached())
    }

    /// Whether a second volume can read the content of the device.
    pub(crate) const fn shows_medium(&self) -> bool {
        self.mapped.is_none()
    }

    /// Whether a forced write is followed by a flush.
    pub(crate) fn forces_by_flush(&self) -> bool {
        match &self.on {
            Storage::Memory(disk) => !disk.limits().fua,
            Storage::Own(_) => true,
            Storage::Export(_) | Storage::File(_) | Storage::Stripe { .. } => false,
        }
    }

    /// Whether a flush writes, so that it fails with a write.
    pub(crate) const fn writes_in_flushes(&self) -> bool {
        self.mapped.is_some()
    }

    /// The disk, if a power failure can lose bytes.
    pub(crate) fn crashes(&self) -> Option<&MemoryDisk> {
        let disk = match &self.on {
            Storage::Memory(disk) if self.mapped.is_none() => disk,
            Storage::Export(export) => export.disk(),
            _ => return None,
        };
        disk.limits().volatile_cache.then_some(disk)
    }

    /// The disk, if a failed flush of the volume can lose bytes. The pages of a server would still have them.
    pub(crate) fn loses(&self) -> Option<&MemoryDisk> {
        self.crashes().filter(|_| !self.is_cached())
    }

    /// Ends what the power failure ends beside the disk.
    pub(crate) fn crashed(&self) {
        if let Storage::Export(export) = &self.on {
            export.stop();
        }
    }
}

impl Storage {
    fn stripe(path: &Path, bytes: u64, random: &mut Xoshiro256PlusPlus) -> Self {
        let count = random.random_range(2..=MEMBERS_MAX);
        let chunk_bytes = *pick(random, &[4096, 16 << 10]);
        let of_each = bytes.div_ceil(count as u64).next_multiple_of(chunk_bytes);
        let members = (0..count).map(|number| Scratch::new(Scratch::member(path, number), of_each)).collect();
        Self::Stripe { members, chunk_bytes }
    }
}

fn paths(members: &[Scratch]) -> Vec<&Path> {
    members.iter().map(Scratch::path).collect()
}

/// A file that is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub(crate) fn new(path: PathBuf, bytes: u64) -> Self {
        let made = std::fs::File::create_new(&path).and_then(|file| file.set_len(bytes));
        made.unwrap_or_else(|error| panic!("{} cannot be made: {error}", path.display()));
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a member of a stripe.
    fn member(path: &Path, number: usize) -> PathBuf {
        path.with_extension(number.to_string())
    }

    /// Removes the files of a trial whose backend will never be dropped.
    pub(crate) fn remove_leftovers(path: &Path) {
        let members = (0..MEMBERS_MAX).map(|number| Self::member(path, number));
        for path in members.chain([path.to_owned()]) {
            // Most of them do not exist.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            eprintln!("{} is left behind: {error}", self.path.display());
        }
    }
}
