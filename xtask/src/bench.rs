//! `cargo xtask bench`: measures iopath and its peers (other programs or paths) in alternating runs, and compares them.
//! `bench/figures.rs` lists the comparisons with other programs. `bench/queue.rs` measures the queue alone,
//! `bench/memory.rs` a volume on memory, `bench/log.rs` the request log, `bench/models.rs` the models,
//! `bench/buffered.rs` the buffered path, `bench/nbd.rs` the NBD server, and `bench/agrees.rs` whether `iopath fio`
//! agrees with fio.
//!
//! Each comparison has the median of its rounds, an interval of 95%, and a verdict; it has no verdict if the peer
//! differs from itself. The ratios apply to this machine at this time.

mod agrees;
mod buffered;
mod contest;
mod cpu;
mod figures;
mod lines;
mod log;
mod memory;
mod models;
mod nbd;
mod queue;
mod report;
mod samples;
mod scratch;
mod side;
mod turns;
mod zram;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::workspace;
use contest::Bench;
use figures::{CONTESTS, Contest, Target};
use scratch::Scratch;
use zram::{SetUp, Zram};

/// Figures measured by the benches of our crates.
struct CrateBench {
    /// The name for `--only`.
    name: &'static str,
    /// Measures all figures, as medians over about this many rounds.
    measure: fn(u32) -> Result<Vec<report::Figure>>,
}

const CRATE_BENCHES: &[CrateBench] = &[
    CrateBench { name: queue::NAME, measure: queue::measure },
    CrateBench { name: memory::NAME, measure: memory::measure },
    CrateBench { name: log::NAME, measure: log::measure },
    CrateBench { name: models::NAME, measure: models::measure },
];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Runs of each side, in alternating order; with less than 6 there is no interval
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Length of each run
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..))]
    seconds: u32,
    /// Size of the scratch file
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(64..))]
    scratch_mib: u64,
    /// Run only the contests whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// Builds the program, runs the contests, prints the table and writes `target/bench.json`. Returns false if a
/// measurement failed. The table shows missed goals, which are not failures.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let (contests, crate_benches) = selected(options.only.as_deref())?;
    let only = options.only.as_deref();
    if !contests.is_empty() || is_other_selected(only) {
        workspace::build_iopath()?;
    }
    let scratch = Scratch::folder()?;
    let bench = Bench { rounds: options.rounds, seconds: options.seconds };

    let mut measured = Measured::default();
    for contest in contests {
        measured.add(contest.name, run_contest(contest, &bench, &scratch, options.scratch_mib))?;
    }
    for crate_bench in crate_benches {
        measured.add(crate_bench.name, (crate_bench.measure)(options.rounds))?;
    }
    if buffered::is_selected(only) {
        let figures = scratch
            .file(options.scratch_mib)
            .and_then(|target| buffered::measure(only, options.rounds, options.seconds, &target));
        measured.add("the buffered path", figures)?;
    }
    if nbd::is_selected(only) {
        let target = scratch.file(options.scratch_mib)?;
        for figures in nbd::measure(only, options.rounds, options.seconds, &target) {
            measured.add("NBD", figures)?;
        }
    }
    if agrees::is_selected(only) {
        let figures = agrees::measure(only, options.rounds, || scratch.file(options.scratch_mib));
        measured.add(agrees::NAME, figures)?;
    }
    println!("{}", report::table(&measured.figures));
    println!("written to {}", Measured::path().display());
    Ok(!measured.has_failed)
}

/// The figures so far.
#[derive(Default)]
struct Measured {
    figures: Vec<report::Figure>,
    has_failed: bool,
}

impl Measured {
    fn path() -> PathBuf {
        workspace::target_dir().join("bench.json")
    }

    /// Adds the figures of `name`, and writes all to the file: an interrupted run keeps what it has measured.
    fn add(&mut self, name: &str, figures: Result<Vec<report::Figure>>) -> Result<()> {
        match figures {
            Ok(figures) => self.figures.extend(figures),
            Err(error) => {
                self.has_failed = true;
                eprintln!("failed: {name}: {error:#}");
            }
        }
        let path = Self::path();
        std::fs::write(&path, report::json(&self.figures))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Prepares the target of `contest` and runs it. Prints a line and skips it if this machine lacks its requirements.
fn run_contest(
    contest: &Contest,
    bench: &Bench,
    scratch: &Scratch,
    scratch_mib: u64,
) -> Result<Vec<report::Figure>> {
    if contest.peer.needs_fio() && workspace::find_program("fio").is_none() {
        eprintln!("skipped: {}: fio is not installed (package fio)", contest.name);
        return Ok(Vec::new());
    }
    match contest.target {
        Target::File => bench.run_contest(contest, Some(&scratch.file(scratch_mib)?)),
        Target::Nothing => bench.run_contest(contest, None),
        Target::Zram => match Zram::set_up()? {
            SetUp::Ours(_reset_when_dropped) => bench.run_contest(contest, Some(&Zram::target())),
            SetUp::Unusable(reason) => {
                eprintln!("skipped: {}: {reason}", contest.name);
                Ok(Vec::new())
            }
        },
    }
}

/// Whether a group of comparisons beside the contests is selected.
fn is_other_selected(only: Option<&str>) -> bool {
    buffered::is_selected(only) || nbd::is_selected(only) || agrees::is_selected(only)
}

fn selected(only: Option<&str>) -> Result<(Vec<&'static Contest>, Vec<&'static CrateBench>)> {
    let is_selected = |name: &str| only.is_none_or(|text| name.contains(text));
    let contests: Vec<_> = CONTESTS.iter().filter(|contest| is_selected(contest.name)).collect();
    let crate_benches: Vec<_> = CRATE_BENCHES.iter().filter(|bench| is_selected(bench.name)).collect();
    if contests.is_empty() && crate_benches.is_empty() && !is_other_selected(only) {
        let others =
            CRATE_BENCHES.iter().map(|bench| bench.name).chain(buffered::names()).chain(nbd::names());
        let names = CONTESTS.iter().map(|contest| contest.name).chain(others).map(str::to_owned);
        let names: Vec<_> = names.chain(agrees::names()).collect();
        bail!(
            "no contest has `{}` in its name; use a part of: {}",
            only.unwrap_or_default(),
            names.join("; ")
        );
    }
    Ok((contests, crate_benches))
}
