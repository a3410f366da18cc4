//! Random logs of several queues, elevators, streams and repeats, with merges, splits, requeues, errors and missed
//! records: all numbers of the summary must agree with each other, and with a replay of the records.

use super::*;
use crate::block::Entry;
use iopath_core::elevator::ELEVATORS;
use iopath_core::log::NoRoom;
use proptest::prelude::*;
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// A sink that loses batches.
#[derive(Debug)]
struct Lossy<S> {
    inner: S,
    rng: ChaCha8Rng,
    loss: f64,
}

impl<S: LogSink> LogSink for Lossy<S> {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        if self.rng.random_bool(self.loss) { Err(NoRoom) } else { self.inner.take(batch) }
    }
}

/// A queue and its requests at the device.
struct Line {
    queue: Queue,
    at_device: Vec<Tag>,
    last: u64,
}

/// A measurement of several repeats, each with queues of its own.
struct Life {
    rng: ChaCha8Rng,
    nanos: u64,
    loss: f64,
    streams: u32,
}

impl Life {
    fn line(&mut self, log: &LogWriter) -> Line {
        let rng = &mut self.rng;
        let limits = Limits {
            request_bytes_max: rng.random_range(8..64) << 9,
            segments_max: rng.random_range(1..8),
            chunk_sectors: if rng.random_bool(0.5) { 64 } else { 0 },
            volatile_cache: rng.random_bool(0.5),
            ..Limits::with_capacity(1 << 20)
        };
        let elevator = ELEVATORS[rng.random_range(0..ELEVATORS.len())].name.parse().unwrap();
        let config = QueueConfig {
            bios_max: 64,
            requests_max: rng.random_range(4..32),
            depth: rng.random_range(1..9),
            elevator,
            ..QueueConfig::default()
        };
        let mut queue = Queue::new(limits, &config);
        let rng = ChaCha8Rng::seed_from_u64(rng.random());
        queue.start_log(Box::new(Lossy { inner: log.add_queue(), rng, loss: self.loss }));
        Line { queue, at_device: Vec::new(), last: 0 }
    }

    fn repeat(&mut self, log: &LogWriter, steps: u32) {
        let mut lines: Vec<Line> = (0..self.rng.random_range(1..4)).map(|_| self.line(log)).collect();
        for _ in 0..steps {
            let line = self.rng.random_range(0..lines.len());
            // Sometimes long enough that a partly filled batch is due. Never zero: events of two queues at the same
            // time have no defined order.
            self.nanos +=
                if self.rng.random_bool(0.02) { 1_100_000_000 } else { self.rng.random_range(1..2000) };
            self.step(&mut lines[line]);
        }
        for line in &mut lines {
            while line.queue.bios_in() > 0 {
                self.nanos += 1_000_000;
                self.dispatch(line, 0.0);
                self.complete(line, 1.0);
            }
        }
        self.nanos += self.rng.random_range(0..5_000_000);
    }

    fn step(&mut self, line: &mut Line) {
        match self.rng.random_range(0..3) {
            0 if line.queue.bios_in() < 40 => self.submit(line),
            1 => self.dispatch(line, 0.1),
            _ => self.complete(line, 0.5),
        }
    }

    fn submit(&mut self, line: &mut Line) {
        let is_plugged = self.rng.random_bool(0.6);
        if is_plugged {
            line.queue.plug();
        }
        for _ in 0..self.rng.random_range(1..9) {
            let start = if self.rng.random_bool(0.6) { line.last } else { self.rng.random_range(0..1 << 16) };
            let extent = Extent::new(Sector(start), self.rng.random_range(1..100)).unwrap();
            line.last = extent.end().0 % (1 << 16);
            let memory = LengthOnly::new(extent.bytes());
            let bio = match self.rng.random_range(0..20) {
                0 => Bio::flush(0),
                1..8 => Bio::write(extent, memory, 0),
                8 => Bio::write(extent, memory, 0).with_fua(),
                _ => Bio::read(extent, memory, 0),
            };
            let stream = Stream(self.rng.random_range(0..self.streams));
            line.queue.submit_bio(bio.on_stream(stream), at(self.nanos)).unwrap();
        }
        if is_plugged {
            line.queue.unplug(at(self.nanos));
        }
    }

    fn dispatch(&mut self, line: &mut Line, refused: f64) {
        let now = at(self.nanos);
        line.queue.handle_timeout(now);
        while let Some(tag) = line.queue.poll_dispatch(now).map(|io| io.tag) {
            if self.rng.random_bool(refused) {
                line.queue.requeue(tag, now);
            } else {
                line.at_device.push(tag);
            }
        }
    }

