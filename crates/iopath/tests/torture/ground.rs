//! What the bytes of a life lie on: a disk in memory or a file, perhaps with a mapped file on it. Made here, opened as
//! a volume and removed again; what is done to it is in `life.rs` and `ops.rs`.

use crate::settings::{Target, pick};
use iopath::{
    AlignedBuf, Boundary, FileLayout, FileMap, MAPPERS, MapperKind, MemoryConfig, MemoryDisk, Options, Volume,
};
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::path::{Path, PathBuf};

/// What mapped files lie on: more than they take, and than I/O under way keeps back.
const MAPPED_ON_BYTES: u64 = 4 << 20;

/// What the bytes of one life lie on.
#[derive(Debug)]
pub(crate) struct Ground {
    on: On,
    /// A mapped file on it. Its mapping is in memory: no power failure leaves a file to look at.
    mapped: Option<(FileMap, Boundary)>,
}

#[derive(Debug)]
enum On {
    Memory(MemoryDisk),
    File(Scratch),
}

impl Ground {
    /// A ground of that many zero bytes.
    pub(crate) fn new(target: &Target, size: usize, random: &mut Xoshiro256PlusPlus) -> Self {
        let is_mapped = random.random_range(0..3) == 0;
        let bytes = if is_mapped { MAPPED_ON_BYTES } else { size as u64 };
        let on = match target {
            Target::Memory => {
                let config = MemoryConfig {
                    block_bytes: *pick(random, &[512, 512, 4096]),
                    cache_bytes: *pick(random, &[0, 8 << 10, 1 << 20, 1 << 20]),
                    fua: random.random(),
                    ..MemoryConfig::of_bytes(bytes)
                };
                On::Memory(MemoryDisk::new(&config).expect("memory for a disk"))
            }
            Target::File(path) => On::File(Scratch::new(path, bytes)),
        };
        let ground = Self { on, mapped: None };
        let mapped = is_mapped.then(|| ground.map(size as u64, random));
        Self { mapped, ..ground }
    }

    /// A file of that many bytes on this, which is full of others' bytes.
    fn map(&self, size_bytes: u64, random: &mut Xoshiro256PlusPlus) -> (FileMap, Boundary) {
        let raw = self.open(&Options::new().write(true));
        let mut stale = AlignedBuf::new(MAPPED_ON_BYTES as usize).expect("memory");
        stale.fill(0xbb);
        raw.write_at(&stale, 0).and_then(|()| raw.flush()).expect("what was made can be written");
        // What lies where it lies is tortured as it is.
        let changing: Vec<&MapperKind> = MAPPERS.iter().filter(|kind| kind.name != "identity").collect();
        let mapper = pick(random, &changing).name;
        let blocks: &[u32] = if mapper == "indirect" { &[1024, 4096] } else { &[512, 4096, 16 << 10] };
        let layout = FileLayout {
            block_bytes: (*pick(random, blocks)).max(raw.facts().block_bytes),
            size_bytes,
            capacity: MAPPED_ON_BYTES / 512,
        };
        let file = FileMap::fresh(mapper, &layout).expect("a mapping of a new file");
        (file, *pick(random, &Boundary::ALL))
    }

    pub(crate) fn open(&self, options: &Options) -> Volume {
        let mapped = self.mapped.as_ref();
        let mapped = mapped.map(|(file, boundary)| (file, options.clone().boundary(*boundary)));
        match (&self.on, mapped) {
            (On::Memory(disk), None) => Volume::memory(disk, options),
            (On::File(scratch), None) => Volume::open(scratch.path(), options),
            (On::Memory(disk), Some((file, options))) => Volume::memory_mapped(disk, file, &options),
            (On::File(scratch), Some((file, options))) => Volume::open_mapped(scratch.path(), file, &options),
        }
        .unwrap_or_else(|error| panic!("it opened before: {error}"))
    }

    /// Makes it end elsewhere while no volume is open on it.
    pub(crate) fn resize(&self, size: usize) {
        match &self.on {
            _ if self.mapped.is_some() => {
                self.open(&Options::new().write(true)).resize(size as u64).expect("a size that it can have");
            }
            On::Memory(disk) => disk.resize(size as u64).expect("memory for a disk"),
            On::File(scratch) => {
                let file = std::fs::OpenOptions::new().write(true).open(scratch.path());
                file.and_then(|file| file.set_len(size as u64)).expect("a size that it can have");
            }
        }
    }

    /// Whether a forced write is followed by a flush.
    pub(crate) fn forces_by_flush(&self) -> bool {
        match &self.on {
            On::Memory(disk) => !disk.limits().fua,
            On::File(_) => false,
        }
    }

    /// Whether a flush writes, so that it fails with a write.
    pub(crate) const fn writes_in_flushes(&self) -> bool {
        self.mapped.is_some()
    }

    /// The disk, if its power can fail with consequences.
    pub(crate) fn crashes(&self) -> Option<&MemoryDisk> {
        match &self.on {
            On::Memory(disk) if self.mapped.is_none() && disk.limits().volatile_cache => Some(disk),
            _ => None,
        }
    }
}

/// A file that goes when this does.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub(crate) fn new(path: &Path, bytes: u64) -> Self {
        let made = std::fs::File::create_new(path).and_then(|file| file.set_len(bytes));
        made.unwrap_or_else(|error| panic!("{} cannot be made: {error}", path.display()));
        Self { path: path.to_owned() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            eprintln!("{} is left behind: {error}", self.path.display());
        }
    }
}
