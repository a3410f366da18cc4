//! The streams that readahead follows, found by position. The reaction of a stream to a read is in `stream.rs`.

use super::stream::{Distance, Stream, Window};
use crate::file::page::{Page, PageRange};
use crate::time::{Duration, Instant};

/// The stream whose marker was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    Alive(usize),
    /// One that has ended.
    Dead,
}

/// A bounded table of streams, found by position. The one that was inactive for longest is replaced.
#[derive(Debug)]
pub(super) struct Streams {
    table: Vec<Stream>,
    /// The positions at which each continues, side by side for a quick search.
    reaches: Vec<(Page, Page)>,
    /// Counts misses and calls; for each stream, the last one that belonged to it.
    turn: u64,
    turns: Vec<u64>,
    /// The stream that was active last: the likeliest to be next.
    last: usize,
}

impl Streams {
    /// An active stream appears again within so many calls per stream in the table.
    const TURNS_ALIVE: u64 = 4;

    pub(super) fn new(streams_max: u16) -> Self {
        let max = usize::from(streams_max);
        Self {
            table: Vec::with_capacity(max),
            reaches: Vec::with_capacity(max),
            turn: 0,
            turns: Vec::with_capacity(max),
            last: 0,
        }
    }

    /// The stream that misses a page here.
    pub(super) fn missed_by(&mut self, at: PageRange) -> Option<usize> {
        self.turn += 1;
        let found = self.find(at, |stream| stream.is_missed_by(at))?;
        self.is_alive(found).then_some(found)
    }

    /// The stream that read the page ahead that is reached here.
    pub(super) fn reached_by(&self, at: PageRange) -> Option<Reached> {
        let found = self.find(at, |stream| stream.has_ahead(at.start()))?;
        Some(if self.is_alive(found) { Reached::Alive(found) } else { Reached::Dead })
    }

    /// A stream that was inactive for so long is met by accident, by random reads in a small file.
    fn is_alive(&self, index: usize) -> bool {
        self.turn - self.turns[index] <= Self::TURNS_ALIVE * self.table.capacity() as u64
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

    /// Adds a stream, in place of the one that was inactive for longest if the table is full.
    pub(super) fn insert(&mut self, stream: Stream, now: Instant) -> usize {
        let index = if self.table.len() < self.table.capacity() {
            self.table.push(stream);
            self.reaches.push((Page(0), Page(0)));
            self.turns.push(0);
            self.table.len() - 1
        } else {
            let oldest = self.turns.iter().enumerate().min_by_key(|(_, turn)| **turn);
            let (index, _) = oldest.expect("there is room for one stream at least");
            self.table[index] = stream;
            index
        };
        self.heard_of(index, now);
        index
    }

    /// The window for a miss of stream `index`, and whether the stream's window was halved for it.
    pub(super) fn miss(
        &mut self,
        index: usize,
        at: PageRange,
        distance: Distance,
        end: Page,
        now: Instant,
    ) -> (Window, bool) {
        let answer = self.table[index].miss(at, distance, end);
        self.heard_of(index, now);
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
        self.heard_of(index, now);
        window
    }

    /// Takes the pages of the stream's first window that were a guess.
    pub(super) fn take_stake(&mut self, index: usize) -> u64 {
        std::mem::take(&mut self.table[index].stake)
    }

    /// Halves the window of the stream that read `page` ahead; whether one was halved.
    pub(super) fn shrink_at(&mut self, page: Page) -> bool {
        let index = self.find(PageRange::new(page, 1), |stream| stream.has_ahead(page));
        index.is_some_and(|index| self.table[index].shrink())
    }

    /// How many streams, of more than one request, were active in the last `span`.
    pub(super) fn active_since(&self, now: Instant, span: Duration) -> u64 {
        let is_active = |stream: &&Stream| stream.is_proven && now - stream.used < span;
        self.table.iter().filter(is_active).count() as u64
    }

    fn heard_of(&mut self, index: usize, now: Instant) {
        let stream = &mut self.table[index];
        stream.used = now;
        let (low, high) = (stream.reader.min(stream.edge), stream.reader.max(stream.edge));
        self.reaches[index] = (low, high + stream.piece);
        self.turn += 1;
        self.turns[index] = self.turn;
        self.last = index;
    }
}