    fn complete(&mut self, line: &mut Line, share: f64) {
        for _ in 0..line.at_device.len() {
            if self.rng.random_bool(share) {
                let tag = line.at_device.swap_remove(self.rng.random_range(0..line.at_device.len()));
                let result = if self.rng.random_bool(0.1) { Err(IoError::Media) } else { Ok(()) };
                line.queue.handle_completion(tag, result, at(self.nanos));
            }
        }
        while line.queue.poll_completion().is_some() {}
    }
}

/// Writes a log of random repeats, and returns it.
fn random_log(seed: u64, loss: f64) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let start_ns = 5_000_000;
    let info = LogInfo { start_ns, ..LogInfo::default() };
    let options = LogOptions { ring_records: 1 << 16, ..LogOptions::default() };
    let log = LogWriter::create(&path, &info, &options).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (repeats, has_marks, streams) =
        (rng.random_range(1..4), rng.random_bool(0.7), rng.random_range(1..5));
    let mut life = Life { rng, nanos: start_ns + 1000, loss, streams };
    for number in 1..=repeats {
        if has_marks {
            log.begin_repeat(number, at(life.nanos));
        }
        life.repeat(&log, 400);
        life.nanos += 1;
    }
    log.finish().unwrap();
    std::fs::read(&path).unwrap()
}

fn summarise(bytes: &[u8], filter: &Filter) -> Report {
    LogReader::new(bytes).unwrap().summarise(filter).unwrap()
}

fn sum<T>(rows: &[T], number: impl Fn(&T) -> u64) -> u64 {
    rows.iter().map(number).sum()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(b.abs()).max(1.0)
}

/// The sums that hold for any log, also with gaps, damage or filters.
fn check_sums(report: &Report) {
    let Report { events, flow, ops, sizes, streams, stages, seeks, depth, repeats, .. } = report;
    assert_eq!((flow.bios, flow.bios), (events.queue, sum(ops, |op| op.bios)));
    assert_eq!(
        flow.bios,
        flow.flushes + flow.merged + flow.own_request + flow.split + flow.pending,
        "{flow:?}"
    );
    assert_eq!(flow.bios, sum(sizes, |class| class.bios));
    assert_eq!(flow.bios, sum(streams, |stream| stream.bios));
    assert!(flow.pieces >= flow.pieces_merged + flow.pieces_own_request, "{flow:?}");
    assert!(flow.split <= flow.bios && flow.requests_joined <= events.back_merge + events.front_merge);
    assert!(
        events.back_merge + events.front_merge >= flow.merged + flow.pieces_merged + flow.requests_joined
    );
    assert!(events.get >= flow.own_request + flow.pieces_own_request + flow.retried);
    assert_eq!(report.not_merged.total(), events.insert);
    assert_eq!(report.merges_refused.total(), events.no_merge);

    let bio_bytes: u64 = sum(ops, |op| op.bio_bytes);
    assert_eq!(bio_bytes, sum(sizes, |class| class.bio_bytes));
    assert_eq!(bio_bytes, sum(streams, |stream| stream.bytes));
    let requests: u64 = sum(ops, |op| op.requests);
    assert_eq!(requests, sum(sizes, |class| class.requests));
    assert!(requests <= events.dispatch && requests + events.requeue >= events.dispatch);
    let request_bytes: u64 = sum(ops, |op| op.request_bytes);
    assert_eq!(request_bytes, sum(sizes, |class| class.request_bytes));

    assert_eq!(stages.q2c.count, sum(streams, |stream| stream.completed));
    assert!(sum(&report.errors, |error| error.bios) <= stages.q2c.count + report.unjoined);
    assert!(stages.d2c.count <= requests && stages.i2d.count <= events.dispatch);
    for stage in [stages.q2g, stages.g2i, stages.i2d, stages.d2c, stages.q2c] {
        let ordered = [stage.min_ns, stage.p50_ns, stage.p90_ns, stage.p99_ns, stage.p999_ns, stage.max_ns];
        assert!(ordered.is_sorted(), "{stage:?}");
        assert!(stage.min_ns as f64 <= stage.mean_ns && stage.mean_ns <= stage.max_ns as f64, "{stage:?}");
        assert!(stage.timed <= stage.count && (stage.timed == 0) == (stage.max_ns == 0), "{stage:?}");
    }

    assert!(depth.mean <= f64::from(depth.max) + 1e-6, "{} {}", depth.mean, depth.max);
    assert!(depth.means.iter().all(|mean| *mean <= f64::from(depth.max) + 1e-6), "{depth:?}");
    assert!(seeks.backward <= seeks.count && seeks.count <= seeks.requests && seeks.requests <= requests);

    assert!(report.first_ns <= report.last_ns && report.span_ns <= report.last_ns - report.first_ns);
    for stream in streams {
        assert!(report.first_ns <= stream.first_ns && stream.last_ns <= report.last_ns, "{stream:?}");
        assert!(stream.mean_q2c_ns <= stream.max_q2c_ns as f64, "{stream:?}");
        assert!(stream.max_q2c_ns <= stages.q2c.max_ns, "{stream:?}");
    }
    assert!(report.skew_ns <= report.span_ns);
    let shares: f64 = streams.iter().map(|stream| stream.share).sum();
    assert!(close(shares, if bio_bytes == 0 { 0.0 } else { 1.0 }), "{shares}");
    if !repeats.is_empty() {
        assert_eq!(flow.bios, sum(repeats, |repeat| repeat.bios));
        assert_eq!(bio_bytes, sum(repeats, |repeat| repeat.bytes));
        assert_eq!(stages.q2c.count, sum(repeats, |repeat| repeat.completed));
        assert_eq!(report.span_ns, sum(repeats, |repeat| repeat.last_ns - repeat.first_ns));
        assert!(repeats.windows(2).all(|two| two[0].last_ns <= two[1].first_ns), "{repeats:?}");
    }

    assert!(report.slowest.iter().map(|slow| slow.q2c_ns).is_sorted_by(|a, b| a >= b));
    assert!(sum(&report.slowest, |slow| slow.bios) <= stages.q2c.count);
    assert_eq!(report.slowest.first().map_or(0, |slow| slow.q2c_ns), stages.q2c.max_ns);
    for slow in &report.slowest {
        assert!(slow.queued_ns + slow.q2c_ns <= report.last_ns, "{slow:?}");
        assert!(slow.d2c_ns.is_none_or(|d2c_ns| d2c_ns <= slow.q2c_ns), "{slow:?}");
    }
}

