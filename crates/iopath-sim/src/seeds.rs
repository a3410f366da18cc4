//! Runs seeds of a simulator on several threads: this one, and that of another crate.

use std::ops::AddAssign;
use std::panic;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::watchdog::Watchdog;

/// The seeds to run, as options of a program.
#[derive(Debug, Clone, clap::Args)]
pub struct Seeds {
    /// Run this seed
    #[arg(long, conflicts_with_all = ["seconds", "from"])]
    pub seed: Option<u64>,
    /// Run seeds from this one on
    #[arg(long, default_value_t = 1)]
    pub from: u64,
    /// Run seeds for this time
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// Threads
    #[arg(long)]
    pub jobs: Option<usize>,
    /// Print a failure as it is, without making it shorter
    #[arg(long)]
    pub no_shrink: bool,
}

/// The end of runs.
#[derive(Debug)]
pub struct Ended<C> {
    /// The sum over all runs.
    pub counts: C,
    /// The time that the runs took.
    pub seconds: f64,
    /// Whether a run has failed.
    pub has_failed: bool,
}

impl Seeds {
    /// Runs one seed, or seeds until the time ends or one fails. `run` adds to the counts of its thread; `report`
    /// prints the first failure. A panic prints nothing. If a run does not end, the program ends with its seed.
    pub fn run<C: Default + AddAssign + Send, F>(
        &self,
        run: impl Fn(u64, &mut C) -> Result<(), F> + Sync,
        report: impl Fn(u64, F) + Sync,
    ) -> Ended<C> {
        // A failure is printed with its seed, not as a panic.
        panic::set_hook(Box::new(|_| ()));
        let started = Instant::now();
        let next = AtomicU64::new(self.seed.unwrap_or(self.from));
        let has_failed = AtomicBool::new(false);
        let total = Mutex::new(C::default());
        let one = |watchdog: &Watchdog, thread: usize, counts: &mut C| {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if let Err(failure) = watchdog.run(thread, seed, || run(seed, counts))
                && !has_failed.swap(true, Ordering::Relaxed)
            {
                report(seed, failure);
            }
        };
        let limit = Duration::from_secs(self.seconds);
        let work = |watchdog: &Watchdog, thread: usize| {
            let mut counts = C::default();
            if self.seed.is_some() {
                one(watchdog, thread, &mut counts);
            } else {
                while started.elapsed() < limit && !has_failed.load(Ordering::Relaxed) {
                    one(watchdog, thread, &mut counts);
                }
            }
            *total.lock().expect("no thread panics while it holds the lock") += counts;
        };
        let processors = || thread::available_parallelism().map_or(1, usize::from);
        let jobs = if self.seed.is_some() { 1 } else { self.jobs.unwrap_or_else(processors) };
        Watchdog::new(jobs).watch(|watchdog| {
            thread::scope(|scope| {
                for number in 0..jobs {
                    let work = &work;
                    scope.spawn(move || work(watchdog, number));
                }
            });
        });
        Ended {
            counts: total.into_inner().expect("no thread panics while it holds the lock"),
            seconds: started.elapsed().as_secs_f64(),
            has_failed: has_failed.into_inner(),
        }
    }
}
