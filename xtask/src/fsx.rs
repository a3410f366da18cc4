//! `cargo xtask fsx`: runs fsx, a program of another project, on a volume mounted with FUSE. One or several processes
//! run random operations on windows of one volume; fsx compares every byte that it reads. The example `fuse_file` of
//! crate `iopath` serves the volume. This file selects variants and seeds, and reports.

mod diagnosis;
pub(crate) mod mount;
mod round;
mod scratch;
mod server;
mod variant;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::{artifact, seed, workspace};
use round::Programs;
use scratch::Scratch;
use server::Server;
use variant::{Medium, Variant};

/// The installed crate and its version. The operations of a seed may differ in other versions.
const FSX: &str = "fsx";
const FSX_VERSION: &str = "0.3.2";

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// The seed of the first round; each further round uses the next number [default: the time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Stop after the round that completes this many operations, without a time limit
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    ops: Option<u64>,
    /// Stop after the first round that ends after this time in seconds
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// Concurrent rounds, each on a volume of its own
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
    /// Only variants whose name contains all of these words, separated by commas: `buffered,windows,disk`
    #[arg(long, value_name = "WORDS", default_value = "", hide_default_value = true)]
    variant: String,
    /// Print the names of the variants and exit
    #[arg(long)]
    list: bool,
}

/// Runs rounds until a limit or a failure. Returns false after a failure, and true if FUSE is not available.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let mut variants = selected(&options.variant)?;
    if options.list {
        for variant in &variants {
            println!("{variant}");
        }
        return Ok(true);
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    if let Some(reason) = mount::missing() {
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
        variants.retain(|variant| variant.medium != Medium::Tmpfs);
        println!("without variants on tmpfs: /dev/shm cannot be written");
        ensure!(!variants.is_empty(), "no variant is left");
    }
    if let Err(error) = probe(&programs.server, &scratch) {
        println!("skipped: FUSE does not work here: {error:#}");
        return scratch.remove().map(|()| true);
    }
    let passed = rounds(options, &variants, &programs, &scratch, &interrupted)?;
    if passed {
        scratch.remove()?;
    } else {
        println!("the files of the failed round are in {}", scratch.directory().display());
    }
    Ok(passed)
}

/// State shared by the threads that run rounds.
struct Progress<'a> {
    limit: Limit,
    first: u64,
    started: Instant,
    /// Set by a signal of the user.
    interrupted: &'a AtomicBool,
    failed: AtomicBool,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    rounds: u64,
    ops_begun: u64,
    ops_done: u64,
}

#[derive(Debug, Clone, Copy)]
enum Limit {
    Ops(u64),
    Time(Duration),
}

impl Progress<'_> {
    /// The seed and variant of the next round, or none at a limit.
    fn next(&self, variants: &[Variant]) -> Option<(u64, Variant)> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_done = match self.limit {
            Limit::Ops(limit) => counts.ops_begun >= limit,
            Limit::Time(limit) => self.started.elapsed() >= limit && counts.rounds > 0,
        };
        if is_done || self.is_stopped() {
            return None;
        }
        let seed = self.first.wrapping_add(counts.rounds);
        let variant = variant::of_seed(variants, seed);
        counts.rounds += 1;
        counts.ops_begun += variant.ops();
        Some((seed, variant))
    }

    /// Whether running rounds must end immediately.
    fn is_stopped(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }

    /// Prints the result of a round, unless another round or the user ended it.
    fn report(&self, seed: u64, variant: &Variant, elapsed: Duration, result: Result<()>) {
        let seconds = elapsed.as_secs_f64();
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(()) => {
                println!("seed {seed}  {variant:<44} {:>6} operations {seconds:6.1} s", variant.ops());
                counts.ops_done += variant.ops();
            }
            Err(_) if self.is_stopped() => {}
            Err(error) => {
                self.failed.store(true, Ordering::Relaxed);
                println!("seed {seed}  {variant}  FAILED after {seconds:.1} s\n{error:#}");
                println!("run again: cargo xtask fsx --variant {variant} --seed {seed} --ops 1");
                println!(
                    "The processes interleave differently each time. If this passes, run it without --ops, which continues \
                     with further seeds."
                );
            }
        }
    }

    fn summary(&self, variants: usize) -> String {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = self.started.elapsed().as_secs_f64();
        let Counts { rounds, ops_done, .. } = *counts;
        format!(
            "fsx: {ops_done} operations in {seconds:.0} s, {:.0} a second; {rounds} rounds of {variants} variants, \
             seeds {} to {}",
            ops_done as f64 / seconds,
            self.first,
            self.first.wrapping_add(rounds).wrapping_sub(1)
        )
    }
}

