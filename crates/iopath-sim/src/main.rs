//! The program of `cargo xtask sim`: runs seeds on several threads, and prints failures, counts and coverage.

mod watchdog;

use std::panic;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use iopath_sim::{Counts, Coverage, Draw, Failure};
use watchdog::Watchdog;

/// Simulates whole systems in virtual time, and checks every byte
#[allow(clippy::struct_excessive_bools, reason = "options of a command line")]
#[derive(Debug, Parser)]
struct Options {
    /// Run this seed
    #[arg(long, conflicts_with_all = ["seconds", "from"])]
    seed: Option<u64>,
    /// Run seeds from this one on
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Run seeds for this time
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Threads
    #[arg(long)]
    jobs: Option<usize>,
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
    /// Print a failure as it is, without making it shorter
    #[arg(long)]
    no_shrink: bool,
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

fn main() -> ExitCode {
    let options = Options::parse();
    // A failure is printed with its seed, not as a panic.
    panic::set_hook(Box::new(|_| ()));
    if let Some(seed) = options.seed {
        return one(seed, &options);
    }
    many(options.from, &options)
}

fn one(seed: u64, options: &Options) -> ExitCode {
    let mut coverage = Coverage::default();
    let run = || iopath_sim::run_seed(seed, options.draw(), &mut coverage);
    match Watchdog::new(1).watch(|watchdog| watchdog.run(0, seed, run)) {
        Ok(counts) => {
            print!("{}", coverage.report());
            println!("seed {seed}: {} calls, hash {:016x}", counts.calls, counts.hash);
            ExitCode::SUCCESS
        }
        Err(failure) => {
            report(seed, failure, options);
            ExitCode::FAILURE
        }
    }
}

fn report(seed: u64, failure: Failure, options: &Options) {
    if options.no_shrink {
        println!("seed {seed} fails at event {}: {}", failure.step, failure.message);
    } else {
        println!("{}", iopath_sim::shrink(seed, options.draw(), failure));
    }
}

/// Runs seeds until the time is over or one fails.
fn many(first: u64, options: &Options) -> ExitCode {
    let started = Instant::now();
    let next = AtomicU64::new(first);
    let has_failed = AtomicBool::new(false);
    let total = Mutex::new((Counts::default(), Coverage::default()));
    let jobs = options.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let work = |watchdog: &Watchdog, number: usize| {
        let mut counts = Counts::default();
        let mut coverage = Coverage::default();
        while started.elapsed() < Duration::from_secs(options.seconds) && !has_failed.load(Ordering::Relaxed)
        {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let run = || iopath_sim::run_seed(seed, options.draw(), &mut coverage);
            match watchdog.run(number, seed, run) {
                Ok(run) => counts += run,
                Err(failure) => {
                    if !has_failed.swap(true, Ordering::Relaxed) {
                        report(seed, failure, options);
                    }
                }
            }
        }
        let mut total = total.lock().expect("no thread panics while it holds the lock");
        total.0 += counts;
        total.1 += &coverage;
    };
    Watchdog::new(jobs).watch(|watchdog| {
        thread::scope(|scope| {
            for number in 0..jobs {
                let work = &work;
                scope.spawn(move || work(watchdog, number));
            }
        });
    });
    let (counts, coverage) = total.into_inner().expect("no thread panics while it holds the lock");
    print!("{}", coverage.report());
    let seconds = started.elapsed().as_secs_f64();
    let Counts { runs, calls, failed, requests, faults, bytes, direct, damaged, lost, .. } = counts;
    println!(
        "sim: {runs} runs, seeds {first} to {}, {calls} calls ({:.0} a second), {failed} failed, {requests} requests, \
         {faults} faults, {} MiB checked, {} MiB direct without a copy, {damaged} damaged cells, {lost} sectors lost by lying disks, {} states, {seconds:.0} s",
        first + runs.saturating_sub(1),
        calls as f64 / seconds,
        bytes >> 20,
        direct >> 20,
        coverage.states(),
    );
    if has_failed.into_inner() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
