//! When each I/O is due: at its recorded time, after the completions that it follows, or at once. Takes I/Os in the
//! order of the trace, a bounded number ahead, and knows no clock. Does not submit: see `drive.rs`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use iopath_report::replay::ReplayTiming;

use super::feed::Arrival;
use crate::recorded_times::{Link, Stretch};

/// I/Os of a closed loop that wait: a stream that is slower than recorded fills this window, and then delays the
/// others.
const WINDOW_MAX: usize = 1 << 18;

/// I/Os that wait otherwise: they are due in this order, so that more of them are of no use.
const IN_ORDER_MAX: usize = 1 << 10;

/// The I/Os that are not yet submitted.
#[derive(Debug)]
pub(super) struct Schedule {
    timing: ReplayTiming,
    stretch: Stretch,
    /// In the order of the trace, unless the loop is closed.
    waiting: VecDeque<Arrival>,
    /// The time at which the last I/O was due: times of a trace may go back.
    last_due_ns: u64,
    streams: HashMap<u32, Stream>,
    /// The times at which the first I/Os of streams are due, each with a number that keeps the order of equal times.
    timers: BinaryHeap<Reverse<(u64, u64, u32)>>,
    armed: u64,
    /// I/Os of all streams.
    len: usize,
}

/// The I/Os of a stream of a closed loop.
#[derive(Debug, Default)]
struct Stream {
    waiting: VecDeque<Arrival>,
    /// Whether the first of them has a timer.
    has_timer: bool,
    /// The time at which the last one was due: I/Os of a stream keep their order.
    last_due_ns: u64,
    completions: u64,
    /// The times of completions that a later I/O may follow; the last one is number `completions`.
    done_ns: VecDeque<u64>,
}

impl Schedule {
    pub(super) fn new(timing: ReplayTiming, stretch: Stretch) -> Self {
        Self {
            timing,
            stretch,
            waiting: VecDeque::new(),
            last_due_ns: 0,
            streams: HashMap::new(),
            timers: BinaryHeap::new(),
            armed: 0,
            len: 0,
        }
    }

    /// Whether there is room for more I/Os.
    pub(super) fn has_room(&self) -> bool {
        self.len < if self.timing == ReplayTiming::Closed { WINDOW_MAX } else { IN_ORDER_MAX }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds the next I/Os of the trace.
    pub(super) fn extend(&mut self, arrivals: Vec<Arrival>) {
        for arrival in arrivals {
            self.push(arrival);
        }
    }

    fn push(&mut self, arrival: Arrival) {
        self.len += 1;
        if self.timing != ReplayTiming::Closed {
            return self.waiting.push_back(arrival);
        }
        self.streams.entry(arrival.stream).or_default().waiting.push_back(arrival);
        self.arm(arrival.stream);
    }

    /// The time at which the next I/O is due; none if none is known before a completion.
    pub(super) fn poll_timeout(&self) -> Option<u64> {
        match self.timing {
            ReplayTiming::Closed => self.timers.peek().map(|Reverse((due_ns, ..))| *due_ns),
            ReplayTiming::Asap => self.waiting.front().map(|_| 0),
            ReplayTiming::Recorded => {
                let first = self.waiting.front()?;
                Some(self.stretch.of(first.at_ns).max(self.last_due_ns))
            }
        }
    }

    /// The next I/O that is due at `now_ns`, with the time at which it was due.
    pub(super) fn poll(&mut self, now_ns: u64) -> Option<(Arrival, u64)> {
        let due_ns = self.poll_timeout().filter(|due_ns| *due_ns <= now_ns)?;
        let next = if self.timing == ReplayTiming::Closed {
            let Reverse((.., number)) = self.timers.pop()?;
            let stream = self.streams.get_mut(&number)?;
            (stream.has_timer, stream.last_due_ns) = (false, due_ns);
            let next = stream.waiting.pop_front();
            self.arm(number);
            next
        } else {
            self.last_due_ns = due_ns;
            self.waiting.pop_front()
        };
        self.len -= 1;
        next.map(|next| (next, due_ns))
    }

    /// An I/O of a stream has completed, or failed.
    pub(super) fn handle_done(&mut self, stream: u32, now_ns: u64) {
        if self.timing != ReplayTiming::Closed {
            return;
        }
        if let Some(of) = self.streams.get_mut(&stream) {
            of.completions += 1;
            of.done_ns.push_back(now_ns);
            self.arm(stream);
        }
    }

    /// Sets the timer of the first I/O of a stream, if the completion that it follows has occurred.
    fn arm(&mut self, number: u32) {
        let Some(stream) = self.streams.get_mut(&number).filter(|stream| !stream.has_timer) else { return };
        let Some(Link { after, think_ns }) = stream.waiting.front().map(|first| first.link) else { return };
        if after > stream.completions {
            return;
        }
        // Later I/Os follow this completion or a later one.
        let kept = (stream.completions + 1 - after) as usize;
        while stream.done_ns.len() > kept {
            stream.done_ns.pop_front();
        }
        let since_ns = if after == 0 { 0 } else { stream.done_ns.front().copied().unwrap_or(0) };
        let due_ns = since_ns.saturating_add(self.stretch.of(think_ns)).max(stream.last_due_ns);
        stream.has_timer = true;
        self.timers.push(Reverse((due_ns, self.armed, number)));
        self.armed += 1;
    }
}

#[cfg(test)]
mod tests {
    use iopath_core::Op;

    use super::super::placement::Placed;
    use super::*;
    use crate::recorded_times::Completions;

    fn arrival(at_ns: u64, stream: u32, link: Link) -> Arrival {
        let place = Placed { offset: at_ns, bytes: 4096, is_widened: false };
        Arrival { at_ns, link, op: Op::Read, is_fua: false, place, stream, recorded_ns: None }
    }

