//! Summaries of small logs, compared with results calculated by hand, and of random logs, compared with the statistics
//! of queue and caller.

mod adds_up;

use super::*;
use crate::LogInfo;
use crate::writer::{LogOptions, LogWriter};
use iopath_core::{
    Bio, Extent, Instant, IoError, LengthOnly, Limits, LogSink, NoMerge, QueueConfig, Record, RecordBatch,
    RequestQueue, Sector, Stream, Tag,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::Path;
use std::time::Duration;

type Queue = RequestQueue<LengthOnly>;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn read(start: u64, sectors: u64, token: u64) -> Bio<LengthOnly> {
    let extent = Extent::new(Sector(start), sectors).unwrap();
    Bio::read(extent, LengthOnly::new(extent.bytes()), token)
}

/// Writes the log of a queue while `act` uses it.
fn log_of(path: &Path, limits: Limits, config: &QueueConfig, act: impl FnOnce(&mut Queue)) {
    let info = LogInfo { start_ns: 1000, elevator: config.elevator.to_string(), ..LogInfo::default() };
    let options = LogOptions { ring_records: 1 << 20, ..LogOptions::default() };
    let log = LogWriter::create(path, &info, &options).unwrap();
    let mut queue = Queue::new(limits, config);
    queue.start_log(Box::new(log.add_queue()));
    act(&mut queue);
    drop(queue);
    assert_eq!(log.finish().unwrap().missed, 0);
}

fn summary(path: &Path, filter: &Filter) -> Report {
    LogReader::open(path).unwrap().summarise(filter).unwrap()
}

/// Two adjacent bios on stream 0, which merge in the plug, and one bio on stream 1, which fails.
fn three_bios(queue: &mut Queue) {
    queue.plug();
    queue.submit_bio(read(100, 8, 1), at(1100)).unwrap();
    queue.submit_bio(read(108, 8, 2), at(1150)).unwrap();
    queue.submit_bio(read(0, 4, 3).on_stream(Stream(1)), at(1200)).unwrap();
    queue.unplug(at(1300));
    let first = queue.poll_dispatch(at(1400)).unwrap().tag;
    let second = queue.poll_dispatch(at(1500)).unwrap().tag;
    queue.handle_completion(second, Err(IoError::Media), at(1900));
    queue.handle_completion(first, Ok(()), at(2400));
}

#[test]
fn three_bios_are_summarised_as_calculated_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    log_of(&path, Limits::with_capacity(1 << 20), &QueueConfig::default(), three_bios);
    let report = summary(&path, &Filter::default());

    // Clock; QG P, Q M, QG; U I I; D D; C (with its bio); C, and C of its two bios. Two records are of two steps.
    assert_eq!((report.records, report.selected, report.missed, report.queues), (15, 17, 0, 1));
    assert_eq!((report.span_ns, report.first_ns, report.last_ns), (1300, 100, 1400));
    let events = report.events;
    assert_eq!((events.queue, events.get, events.back_merge, events.insert), (3, 2, 1, 2));
    assert_eq!((events.plug, events.unplug, events.dispatch, events.complete), (1, 1, 2, 4));
    assert_eq!((report.plug.unplugs, report.plug.requests), (1, 2));
    assert_eq!((report.not_merged.not_adjacent, report.not_merged.total()), (2, 2));
    let flow = Flow { bios: 3, merged: 1, own_request: 2, ..Flow::default() };
    assert_eq!((report.flow, report.merges_refused.total()), (flow, 0));

    let [reads] = report.ops[..] else { panic!("{:?}", report.ops) };
    assert_eq!((reads.op, reads.bios, reads.bio_bytes), ("read", 3, 20 * 512));
    assert_eq!((reads.requests, reads.request_bytes), (2, 20 * 512));
    let sizes: Vec<_> =
        report.sizes.iter().map(|class| (class.from_bytes, class.bios, class.requests)).collect();
    assert_eq!(sizes, [(2048, 1, 1), (4096, 2, 0), (8192, 0, 1)]);
    assert_eq!(report.errors.iter().map(|error| (error.errno, error.bios)).collect::<Vec<_>>(), [(5, 1)]);

    // From sector 116 back to 0.
    let seeks = report.seeks;
    assert_eq!((seeks.requests, seeks.count, seeks.backward, seeks.max_bytes), (1, 1, 1, 116 * 512));

    let Stages { q2g, g2i, i2d, d2c, q2c } = report.stages;
    assert_eq!((q2g.count, q2g.timed, q2g.max_ns), (2, 0, 0));
    assert_eq!((g2i.count, g2i.min_ns, g2i.max_ns), (2, 100, 200));
    assert_eq!((i2d.count, i2d.min_ns, i2d.max_ns), (2, 100, 200));
    assert_eq!((d2c.count, d2c.min_ns, d2c.max_ns), (2, 400, 1000));
    assert_eq!((q2c.count, q2c.min_ns, q2c.max_ns), (3, 700, 1300));
    assert!((q2c.mean_ns - (700.0 + 1250.0 + 1300.0) / 3.0).abs() < 1e-9);

    // One at the device for 100 ns, two for 400, one for 500; of the 1300 ns from the first step to the last.
    assert!(
        (report.depth.mean - 1400.0 / 1300.0).abs() < 1e-9 && report.depth.max == 2,
        "{:?}",
        report.depth
    );

    let streams: Vec<_> =
        report.streams.iter().map(|s| (s.stream, s.bios, s.bytes, s.first_ns, s.last_ns)).collect();
    assert_eq!(streams, [(0, 2, 8192, 100, 1400), (1, 1, 2048, 200, 900)]);
    assert_eq!(report.skew_ns, 500);
    let slowest: Vec<_> = report.slowest.iter().map(|s| (s.q2c_ns, s.d2c_ns, s.sector, s.errno)).collect();
    assert_eq!(slowest, [(1300, Some(1000), 100, 0), (1250, Some(1000), 108, 0), (700, Some(400), 0, 5)]);
    assert_eq!(report.unjoined, 0);
}

