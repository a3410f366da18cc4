//! Ends the program if a run does not end: a loop of the library in which no virtual time passes, or a wait. A loop
//! uses a processor, so its limit is one of CPU time: other load on the machine delays a run and does not end it. A
//! wait uses none, so there is a long limit of time as well.

use rustix::thread::{Pid, gettid};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, process, thread};

/// The runs in progress, one for each thread.
#[derive(Debug)]
pub(crate) struct Watchdog {
    runs: Vec<Mutex<Option<Run>>>,
}

/// A run in progress.
#[derive(Debug, Clone, Copy)]
struct Run {
    seed: u64,
    thread: Pid,
    started: Instant,
    /// The CPU time of the thread when the run began.
    cpu_before: Duration,
}

impl Watchdog {
    /// A run takes milliseconds, and a long one seconds.
    const LIMIT: Duration = Duration::from_secs(60);
    /// Far more than other load delays a run.
    const WAIT_LIMIT: Duration = Duration::from_secs(1800);
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
                        println!(
                            "seed {seed} fails: liveness: the run has not ended after {seconds} s of CPU time"
                        );
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
        let own = gettid();
        set(Some(Run { seed, thread: own, started: Instant::now(), cpu_before: cpu_time(own) }));
        let result = run();
        set(None);
        result
    }

    /// The seed of a run that has taken longer than the limit.
    fn endless(&self) -> Option<u64> {
        self.runs.iter().find_map(|run| {
            let run = *run.lock().unwrap_or_else(PoisonError::into_inner);
            let run = run?;
            let is_busy = cpu_time(run.thread).saturating_sub(run.cpu_before) > Self::LIMIT;
            (is_busy || run.started.elapsed() > Self::WAIT_LIMIT).then_some(run.seed)
        })
    }
}

/// The CPU time of a thread of this process, `proc_pid_schedstat(5)`; the time since its start if the kernel does
/// not report it.
fn cpu_time(thread: Pid) -> Duration {
    static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
    let passed = STARTED.elapsed();
    let text = fs::read_to_string(format!("/proc/self/task/{}/schedstat", thread.as_raw_nonzero()));
    let nanos = text.ok().and_then(|text| text.split_whitespace().next()?.parse().ok());
    nanos.map_or(passed, Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_waits_uses_no_time_and_a_busy_one_does() {
        let own = gettid();
        let before = cpu_time(own);
        while cpu_time(own) <= before {
            std::hint::spin_loop();
        }
        let (other, waits) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let waiting = thread::spawn(move || {
            let _ = other.send(gettid());
            let _ = ended.recv();
        });
        let other = waits.recv().expect("the thread runs");
        while fs::read_to_string(format!("/proc/self/task/{}/stat", other.as_raw_nonzero()))
            .is_ok_and(|stat| !stat.contains(") S "))
        {
            thread::yield_now();
        }
        let waited = cpu_time(other);
        thread::sleep(Duration::from_millis(50));
        assert_eq!(cpu_time(other), waited, "a thread that sleeps");
        drop(end);
        waiting.join().expect("it ends");
    }
}
