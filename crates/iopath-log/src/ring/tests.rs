//! The ring alone: full, and between two threads.

use super::*;
use iopath_core::log::{Event, Step, Subject};
use iopath_core::{Instant, Record};

/// A batch of so many records, each naming its number.
fn fill(batch: &mut RecordBatch, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let step = Step::new(Event::Queue, Subject::Bio(number as u32));
        batch.push(Record::new(&step, Instant::from_nanos(number)));
    }
}

fn numbers(batch: &RecordBatch) -> Vec<u64> {
    batch.records().iter().map(|record| record.time_low()).collect()
}

fn take(consumer: &mut Consumer) -> Option<Vec<u64>> {
    let Found::Batch(batch) = consumer.take() else { return None };
    let numbers = numbers(&batch);
    consumer.release(batch);
    Some(numbers)
}

#[test]
fn what_finds_no_room_is_counted_exactly_and_left_to_who_sent_it() {
    let (mut producer, mut consumer) = ring(2 * RecordBatch::CAPACITY);
    let mut batch = RecordBatch::new();
    for number in 0..2 {
        fill(&mut batch, number..number + 1);
        producer.take(&mut batch).unwrap();
        assert!(batch.records().is_empty(), "an empty batch in its place");
    }
    fill(&mut batch, 2..5);
    producer.take(&mut batch).unwrap_err();
    assert_eq!((numbers(&batch), consumer.missed()), (vec![2, 3, 4], 3));
    assert_eq!(take(&mut consumer), Some(vec![0]));
    producer.take(&mut batch).unwrap();
    assert_eq!(
        (take(&mut consumer), take(&mut consumer), take(&mut consumer)),
        (Some(vec![1]), Some(vec![2, 3, 4]), None)
    );
}

#[test]
fn the_end_is_found_after_the_last_batch_and_a_consumer_that_is_gone_is_no_room() {
    let (mut producer, mut consumer) = ring(0);
    let mut batch = RecordBatch::new();
    fill(&mut batch, 0..1);
    producer.take(&mut batch).unwrap();
    drop(producer);
    assert_eq!(take(&mut consumer), Some(vec![0]));
    assert!(matches!(consumer.take(), Found::End));

    let (mut producer, consumer) = ring(0);
    drop(consumer);
    fill(&mut batch, 0..4);
    producer.take(&mut batch).unwrap_err();
    assert_eq!((numbers(&batch), producer.missed.load(Relaxed)), (vec![0, 1, 2, 3], 4));
}

#[test]
fn a_batch_at_rest_goes_to_who_comes_first_and_in_its_turn() {
    let (mut producer, mut consumer) = ring(0);
    let mut batch = RecordBatch::new();
    fill(&mut batch, 0..2);
    producer.rest(&mut batch).unwrap();
    assert!(batch.records().is_empty());
    producer.resume(&mut batch);
    assert_eq!(numbers(&batch), [0, 1], "nobody came: it is the producer's again");
    assert!(!consumer.take_rested());

    producer.rest(&mut batch).unwrap();
    assert!(consumer.take_rested());
    producer.resume(&mut batch);
    assert!(batch.records().is_empty(), "it is the consumer's");
    assert_eq!(take(&mut consumer), Some(vec![0, 1]));

    fill(&mut batch, 2..3);
    producer.take(&mut batch).unwrap();
    fill(&mut batch, 3..4);
    producer.rest(&mut batch).unwrap();
    assert!(consumer.take_rested());
    assert_eq!((take(&mut consumer), take(&mut consumer)), (Some(vec![2]), Some(vec![3])));
    assert_eq!(take(&mut consumer), None);

    producer.resume(&mut batch);
    fill(&mut batch, 4..5);
    producer.rest(&mut batch).unwrap();
    drop(producer);
    assert_eq!(take(&mut consumer), Some(vec![4]), "nothing is left behind");
    assert!(matches!(consumer.take(), Found::End));
    assert_eq!(consumer.missed(), 0);
}

#[test]
fn two_threads_at_full_speed_lose_nothing_uncounted() {
    const BATCHES: u64 = if cfg!(miri) { 100 } else { 20_000 };
    let (mut producer, mut consumer) = ring(4 * RecordBatch::CAPACITY);
    let sending = std::thread::spawn(move || {
        let (mut batch, mut number) = (RecordBatch::new(), 0);
        for length in (1..64).cycle().take(BATCHES as usize) {
            fill(&mut batch, number..number + length);
            number += length;
            // Idle before each is sent, as a queue may be, for a moment or longer.
            let is_resting = producer.rest(&mut batch).is_ok();
            if number % 512 < 64 {
                std::thread::yield_now();
            }
            if is_resting {
                producer.resume(&mut batch);
            }
            if !batch.records().is_empty() && producer.take(&mut batch).is_err() {
                batch.clear();
            }
        }
        number
    });
    let (mut next, mut read) = (0, 0);
    loop {
        match consumer.take() {
            Found::Batch(batch) => {
                let numbers = numbers(&batch);
                assert!(
                    numbers[0] >= next && numbers.windows(2).all(|two| two[1] == two[0] + 1),
                    "{numbers:?}"
                );
                next = numbers[0] + numbers.len() as u64;
                read += numbers.len() as u64;
                consumer.release(batch);
            }
            Found::Nothing if consumer.take_rested() => {}
            Found::Nothing => std::thread::yield_now(),
            Found::End => break,
        }
    }
    assert!(read > 0);
    assert_eq!(read + consumer.missed(), sending.join().unwrap());
}