#[test]
fn a_filter_applies_to_every_count() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    log_of(&path, Limits::with_capacity(1 << 20), &QueueConfig::default(), three_bios);
    let of_stream = summary(&path, &Filter { streams: vec![1], ..Filter::default() });
    assert_eq!(
        (of_stream.events.queue, of_stream.stages.q2c.count, of_stream.stages.q2c.max_ns),
        (1, 1, 700)
    );
    assert_eq!(of_stream.streams.len(), 1);
    let sectors = Extent::new(Sector(110), 1);
    let of_sectors = summary(&path, &Filter { sectors, ..Filter::default() });
    assert_eq!((of_sectors.events.queue, of_sectors.stages.d2c.count), (1, 1));
    let events = vec![Event::Dispatch];
    let of_event = summary(&path, &Filter { events, ..Filter::default() });
    assert_eq!((of_event.selected, of_event.events.dispatch, of_event.stages.q2c.count), (2, 2, 0));
    let late = Duration::from_nanos(800)..Duration::MAX;
    let of_time = summary(&path, &Filter { time: Some(late), ..Filter::default() });
    assert_eq!((of_time.selected, of_time.unjoined), (4, 3), "completions without their beginning");
}

/// Twice: bios that never wait, one bio that is merged, and one that is dispatched late.
fn without_waiting(queue: &mut Queue) {
    for now in [2000, 3000] {
        queue.plug();
        for (token, start) in [0, 100, 200, 208, 300].into_iter().enumerate() {
            queue.submit_bio(read(start, 8, token as u64), at(now)).unwrap();
        }
        queue.unplug(at(now));
        let mut tags: Vec<_> =
            std::iter::from_fn(|| queue.poll_dispatch(at(now)).map(|io| io.tag)).take(3).collect();
        tags.extend(queue.poll_dispatch(at(now + 100)).map(|io| io.tag));
        for tag in tags {
            queue.handle_completion(tag, Ok(()), at(now + 500));
        }
        while queue.poll_completion().is_some() {}
    }
}

#[test]
fn records_of_several_steps_count_as_the_steps_by_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    log_of(&path, Limits::with_capacity(1 << 20), &QueueConfig::default(), without_waiting);
    let whole = summary(&path, &Filter::default());
    let events = whole.events;
    assert_eq!((events.queue, events.get, events.insert, events.dispatch), (10, 8, 8, 8));
    assert!(whole.records < whole.selected, "{} records", whole.records);
    assert_eq!((whole.depth.max, whole.unjoined, whole.not_merged.not_adjacent), (4, 0, 8));
    assert_eq!([whole.stages.q2g.count, whole.stages.g2i.count, whole.stages.i2d.count], [8; 3]);
    assert_eq!((whole.stages.i2d.max_ns, whole.stages.q2c.count, whole.stages.q2c.min_ns), (100, 10, 500));
    // A filter that passes every step processes each step of a record separately.
    let mut by_step =
        summary(&path, &Filter { time: Some(Duration::ZERO..Duration::MAX), ..Filter::default() });
    assert!(by_step.is_filtered);
    by_step.is_filtered = false;
    assert_eq!(by_step.contents.take().unwrap().steps, whole.selected);
    assert_eq!(format!("{by_step:?}"), format!("{whole:?}"));
}

