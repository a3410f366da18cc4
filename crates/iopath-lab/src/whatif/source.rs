//! When a replay submits each request: at its recorded time (open loop), or after the completion that it followed in
//! the recording (closed loop). Does not submit: see `replay.rs`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::request::Request;
use super::trace::Trace;
use crate::recorded_times::{Link, Stretch};

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

/// The end of the requests of a stream.
const END: u32 = u32::MAX;

/// Recorded dependencies and think times. The requests of a stream keep their order.
#[derive(Debug)]
pub(super) struct Closed<'a> {
    requests: &'a [Request],
    links: &'a [Link],
    stretch: Stretch,
    streams: Vec<Stream>,
    /// The request after each request in its stream; [`END`] after the last.
    following: Vec<u32>,
    /// The first requests of streams whose time is known.
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    /// The time at which each submitted request was due.
    due_ns: Vec<u64>,
    /// The completions of each stream, one stream after the other.
    done_ns: Vec<u64>,
    left: usize,
}

/// The progress of a stream.
#[derive(Debug, Clone, Copy)]
struct Stream {
    /// The next request to submit.
    head: u32,
    completions: u64,
    /// The position of its first completion in [`Closed::done_ns`].
    first: usize,
}

impl<'a> Closed<'a> {
    /// For a trace with completions.
    pub(super) fn new(trace: &'a Trace, stretch: Stretch) -> Self {
        let requests = &trace.requests;
        let count = requests.iter().map(|request| usize::from(request.stream) + 1).max().unwrap_or(0);
        let mut streams = vec![Stream { head: END, completions: 0, first: 0 }; count];
        let mut following = vec![END; requests.len()];
        for (index, request) in requests.iter().enumerate().rev() {
            let stream = &mut streams[usize::from(request.stream)];
            following[index] = std::mem::replace(&mut stream.head, index as u32);
            stream.first += 1;
        }
        let mut first = 0;
        for stream in &mut streams {
            first += std::mem::replace(&mut stream.first, first);
        }
        let mut closed = Self {
            requests,
            links: trace.links(),
            stretch,
            streams,
            following,
            timers: BinaryHeap::new(),
            due_ns: vec![0; requests.len()],
            done_ns: vec![0; requests.len()],
            left: requests.len(),
        };
        for stream in 0..count {
            closed.schedule(stream, 0);
        }
        closed
    }

    /// Sets the timer of the next request of a stream, if the completion that it follows has occurred. The request is
    /// not due before `earliest_ns`.
    fn schedule(&mut self, stream: usize, earliest_ns: u64) {
        let Stream { head, completions, first } = self.streams[stream];
        if head == END {
            return;
        }
        let Link { after, think_ns } = self.links[head as usize];
        if after > completions {
            return;
        }
        let since_ns = (after as usize).checked_sub(1).map_or(0, |last| self.done_ns[first + last]);
        let due_ns = since_ns.saturating_add(self.stretch.of(think_ns)).max(earliest_ns);
        self.timers.push(Reverse((due_ns, head)));
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
        self.streams[stream].head = self.following[index];
        self.schedule(stream, due_ns);
        Some(index)
    }

    fn due_ns(&self, index: usize) -> u64 {
        self.due_ns[index]
    }

    fn handle_done(&mut self, index: usize, now_ns: u64) {
        let number = usize::from(self.requests[index].stream);
        let stream = &mut self.streams[number];
        self.done_ns[stream.first + stream.completions as usize] = now_ns;
        stream.completions += 1;
        let Stream { head, completions, .. } = *stream;
        // Otherwise the request has a timer, or waits for a further completion.
        if head != END && self.links[head as usize].after == completions {
            self.schedule(number, now_ns);
        }
    }

    fn is_done(&self) -> bool {
        self.left == 0
    }
}
