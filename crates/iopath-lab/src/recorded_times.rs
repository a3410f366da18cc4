//! The times of recorded requests: stretched by a speed, and as think times after the completions that they follow. For
//! replays of a trace in memory (`whatif`) and of one that is read meanwhile (`replay`). Does not submit.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Stretches times: a speed of 0.1 makes each interval ten times as long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stretch {
    /// None leaves the times unchanged, to the nanosecond.
    factor: Option<f64>,
}

impl Stretch {
    /// For a speed above 0.
    #[expect(clippy::float_cmp, reason = "the recorded speed is exactly 1")]
    pub(crate) fn of_speed(speed: f64) -> Self {
        Self { factor: (speed != 1.0).then_some(1.0 / speed) }
    }

    /// An interval of the recording, in nanoseconds of the replay.
    #[inline]
    pub(crate) fn of(self, ns: u64) -> u64 {
        self.factor.map_or(ns, |factor| (ns as f64 * factor) as u64)
    }
}

/// The completion of the same stream that a request follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    /// The request follows the completion of this number: 1 is the first of the stream, 0 is none.
    pub(crate) after: u64,
    /// The time from that completion to the submission. Without one: the time of the submission.
    pub(crate) think_ns: u64,
}

/// The completions of a stream, while its dependencies are determined.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    in_flight: BinaryHeap<Reverse<u64>>,
    count: u64,
    /// The time of the last completion.
    last_ns: u64,
    /// The number of completions at that time, and of requests that follow them.
    last: u64,
    followers: u64,
}

impl Completions {
    /// The dependency of the next request of the stream, which was submitted at `at_ns` and completed at `done_ns`.
    ///
    /// A request follows a number of completions, not the completion of a certain request: a program with several
    /// requests in flight submits the next one when any of them completes, and a replay may complete them in another
    /// order.
    pub(crate) fn link(&mut self, at_ns: u64, done_ns: Option<u64>) -> Link {
        let after = self.before(at_ns);
        self.in_flight.extend(done_ns.map(Reverse));
        let since_ns = if after > 0 { self.last_ns } else { 0 };
        Link { after, think_ns: at_ns.saturating_sub(since_ns) }
    }

    /// The number of the completion that a request follows that was submitted at `at_ns`. Each of several simultaneous
    /// completions is followed by one request, and the last one by all further requests. So a stream that refills its
    /// slots refills each of them at its own time, and a stream that waits for a batch waits for the whole batch.
    fn before(&mut self, at_ns: u64) -> u64 {
        while let Some(&Reverse(done_ns)) = self.in_flight.peek().filter(|first| first.0 <= at_ns) {
            self.in_flight.pop();
            if done_ns > self.last_ns {
                (self.last_ns, self.last, self.followers) = (done_ns, 0, 0);
            }
            self.count += 1;
            self.last += 1;
        }
        self.followers = (self.followers + 1).min(self.last);
        self.count - self.last + self.followers
    }
}
