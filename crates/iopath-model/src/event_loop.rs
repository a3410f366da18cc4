//! The event loop of virtual time. It executes the work that is due, jumps to the next time at which work is due, and
//! repeats. It does not depend on devices or workloads: a [`Process`] is any set of state machines that take `now` as
//! an argument.
//!
//! ```text
//!        ┌─▶ advance(now) ─▶ done? ─ yes ─▶ End::Done
//!        │                     │ no
//!        └── now = the time ◀── poll_timeout: the earliest of workload, page cache, queue and device
//! ```

use std::ops::ControlFlow;

use iopath_core::Instant;

use crate::clock::{EndOfTime, VirtualClock};

/// Rounds between two calls of the watcher.
const WATCH_ROUNDS: u32 = 1024;

/// The maximum number of rounds at one time; more are an error. Each round executes all work that is due, so even
/// thousands of jobs that wake each other need few rounds.
const ROUNDS_AT_ONCE_MAX: u32 = 1 << 20;

/// State machines that run in virtual time.
pub trait Process {
    /// Executes all work that is due at `now`. That may make further work due at the same time. The process may leave
    /// such work to the next call, if [`Process::poll_timeout`] returns `now`.
    fn advance(&mut self, now: Instant);

    /// The earliest time at which [`Process::advance`] has work; `None` if the process waits for no event.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Whether the process has ended, with success or with a failure that it has recorded.
    fn is_done(&self) -> bool;
}

/// The reason why a loop ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The process is done.
    Done,
    /// The watcher stopped it.
    Stopped,
}

/// The reason why a process cannot advance: a bug of one of its state machines, or the end of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LoopError {
    /// The process is not done, and no work is or will be due.
    #[error("nothing is due after {} ns of virtual time, but I/O is in flight: a bug of the model", now.as_nanos())]
    Stalled {
        /// The time.
        now: Instant,
    },
    /// The process has work at the same time again and again.
    #[error("virtual time stands still at {} ns: a bug of the model", now.as_nanos())]
    Stuck {
        /// The time.
        now: Instant,
    },
    /// The next event is later than the end of time.
    #[error(transparent)]
    EndOfTime(#[from] EndOfTime),
}

/// Runs `process` until it is done. Calls `watch` every thousand rounds; `watch` may stop the process.
///
/// # Errors
/// [`LoopError`]: the process cannot advance.
pub fn run<P: Process + ?Sized>(
    process: &mut P,
    clock: &mut VirtualClock,
    watch: &mut dyn FnMut(&P, Instant) -> ControlFlow<()>,
) -> Result<End, LoopError> {
    let mut rounds_left = WATCH_ROUNDS;
    let mut rounds_at_once = 0;
    loop {
        let now = clock.now();
        process.advance(now);
        if process.is_done() {
            return Ok(End::Done);
        }
        rounds_left -= 1;
        if rounds_left == 0 {
            rounds_left = WATCH_ROUNDS;
            if watch(process, now).is_break() {
                return Ok(End::Stopped);
            }
        }
        let due = process.poll_timeout().ok_or(LoopError::Stalled { now })?;
        if clock.jump_to(due)? {
            rounds_at_once = 0;
        } else {
            rounds_at_once += 1;
            if rounds_at_once == ROUNDS_AT_ONCE_MAX {
                return Err(LoopError::Stuck { now });
            }
        }
    }
}

/// The earlier of two times; `None` means never.
#[inline]
pub fn earlier<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Ticks a number of times.
    struct Ticks {
        left: u32,
        next: Option<Instant>,
        every: Duration,
        seen: Vec<Instant>,
    }

    impl Ticks {
        fn new(left: u32, every: Duration) -> Self {
            Self { left, next: Some(Instant::ZERO), every, seen: Vec::new() }
        }
    }

    impl Process for Ticks {
        fn advance(&mut self, now: Instant) {
            self.seen.push(now);
            self.left = self.left.saturating_sub(1);
            self.next = self.next.map(|_| now + self.every);
        }

        fn poll_timeout(&self) -> Option<Instant> {
            self.next
        }

        fn is_done(&self) -> bool {
            self.left == 0
        }
    }

    fn run_all(ticks: &mut Ticks, clock: &mut VirtualClock) -> Result<End, LoopError> {
        run(ticks, clock, &mut |_, _| ControlFlow::Continue(()))
    }

    #[test]
    fn time_passes_by_jumps_to_the_next_event() {
        let mut ticks = Ticks::new(3, Duration::from_secs(7));
        let mut clock = VirtualClock::default();
        assert_eq!(run_all(&mut ticks, &mut clock), Ok(End::Done));
        assert_eq!(ticks.seen, [0, 7, 14].map(|seconds| Instant::from_nanos(seconds * 1_000_000_000)));
        assert_eq!(Some(&clock.now()), ticks.seen.last());
    }

    #[test]
    fn a_process_that_waits_for_nothing_is_an_error_and_not_a_hang() {
        let mut ticks = Ticks::new(3, Duration::ZERO);
        let mut clock = VirtualClock::default();
        ticks.next = None;
        assert_eq!(run_all(&mut ticks, &mut clock), Err(LoopError::Stalled { now: Instant::ZERO }));
    }

    #[test]
    fn time_that_stands_still_is_an_error_and_not_a_hang() {
        let mut ticks = Ticks::new(u32::MAX, Duration::ZERO);
        let mut clock = VirtualClock::default();
        assert_eq!(run_all(&mut ticks, &mut clock), Err(LoopError::Stuck { now: Instant::ZERO }));
    }

    #[test]
    fn the_end_of_time_is_an_error() {
        let mut ticks = Ticks::new(3, Duration::MAX);
        let mut clock = VirtualClock::default();
        assert_eq!(run_all(&mut ticks, &mut clock), Err(LoopError::EndOfTime(EndOfTime)));
    }

    #[test]
    fn the_watcher_stops_a_process() {
        let mut ticks = Ticks::new(u32::MAX, Duration::from_nanos(1));
        let mut clock = VirtualClock::default();
        let mut calls = 0;
        let ended = run(&mut ticks, &mut clock, &mut |ticks, now| {
            calls += 1;
            assert_eq!(ticks.seen.len(), calls * WATCH_ROUNDS as usize);
            assert_eq!(ticks.seen.last(), Some(&now));
            if calls == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!((ended, calls), (Ok(End::Stopped), 3));
    }

    #[test]
    fn never_is_later_than_any_time() {
        let [a, b] = [3, 5].map(|nanos| Some(Instant::from_nanos(nanos)));
        assert_eq!([earlier(a, b), earlier(b, a), earlier(None, b), earlier(a, None)], [a, a, b, a]);
        assert_eq!(earlier::<Instant>(None, None), None);
    }
}