/// The sums of a log in which every I/O has its start and its end.
fn check_complete(report: &Report) {
    let Report { events, flow, ops, stages, .. } = report;
    assert_eq!((flow.pending, report.unjoined), (0, 0), "{flow:?}");
    assert_eq!(flow.pieces, flow.pieces_merged + flow.pieces_own_request);
    assert_eq!(
        events.back_merge + events.front_merge,
        flow.merged + flow.pieces_merged + flow.requests_joined
    );
    assert_eq!(events.get, flow.own_request + flow.pieces_own_request + flow.retried);
    let requests: u64 = sum(ops, |op| op.requests);
    assert_eq!(requests, events.dispatch - events.requeue);
    let transfers: u64 = ops.iter().filter(|op| op.op != "flush").map(|op| op.requests).sum();
    assert_eq!(transfers, events.get - flow.requests_joined);
    assert_eq!(stages.q2g.count, flow.own_request + flow.pieces_own_request);
    assert_eq!((stages.g2i.count, stages.i2d.count), (events.insert, transfers));
    assert_eq!((stages.d2c.count, stages.q2c.count), (requests, flow.bios));
}

/// Calculates depth and seeks again, by a simple replay of all steps in time order.
fn check_replay(report: &Report, bytes: &[u8]) {
    let mut reader = LogReader::new(bytes).unwrap();
    let mut block = Block::default();
    let mut steps = Vec::<Entry>::new();
    while reader.read_block(&mut block).unwrap() {
        steps.extend(block.entries());
    }
    // A dispatch that is followed by a requeue of the same request did not reach the device.
    let mut dispatched: BTreeMap<(u16, u32), usize> = BTreeMap::new();
    let mut is_requeued = vec![false; steps.len()];
    for (index, Entry { queue, record, .. }) in steps.iter().enumerate() {
        match record.event() {
            Some(Event::Dispatch) => drop(dispatched.insert((*queue, record.tag()), index)),
            Some(Event::Missed) => dispatched.retain(|(other, _), _| other != queue),
            Some(Event::Requeue) => {
                if let Some(dispatch) = dispatched.remove(&(*queue, record.tag())) {
                    is_requeued[dispatch] = true;
                }
            }
            _ => {}
        }
    }
    let mut order: Vec<usize> = (0..steps.len()).filter(|index| !is_requeued[*index]).collect();
    order.sort_by_key(|index| steps[*index].time);
    let mut in_flight = BTreeSet::new();
    let mut head = None;
    let mut repeat = 0;
    let (mut last_ns, mut area, mut max, mut requests, mut seeks) = (0, 0.0, 0, 0, 0);
    for Entry { queue, time, record, repeat: of_repeat, .. } in order.iter().map(|index| &steps[*index]) {
        let now = time.as_nanos();
        // Requests of an earlier repeat whose completion was missed ended with that repeat.
        if *of_repeat != repeat {
            (repeat, head, last_ns) = (*of_repeat, None, now);
            in_flight.clear();
        }
        let request = (*queue, record.tag());
        let is_of_device = record.event() == Some(Event::Dispatch)
            || (record.event() == Some(Event::Complete)
                && record.is_request()
                && in_flight.contains(&request));
        if is_of_device && now > last_ns {
            max = max.max(in_flight.len());
            area += in_flight.len() as f64 * (now - last_ns) as f64;
            last_ns = now;
        }
        match record.event() {
            Some(Event::Dispatch) => {
                in_flight.insert(request);
                if record.sectors() > 0 {
                    requests += u64::from(head.is_some());
                    seeks += u64::from(head.is_some_and(|head| head != record.sector()));
                    head = Some(record.sector() + record.sectors());
                }
            }
            Some(Event::Complete) if record.is_request() => {
                in_flight.remove(&request);
            }
            Some(Event::Missed) => {
                in_flight.retain(|(other, _)| other != queue);
                head = None;
            }
            _ => {}
        }
    }
    assert_eq!(report.out_of_order, 0);
    assert_eq!((report.seeks.requests, report.seeks.count), (requests, seeks));
    assert_eq!(report.depth.max as usize, max);
    let mean = if report.span_ns == 0 { 0.0 } else { area / report.span_ns as f64 };
    assert!(close(report.depth.mean, mean), "{} {mean}", report.depth.mean);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 24 }))]

    #[test]
    fn the_numbers_of_a_complete_log_agree(seed: u64) {
        let bytes = random_log(seed, 0.0);
        let report = summarise(&bytes, &Filter::default());
        check_sums(&report);
        check_complete(&report);
        check_replay(&report, &bytes);
    }

    #[test]
    fn the_numbers_of_a_log_with_missed_records_agree(seed: u64) {
        let bytes = random_log(seed, 0.3);
        let report = summarise(&bytes, &Filter::default());
        check_sums(&report);
        check_replay(&report, &bytes);
    }

    #[test]
    fn the_numbers_of_a_truncated_or_filtered_log_agree(seed: u64, part in 0.1..1.0_f64) {
        let bytes = random_log(seed, 0.1);
        check_sums(&summarise(&bytes[..(bytes.len() as f64 * part).max(400.0) as usize], &Filter::default()));
        let whole = summarise(&bytes, &Filter::default());
        let [from, to] = [0.3 * part, part].map(|share| Duration::from_nanos((whole.last_ns as f64 * share) as u64));
        for filter in [
            Filter { time: Some(from..to), ..Filter::default() },
            Filter { streams: vec![0, 2], ..Filter::default() },
            Filter { sectors: Extent::new(Sector(0), 1 << 15), ..Filter::default() },
            Filter { events: vec![Event::Dispatch, Event::Complete, Event::Requeue], ..Filter::default() },
            Filter { repeats: vec![2], ..Filter::default() },
        ] {
            check_sums(&summarise(&bytes, &filter));
        }
    }
}

