//! The ring alone, under a model checker, and between two real threads.

use super::*;
use iopath_core::log::{Event, Step, Subject};

impl Word for loom::sync::atomic::AtomicU64 {
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

/// A record that names `number` in each of its words.
fn record(number: u32) -> Record {
    let step = Step::new(Event::Queue, Subject::Bio(number)).with_other(number);
    Record::new(&step, Instant::from_nanos(u64::from(number)))
}

/// Checks what comes out of a ring: all that went in, in order, or counted where it is missing.
#[derive(Debug, Default)]
struct Reader {
    next: u64,
}

impl Reader {
    fn read(&mut self, record: Record) {
        if record.event() == Some(Event::Missed) {
            self.next += record.sector();
            assert_eq!(record.time_low(), self.next, "the time of the first record after the gap");
        } else {
            let seen = (record.time_low(), u64::from(record.tag()), u64::from(record.other()));
            assert_eq!(seen, (self.next, self.next, self.next), "a record torn or out of place");
            self.next += 1;
        }
    }

    /// Nothing is lost without a count. What no record tells, `missed` does.
    fn end(self, sent: u64, missed: u64, missed_told: u64) {
        assert_eq!(self.next + (missed - missed_told), sent);
    }
}

fn drain<W: Word>(consumer: &mut Consumer<W>, reader: &mut Reader, told: &mut u64) -> usize {
    consumer.take(usize::MAX, |record| {
        if record.event() == Some(Event::Missed) {
            *told += record.sector();
        }
        reader.read(record);
    })
}

#[test]
fn what_finds_no_room_is_counted_exactly_and_told_when_there_is_room_again() {
    let (mut ring, mut consumer) = ring::<AtomicU64>(4);
    let (mut reader, mut told) = (Reader::default(), 0);
    for number in 0..7 {
        ring.put(&[record(number)], Instant::from_nanos(u64::from(number)));
    }
    assert_eq!(consumer.missed(), 3);
    assert_eq!(drain(&mut consumer, &mut reader, &mut told), 4);
    // Four places are free: the count of what is missing takes one, so that four records do not fit.
    let batch: Vec<Record> = (7..11).map(record).collect();
    ring.put(&batch, Instant::from_nanos(7));
    assert_eq!(consumer.missed(), 7);
    ring.put(&[record(11), record(12)], Instant::from_nanos(11));
    assert_eq!(drain(&mut consumer, &mut reader, &mut told), 3);
    assert_eq!((told, consumer.missed(), consumer.is_closed()), (7, 7, false));
    drop(ring);
    assert!(consumer.is_closed());
    reader.end(13, 7, told);
}

/// Checked by mutation: a relaxed `head` or `is_closed` fails here. A relaxed `tail` does not, since the checker
/// never lets a load see a store that comes after it; release and acquire are what forbids that.
#[test]
fn every_interleaving_of_two_threads_keeps_all_records_whole_and_in_order() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(|| {
        let (mut ring, mut consumer) = ring::<loom::sync::atomic::AtomicU64>(2);
        let producer = loom::thread::spawn(move || {
            for number in 0..4 {
                ring.put(&[record(number)], Instant::from_nanos(u64::from(number)));
            }
        });
        let (mut reader, mut told) = (Reader::default(), 0);
        drain(&mut consumer, &mut reader, &mut told);
        let was_closed = consumer.is_closed();
        drain(&mut consumer, &mut reader, &mut told);
        if was_closed {
            reader.end(4, consumer.missed(), told);
        } else {
            producer.join().unwrap();
            assert!(consumer.is_closed());
            drain(&mut consumer, &mut reader, &mut told);
            reader.end(4, consumer.missed(), told);
        }
    });
}

#[test]
fn two_threads_at_full_speed_lose_nothing_uncounted() {
    const BATCHES: u32 = 30_000;
    let (mut ring, mut consumer) = ring::<AtomicU64>(100);
    let producer = std::thread::spawn(move || {
        let mut number = 0;
        for batch in 0..BATCHES {
            let records: Vec<Record> = (number..number + batch % 64).map(record).collect();
            ring.put(&records, Instant::from_nanos(u64::from(number)));
            number += batch % 64;
            if batch % 512 == 0 {
                std::thread::yield_now();
            }
        }
        u64::from(number)
    });
    let (mut reader, mut told) = (Reader::default(), 0);
    loop {
        let is_closed = consumer.is_closed();
        if drain(&mut consumer, &mut reader, &mut told) == 0 {
            if is_closed {
                break;
            }
            std::thread::yield_now();
        }
    }
    let missed = consumer.missed();
    let read = reader.next - told;
    assert!(read > 0, "{missed} records missed and none read");
    reader.end(producer.join().unwrap(), missed, told);
}
