//! The arguments, in environment variables as `cargo xtask torture` sets them. Random choices are made elsewhere; only
//! the helper for one choice is here.

use crate::backend::{Export, Scratch};
use iopath::testing::MemoryDisk;
use iopath::{Engine, Options, Volume};
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::path::{Path, PathBuf};

/// A file system in memory, where one is usually mounted.
const TMPFS: &str = "/dev/shm";
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// The target of the torture, and the number of operations.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) seed: u64,
    pub(crate) ops: u64,
    pub(crate) threads: usize,
    pub(crate) target: Target,
    pub(crate) engine: Engine,
}

#[derive(Debug, Clone)]
pub(crate) enum Target {
    Memory,
    /// A file that does not exist yet: each trial creates and removes it.
    File(PathBuf),
    /// The same on tmpfs, where each system call takes a microsecond.
    Tmpfs(PathBuf),
    /// A disk in memory behind a server, which this function prepares.
    #[allow(dead_code, reason = "used by the torture of iopath-nbd, which has these modules, too")]
    Export(fn(MemoryDisk, &mut Xoshiro256PlusPlus) -> Box<dyn Export>),
}

impl Settings {
    /// The settings in the environment, if there are any.
    pub(crate) fn from_environment() -> Option<Self> {
        let ops = number("OPS")?;
        let target = match std::env::var("IOPATH_TORTURE_TARGET") {
            Ok(target) if target == "tmpfs" => Target::tmpfs(),
            Ok(target) if target != "memory" => Target::File(target.into()),
            _ => Target::Memory,
        };
        let threads = number("THREADS").map_or(1, |threads| threads.clamp(1, 64) as usize);
        Some(Self { seed: number("SEED").unwrap_or(1), ops, threads, target, engine: engine() })
    }

    /// The settings of a normal test run.
    pub(crate) fn small(threads: usize, target: Target) -> Self {
        Self { seed: 1, ops: 20_000, threads, target, engine: engine() }
    }

    /// The command to repeat the run.
    pub(crate) fn replay(&self, seed: u64, ops: u64) -> String {
        let target = match &self.target {
            Target::Memory => "memory".to_owned(),
            Target::Tmpfs(_) => "tmpfs".to_owned(),
            Target::File(path) => path.display().to_string(),
            Target::Export(_) => "nbd".to_owned(),
        };
        let (threads, engine) = (self.threads, self.engine.name());
        format!(
            "cargo xtask torture --seed {seed} --ops {ops} --threads {threads} --target {target} --engine {engine}"
        )
    }
}

impl Target {
    /// Whether a read concurrent with a write of the same sector returns it old or new. On tmpfs a `pread` concurrent
    /// with a `pwrite` returns some of both.
    pub(crate) fn keeps_sectors_whole(&self) -> bool {
        !matches!(self, Self::Tmpfs(_))
    }

    pub(crate) fn tmpfs() -> Self {
        Self::Tmpfs(Path::new(TMPFS).join(format!("iopath-torture-{}", std::process::id())))
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Memory | Self::Export(_) => None,
            Self::File(path) | Self::Tmpfs(path) => Some(path),
        }
    }

    /// Whether a volume can be opened there; prints the reason on stderr if not.
    pub(crate) fn is_usable(&self) -> bool {
        let Some(path) = self.path() else { return true };
        if matches!(self, Self::Tmpfs(_)) && !is_tmpfs(Path::new(TMPFS)) {
            eprintln!("skipped: {TMPFS} is no tmpfs");
            return false;
        }
        let scratch = Scratch::new(path.to_owned(), 4096);
        Volume::open(scratch.path(), &Options::new()).inspect_err(|why| eprintln!("skipped: {why}")).is_ok()
    }
}

fn is_tmpfs(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|about| about.f_type as u64 == TMPFS_MAGIC)
}

/// The engine of `IOPATH_TEST_ENGINE`, as in the other tests.
fn engine() -> Engine {
    std::env::var("IOPATH_TEST_ENGINE").map_or(Engine::Auto, |name| name.parse().expect("an engine"))
}

fn number(name: &str) -> Option<u64> {
    let name = format!("IOPATH_TORTURE_{name}");
    let text = std::env::var(&name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a number")))
}

pub(crate) fn pick<'a, T>(random: &mut Xoshiro256PlusPlus, choice: &'a [T]) -> &'a T {
    &choice[random.random_range(0..choice.len())]
}
