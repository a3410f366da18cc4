//! Tests of the ring: full, parked, and between two threads.

use super::*;
use iopath_core::log::{Event, Step, Subject};
use iopath_core::{Instant, Record};

/// Adds a record for each number.
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
fn records_that_do_not_fit_are_counted_and_stay_with_the_producer() {
    let (mut producer, mut consumer) = ring(2 * RecordBatch::CAPACITY);
    let mut batch = RecordBatch::new();
    for number in 0..2 {
        fill(&mut batch, number..number + 1);
        producer.take(&mut batch).unwrap();
        assert!(batch.records().is_empty(), "the producer exchanges it for an empty batch");
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
fn the_end_follows_the_last_batch_and_a_ring_without_consumer_has_no_room() {
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
fn a_parked_batch_goes_to_either_end_in_order() {
    let (mut producer, mut consumer) = ring(0);
    let mut batch = RecordBatch::new();
    fill(&mut batch, 0..2);
    producer.publish(&mut batch).unwrap();
    assert!(batch.records().is_empty());
    producer.reclaim(&mut batch);
    assert_eq!(numbers(&batch), [0, 1], "the consumer did not take it");
    assert!(!consumer.take_parked());

    producer.publish(&mut batch).unwrap();
    assert!(consumer.take_parked());
    producer.reclaim(&mut batch);
    assert!(batch.records().is_empty(), "the consumer took it");
    assert_eq!(take(&mut consumer), Some(vec![0, 1]));

    fill(&mut batch, 2..3);
    producer.take(&mut batch).unwrap();
    fill(&mut batch, 3..4);
    producer.publish(&mut batch).unwrap();
    assert!(consumer.take_parked());
    assert_eq!((take(&mut consumer), take(&mut consumer)), (Some(vec![2]), Some(vec![3])));
    assert_eq!(take(&mut consumer), None);

    producer.reclaim(&mut batch);
    fill(&mut batch, 4..5);
    producer.publish(&mut batch).unwrap();
    drop(producer);
    assert_eq!(take(&mut consumer), Some(vec![4]), "no record is left behind");
    assert!(matches!(consumer.take(), Found::End));
    assert_eq!(consumer.missed(), 0);
}

#[test]
fn two_threads_at_full_speed_count_every_lost_record() {
    const BATCHES: u64 = if cfg!(miri) { 100 } else { 20_000 };
    let (mut producer, mut consumer) = ring(4 * RecordBatch::CAPACITY);
    let sending = std::thread::spawn(move || {
        let mut batch = RecordBatch::new();
        let mut number = 0;
        for length in (1..64).cycle().take(BATCHES as usize) {
            fill(&mut batch, number..number + length);
            number += length;
            // Idle before each batch, for a varying time.
            let is_parked = producer.publish(&mut batch).is_ok();
            if number % 512 < 64 {
                std::thread::yield_now();
            }
            if is_parked {
                producer.reclaim(&mut batch);
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
            Found::Nothing if consumer.take_parked() => {}
            Found::Nothing => std::thread::yield_now(),
            Found::End => break,
        }
    }
    assert!(read > 0);
    assert_eq!(read + consumer.missed(), sending.join().unwrap());
}