fn rounds(
    options: &Options,
    variants: &[Variant],
    programs: &Programs,
    scratch: &Scratch,
    interrupted: &AtomicBool,
) -> Result<bool> {
    let first = seed::or_time(options.seed)?;
    let limit = options.ops.map_or(Limit::Time(Duration::from_secs(options.seconds)), Limit::Ops);
    let progress = Progress {
        limit,
        first,
        started: Instant::now(),
        interrupted,
        failed: AtomicBool::new(false),
        counts: Mutex::default(),
    };
    let jobs = (0..options.jobs).map(|job| scratch.job(job)).collect::<Result<Vec<_>>>()?;
    std::thread::scope(|scope| {
        for files in &jobs {
            scope.spawn(|| {
                while let Some((seed, variant)) = progress.next(variants) {
                    let started = Instant::now();
                    let result = round::run(programs, files, &variant, seed, &|| progress.is_stopped());
                    progress.report(seed, &variant, started.elapsed(), result);
                }
            });
        }
    });
    if interrupted.load(Ordering::Relaxed) {
        bail!("interrupted; nothing is left mounted");
    }
    println!("{}", progress.summary(variants.len()));
    Ok(!progress.failed.into_inner())
}

/// The variants whose names contain all of the words; an error if there is none.
fn selected(words: &str) -> Result<Vec<Variant>> {
    let variants =
        variant::all().into_iter().filter(|variant| is_selected(variant, words)).collect::<Vec<_>>();
    ensure!(!variants.is_empty(), "no variant has all words of `{words}`: see `cargo xtask fsx --list`");
    Ok(variants)
}

/// A word is a part between hyphens, or the whole name.
fn is_selected(variant: &Variant, words: &str) -> bool {
    let name = variant.to_string();
    let has = |word: &str| word == name || name.split('-').any(|part| part == word);
    words.split(',').filter(|word| !word.is_empty()).all(has)
}

/// Mounts and unmounts a volume once. A failure of this probe is a failure of the machine, not of the volume.
fn probe(program: &Path, scratch: &Scratch) -> Result<()> {
    let variant = variant::all()[0];
    let files = scratch.job(0)?;
    let backing = files.backing(Medium::Disk)?;
    let log = files.file("probe.log");
    Server::start(program, &variant, &backing, &files.mount(), &log)?.unmount()
}

/// Builds the server with all assertions enabled.
fn build() -> Result<PathBuf> {
    let programs = artifact::build(&["build", "--example", "fuse_file"])?;
    Ok(artifact::find(&programs, "iopath", "fuse_file")?.executable.clone())
}

/// Installs the program fsx below target/, unless it is already installed. Not optimised: that halves the time of its
/// build, and the volume below it takes most of the time of an operation.
pub(crate) fn install() -> Result<PathBuf> {
    let root = workspace::target_dir().join(format!("fsx-{FSX_VERSION}"));
    let program = root.join("bin").join(FSX);
    if program.exists() {
        return Ok(program);
    }
    println!("installing {FSX} {FSX_VERSION} in {}", root.display());
    let output = workspace::cargo()
        .args(["install", FSX, "--version", FSX_VERSION, "--locked", "--debug", "--root"])
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
    fn words_select_variants_and_a_full_name_selects_one() {
        let all = variant::all();
        assert_eq!(selected("").expect("all").len(), all.len());
        let buffered = selected("buffered,windows").expect("some");
        assert!(buffered.len() < all.len());
        assert!(
            buffered.iter().all(|variant| variant.path == "buffered" && variant.layout.name == "windows")
        );
        for variant in &all {
            assert_eq!(selected(&variant.to_string()).expect("itself"), [*variant]);
        }
        assert!(selected("buffered,bounced").is_err());
    }

    fn progress(limit: Limit, interrupted: &AtomicBool) -> Progress<'_> {
        Progress {
            limit,
            first: 7,
            started: Instant::now(),
            interrupted,
            failed: AtomicBool::new(false),
            counts: Mutex::default(),
        }
    }

    #[test]
    fn rounds_start_until_the_limit_and_never_after_a_failure() {
        let variants = selected("windows").expect("some");
        let interrupted = AtomicBool::new(false);
        let two = progress(Limit::Ops(2 * variants[0].ops()), &interrupted);
        let seeds: Vec<_> = std::iter::from_fn(|| two.next(&variants)).map(|(seed, _)| seed).collect();
        assert_eq!(seeds, [7, 8]);

        let once = progress(Limit::Time(Duration::ZERO), &interrupted);
        assert!(
            once.next(&variants).is_some() && once.next(&variants).is_none(),
            "one round, even without any time"
        );

        let long = progress(Limit::Time(Duration::from_secs(1000)), &interrupted);
        let (seed, variant) = long.next(&variants).expect("a round");
        long.report(seed, &variant, Duration::ZERO, Err(anyhow::anyhow!("miscompare")));
        assert!(long.failed.load(Ordering::Relaxed) && long.next(&variants).is_none());
    }

    #[test]
    fn the_summary_counts_operations_of_successful_rounds() {
        let variants = selected("windows").expect("some");
        let interrupted = AtomicBool::new(false);
        let progress = progress(Limit::Ops(u64::MAX), &interrupted);
        for result in [Ok(()), Err(anyhow::anyhow!("miscompare"))] {
            let (seed, variant) = progress.next(&variants).expect("a round");
            progress.report(seed, &variant, Duration::ZERO, result);
        }
        let text = progress.summary(3);
        assert!(text.starts_with(&format!("fsx: {} operations in", variants[0].ops())), "{text}");
        assert!(text.ends_with("2 rounds of 3 variants, seeds 7 to 8"), "{text}");
    }
}