    /// I/Os with these times, streams and recorded completions.
    fn arrivals(recorded: &[(u64, u32, u64)]) -> Vec<Arrival> {
        let mut streams: HashMap<u32, Completions> = HashMap::new();
        let mut one = |&(at_ns, stream, done_ns): &(u64, u32, u64)| {
            let link = streams.entry(stream).or_default().link(at_ns, Some(done_ns));
            arrival(at_ns, stream, link)
        };
        recorded.iter().map(&mut one).collect()
    }

    fn filled(timing: ReplayTiming, speed: f64, recorded: &[(u64, u32, u64)]) -> Schedule {
        let mut schedule = Schedule::new(timing, Stretch::of_speed(speed));
        schedule.extend(arrivals(recorded));
        schedule
    }

    /// Submits all I/Os, each of which completes after `latency_ns`. The times of the submissions.
    fn run(schedule: &mut Schedule, latency_ns: u64) -> Vec<(u64, u64)> {
        let (mut now, mut list, mut in_flight) = (0, Vec::new(), BinaryHeap::new());
        while !schedule.is_empty() {
            let due = schedule.poll_timeout();
            let done = in_flight.peek().map(|Reverse((done, _))| *done);
            now = [due, done].into_iter().flatten().min().expect("something is due or in flight").max(now);
            while let Some(Reverse((_, stream))) = in_flight.peek().copied().filter(|one| one.0.0 <= now) {
                in_flight.pop();
                schedule.handle_done(stream, now);
            }
            while let Some((one, due)) = schedule.poll(now) {
                assert!(due <= now);
                list.push((one.at_ns, now));
                in_flight.push(Reverse((now + latency_ns, one.stream)));
            }
        }
        list
    }

    #[test]
    fn recorded_times_are_stretched_and_never_go_back() {
        let recorded = [(0, 0, 5), (100, 0, 200), (80, 1, 90), (1000, 0, 1001)];
        let mut schedule = filled(ReplayTiming::Recorded, 2.0, &recorded);
        assert_eq!(run(&mut schedule, 10_000), [(0, 0), (100, 50), (80, 50), (1000, 500)]);
        let mut schedule = filled(ReplayTiming::Recorded, 0.5, &recorded);
        assert_eq!(run(&mut schedule, 0), [(0, 0), (100, 200), (80, 200), (1000, 2000)]);
    }

    #[test]
    fn without_times_all_are_due_at_once_in_their_order() {
        let mut schedule = filled(ReplayTiming::Asap, 1.0, &[(0, 0, 5), (100, 0, 200), (80, 1, 90)]);
        let order: Vec<u64> = std::iter::from_fn(|| schedule.poll(0)).map(|(one, _)| one.at_ns).collect();
        assert_eq!(order, [0, 100, 80]);
    }

    #[test]
    fn a_closed_loop_keeps_think_times_and_dependencies() {
        // Stream 0 submits one at a time, 5 ns after each completion; stream 1 is independent.
        let recorded = [(0, 0, 10), (3, 1, 4), (15, 0, 20), (25, 0, 26)];
        let as_recorded = run(&mut filled(ReplayTiming::Closed, 1.0, &recorded), 10);
        assert_eq!(as_recorded, [(0, 0), (3, 3), (15, 15), (25, 30)]);
        // A target that is slower than recorded: nothing is submitted before its dependency.
        let slower = run(&mut filled(ReplayTiming::Closed, 1.0, &recorded), 1000);
        assert_eq!(slower, [(0, 0), (3, 3), (15, 1005), (25, 2010)]);
        // Think times are stretched as times are.
        let faster = run(&mut filled(ReplayTiming::Closed, 5.0, &recorded), 1000);
        assert_eq!(faster, [(0, 0), (3, 0), (15, 1001), (25, 2002)]);
    }

    #[test]
    fn a_closed_loop_keeps_the_depth_of_a_stream() {
        // Two in flight: each completion is followed by one.
        let recorded = [(0, 0, 40), (0, 0, 10), (10, 0, 50), (40, 0, 60), (50, 0, 70)];
        let mut schedule = filled(ReplayTiming::Closed, 1.0, &recorded);
        let (mut in_flight, mut most) = (0, 0);
        let mut now = 0;
        while !schedule.is_empty() || in_flight > 0 {
            while schedule.poll(now).is_some() {
                in_flight += 1;
                most = most.max(in_flight);
            }
            now += 100;
            in_flight -= 1;
            schedule.handle_done(0, now);
        }
        assert_eq!(most, 2);
    }

    #[test]
    fn a_stream_remembers_only_completions_that_it_still_needs() {
        let mut schedule = Schedule::new(ReplayTiming::Closed, Stretch::of_speed(1.0));
        let mut completions = Completions::default();
        for number in 0..10_000 {
            let at_ns = number * 10;
            schedule.push(arrival(at_ns, 0, completions.link(at_ns, Some(at_ns + 5))));
            while schedule.poll(u64::MAX).is_some() {
                schedule.handle_done(0, at_ns);
            }
        }
        assert!(schedule.streams[&0].done_ns.len() <= 2, "{}", schedule.streams[&0].done_ns.len());
        assert!(schedule.timers.is_empty() && schedule.is_empty());
    }

    #[test]
    fn the_window_has_a_limit() {
        let mut schedule = Schedule::new(ReplayTiming::Closed, Stretch::of_speed(1.0));
        // A completion that never comes.
        let link = Link { after: 1, think_ns: 0 };
        while schedule.has_room() {
            schedule.push(arrival(0, 0, link));
        }
        assert_eq!((schedule.len, schedule.poll_timeout()), (WINDOW_MAX, None));
    }
}
