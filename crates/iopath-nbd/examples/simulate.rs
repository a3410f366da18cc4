//! The program of `cargo xtask sim --nbd`: runs seeds of the simulator of both ends, on several threads.

use std::process::ExitCode;

use clap::Parser;
use iopath_nbd::sim::{self, Counts};
use iopath_sim::Seeds;

/// Simulates the NBD client and server in virtual time, with unfair, slow and lying peers
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    seeds: Seeds,
}

fn main() -> ExitCode {
    let Options { seeds } = Options::parse();
    let run = |seed, counts: &mut Counts| {
        *counts += sim::run_seed(seed)?;
        Ok(())
    };
    // A failure of this simulator is not made shorter.
    let report = |seed, message: String| {
        println!("seed {seed} fails: {message}\nagain: cargo xtask sim --nbd --seed {seed}");
    };
    let ended = seeds.run(run, report);
    let Counts { runs, calls, failed, connections, peers, deaths, bytes, hash } = ended.counts;
    match seeds.seed {
        Some(_) if ended.has_failed => return ExitCode::FAILURE,
        Some(seed) => {
            println!("seed {seed}: {calls} calls, hash {hash:016x}");
            return ExitCode::SUCCESS;
        }
        None => {}
    }
    let (first, seconds) = (seeds.from, ended.seconds);
    println!(
        "sim: nbd: {runs} runs, seeds {first} to {}, {calls} calls ({:.0} a second), {failed} failed, \
         {connections} connections, {peers} unfair peers, {deaths} ends of servers, {} MiB checked, {seconds:.0} s",
        first + runs.saturating_sub(1),
        calls as f64 / seconds,
        bytes >> 20,
    );
    if ended.has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
