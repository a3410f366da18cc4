//! What a run contains, drawn from its seed. Each feature is on in some runs only: one that is always on can hide the
//! defects of another.

use std::time::Duration;

use super::channel::Link;
use super::clock::{MILLISECOND, Nanos, SECOND};
use super::liar::{Habit, LATE_MAX};
use super::peer::Manner;
use super::random::Random;
use super::store::Faults;
use crate::client::Patience;

/// A run.
#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    pub(super) links: usize,
    pub(super) link: Link,
    pub(super) cells: usize,
    pub(super) calls: usize,
    /// Calls in flight.
    pub(super) width: usize,
    /// Longest time between two calls.
    pub(super) think_max: Nanos,
    /// Longest call, in cells.
    pub(super) length_max: u64,
    pub(super) may_overlap: bool,
    /// One call in so many is a flush.
    pub(super) flush: u64,
    pub(super) patience: Patience,
    pub(super) faults: Faults,
    /// Buffers of the server, and its I/O in flight.
    pub(super) depth: u32,
    pub(super) server_patience: Duration,
    pub(super) rate_min: u64,
    pub(super) handshakes_max: usize,
    pub(super) peers: Vec<Manner>,
    /// Those of them that connect before the program.
    pub(super) early_peers: usize,
    /// A server that lies, instead of ours.
    pub(super) lies: Option<Habit>,
    /// Longest time to the next cut of a connection, and to the next death or stop of the server; zero: never.
    pub(super) cut: Nanos,
    pub(super) death: Nanos,
    pub(super) down_max: Nanos,
    /// One connect in so many is refused or not answered.
    pub(super) refused: u64,
}

impl Scenario {
    pub(super) fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let r = &mut random;
        let mut lies = r.one_in(3).then(|| Habit {
            one_in: if r.one_in(4) { 0 } else { r.magnitude(2, 200) },
            handshake: if r.one_in(2) { r.magnitude(2, 20) } else { 0 },
            error: if r.one_in(2) { r.magnitude(2, 30) } else { 0 },
            overtakes: r.one_in(2),
            late: if r.one_in(2) { r.magnitude(1, 30) } else { 0 },
            late_max: r.magnitude(MILLISECOND, LATE_MAX),
        });
        let mut faults = Faults {
            delay_max: r.magnitude(MILLISECOND / 1000, 50 * MILLISECOND),
            error: if r.one_in(3) { r.magnitude(5, 200) } else { 0 },
            flush_error: if r.one_in(3) { r.magnitude(2, 20) } else { 0 },
            stuck_one_in: if r.one_in(4) { r.magnitude(20, 1000) } else { 0 },
            stuck: r.magnitude(SECOND, 300 * SECOND),
            cached: if r.one_in(3) { r.magnitude(1, 20) } else { 0 },
        };
        let count = if r.one_in(2) { r.magnitude(1, 24) } else { 0 };
        let peers = (0..count).map(|_| *r.pick(&Manner::ALL)).collect();
        let peers: Vec<Manner> = if lies.is_some() { Vec::new() } else { peers };
        let early_peers = if r.one_in(2) { r.below(peers.len() as u64 + 1) as usize } else { 0 };
        let seconds = |r: &mut Random, from, to| Duration::from_secs(r.magnitude(from, to));
        let cells = r.magnitude(16, 1024) as usize;
        let patience = Patience {
            connect: seconds(r, 2, 10),
            silence: seconds(r, 1, 60),
            reconnect_attempts: r.magnitude(1, 100) as u32,
            reconnect: seconds(r, 1, 60),
        };
        // A request that is overtaken for long needs many others, over connections that last.
        let overtakes = lies.as_ref().is_some_and(|habit: &Habit| habit.overtakes);
        if let Some(habit) = lies.as_mut().filter(|habit| habit.overtakes) {
            *habit = Habit { one_in: 0, handshake: 0, late: 0, ..*habit };
        }
        // Only unfair clients delay the program, so that its calls have a short limit.
        let is_crowded = !peers.is_empty() && r.one_in(2);
        if is_crowded {
            faults = Faults { error: 0, flush_error: 0, stuck_one_in: 0, ..faults };
            faults.delay_max = faults.delay_max.max(MILLISECOND);
        }
        let lasts = |longest: Nanos| if overtakes || is_crowded { 0 } else { longest };
        let cells = if overtakes { 16 } else { cells };
        // Each piece is an event.
        let capacity = r.magnitude(64, 256 << 10);
        let piece_max = if overtakes { 128 << 10 } else { r.magnitude(16, 128 << 10) }.min(capacity);
        // The link moves `piece_max / 3` bytes in `delay_max` on average. A link that is slower than the patience of
        // its ends is no defect.
        let silence = patience.silence.as_nanos() as u64;
        let slowest = (silence / 16 * piece_max / 3 / (64 << 10)).max(1);
        let delay_max = r.magnitude(MILLISECOND / 100, 50 * MILLISECOND).min(slowest);
        let rate_max = (piece_max * SECOND / delay_max / 24).max(1);
        let length_max = r.magnitude(1, cells as u64).min(piece_max.div_ceil(32));
        Self {
            seed,
            links: r.between(1, 3) as usize,
            link: Link { capacity: capacity as usize, piece_max, delay_max },
            cells,
            calls: if overtakes { 600 } else { r.magnitude(20, 400) as usize },
            width: r.magnitude(1, 64) as usize,
            think_max: if overtakes { silence / 8 } else { r.magnitude(MILLISECOND / 100, SECOND / 4) },
            length_max,
            may_overlap: r.one_in(3),
            flush: r.magnitude(3, 40),
            patience,
            faults,
            depth: if is_crowded { r.between(2, 4) } else { r.magnitude(2, 16) } as u32,
            server_patience: seconds(r, 2, 30),
            rate_min: r.magnitude(1 << 10, 1 << 20).min(rate_max),
            handshakes_max: r.between(8, 32) as usize,
            peers,
            early_peers,
            lies,
            cut: lasts(if r.one_in(3) { r.magnitude(SECOND / 10, 60 * SECOND) } else { 0 }),
            death: lasts(if faults.flush_error > 0 || r.one_in(3) {
                r.magnitude(SECOND / 10, 60 * SECOND)
            } else {
                0
            }),
            down_max: r.magnitude(MILLISECOND, 20 * SECOND),
            refused: lasts(if r.one_in(4) { r.magnitude(2, 20) } else { 0 }),
        }
    }

    /// Whether nothing but unfair peers can delay a call.
    pub(super) fn is_calm(&self) -> bool {
        self.lies.is_none()
            && self.cut == 0
            && self.death == 0
            && self.refused == 0
            && self.faults.stuck_one_in == 0
    }
}
