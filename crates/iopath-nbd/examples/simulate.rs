//! The program of `cargo xtask sim --nbd`: runs seeds of the simulator of both ends, on several threads.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use iopath_nbd::sim::{self, Counts};
use rustix::time::{ClockId, clock_gettime};

/// The options, as `NAME VALUE` or `NAME=VALUE`.
struct Options {
    seed: Option<u64>,
    from: u64,
    seconds: u64,
    jobs: usize,
}

/// A run takes milliseconds. One that uses this CPU time without an end has a loop.
const LIMIT: Duration = Duration::from_secs(60);

impl Options {
    fn parse() -> Result<Self, String> {
        let jobs = thread::available_parallelism().map_or(1, usize::from);
        let mut options = Self { seed: None, from: 1, seconds: 60, jobs };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (argument, None),
            };
            // A failure of this simulator is printed as it is.
            if name == "--no-shrink" {
                continue;
            }
            let value = value.or_else(|| arguments.next()).and_then(|value| value.parse().ok());
            let value: u64 = value.ok_or_else(|| format!("{name} needs a number"))?;
            match name.as_str() {
                "--seed" => options.seed = Some(value),
                "--from" => options.from = value,
                "--seconds" => options.seconds = value,
                "--jobs" => options.jobs = (value as usize).max(1),
                _ => return Err(format!("{name} is not one of --seed, --from, --seconds, --jobs")),
            }
        }
        Ok(options)
    }
}

fn main() -> ExitCode {
    let options = match Options::parse() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    // A failure is printed with its seed, not as a panic.
    std::panic::set_hook(Box::new(|_| ()));
    let seeds: Vec<AtomicU64> = (0..options.jobs).map(|_| AtomicU64::new(u64::MAX)).collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| watch(&seeds, &is_over));
        let result = match options.seed {
            Some(seed) => one(seed, &seeds[0]),
            None => many(&options, &seeds),
        };
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

/// Ends the program if the run of a thread does not end.
fn watch(seeds: &[AtomicU64], is_over: &AtomicBool) {
    let cpu_time = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), 0)
    };
    let mut runs = vec![(u64::MAX, Duration::ZERO); seeds.len()];
    let limit = LIMIT * seeds.len() as u32;
    while !is_over.load(Ordering::Relaxed) {
        let now = cpu_time();
        for (seed, (last, since)) in seeds.iter().zip(&mut runs) {
            let seed = seed.load(Ordering::Relaxed);
            if seed != *last {
                (*last, *since) = (seed, now);
            } else if seed != u64::MAX && now.saturating_sub(*since) > limit {
                println!("seed {seed} fails: liveness: the run does not end");
                std::process::exit(1);
            }
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn one(seed: u64, current: &AtomicU64) -> ExitCode {
    current.store(seed, Ordering::Relaxed);
    match sim::run_seed(seed) {
        Ok(counts) => {
            println!("seed {seed}: {} calls, hash {:016x}", counts.calls, counts.hash);
            ExitCode::SUCCESS
        }
        Err(message) => {
            report(seed, &message);
            ExitCode::FAILURE
        }
    }
}

fn report(seed: u64, message: &str) {
    println!("seed {seed} fails: {message}\nagain: cargo xtask sim --nbd --seed {seed}");
}

/// Runs seeds until the time is over or one fails.
fn many(options: &Options, seeds: &[AtomicU64]) -> ExitCode {
    let started = Instant::now();
    let next = AtomicU64::new(options.from);
    let has_failed = AtomicBool::new(false);
    let total = Mutex::new(Counts::default());
    let work = |current: &AtomicU64| {
        let mut counts = Counts::default();
        let limit = Duration::from_secs(options.seconds);
        while started.elapsed() < limit && !has_failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            current.store(seed, Ordering::Relaxed);
            match sim::run_seed(seed) {
                Ok(run) => counts += run,
                Err(message) if !has_failed.swap(true, Ordering::Relaxed) => report(seed, &message),
                Err(_) => {}
            }
        }
        current.store(u64::MAX, Ordering::Relaxed);
        *total.lock().expect("no thread panics while it holds the lock") += counts;
    };
    thread::scope(|scope| {
        let work = &work;
        for current in seeds {
            scope.spawn(move || work(current));
        }
    });
    let counts = total.into_inner().expect("no thread panics while it holds the lock");
    let seconds = started.elapsed().as_secs_f64();
    let Counts { runs, calls, failed, connections, peers, deaths, bytes, .. } = counts;
    println!(
        "sim: {runs} runs, seeds {} to {}, {calls} calls ({:.0} a second), {failed} failed, {connections} connections, \
         {peers} unfair peers, {deaths} ends of servers, {} MiB checked, {seconds:.0} s",
        options.from,
        options.from + runs.saturating_sub(1),
        calls as f64 / seconds,
        bytes >> 20,
    );
    if has_failed.into_inner() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
