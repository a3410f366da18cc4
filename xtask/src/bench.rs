//! `cargo xtask bench`: our figures and those of peers, measured alternately. The figures: `bench/figures.rs`; of the
//! queue alone: `bench/queue.rs`; of the request log: `bench/log.rs`; of models: `bench/models.rs`; of the buffered path:
//! `bench/buffered.rs`.
//!
//! The ratios are of this machine and this time; they state no significance.

mod buffered;
mod contest;
mod cpu;
mod figures;
mod lines;
mod log;
mod models;
mod queue;
mod report;
mod scratch;
mod side;
mod zram;

use anyhow::{Context, Result, bail};

use crate::workspace;
use contest::Bench;
use figures::{CONTESTS, Contest, Target};
use scratch::Scratch;
use zram::{SetUp, Zram};

/// Figures measured by benches of our libraries.
struct Own {
    /// Their name for `--only`.
    name: &'static str,
    /// Measures all of them, as medians over about this many runs.
    measure: fn(u32) -> Result<Vec<report::Figure>>,
}

const OWN: &[Own] = &[
    Own { name: queue::NAME, measure: queue::measure },
    Own { name: log::NAME, measure: log::measure },
    Own { name: models::NAME, measure: models::measure },
];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Runs of each side, whose median is the result
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Length of each run
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..))]
    seconds: u32,
    /// Size of the scratch file
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(64..))]
    scratch_mib: u64,
    /// Run only the contests whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// Builds the program, runs the contests, prints the table and writes `target/bench.json`. Returns whether none failed.
///
/// A missed goal is shown, but is not a failure.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let (contests, own) = chosen(options.only.as_deref())?;
    if !contests.is_empty() || buffered::is_chosen(options.only.as_deref()) {
        build_release()?;
    }
    let scratch = Scratch::folder()?;
    let bench = Bench::new(options.runs, options.seconds)?;

    let mut figures = Vec::new();
    let mut failed = false;
    for contest in contests {
        match hold(contest, &bench, &scratch, options.scratch_mib) {
            Ok(Some(measured)) => figures.extend(measured),
            Ok(None) => {}
            Err(error) => {
                failed = true;
                eprintln!("failed: {}: {error:#}", contest.name);
            }
        }
    }
    for own in own {
        match (own.measure)(options.runs) {
            Ok(measured) => figures.extend(measured),
            Err(error) => {
                failed = true;
                eprintln!("failed: {}: {error:#}", own.name);
            }
        }
    }
    if buffered::is_chosen(options.only.as_deref()) {
        let measured = scratch.file(options.scratch_mib).and_then(|target| {
            buffered::measure(options.only.as_deref(), options.runs, options.seconds, &target)
        });
        match measured {
            Ok(measured) => figures.extend(measured),
            Err(error) => {
                failed = true;
                eprintln!("failed: the buffered path: {error:#}");
            }
        }
    }
    println!("{}", report::table(&figures));
    let path = workspace::target_dir().join("bench.json");
    std::fs::write(&path, report::json(&figures))
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("written to {}", path.display());
    Ok(!failed)
}

/// Prepares the target of `contest` and runs it. Skips it with a line if this machine lacks its requirements.
fn hold(
    contest: &Contest,
    bench: &Bench,
    scratch: &Scratch,
    scratch_mib: u64,
) -> Result<Option<Vec<report::Figure>>> {
    if contest.peer.needs_fio() && workspace::find_program("fio").is_none() {
        eprintln!("skipped: {}: fio is not installed (package fio)", contest.name);
        return Ok(None);
    }
    let measured = match contest.target {
        Target::File => bench.hold(contest, Some(&scratch.file(scratch_mib)?)),
        Target::Nothing => bench.hold(contest, None),
        Target::Zram => match Zram::set_up()? {
            SetUp::Ours(_reset_when_dropped) => bench.hold(contest, Some(&Zram::target())),
            SetUp::Unusable(reason) => {
                eprintln!("skipped: {}: {reason}", contest.name);
                return Ok(None);
            }
        },
    };
    measured.map(Some)
}

fn chosen(only: Option<&str>) -> Result<(Vec<&'static Contest>, Vec<&'static Own>)> {
    let is_chosen = |name: &str| only.is_none_or(|text| name.contains(text));
    let contests: Vec<_> = CONTESTS.iter().filter(|contest| is_chosen(contest.name)).collect();
    let own: Vec<_> = OWN.iter().filter(|own| is_chosen(own.name)).collect();
    if contests.is_empty() && own.is_empty() && !buffered::is_chosen(only) {
        let others = OWN.iter().map(|own| own.name).chain(buffered::names());
        let names: Vec<_> = CONTESTS.iter().map(|contest| contest.name).chain(others).collect();
        bail!("no contest is named like `{}`; there are: {}", only.unwrap_or_default(), names.join("; "));
    }
    Ok((contests, own))
}

fn build_release() -> Result<()> {
    let status = workspace::cargo().args(["build", "--release", "--package", "iopath-cli"]).status()?;
    if !status.success() {
        bail!("cannot build the program to measure: cargo build: {status}");
    }
    Ok(())
}
