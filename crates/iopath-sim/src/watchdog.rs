//! Ends the program if a run does not end: a loop of the library in which no virtual time passes.

use std::process;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The runs in progress, one for each thread.
#[derive(Debug)]
pub(crate) struct Watchdog {
    runs: Vec<Mutex<Option<(u64, Instant)>>>,
}

impl Watchdog {
    /// A run takes milliseconds. Far more than a busy machine delays it.
    const LIMIT: Duration = Duration::from_secs(60);
    const CHECK: Duration = Duration::from_secs(1);

    pub(crate) fn new(threads: usize) -> Self {
        Self { runs: (0..threads).map(|_| Mutex::default()).collect() }
    }

    /// Calls `work`, and watches its runs meanwhile.
    pub(crate) fn watch<T>(&self, work: impl FnOnce(&Self) -> T) -> T {
        thread::scope(|scope| {
            let (end, ended) = mpsc::channel::<()>();
            scope.spawn(move || {
                while ended.recv_timeout(Self::CHECK) == Err(RecvTimeoutError::Timeout) {
                    if let Some(seed) = self.endless() {
                        let seconds = Self::LIMIT.as_secs();
                        println!("seed {seed} fails: liveness: the run has not ended after {seconds} s");
                        process::exit(1);
                    }
                }
            });
            let result = work(self);
            drop(end);
            result
        })
    }

    /// A run of a seed on the thread with this number.
    pub(crate) fn run<T>(&self, thread: usize, seed: u64, run: impl FnOnce() -> T) -> T {
        let set = |state| *self.runs[thread].lock().unwrap_or_else(PoisonError::into_inner) = state;
        set(Some((seed, Instant::now())));
        let result = run();
        set(None);
        result
    }

    /// The seed of a run that has taken longer than the limit.
    fn endless(&self) -> Option<u64> {
        self.runs.iter().find_map(|run| {
            let run = *run.lock().unwrap_or_else(PoisonError::into_inner);
            run.filter(|(_, started)| started.elapsed() > Self::LIMIT).map(|(seed, _)| seed)
        })
    }
}
