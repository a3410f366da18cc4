//! The cost of a record in the queue and the ring, and the speed of summarising a log.

use criterion::{Criterion, Throughput};
use iopath_core::log::{Event, Step, Subject};
use iopath_core::{
    Bio, Extent, Instant, LengthOnly, Limits, LogSink, QueueConfig, Record, RecordBatch, RequestQueue, Tag,
};
use iopath_log::{Filter, LogInfo, LogOptions, LogReader, LogWriter, Producer};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::Path;
use std::time::{Duration, Instant as Clock};

const BATCH: usize = RecordBatch::CAPACITY;
const BIOS: u64 = 1_000_000;

/// Long enough for the log thread to empty a ring.
const REST: Duration = Duration::from_millis(5);

/// Batches that fit into a ring.
const BATCHES_MAX: u64 = 40;

/// The cost of a batch. Measures only as many records as the ring holds, since lost records are cheap.
fn ring(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let options = LogOptions { limit_bytes: 64 << 20, ..LogOptions::default() };
    let log = LogWriter::create(&folder.path().join("log"), &LogInfo::default(), &options).expect("a log");
    let mut producer = log.add_queue();
    let mut batch = RecordBatch::new();
    let extent = Extent::from_bytes(4096, 4096).expect("whole sectors");
    let step = Step { extent, ..Step::new(Event::Queue, Subject::Bio(1)) };
    let mut group = criterion.benchmark_group("log/ring");
    group.throughput(Throughput::Elements(BATCH as u64));
    let mut nanos = 0;
    group.bench_function(format!("pack and put {BATCH} records"), |bench| {
        bench.iter_custom(|batches| {
            let mut spent = Duration::ZERO;
            let mut left = batches;
            while left > 0 {
                let now = left.min(BATCHES_MAX);
                let begin = Clock::now();
                for _ in 0..now {
                    put_batch(&mut producer, &mut batch, &step, &mut nanos);
                }
                spent += begin.elapsed();
                left -= now;
                std::thread::sleep(REST);
            }
            spent
        });
    });
    group.finish();
    drop(producer);
    let totals = log.finish().expect("the log is written");
    println!("log/ring: of {nanos} records {} were missed", totals.missed);
}

fn put_batch(producer: &mut Producer, batch: &mut RecordBatch, step: &Step, nanos: &mut u64) {
    for _ in 0..BATCH {
        *nanos += 1;
        batch.push(Record::new(step, Instant::from_nanos(*nanos)));
    }
    producer.take(batch).expect("only as many as the ring holds");
}

/// A log of random 4 KiB reads at depth 32, with latencies of a fast device.
fn write_log(path: &Path) -> u64 {
    let ascend = "ascend".parse().expect("the elevator exists");
    let config = QueueConfig { bios_max: 64, requests_max: 64, elevator: ascend, ..QueueConfig::default() };
    let mut queue: RequestQueue<LengthOnly> = RequestQueue::new(Limits::with_capacity(1 << 30), &config);
    let options = LogOptions { ring_records: BIOS as usize * 7, ..LogOptions::default() };
    let log = LogWriter::create(path, &LogInfo::default(), &options).expect("a log");
    queue.start_log(Box::new(log.add_queue()));
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut nanos = 0;
    let mut tags: Vec<Tag> = Vec::new();
    for token in 0..BIOS {
        nanos += 200 + rng.next_u64() % 1000;
        let now = Instant::from_nanos(nanos);
        let extent = Extent::from_bytes(rng.next_u64() % (1 << 26) * 4096, 4096).expect("whole sectors");
        queue.submit_bio(Bio::read(extent, LengthOnly::new(4096), token), now).expect("room");
        while let Some(io) = queue.poll_dispatch(now) {
            tags.push(io.tag);
        }
        if tags.len() == 32 {
            let tag = tags.swap_remove(rng.next_u64() as usize % 32);
            queue.handle_completion(tag, Ok(()), now);
        }
        while queue.poll_completion().is_some() {}
    }
    queue.end_log();
    let totals = log.finish().expect("the log is written");
    assert_eq!(totals.missed, 0);
    totals.records
}

fn reading(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("log");
    let records = write_log(&path);
    let mut group = criterion.benchmark_group("log/read");
    group.throughput(Throughput::Elements(records)).sample_size(10);
    group.bench_function("summary", |bench| {
        bench.iter(|| {
            let report = LogReader::open(&path).expect("the log").summarise(&Filter::default());
            assert_eq!(report.expect("no error").events.queue, BIOS);
        });
    });
    group.bench_function("blocks alone", |bench| {
        bench.iter(|| {
            let mut seen = 0;
            let end = LogReader::open(&path).expect("the log").for_each_block(|block| seen += block.len());
            assert_eq!(end.expect("no error").totals.records, seen as u64);
        });
    });
    group.finish();
    let bytes = std::fs::metadata(&path).map_or(0, |file| file.len());
    println!("log/read: {records} records in {bytes} bytes, {:.1} each", bytes as f64 / records as f64);
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    ring(&mut criterion);
    reading(&mut criterion);
    criterion.final_summary();
}
