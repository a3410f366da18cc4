//! What is asked for, in environment variables as `cargo xtask torture` sets them, and the choices that are left to
//! chance.

use crate::ground::Scratch;
use iopath::{Options, Volume};
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
        Volume::open(scratch.path(), &Options::new()).inspect_err(|why| eprintln!("skipped: {why}")).is_ok()
    }
}

fn number(name: &str) -> Option<u64> {
    let name = format!("IOPATH_TORTURE_{name}");
    let text = std::env::var(&name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a number")))
}

pub(crate) fn pick<'a, T>(random: &mut Xoshiro256PlusPlus, choice: &'a [T]) -> &'a T {
    &choice[random.random_range(0..choice.len())]
}
