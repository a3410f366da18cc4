//! `cargo xtask fsx`: the program fsx, which nobody here wrote, against a volume mounted with FUSE. Random operations by
//! one process and by several on windows of one volume; fsx compares every byte that it reads. The volume is served by
//! the example `fuse_file` of the crate `iopath`; this chooses variants and seeds and reports.

mod round;
mod scratch;
mod server;
mod variant;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::workspace;
use round::Programs;
use scratch::Scratch;
use server::Server;
use variant::{Place, Variant};

/// The crate that is installed, and its version: the operations of a seed may differ in another.
const FSX: &str = "fsx";
const FSX_VERSION: &str = "0.3.2";

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// The seed of the first round; each further round takes the next number [default: the time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Stop after the round that completes so many operations, whatever time that takes
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    ops: Option<u64>,
    /// Stop after the round in which so many seconds have passed
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// Only variants whose name has all of these words, separated by commas: `buffered,windows,disk`
    #[arg(long, value_name = "WORDS", default_value = "", hide_default_value = true)]
    variant: String,
    /// Print the names of the variants and do nothing
    #[arg(long)]
    list: bool,
}

/// Runs rounds until a limit is reached or one fails; true if none did, also where nothing can be mounted.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let mut variants = chosen(&options.variant)?;
    if options.list {
        variants.iter().for_each(|variant| println!("{variant}"));
        return Ok(true);
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    if let Some(reason) = server::missing() {
        println!("skipped: {reason}");
        return Ok(true);
    }
    let programs = match install() {
        Ok(fsx) => Programs { server: build()?, fsx },
        Err(error) => {
            println!("skipped: {error:#}");
            return Ok(true);
        }
    };
    let scratch = Scratch::new()?;
    if !scratch.has_tmpfs() {
        variants.retain(|variant| variant.place != Place::Tmpfs);
        println!("without variants on tmpfs: /dev/shm cannot be written");
        ensure!(!variants.is_empty(), "no variant is left");
    }
    if let Err(error) = probe(&programs.server, &scratch) {
        println!("skipped: FUSE does not work here: {error:#}");
        return scratch.remove().map(|()| true);
    }
    let is_right = rounds(options, &variants, &programs, &scratch, &interrupted)?;
    if is_right {
        scratch.remove()?;
    } else {
        println!("the files of the failed round are in {}", scratch.directory().display());
    }
    Ok(is_right)
}

fn rounds(
    options: &Options,
    variants: &[Variant],
    programs: &Programs,
    scratch: &Scratch,
    interrupted: &AtomicBool,
) -> Result<bool> {
    let first = match options.seed {
        Some(seed) => seed,
        None => std::time::UNIX_EPOCH.elapsed().context("the clock is before 1970")?.as_secs(),
    };
    let (started, mut ops, mut seed) = (Instant::now(), 0, first);
    loop {
        let variant = variant::of_seed(variants, seed);
        let round_started = Instant::now();
        let result = round::run(programs, scratch, &variant, seed, interrupted);
        if interrupted.load(Ordering::Relaxed) {
            bail!("interrupted; nothing is left mounted");
        }
        let seconds = round_started.elapsed().as_secs_f64();
        if let Err(error) = result {
            println!("seed {seed}  {variant}  FAILED after {seconds:.1} s\n{error:#}");
            println!("again: cargo xtask fsx --variant {variant} --seed {seed} --ops 1");
            println!("FAILED after {ops} operations, {:.1} s", started.elapsed().as_secs_f64());
            return Ok(false);
        }
        println!("seed {seed}  {variant:<42} {:>6} operations {seconds:6.1} s", variant.ops());
        ops += variant.ops();
        let elapsed = started.elapsed();
        let is_over = match options.ops {
            Some(limit) => ops >= limit,
            None => elapsed >= Duration::from_secs(options.seconds),
        };
        if is_over {
            println!("{}", summary(first, seed, variants.len(), ops, elapsed));
            return Ok(true);
        }
        seed = seed.wrapping_add(1);
    }
}

fn summary(first: u64, last: u64, variants: usize, ops: u64, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    let rounds = last.wrapping_sub(first).wrapping_add(1);
    format!(
        "fsx: {ops} operations, {:.0} a second, {rounds} rounds of {variants} variants, seeds {first} to {last}",
        ops as f64 / seconds
    )
}

/// The variants whose names have all of the words; an error if none has.
fn chosen(words: &str) -> Result<Vec<Variant>> {
    let variants = variant::all().into_iter().filter(|variant| is_chosen(variant, words)).collect::<Vec<_>>();
    ensure!(!variants.is_empty(), "no variant has all words of `{words}`: see `cargo xtask fsx --list`");
    Ok(variants)
}

/// A word is a part between hyphens, or the whole name.
fn is_chosen(variant: &Variant, words: &str) -> bool {
    let name = variant.to_string();
    let has = |word: &str| word == name || name.split('-').any(|part| part == word);
    words.split(',').filter(|word| !word.is_empty()).all(has)
}

/// Mounts and unmounts once: what fails here is the machine's, not the volume's.
fn probe(program: &Path, scratch: &Scratch) -> Result<()> {
    let variant = variant::all()[0];
    let (backing, log) = (scratch.file("probe"), scratch.file("probe.log"));
    Server::start(program, &variant, &backing, &scratch.mount(), &log)?.unmount()
}

/// The server, built with every assertion.
fn build() -> Result<PathBuf> {
    let mut command = workspace::cargo();
    command.args([
        "build",
        "--quiet",
        "--profile",
        "checked",
        "--package",
        "iopath",
        "--example",
        "fuse_file",
    ]);
    let status = command.status().context("cannot run cargo")?;
    ensure!(status.success(), "the example fuse_file cannot be built");
    Ok(workspace::target_dir().join("checked/examples/fuse_file"))
}

/// The program fsx, installed below target/ if it is not there yet.
fn install() -> Result<PathBuf> {
    let root = workspace::target_dir().join(format!("fsx-{FSX_VERSION}"));
    let program = root.join("bin").join(FSX);
    if program.exists() {
        return Ok(program);
    }
    println!("installing {FSX} {FSX_VERSION} in {}", root.display());
    let output = workspace::cargo()
        .args(["install", FSX, "--version", FSX_VERSION, "--locked", "--root"])
        .arg(&root)
        .stdin(Stdio::null())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        let log = String::from_utf8_lossy(&output.stderr);
        let reason = log.lines().find(|line| line.starts_with("error")).unwrap_or("no reason given");
        bail!("the crate {FSX} {FSX_VERSION} cannot be installed: {reason}");
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_choose_variants_and_a_whole_name_chooses_one() {
        let all = variant::all();
        assert_eq!(chosen("").expect("all").len(), all.len());
        let buffered = chosen("buffered,windows").expect("some");
        assert!(buffered.len() < all.len());
        assert!(
            buffered.iter().all(|variant| variant.path == "buffered" && variant.layout.name == "windows")
        );
        for variant in &all {
            assert_eq!(chosen(&variant.to_string()).expect("itself"), [*variant]);
        }
        assert!(chosen("buffered,bounced").is_err());
    }

    #[test]
    fn the_summary_counts_seeds_and_rates() {
        let text = summary(7, 9, 3, 5000, Duration::from_secs(2));
        assert_eq!(text, "fsx: 5000 operations, 2500 a second, 3 rounds of 3 variants, seeds 7 to 9");
    }
}