#[test]
fn no_bio_is_joined_across_missed_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = LogWriter::create(&path, &LogInfo::default(), &LogOptions::default()).unwrap();
    let mut producer = log.add_queue();
    let step = |event, subject, other| iopath_core::log::Step::new(event, subject).with_other(other);
    let bio = iopath_core::log::Subject::Bio(7);
    let record = |step: &_, nanos| Record::new(step, at(nanos));
    let mut batch = RecordBatch::new();
    batch.push(record(&step(Event::Queue, bio, 0), 10));
    batch.push(Record::missed(5, at(20)));
    batch.push(record(&step(Event::Complete, bio, 0), 30));
    batch.push(record(&step(Event::Queue, bio, 0), 40));
    batch.push(record(&step(Event::Complete, bio, 0), 45));
    producer.take(&mut batch).unwrap();
    drop(producer);
    log.finish().unwrap();
    let report = summary(&path, &Filter::default());
    assert_eq!((report.stages.q2c.count, report.stages.q2c.max_ns, report.unjoined), (1, 5, 1));
}

/// Latencies that the caller of a queue measured.
#[derive(Default)]
struct Measured {
    submitted: Vec<u64>,
    q2c: Vec<u64>,
    d2c: Vec<u64>,
}

/// Random bios at random times, through a queue with an elevator, splits, waits and flushes.
fn random_life(queue: &mut Queue, seed: u64) -> Measured {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut saw = Measured::default();
    let mut at_device: Vec<(Tag, u64)> = Vec::new();
    let mut nanos = 1000;
    let mut last = 0;
    let collect = |queue: &mut Queue, saw: &mut Measured, nanos: u64| {
        while let Some(done) = queue.poll_completion() {
            saw.q2c.push(nanos - saw.submitted[done.token as usize]);
        }
    };
    for _ in 0..20_000 {
        nanos += rng.random_range(0..2000);
        let now = at(nanos);
        if queue.bios_in() < 60 {
            let token = saw.submitted.len() as u64;
            let start = if rng.random_bool(0.6) { last } else { rng.random_range(0..1 << 18) };
            let sectors = rng.random_range(1..40);
            last = (start + sectors) % (1 << 18);
            let bio = if rng.random_bool(0.02) { Bio::flush(token) } else { read(start, sectors, token) };
            if rng.random_bool(0.3) {
                queue.plug();
                queue.submit_bio(bio, now).unwrap();
                queue.submit_bio(read(last, 8, token + 1), now).unwrap();
                saw.submitted.extend([nanos, nanos]);
                queue.unplug(now);
            } else {
                queue.submit_bio(bio, now).unwrap();
                saw.submitted.push(nanos);
            }
            collect(queue, &mut saw, nanos);
        }
        queue.handle_timeout(now);
        while let Some(tag) = queue.poll_dispatch(now).map(|io| io.tag) {
            if rng.random_bool(0.05) {
                queue.requeue(tag, now);
            } else {
                at_device.push((tag, nanos));
            }
        }
        if !at_device.is_empty() && rng.random_bool(0.7) {
            let (tag, since) = at_device.swap_remove(rng.random_range(0..at_device.len()));
            saw.d2c.push(nanos - since);
            queue.handle_completion(tag, Ok(()), now);
            collect(queue, &mut saw, nanos);
        }
    }
    saw
}

fn mean(values: &[u64]) -> f64 {
    values.iter().sum::<u64>() as f64 / values.len() as f64
}

