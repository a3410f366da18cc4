//! What is asked for, in environment variables as `cargo xtask torture` sets them, and what differs from life to life.

use iopath::{
    AlignedBuf, Boundary, FileLayout, FileMap, MAPPERS, MapperKind, MemoryConfig, MemoryDisk, Options, Volume,
};
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::path::PathBuf;

/// What to torture, and how much.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) seed: u64,
    pub(crate) ops: u64,
    pub(crate) threads: usize,
    pub(crate) target: Target,
}

#[derive(Debug, Clone)]
pub(crate) enum Target {
    Memory,
    /// A file that does not exist yet: it is made for each life and removed again.
    File(PathBuf),
}

impl Settings {
    /// What is asked for, if anything is.
    pub(crate) fn from_environment() -> Option<Self> {
        let target = match std::env::var("IOPATH_TORTURE_TARGET") {
            Ok(target) if target != "memory" => Target::File(target.into()),
            _ => Target::Memory,
        };
        let threads = number("THREADS").map_or(1, |threads| threads.clamp(1, 64) as usize);
        Some(Self { seed: number("SEED").unwrap_or(1), ops: number("OPS")?, threads, target })
    }

    /// What every run of the tests does.
    pub(crate) const fn small(threads: usize, target: Target) -> Self {
        Self { seed: 1, ops: 20_000, threads, target }
    }

    /// How to do the same again.
    pub(crate) fn replay(&self, seed: u64, ops: u64) -> String {
        let target = match &self.target {
            Target::Memory => "memory".to_owned(),
            Target::File(path) => path.display().to_string(),
        };
        format!("cargo xtask torture --seed {seed} --ops {ops} --threads {} --target {target}", self.threads)
    }
}

impl Target {
    /// Whether direct I/O works there; says so on stderr if not.
    pub(crate) fn takes_direct_io(&self) -> bool {
        let Self::File(path) = self else { return true };
        let scratch = Scratch::new(path, 4096);
        Volume::open(&scratch.path, &Options::new()).inspect_err(|why| eprintln!("skipped: {why}")).is_ok()
    }
}

fn number(name: &str) -> Option<u64> {
    let name = format!("IOPATH_TORTURE_{name}");
    let text = std::env::var(&name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a number")))
}

/// What mapped files lie on: more than they take, and than I/O under way keeps back.
const MAPPED_ON_BYTES: u64 = 4 << 20;

/// What the bytes of one life lie on.
#[derive(Debug)]
pub(crate) enum Ground {
    Memory(MemoryDisk),
    /// A mapped file. Its mapping is in memory: no power failure leaves a file to look at.
    Mapped(Box<Ground>, FileMap, Boundary),
    File(Scratch),
}

/// A file that goes when this does.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new(path: &std::path::Path, bytes: u64) -> Self {
        let made = std::fs::File::create_new(path).and_then(|file| file.set_len(bytes));
        made.unwrap_or_else(|error| panic!("{} cannot be made: {error}", path.display()));
        Self { path: path.to_owned() }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            eprintln!("{} is left behind: {error}", self.path.display());
        }
    }
}

impl Ground {
    /// A ground of that many zero bytes.
    pub(crate) fn new(target: &Target, size: usize, random: &mut Xoshiro256PlusPlus) -> Self {
        let is_mapped = random.random_range(0..3) == 0;
        let bytes = if is_mapped { MAPPED_ON_BYTES } else { size as u64 };
        let ground = match target {
            Target::Memory => {
                let config = MemoryConfig {
                    block_bytes: *pick(random, &[512, 512, 4096]),
                    cache_bytes: *pick(random, &[0, 8 << 10, 1 << 20, 1 << 20]),
                    fua: random.random(),
                    ..MemoryConfig::of_bytes(bytes)
                };
                Self::Memory(MemoryDisk::new(&config).expect("memory for a disk"))
            }
            Target::File(path) => Self::File(Scratch::new(path, bytes)),
        };
        if is_mapped { ground.mapped(size as u64, random) } else { ground }
    }

    /// A file of that many bytes on this, which is full of others' bytes.
    fn mapped(self, size_bytes: u64, random: &mut Xoshiro256PlusPlus) -> Self {
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
        Self::Mapped(Box::new(self), file, *pick(random, &Boundary::ALL))
    }

    pub(crate) fn open(&self, options: &Options) -> Volume {
        match self {
            Self::Memory(disk) => Volume::memory(disk, options),
            Self::File(scratch) => Volume::open(&scratch.path, options),
            Self::Mapped(below, file, boundary) => {
                let options = options.clone().boundary(*boundary);
                match &**below {
                    Self::Memory(disk) => Volume::memory_mapped(disk, file, &options),
                    Self::File(scratch) => Volume::open_mapped(&scratch.path, file, &options),
                    Self::Mapped(..) => unreachable!("a mapped file lies on a disk or a file"),
                }
            }
        }
        .unwrap_or_else(|error| panic!("it opened before: {error}"))
    }

    /// Makes it end elsewhere while no volume is open on it.
    pub(crate) fn resize(&self, size: usize) {
        match self {
            Self::Memory(disk) => disk.resize(size as u64).expect("memory for a disk"),
            Self::Mapped(..) => {
                self.open(&Options::new().write(true)).resize(size as u64).expect("a size that it can have");
            }
            Self::File(scratch) => {
                let file = std::fs::OpenOptions::new().write(true).open(&scratch.path);
                file.and_then(|file| file.set_len(size as u64)).expect("a size that it can have");
            }
        }
    }

    /// Whether a forced write is followed by a flush.
    pub(crate) fn forces_by_flush(&self) -> bool {
        match self {
            Self::Memory(disk) => !disk.limits().fua,
            Self::Mapped(below, ..) => below.forces_by_flush(),
            Self::File(_) => false,
        }
    }

    /// Whether a flush writes, so that it fails with a write.
    pub(crate) const fn writes_in_flushes(&self) -> bool {
        matches!(self, Self::Mapped(..))
    }

    /// The disk, if its power can fail with consequences.
    pub(crate) fn crashes(&self) -> Option<&MemoryDisk> {
        match self {
            Self::Memory(disk) if disk.limits().volatile_cache => Some(disk),
            _ => None,
        }
    }
}

pub(crate) fn pick<'a, T>(random: &mut Xoshiro256PlusPlus, choice: &'a [T]) -> &'a T {
    &choice[random.random_range(0..choice.len())]
}
