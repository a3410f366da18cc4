//! One queue's ring of records: one producer, one consumer, no lock and no waiting. What finds no room is
//! counted. Knows neither files nor threads.
//!
//! ```text
//!            tail: read up to here            head: written up to here
//!              │                                │
//!   ░░░░░░░░░░░▼████████████████████████████████▼░░░░░░░░░░   words, three a record
//!              consumer ──▶                     producer ──▶
//! ```
//! Each side owns its counter, publishes it with release, and keeps a copy of the other's, which it renews with
//! acquire only when it seems out of room or records. The words between are plain (relaxed) stores: whoever
//! has seen the counter has seen them.

use iopath_core::{Instant, LogSink, Record};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

const WORDS: usize = 3;

/// The atomic word that a ring is made of: the real one, or the model checker's.
pub(crate) trait Word: Debug + Send + Sync + 'static {
    fn new(value: u64) -> Self;
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
}

impl Word for AtomicU64 {
    fn new(value: u64) -> Self {
        Self::new(value)
    }

    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }
}

/// A word that shares no cache line (nor the one fetched with it) with another.
#[derive(Debug)]
#[repr(align(128))]
struct Line<W>(W);

#[derive(Debug)]
struct Shared<W> {
    words: Box<[W]>,
    /// Records ever written.
    head: Line<W>,
    /// Records ever read.
    tail: Line<W>,
    /// Records ever missed. Stored before `is_closed`, so exact once that is seen.
    missed: Line<W>,
    /// 1 when the producer is gone.
    is_closed: Line<W>,
}

/// A ring of `records` records, two at least.
pub(crate) fn ring<W: Word>(records: usize) -> (Ring<W>, Consumer<W>) {
    let records = records.max(2);
    let shared = Arc::new(Shared {
        words: (0..records * WORDS).map(|_| W::new(0)).collect(),
        head: Line(W::new(0)),
        tail: Line(W::new(0)),
        missed: Line(W::new(0)),
        is_closed: Line(W::new(0)),
    });
    let ring = Ring { shared: shared.clone(), head: 0, place: 0, tail_seen: 0, missed: 0, missed_told: 0 };
    (ring, Consumer { shared, tail: 0, place: 0 })
}

/// The end of a ring that a queue writes to.
#[derive(Debug)]
pub struct Producer {
    ring: Ring<AtomicU64>,
}

impl Producer {
    pub(crate) const fn new(ring: Ring<AtomicU64>) -> Self {
        Self { ring }
    }
}

impl LogSink for Producer {
    fn take(&mut self, records: &[Record], first: Instant) {
        self.ring.put(records, first);
    }
}

/// The producer's side of a ring.
#[derive(Debug)]
pub(crate) struct Ring<W: Word> {
    shared: Arc<Shared<W>>,
    head: u64,
    /// Where in `words` the next record goes.
    place: usize,
    /// What `tail` was when last looked at.
    tail_seen: u64,
    missed: u64,
    /// How many of `missed` the reader knows of.
    missed_told: u64,
}

impl<W: Word> Ring<W> {
    /// Puts all the records in, or none and counts them.
    pub(crate) fn put(&mut self, records: &[Record], first: Instant) {
        let untold = self.missed - self.missed_told;
        let needed = records.len() as u64 + u64::from(untold > 0);
        if !self.has_room(needed) {
            self.missed += records.len() as u64;
            self.shared.missed.0.store(self.missed, Relaxed);
            return;
        }
        if untold > 0 {
            self.write(&[Record::missed(untold, first)]);
            self.missed_told = self.missed;
        }
        let space = (self.shared.words.len() - self.place) / WORDS;
        let (before_end, from_start) = records.split_at(records.len().min(space));
        self.write(before_end);
        self.write(from_start);
        self.head += needed;
        self.shared.head.0.store(self.head, Release);
    }

    fn has_room(&mut self, needed: u64) -> bool {
        let capacity = (self.shared.words.len() / WORDS) as u64;
        if self.head + needed - self.tail_seen > capacity {
            self.tail_seen = self.shared.tail.0.load(Acquire);
        }
        self.head + needed - self.tail_seen <= capacity
    }

    /// Writes records that do not go over the end.
    fn write(&mut self, records: &[Record]) {
        let end = self.place + records.len() * WORDS;
        let (places, _) = self.shared.words[self.place..end].as_chunks::<WORDS>();
        for (words, record) in places.iter().zip(records) {
            let [time, place, subject] = record.to_words();
            words[0].store(time, Relaxed);
            words[1].store(place, Relaxed);
            words[2].store(subject, Relaxed);
        }
        self.place = if end == self.shared.words.len() { 0 } else { end };
    }
}

impl<W: Word> Drop for Ring<W> {
    fn drop(&mut self) {
        self.shared.is_closed.0.store(1, Release);
    }
}

/// The consumer's side of a ring.
#[derive(Debug)]
pub(crate) struct Consumer<W: Word = AtomicU64> {
    shared: Arc<Shared<W>>,
    tail: u64,
    place: usize,
}

impl<W: Word> Consumer<W> {
    /// Takes out what there is, `max` records at most; how many.
    pub(crate) fn take(&mut self, max: usize, mut each: impl FnMut(Record)) -> usize {
        let head = self.shared.head.0.load(Acquire);
        let count = (head - self.tail).min(max as u64);
        if count == 0 {
            return 0;
        }
        for _ in 0..count {
            let words = &self.shared.words[self.place..self.place + WORDS];
            each(Record::from_words([
                words[0].load(Relaxed),
                words[1].load(Relaxed),
                words[2].load(Relaxed),
            ]));
            self.place = after(self.place, self.shared.words.len());
        }
        self.tail += count;
        self.shared.tail.0.store(self.tail, Release);
        count as usize
    }

    /// Whether the producer is gone: what [`Consumer::take`] finds after this was true is the rest.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.is_closed.0.load(Acquire) == 1
    }

    /// How many records have found no room: exact once the ring is closed.
    pub(crate) fn missed(&self) -> u64 {
        self.shared.missed.0.load(Relaxed)
    }
}

const fn after(place: usize, words: usize) -> usize {
    let next = place + WORDS;
    if next == words { 0 } else { next }
}

#[cfg(test)]
mod tests;