#[test]
fn a_random_life_matches_the_statistics_of_queue_and_caller() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits {
        request_bytes_max: 32 << 9,
        segments_max: 4,
        chunk_sectors: 64,
        volatile_cache: true,
        ..Limits::with_capacity(1 << 20)
    };
    for (seed, elevator_name) in [(1, "none"), (2, "ascend")] {
        let path = folder.path().join(elevator_name);
        let elevator = elevator_name.parse().unwrap();
        let config = QueueConfig { requests_max: 24, depth: 8, elevator, ..QueueConfig::default() };
        let mut seen = Measured::default();
        let mut stats = None;
        log_of(&path, limits.clone(), &config, |queue| {
            seen = random_life(queue, seed);
            stats = Some(*queue.stats());
        });
        let report = summary(&path, &Filter::default());
        let stats = stats.unwrap();

        let events = report.events;
        assert_eq!(
            (events.queue, events.dispatch, events.requeue),
            (stats.bios, stats.dispatched, stats.requeued)
        );
        assert_eq!((events.slot_wait, events.hold), (stats.slot_waits, stats.held));
        assert_eq!((events.back_merge, events.front_merge), (stats.back_merges(), stats.front_merges()));
        assert_eq!(report.flow.split, stats.split);
        for (reason, (name, refused)) in [
            (NoMerge::SizeLimit, report.merges_refused.rows()[2]),
            (NoMerge::SegmentLimit, report.merges_refused.rows()[3]),
            (NoMerge::Boundary, report.merges_refused.rows()[7]),
        ] {
            assert_eq!(refused, stats.refused(reason), "{name}");
            // `none` names no candidates, so merges are refused in the plug only.
            assert!(refused > 0 || elevator_name == "none", "{name} never occurred");
        }

        let Stages { q2c, d2c, .. } = report.stages;
        assert_eq!((q2c.count, q2c.max_ns), (seen.q2c.len() as u64, seen.q2c.iter().copied().max().unwrap()));
        assert!((q2c.mean_ns - mean(&seen.q2c)).abs() < 1e-3);
        assert_eq!((d2c.count, d2c.max_ns), (seen.d2c.len() as u64, seen.d2c.iter().copied().max().unwrap()));
        assert!((d2c.mean_ns - mean(&seen.d2c)).abs() < 1e-3);
        seen.q2c.sort_unstable();
        let p99 = seen.q2c[seen.q2c.len() * 99 / 100] as f64;
        assert!((q2c.p99_ns as f64 / p99 - 1.0).abs() < 0.01, "p99 {} against {p99}", q2c.p99_ns);
        assert!(report.depth.max <= 8 && report.depth.mean > 0.5, "{:?}", report.depth);
        assert_eq!(report.unjoined, 0);
        assert_eq!(report.slowest[0].q2c_ns, q2c.max_ns);

        let json = serde_json::to_value(&report).unwrap();
        assert!(json["records"].is_u64() && json["missed"] == 0);
        assert_eq!(json["stages"]["q2c"]["count"], q2c.count);
    }
}

#[test]
fn a_change_of_the_elevator_is_reported_with_its_name_and_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    log_of(&path, Limits::with_capacity(1 << 20), &QueueConfig::default(), |queue| {
        queue.submit_bio(read(100, 8, 1), at(1100)).unwrap();
        queue.set_elevator(&"two-list".parse().unwrap(), at(1500));
        let tag = queue.poll_dispatch(at(1600)).unwrap().tag;
        queue.handle_completion(tag, Ok(()), at(1900));
    });
    let report = summary(&path, &Filter::default());
    let change = ElevatorChange { at_ns: 500, queue: 0, elevator: "two-list".to_owned() };
    assert_eq!((&report.elevators[..], report.events.elevator), (&[change][..], 1));
    assert_eq!((report.stages.i2d.count, report.stages.i2d.max_ns), (1, 500));

    let mut dump = Vec::new();
    LogReader::open(&path).unwrap().dump(&Filter::default(), &mut dump).unwrap();
    let dump = String::from_utf8(dump).unwrap();
    assert!(dump.lines().any(|line| line.contains("E elevator") && line.ends_with(" two-list")), "{dump}");
    // The bio's first three steps are one record, and three lines.
    let events: Vec<_> = dump.lines().map(|line| line.split_whitespace().nth(2).unwrap()).collect();
    assert_eq!(events, ["T", "Q", "G", "I", "E", "D", "C"]);
}

/// The events in a dump.
fn dumped(path: &Path, filter: &Filter) -> Vec<String> {
    let mut dump = Vec::new();
    LogReader::open(path).unwrap().dump(filter, &mut dump).unwrap();
    let event = |line: &str| line.split_whitespace().nth(2).unwrap().to_owned();
    String::from_utf8(dump).unwrap().lines().map(event).collect()
}

