//! When a replay submits each request: at its recorded time (open loop), or after the completion that it followed in the
//! recording (closed loop). Does not submit: see `replay.rs`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::request::Request;
use super::trace::{Link, Trace};

/// Stretches times: a speed of 0.1 makes each interval ten times as long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stretch {
    /// None leaves the times unchanged, to the nanosecond.
    factor: Option<f64>,
}

impl Stretch {
    /// For a speed above 0.
    #[expect(clippy::float_cmp, reason = "the recorded speed is exactly 1")]
    pub(super) fn of_speed(speed: f64) -> Self {
        Self { factor: (speed != 1.0).then_some(1.0 / speed) }
    }

    #[inline]
    fn of(self, ns: u64) -> u64 {
        self.factor.map_or(ns, |factor| (ns as f64 * factor) as u64)
    }
}

/// Decides when requests are due.
pub(super) trait Source {
    /// The time at which the next request is due; none if all are submitted, or none is due before a completion.
    fn poll_timeout(&self) -> Option<u64>;

    /// The next request that is due at `now_ns`.
    fn poll(&mut self, now_ns: u64) -> Option<usize>;

    /// The time at which a submitted request was due.
    fn due_ns(&self, index: usize) -> u64;

    /// A request has completed.
    fn handle_done(&mut self, index: usize, now_ns: u64);

    /// Whether all requests have been submitted.
    fn is_done(&self) -> bool;
}

/// Recorded times.
#[derive(Debug)]
pub(super) struct Open<'a> {
    requests: &'a [Request],
    stretch: Stretch,
    next: usize,
}

impl<'a> Open<'a> {
    pub(super) fn new(trace: &'a Trace, stretch: Stretch) -> Self {
        Self { requests: &trace.requests, stretch, next: 0 }
    }
}

impl Source for Open<'_> {
    #[inline]
    fn poll_timeout(&self) -> Option<u64> {
        self.requests.get(self.next).map(|request| self.stretch.of(request.at_ns))
    }

    #[inline]
    fn poll(&mut self, now_ns: u64) -> Option<usize> {
        let request = self.requests.get(self.next)?;
        (self.stretch.of(request.at_ns) <= now_ns).then(|| {
            self.next += 1;
            self.next - 1
        })
    }

    #[inline]
    fn due_ns(&self, index: usize) -> u64 {
        self.stretch.of(self.requests[index].at_ns)
    }

    #[inline]
    fn handle_done(&mut self, _index: usize, _now_ns: u64) {}

    #[inline]
    fn is_done(&self) -> bool {
        self.next == self.requests.len()
    }
}

/// A request that has not completed.
const PENDING: u64 = u64::MAX;

/// Recorded dependencies and think times. The requests of a stream keep their order.
#[derive(Debug)]
pub(super) struct Closed<'a> {
    requests: &'a [Request],
    links: &'a [Link],
    stretch: Stretch,
    /// The next request of each stream.
    heads: Vec<Option<u32>>,
    /// The request after each request in its stream; [`Link::NONE`] after the last.
    following: Vec<u32>,
    /// Heads whose time is known.
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    /// The time at which each submitted request was due.
    due_ns: Vec<u64>,
    done_ns: Vec<u64>,
    left: usize,
}

impl<'a> Closed<'a> {
    /// For a trace with completions.
    pub(super) fn new(trace: &'a Trace, stretch: Stretch) -> Self {
        let requests = &trace.requests;
        let streams = requests.iter().map(|request| usize::from(request.stream) + 1).max().unwrap_or(0);
        let (mut heads, mut following) = (vec![None; streams], vec![Link::NONE; requests.len()]);
        for (index, request) in requests.iter().enumerate().rev() {
            let head = &mut heads[usize::from(request.stream)];
            following[index] = head.unwrap_or(Link::NONE);
            *head = Some(index as u32);
        }
        let mut closed = Self {
            requests,
            links: trace.links(),
            stretch,
            following,
            timers: BinaryHeap::new(),
            due_ns: vec![0; requests.len()],
            done_ns: vec![PENDING; requests.len()],
            left: requests.len(),
            heads: heads.clone(),
        };
        for head in heads.into_iter().flatten() {
            closed.schedule(head, 0);
        }
        closed
    }

    /// Sets the timer of a head, if its dependency has completed. It is not due before `earliest_ns`.
    fn schedule(&mut self, head: u32, earliest_ns: u64) {
        let Link { after, think_ns } = self.links[head as usize];
        let since_ns = if after == Link::NONE { 0 } else { self.done_ns[after as usize] };
        if since_ns != PENDING {
            let due_ns = since_ns.saturating_add(self.stretch.of(think_ns)).max(earliest_ns);
            self.timers.push(Reverse((due_ns, head)));
        }
    }
}

impl Source for Closed<'_> {
    fn poll_timeout(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse((due_ns, _))| *due_ns)
    }

    fn poll(&mut self, now_ns: u64) -> Option<usize> {
        let &Reverse((due_ns, head)) = self.timers.peek().filter(|Reverse((due_ns, _))| *due_ns <= now_ns)?;
        self.timers.pop();
        self.left -= 1;
        let index = head as usize;
        self.due_ns[index] = due_ns;
        let stream = usize::from(self.requests[index].stream);
        let next = self.following[index];
        self.heads[stream] = (next != Link::NONE).then_some(next);
        if next != Link::NONE {
            self.schedule(next, due_ns);
        }
        Some(index)
    }

    fn due_ns(&self, index: usize) -> u64 {
        self.due_ns[index]
    }

    fn handle_done(&mut self, index: usize, now_ns: u64) {
        self.done_ns[index] = now_ns;
        let head = self.heads[usize::from(self.requests[index].stream)];
        if let Some(head) = head.filter(|head| self.links[*head as usize].after as usize == index) {
            self.schedule(head, now_ns);
        }
    }

    fn is_done(&self) -> bool {
        self.left == 0
    }
}