#[test]
fn repeats_are_separate() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = LogWriter::create(&path, &LogInfo::default(), &LogOptions::default()).unwrap();
    // One queue for all repeats, as of a volume that stays open, with a warm-up before the first.
    let mut queue = Queue::new(Limits::with_capacity(1 << 20), &QueueConfig::default());
    queue.start_log(Box::new(log.add_queue()));
    for repeat in 0..3_u32 {
        let begin = 10_000 * u64::from(repeat) + 1000;
        if repeat > 0 {
            log.begin_repeat(repeat, at(begin));
        }
        for bio in 0..=u64::from(repeat) {
            queue.submit_bio(read(bio * 100, 8, bio), at(begin + bio)).unwrap();
            let tag = queue.poll_dispatch(at(begin + bio)).unwrap().tag;
            queue.handle_completion(tag, Ok(()), at(begin + bio + 500));
        }
    }
    drop(queue);
    log.finish().unwrap();
    let report = summary(&path, &Filter::default());
    let repeats: Vec<_> = report
        .repeats
        .iter()
        .map(|repeat| (repeat.repeat, repeat.bios, repeat.first_ns, repeat.last_ns))
        .collect();
    assert_eq!(repeats, [(0, 1, 1000, 1500), (1, 2, 11_000, 11_501), (2, 3, 21_000, 21_502)]);
    assert_eq!((report.span_ns, report.seeks.requests), (500 + 501 + 502, 3));
    assert_eq!(report.queues, 1);
    let second = summary(&path, &Filter { repeats: vec![2], ..Filter::default() });
    assert_eq!((second.flow.bios, second.repeats.len()), (3, 1));
}
