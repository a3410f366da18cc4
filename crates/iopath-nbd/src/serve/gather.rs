//! How long an event loop that polls lets requests gather before it looks for them.
//!
//! A client with many requests in flight sends the next one as soon as it has handled a reply. A loop that polls
//! without a pause then serves each request alone: three system calls for it, and a client that is interrupted for each
//! reply.
//! After a short pause, one pass serves several. A client with one or two requests in flight only loses that time.
//!
//! The loop cannot know which kind of client it has, so it measures. It serves a millisecond with each pause, and keeps
//! the pause with the most requests for a while:
//!
//! ```text
//!   │ 0 │ 4 │ 10 │ the best of them                                  │ 0 │ 4 │ 10 │ …
//!   0   1   2    3 ms                                              400
//! ```

use std::time::{Duration, Instant};

/// The pauses. Longer ones serve no more requests in a pass than a client sends in a system call or two.
const PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_micros(4), Duration::from_micros(10)];

/// The time for which each pause is measured.
const MEASURED: Duration = Duration::from_millis(1);

/// The time for which the best pause is in use: so long that the pauses of the measurement delay less than 1% of the
/// requests of a client with one request in flight.
const KEPT: Duration = Duration::from_millis(400);

/// A pause is better than none only if it serves this share of requests more.
const GAIN: f64 = 1.05;

/// Selects the pause.
#[derive(Debug)]
pub(super) struct Gather {
    phase: Phase,
    /// Requests per second with each pause, as far as measured.
    rates: [f64; PAUSES.len()],
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// The loop has slept: no pause until it polls again.
    Idle,
    /// A pause is measured, from a time and a number of requests on.
    Measure { index: usize, since: Instant, requests: u64 },
    /// The best pause is in use.
    Keep { index: usize, since: Instant },
}

impl Gather {
    pub(super) const fn new() -> Self {
        Self { phase: Phase::Idle, rates: [0.0; PAUSES.len()] }
    }

    /// The pause before the loop polls next. The loop has served `requests` so far.
    pub(super) fn pause(&mut self, requests: u64, now: Instant) -> Duration {
        let first = Phase::Measure { index: 0, since: now, requests };
        self.phase = match self.phase {
            Phase::Idle => first,
            Phase::Keep { since, .. } if now.duration_since(since) >= KEPT => first,
            Phase::Measure { index, since, requests: before } if now.duration_since(since) >= MEASURED => {
                self.rates[index] = (requests - before) as f64 / now.duration_since(since).as_secs_f64();
                match index + 1 {
                    next if next < PAUSES.len() => Phase::Measure { index: next, since: now, requests },
                    _ => Phase::Keep { index: self.best(), since: now },
                }
            }
            unchanged => unchanged,
        };
        match self.phase {
            Phase::Idle => Duration::ZERO,
            Phase::Measure { index, .. } | Phase::Keep { index, .. } => PAUSES[index],
        }
    }

    /// The loop has slept: the client has changed its pace.
    pub(super) fn handle_sleep(&mut self) {
        self.phase = Phase::Idle;
    }

    fn best(&self) -> usize {
        let without = self.rates[0] * GAIN;
        let better = (1..PAUSES.len()).filter(|&index| self.rates[index] > without);
        better.max_by(|&a, &b| self.rates[a].total_cmp(&self.rates[b])).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that handles one reply after another and then sends the next request, and a loop that serves what has
    /// arrived. Returns the last pause of the loop, and the requests of one second.
    fn serve(in_flight: usize, mut gather: Option<Gather>) -> (Duration, u64) {
        const BY_CLIENT: Duration = Duration::from_micros(3);
        const REPLIES_ARRIVE: Duration = Duration::from_micros(2);
        const PASS: Duration = Duration::from_micros(2);
        const REQUEST: Duration = Duration::from_nanos(500);
        let start = Instant::now();
        let end = start + Duration::from_secs(1);
        let mut sent = vec![start; in_flight];
        let (mut now, mut client_free) = (start, start);
        let (mut requests, mut pause) = (0, Duration::ZERO);
        while now < end {
            pause = gather.as_mut().map_or(Duration::ZERO, |gather| gather.pause(requests, now));
            now += pause;
            sent.sort();
            now = now.max(sent[0]) + PASS;
            let arrived = sent.partition_point(|&time| time <= now);
            now += REQUEST * arrived as u32;
            requests += arrived as u64;
            // The client wakes once for the replies of a pass.
            client_free = client_free.max(now) + REPLIES_ARRIVE;
            for time in &mut sent[..arrived] {
                client_free += BY_CLIENT;
                *time = client_free;
            }
        }
        (pause, requests)
    }

    #[test]
    fn requests_of_a_client_with_many_gather() {
        let (pause, requests) = serve(32, Some(Gather::new()));
        assert!(pause > Duration::ZERO);
        let (_, without) = serve(32, None);
        assert!(requests as f64 > without as f64 * 1.1, "{requests} instead of {without}");
    }

    #[test]
    fn a_client_with_one_request_waits_for_no_other() {
        let (pause, requests) = serve(1, Some(Gather::new()));
        assert_eq!(pause, Duration::ZERO);
        let (_, without) = serve(1, None);
        assert!(requests as f64 > without as f64 * 0.99, "{requests} instead of {without}");
    }

    #[test]
    fn after_a_sleep_the_pauses_are_measured_again_from_none_on() {
        let mut gather = Gather::new();
        let mut now = Instant::now();
        let mut requests = 0;
        for _ in 0..4 {
            // Twice as many requests with each pause.
            now += MEASURED;
            requests = requests * 2 + 100;
            gather.pause(requests, now);
        }
        assert_eq!(gather.pause(requests, now), PAUSES[2]);
        gather.handle_sleep();
        assert_eq!(gather.pause(requests, now), Duration::ZERO);
    }
}
