//! The program of `cargo xtask sim`: runs seeds on several threads, and prints failures, counts and coverage.

use std::ops::AddAssign;
use std::process::ExitCode;

use clap::Parser;
use iopath_sim::{Counts, Coverage, Draw, Failure, Seeds};

/// Simulates whole systems in virtual time, and checks every byte
#[allow(clippy::struct_excessive_bools, reason = "options of a command line")]
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    seeds: Seeds,
    /// Draw only the features of the first version of the simulator
    #[arg(long)]
    first_features: bool,
    /// Draw only the features of the second version of the simulator
    #[arg(long, conflicts_with = "first_features")]
    second_features: bool,
    /// Draw only the features of the third version of the simulator
    #[arg(long, conflicts_with_all = ["first_features", "second_features"])]
    third_features: bool,
    /// Draw only the features of the fourth version of the simulator
    #[arg(long, conflicts_with_all = ["first_features", "second_features", "third_features"])]
    fourth_features: bool,
}

impl Options {
    const fn draw(&self) -> Draw {
        // At most one of them is set.
        match [self.first_features, self.second_features, self.third_features, self.fourth_features] {
            [true, ..] => Draw::First,
            [_, true, ..] => Draw::Second,
            [_, _, true, _] => Draw::Third,
            [.., true] => Draw::Fourth,
            _ => Draw::All,
        }
    }
}

#[derive(Debug, Default)]
struct Total {
    counts: Counts,
    coverage: Coverage,
}

impl AddAssign for Total {
    fn add_assign(&mut self, other: Self) {
        self.counts += other.counts;
        self.coverage += &other.coverage;
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let draw = options.draw();
    let run = |seed, total: &mut Total| {
        total.counts += iopath_sim::run_seed(seed, draw, &mut total.coverage)?;
        Ok(())
    };
    let report = |seed, failure: Failure| {
        if options.seeds.no_shrink {
            println!("seed {seed} fails at event {}: {}", failure.step, failure.message);
        } else {
            println!("{}", iopath_sim::shrink(seed, draw, failure));
        }
    };
    let ended = options.seeds.run(run, report);
    let Total { counts, coverage } = ended.counts;
    let Counts { runs, calls, failed, requests, faults, bytes, direct, damaged, lost, hash } = counts;
    match options.seeds.seed {
        Some(_) if ended.has_failed => return ExitCode::FAILURE,
        Some(seed) => {
            print!("{}", coverage.report());
            println!("seed {seed}: {calls} calls, hash {hash:016x}");
            return ExitCode::SUCCESS;
        }
        None => print!("{}", coverage.report()),
    }
    let (first, seconds) = (options.seeds.from, ended.seconds);
    println!(
        "sim: {runs} runs, seeds {first} to {}, {calls} calls ({:.0} a second), {failed} failed, {requests} requests, \
         {faults} faults, {} MiB checked, {} MiB direct without a copy, {damaged} damaged cells, {lost} sectors lost by lying disks, {} states, {seconds:.0} s",
        first + runs.saturating_sub(1),
        calls as f64 / seconds,
        bytes >> 20,
        direct >> 20,
        coverage.states(),
    );
    if ended.has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
