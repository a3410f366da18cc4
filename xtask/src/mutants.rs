//! `cargo xtask mutants`: puts deliberate bugs into a copy of the tree, one at a time, and measures whether and how
//! soon the simulator finds each. The bugs are the files of `xtask/mutants`. The simulator is the crate `iopath-sim`,
//! and for bugs of the NBD client and server that of `iopath-nbd`.

mod mutant;
mod scratch;
mod table;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{seed, workspace};
use mutant::Mutant;
use scratch::Scratch;
use table::Row;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only the mutants whose name contains this; the other rows in docs/simulator.md stay
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Time of the simulator for each mutant
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// The first seed of the simulator [default: the time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Compile each mutant, but do not run the simulator
    #[arg(long)]
    build_only: bool,
}

/// Runs the simulator on each mutant. Returns false if it did not find one.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let mut mutants = mutant::read_all()?;
    let names: Vec<String> = mutants.iter().map(|mutant| mutant.name.clone()).collect();
    mutants.retain(|mutant| options.only.as_ref().is_none_or(|only| mutant.name.contains(only)));
    if mutants.is_empty() {
        let only = options.only.as_deref().unwrap_or_default();
        bail!("no mutant has `{only}` in its name; the mutants are the files of xtask/mutants");
    }
    // All of them, before the first takes a minute.
    mutants.iter().try_for_each(|mutant| mutant.edited(workspace::root()).map(drop))?;
    let scratch = Scratch::new()?;
    let seed = seed::or_time(options.seed)?;
    println!("{} mutants in {}, seed {seed}", mutants.len(), scratch.root().display());
    let mut rows = Vec::new();
    let mut running: Option<JoinHandle<Result<Row>>> = None;
    for mutant in &mutants {
        let restore = scratch.apply(mutant)?;
        let built = build(&scratch, mutant);
        scratch.restore(restore)?;
        built.with_context(|| format!("mutant `{}`", mutant.name))?;
        if options.build_only {
            println!("{}: compiled", mutant.name);
            continue;
        }
        let program = scratch.keep_simulator(mutant)?;
        // The simulator needs one core: the next mutant is built meanwhile.
        rows.extend(running.take().map(ended).transpose()?);
        running = Some(start(mutant, program, seed, options.seconds));
    }
    rows.extend(running.map(ended).transpose()?);
    if !options.build_only {
        table::write(&rows, &names, options.seconds)?;
    }
    Ok(rows.iter().all(|row| row.found.is_some()))
}

/// Runs the simulator in a thread.
fn start(mutant: &Mutant, program: PathBuf, seed: u64, seconds: u64) -> JoinHandle<Result<Row>> {
    let Mutant { name, bug, rule, .. } = mutant.clone();
    std::thread::spawn(move || {
        let start = Instant::now();
        let mut simulator = Command::new(&program);
        simulator.args(["--no-shrink", "--seconds", &seconds.to_string(), "--from", &seed.to_string()]);
        let output = simulator.stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("cannot run {}", program.display()))?;
        let took = start.elapsed();
        let text = [output.stdout, output.stderr].concat();
        let log = program.with_extension("log");
        std::fs::write(&log, &text).with_context(|| format!("cannot write {}", log.display()))?;
        let found =
            (!output.status.success()).then(|| table::found_of(&String::from_utf8_lossy(&text), took));
        Ok(Row { name, bug, rule, found })
    })
}

fn ended(running: JoinHandle<Result<Row>>) -> Result<Row> {
    let row = running.join().map_err(|_| anyhow::anyhow!("the thread of a simulator panicked"))??;
    println!("{}", row.line());
    Ok(row)
}

/// Builds the simulator in the copy. Only crates with changed files are built again.
fn build(scratch: &Scratch, mutant: &Mutant) -> Result<()> {
    let mut cargo = workspace::cargo();
    cargo
        .current_dir(scratch.root())
        .args(["build", "--quiet", "--profile", "checked"])
        .args(mutant.simulator().arguments)
        // With one unit, each mutant compiles all of the core again.
        .args(["--config", "profile.checked.package.iopath-core.codegen-units=64"])
        .env("CARGO_TARGET_DIR", scratch.target())
        .env("CARGO_INCREMENTAL", "1")
        // A mutant may leave names unused.
        .env("RUSTFLAGS", "-A warnings");
    let output = cargo.output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("it does not compile:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
