//! Turns a hang into a failure: aborts the program when no operation has completed for `HANG`.
//!
//! A thread that hangs cannot be stopped, so the program aborts. The message has the command to repeat the run.

use crate::backend::Scratch;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longer than any permitted wait of an operation. The longest is 10 s, for a page cache whose pages are all borrowed.
const HANG: Duration = Duration::from_secs(30);

/// Counts completed operations. Clones share the count.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress(Arc<AtomicU64>);

impl Progress {
    /// An operation has completed.
    pub(crate) fn step(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// A thread that watches a [`Progress`] until this is dropped.
#[derive(Debug)]
pub(crate) struct Watchdog {
    pub(crate) progress: Progress,
    /// The command of the current run.
    replay: Arc<Mutex<String>>,
    _end: Sender<()>,
}

impl Watchdog {
    /// Watches operations on a file at `scratch`. Removes the file if the program has to abort.
    pub(crate) fn new(scratch: Option<PathBuf>) -> Self {
        let (progress, replay) = (Progress::default(), Arc::new(Mutex::new(String::new())));
        let (end, ended) = channel();
        let (counter, command) = (progress.clone(), Arc::clone(&replay));
        let mut watched = Watched { count: 0, since: Instant::now() };
        std::thread::spawn(move || {
            while ended.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                if watched.is_stuck_at(counter.0.load(Relaxed)) {
                    abort(&command.lock().unwrap_or_else(PoisonError::into_inner), scratch);
                }
            }
        });
        Self { progress, replay, _end: end }
    }

    /// Sets the command of the current run.
    pub(crate) fn watch(&self, replay: String) {
        *self.replay.lock().unwrap_or_else(PoisonError::into_inner) = replay;
    }
}

struct Watched {
    count: u64,
    since: Instant,
}

impl Watched {
    fn is_stuck_at(&mut self, count: u64) -> bool {
        if count != self.count {
            *self = Self { count, since: Instant::now() };
        }
        self.since.elapsed() >= HANG
    }
}

/// Writes to stderr directly: the test harness delays output until the test ends.
fn abort(replay: &str, scratch: Option<PathBuf>) -> ! {
    let message = format!(
        "\nhang: no operation completed for {} s; threads and the kernel functions in which they wait:\n{}run again: {replay}\n",
        HANG.as_secs(),
        threads()
    );
    // If stderr is closed, the exit status still reports the failure.
    let _ = std::io::stderr().write_all(message.as_bytes());
    if let Some(path) = scratch {
        Scratch::remove_leftovers(&path);
    }
    std::process::abort();
}

/// A line for each thread: its name, and the kernel function in which it waits.
fn threads() -> String {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return String::new() };
    let line = |task: std::fs::DirEntry| {
        let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        format!("  {:<16} {}\n", read("comm").trim(), read("wchan").trim())
    };
    tasks.flatten().map(line).collect()
}
