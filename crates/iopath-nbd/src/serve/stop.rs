//! The waits at the end of a server: for its threads, and for the flushes of its volumes. Closes no connection.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use iopath::Volume;

/// The time between two looks at a thread.
const POLL: Duration = Duration::from_millis(1);

/// The time between two looks at the progress of a flush.
const TICK: Duration = Duration::from_secs(1);

/// The result of a thread; `None` if it does not end in time. It then continues without an owner.
pub(super) fn join_until(thread: JoinHandle<io::Result<()>>, until: Instant) -> Option<io::Result<()>> {
    while !thread.is_finished() {
        if Instant::now() >= until {
            return None;
        }
        thread::sleep(POLL);
    }
    Some(joined(thread))
}

fn joined(thread: JoinHandle<io::Result<()>>) -> io::Result<()> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the server panicked")))
}

/// Flushes exports, each in a thread of its own: a flush may wait for a server that does not answer. A flush that makes
/// no progress for `limit` is given up. The time counts from `began` on.
pub(super) fn flush(
    writable: Vec<(String, Volume)>,
    began: Instant,
    limit: Duration,
    on_progress: &mut dyn FnMut(),
) -> io::Result<()> {
    let start = |(name, volume): (String, Volume)| {
        let progress = Progress { written: written(&volume), deadline: began + limit };
        let flushed = volume.clone();
        let thread = thread::Builder::new().name("nbd-flush".to_owned());
        let thread = thread.spawn(move || flushed.flush().map_err(io::Error::from))?;
        Ok(Flushing { name, volume, thread, progress })
    };
    let mut waiting: Vec<Flushing> = writable.into_iter().map(start).collect::<io::Result<_>>()?;
    let (mut result, mut looked) = (Ok(()), Instant::now());
    while !waiting.is_empty() {
        thread::sleep(POLL);
        let (ended, others) = waiting.into_iter().partition(|flushing| flushing.thread.is_finished());
        waiting = others;
        result = ended.into_iter().fold(result, |result, Flushing { thread, .. }| result.and(joined(thread)));
        let now = Instant::now();
        if now - looked < TICK.min(limit / 10) {
            continue;
        }
        looked = now;
        let mut has_progress = false;
        waiting.retain_mut(|Flushing { name, volume, progress, .. }| {
            has_progress |= progress.advance(written(volume), now, limit);
            if now < progress.deadline {
                return true;
            }
            let message = format!(
                "export {name:?} was not flushed: nothing was written for {} s; data that clients wrote may be lost",
                limit.as_secs_f64()
            );
            if result.is_ok() {
                result = Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            false
        });
        if has_progress {
            on_progress();
        }
    }
    result
}

/// A flush in progress.
struct Flushing {
    name: String,
    volume: Volume,
    thread: JoinHandle<io::Result<()>>,
    progress: Progress,
}

/// Pages that the cache of a volume has written back. A volume without a cache shows no progress of a flush.
fn written(volume: &Volume) -> u64 {
    volume.stats().map_or(0, |stats| stats.cache.pages_written)
}

/// The pages that a flush has written, and the time at which it is given up without any more of them.
#[derive(Debug)]
struct Progress {
    written: u64,
    deadline: Instant,
}

impl Progress {
    /// Moves the deadline if pages were written since the last call. Returns whether there were any.
    fn advance(&mut self, written: u64, now: Instant, limit: Duration) -> bool {
        let has_progress = written != self.written;
        if has_progress {
            self.written = written;
            self.deadline = self.deadline.max(now + limit);
        }
        has_progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_is_given_up_only_without_progress() {
        let (began, limit, second) = (Instant::now(), Duration::from_secs(40), Duration::from_secs(1));
        let mut progress = Progress { written: 7, deadline: began + limit };
        assert!(!progress.advance(7, began + second * 39, limit));
        assert_eq!(progress.deadline, began + limit, "no progress");
        // A page each 39 s: the flush takes minutes.
        for number in 1..10 {
            let now = began + second * 39 * number;
            assert!(now < progress.deadline, "{number}");
            assert!(progress.advance(7 + u64::from(number), now, limit));
            assert_eq!(progress.deadline, now + limit);
        }
    }
}