#[test]
fn a_change_of_the_elevator_with_any_name_passes_filters_of_stream_and_sectors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let elevators = ["none", "ascend", "two-list", "closest", "deadline", "fair"];
    log_of(&path, Limits::with_capacity(1 << 20), &QueueConfig::default(), |queue| {
        queue.plug();
        queue.submit_bio(read(0, 8, 0).on_stream(Stream(1)), at(1100)).unwrap();
        queue.submit_bio(read(100, 8, 1).on_stream(Stream(3)), at(1100)).unwrap();
        queue.submit_bio(read(200, 8, 2), at(1100)).unwrap();
        queue.unplug(at(1200));
        for (elevator, nanos) in elevators.iter().zip(1300..) {
            queue.set_elevator(&elevator.parse().unwrap(), at(nanos));
        }
    });
    let stream = Filter { streams: vec![3], ..Filter::default() };
    let sectors = Filter { sectors: Extent::new(Sector(200), 1), ..Filter::default() };
    for filter in [stream, sectors] {
        assert_eq!(dumped(&path, &filter), ["Q", "G", "I", "E", "E", "E", "E", "E", "E"], "{filter:?}");
        let changes = summary(&path, &filter).elevators;
        assert!(changes.iter().map(|change| &change.elevator[..]).eq(elevators), "{changes:?}");
    }
    let time = Filter { time: Some(Duration::ZERO..Duration::from_nanos(300)), ..Filter::default() };
    assert_eq!(dumped(&path, &time), ["T", "Q", "G", "P", "Q", "G", "Q", "G", "U", "I", "I", "I"]);
    let event = Filter { events: vec![Event::Queue], ..Filter::default() };
    assert_eq!(dumped(&path, &event), ["Q", "Q", "Q"]);
}

#[test]
fn the_first_64_streams_have_percentiles() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    log_of(&path, Limits::with_capacity(1 << 20), &QueueConfig::default(), |queue| {
        let mut nanos = 1000;
        for stream in 0..70 {
            // A hundred bios that take 1000 ns, 2000 ns and so on, times the stream's number and one.
            for bio in 1..=100 {
                queue.submit_bio(read(100, 8, bio).on_stream(Stream(stream)), at(nanos)).unwrap();
                let tag = queue.poll_dispatch(at(nanos)).unwrap().tag;
                nanos += bio * 1000 * u64::from(stream + 1);
                queue.handle_completion(tag, Ok(()), at(nanos));
                queue.poll_completion().unwrap();
            }
        }
    });
    let report = summary(&path, &Filter::default());
    assert_eq!(report.streams.len(), 70);
    for share in &report.streams {
        let (Some(p50), Some(p99)) = (share.p50_q2c_ns, share.p99_q2c_ns) else {
            assert!(share.stream >= 64, "stream {}", share.stream);
            continue;
        };
        assert!(share.stream < 64, "stream {}", share.stream);
        for (quantile, bio) in [(p50, 50), (p99, 99)] {
            let exact = bio * 1000 * u64::from(share.stream + 1);
            assert!(quantile >= exact && quantile - exact <= exact / 100, "{quantile} for {exact}");
        }
    }
}

#[test]
fn equal_bios_of_one_batch_are_one_entry_and_untimed_stages_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    log_of(&path, Limits::with_capacity(1 << 20), &QueueConfig::default(), |queue| {
        for bio in 0..8 {
            queue.submit_bio(read(bio * 100, 8, bio), at(2000)).unwrap();
        }
        let tags: Vec<_> = std::iter::from_fn(|| queue.poll_dispatch(at(2000)).map(|io| io.tag)).collect();
        for tag in tags {
            queue.handle_completion(tag, Ok(()), at(7000));
        }
    });
    let report = summary(&path, &Filter::default());
    let slowest: Vec<_> = report.slowest.iter().map(|slow| (slow.bios, slow.q2c_ns, slow.sector)).collect();
    assert_eq!(slowest, [(8, 5000, 0)]);
    let Stages { i2d, d2c, .. } = report.stages;
    assert_eq!((i2d.count, i2d.timed, d2c.count, d2c.timed), (8, 0, 8, 8));
}

#[test]
fn a_filter_without_matches_leaves_the_content_of_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    log_of(&path, Limits::with_capacity(1 << 20), &QueueConfig::default(), three_bios);
    let filter = Filter { streams: vec![7], ..Filter::default() };
    let report = summary(&path, &filter);
    let contents = report.nothing_passed().unwrap();
    assert_eq!((contents.steps, contents.last_ns, &contents.streams[..]), (17, 1400, &[0, 1][..]));
    assert_eq!(
        (contents.first_sector, contents.end_sector, &contents.events[..2]),
        (0, 116, &["queue", "get"][..])
    );
    let dumped = LogReader::open(&path).unwrap().dump(&filter, &mut Vec::new()).unwrap();
    assert_eq!((dumped.lines, dumped.contents), (0, report.contents));
}
