//! The streams of readahead, found by position. `stream.rs` calculates the windows of a stream.

use super::stream::{Distance, Stream, Window};
use crate::file::page::{Page, PageRange};
use crate::time::{Duration, Instant};

/// The stream whose marker was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    Alive(usize),
    /// A stream that has ended.
    Dead,
}

/// A bounded table of streams, found by position. A new stream replaces the stream that was inactive for longest.
#[derive(Debug)]
pub(super) struct Streams {
    table: Vec<Stream>,
    /// The positions at which each stream continues, in one array for a quick search.
    reaches: Vec<(Page, Page)>,
    /// The number of calls for misses and active streams, and for each stream the number when it was last active.
    calls: u64,
    last_calls: Vec<u64>,
    /// The stream that was active last: probably the next to be active.
    last: usize,
}

impl Streams {
    /// An active stream is active again within this many calls per stream in the table.
    const CALLS_ALIVE: u64 = 4;

    pub(super) fn new(streams_max: u16) -> Self {
        let max = usize::from(streams_max);
        Self {
            table: Vec::with_capacity(max),
            reaches: Vec::with_capacity(max),
            calls: 0,
            last_calls: Vec::with_capacity(max),
            last: 0,
        }
    }

    /// The stream to which a miss belongs.
    pub(super) fn missed_by(&mut self, at: PageRange) -> Option<usize> {
        self.calls += 1;
        let found = self.find(at, |stream| stream.is_missed_by(at))?;
        self.is_alive(found).then_some(found)
    }

    /// The stream that read the first page of `at` ahead.
    pub(super) fn reached_by(&self, at: PageRange) -> Option<Reached> {
        let found = self.find(at, |stream| stream.has_ahead(at.start()))?;
        Some(if self.is_alive(found) { Reached::Alive(found) } else { Reached::Dead })
    }

    /// Whether the stream is active. A match with an inactive stream is accidental: random reads in a small file.
    fn is_alive(&self, index: usize) -> bool {
        self.calls - self.last_calls[index] <= Self::CALLS_ALIVE * self.table.capacity() as u64
    }

    fn find(&self, at: PageRange, is_it: impl Fn(&Stream) -> bool) -> Option<usize> {
        let may_be = |(low, high): &(Page, Page)| *low <= at.end() && at.start() <= *high;
        let is_last = self.reaches.get(self.last).is_some_and(may_be) && is_it(&self.table[self.last]);
        if is_last {
            return Some(self.last);
        }
        let near = self.reaches.iter().enumerate().filter(|(_, reach)| may_be(reach));
        near.map(|(index, _)| index).find(|index| is_it(&self.table[*index]))
    }

    /// Adds a stream. If the table is full, replaces the stream that was inactive for longest.
    pub(super) fn insert(&mut self, stream: Stream, now: Instant) -> usize {
        let index = if self.table.len() < self.table.capacity() {
            self.table.push(stream);
            self.reaches.push((Page(0), Page(0)));
            self.last_calls.push(0);
            self.table.len() - 1
        } else {
            let oldest = self.last_calls.iter().enumerate().min_by_key(|(_, call)| **call);
            let (index, _) = oldest.expect("the table has room for at least one stream");
            self.table[index] = stream;
            index
        };
        self.mark_active(index, now);
        index
    }

    /// The window for a miss of stream `index`, and whether the miss halved the stream's window.
    pub(super) fn miss(
        &mut self,
        index: usize,
        at: PageRange,
        distance: Distance,
        end: Page,
        now: Instant,
    ) -> (Window, bool) {
        let answer = self.table[index].miss(at, distance, end);
        self.mark_active(index, now);
        answer
    }

    /// The window for a marked page that stream `index` reached.
    pub(super) fn reach(
        &mut self,
        index: usize,
        at: PageRange,
        distance: Distance,
        end: Page,
        now: Instant,
    ) -> Option<Window> {
        let window = self.table[index].reach(at, distance, end);
        self.mark_active(index, now);
        window
    }

    /// Returns and clears the number of guessed pages of the stream's first window.
    pub(super) fn take_guessed(&mut self, index: usize) -> u64 {
        std::mem::take(&mut self.table[index].guessed)
    }

    /// Halves the window of the stream that read `page` ahead. Returns whether one was halved.
    pub(super) fn shrink_at(&mut self, page: Page) -> bool {
        let index = self.find(PageRange::new(page, 1), |stream| stream.has_ahead(page));
        index.is_some_and(|index| self.table[index].shrink())
    }

    /// The number of streams of more than one request that were active in the last `span`.
    pub(super) fn active_since(&self, now: Instant, span: Duration) -> u64 {
        let is_active = |stream: &&Stream| stream.is_proven && now - stream.used < span;
        self.table.iter().filter(is_active).count() as u64
    }

    fn mark_active(&mut self, index: usize, now: Instant) {
        let stream = &mut self.table[index];
        stream.used = now;
        let (low, high) = (stream.reader.min(stream.edge), stream.reader.max(stream.edge));
        self.reaches[index] = (low, high + stream.piece);
        self.calls += 1;
        self.last_calls[index] = self.calls;
        self.last = index;
    }
}
