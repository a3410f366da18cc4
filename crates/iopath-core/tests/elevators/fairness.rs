//! Tests of `fair`: equal streams finish together, shares follow weights, idle time gives no credit.

use super::{read, spec};
use iopath_core::elevator::{Harness, Outline};
use iopath_core::{Extent, Instant, Sector, Stream};

/// Sequential reads of `sectors` sectors by one stream, `depth` of them queued at a time.
struct Reader {
    stream: Stream,
    sectors: u64,
    depth: u64,
    queued: u64,
    next: u64,
    /// Sectors not yet requested.
    left: u64,
    /// Sectors read by all streams when this one finished.
    finished_at: Option<u64>,
}

impl Reader {
    fn new(stream: u32, sectors: u64, depth: u64, total: u64) -> Self {
        let next = u64::from(stream) << 30;
        Self { stream: Stream(stream), sectors, depth, queued: 0, next, left: total, finished_at: None }
    }

    fn fill(&mut self, harness: &mut Harness) {
        while self.queued < self.depth && self.left >= self.sectors {
            let extent = Extent::new(Sector(self.next), self.sectors).unwrap();
            harness.insert(&Outline { extent, stream: self.stream, ..read(0) }, Instant::ZERO);
            self.next += self.sectors;
            self.left -= self.sectors;
            self.queued += 1;
        }
    }
}

/// Serves the readers until all have finished, or `sectors_max` have been read; returns the sectors read by each.
fn serve(harness: &mut Harness, readers: &mut [Reader], sectors_max: u64) -> Vec<u64> {
    let mut read = vec![0; readers.len()];
    let mut total = 0;
    while total < sectors_max {
        for reader in &mut *readers {
            reader.fill(harness);
        }
        let Some((_, io)) = harness.dispatch(Instant::ZERO) else { break };
        total += io.extent.sectors();
        let index = readers.iter().position(|reader| reader.stream == io.stream).unwrap();
        read[index] += io.extent.sectors();
        readers[index].queued -= 1;
        if readers[index].queued == 0 && readers[index].left < readers[index].sectors {
            readers[index].finished_at = Some(total);
        }
    }
    read
}

#[test]
fn eight_equal_streams_finish_within_one_percent_of_each_other() {
    for depth in [1, 4, 32] {
        let mut harness = Harness::new(&spec("fair"), 256);
        let mut readers: Vec<_> = (0..8).map(|stream| Reader::new(stream, 128, depth, 128 * 2048)).collect();
        serve(&mut harness, &mut readers, u64::MAX);
        let ends: Vec<_> =
            readers.iter().map(|reader| reader.finished_at.expect("it has finished")).collect();
        let (first, last) = (ends.iter().min().unwrap(), ends.iter().max().unwrap());
        assert!((last - first) * 100 <= *last, "depth {depth}: finished from {first} to {last} sectors");
    }
}

#[test]
fn a_deep_queue_gains_nothing_over_shallow_ones() {
    let mut harness = Harness::new(&spec("fair:quantum_bytes=0"), 256);
    let mut readers: Vec<_> =
        (0..8).map(|stream| Reader::new(stream, 128, if stream == 0 { 64 } else { 2 }, 128 * 1024)).collect();
    let read = serve(&mut harness, &mut readers, 128 * 4096);
    let mean = read.iter().sum::<u64>() / 8;
    assert!(read.iter().all(|read| read.abs_diff(mean) * 100 <= mean), "{read:?}");
}

#[test]
fn shares_follow_weights() {
    let mut harness = Harness::new(&spec("fair"), 256);
    let weights = [50, 100, 200, 10_000];
    for (stream, weight) in weights.into_iter().enumerate() {
        harness.elevator().set_weight(Stream(stream as u32), weight);
    }
    let mut readers: Vec<_> = (0..4).map(|stream| Reader::new(stream, 8, 16, u64::MAX / 2)).collect();
    let read = serve(&mut harness, &mut readers, 40_000_000);
    let total: u64 = read.iter().sum();
    for (read, weight) in read.into_iter().zip(weights) {
        let expected = total * u64::from(weight) / 10_350;
        assert!(read.abs_diff(expected) * 50 <= expected, "weight {weight}: {read} of {expected} sectors");
    }
}

#[test]
fn cost_is_per_request_and_per_byte() {
    // 8 and 2048 sectors, each with 32 for the request: 40 to 2080, as bytes 8 × 52 to 2048.
    let mut harness = Harness::new(&spec("fair"), 256);
    let mut readers = [Reader::new(0, 8, 64, u64::MAX / 2), Reader::new(1, 2048, 4, u64::MAX / 2)];
    let read = serve(&mut harness, &mut readers, 20_000_000);
    let ratio = read[1] as f64 / read[0] as f64;
    let expected = (2048.0 / 2080.0) / (8.0 / 40.0);
    assert!((ratio / expected - 1.0).abs() < 0.01, "{read:?}: {ratio} instead of {expected}");
}

#[test]
fn idle_time_gives_no_credit() {
    let mut harness = Harness::new(&spec("fair:quantum_bytes=0"), 64);
    let mut busy = [Reader::new(1, 8, 8, u64::MAX / 2)];
    serve(&mut harness, &mut busy, 8_000_000);
    let [busy] = busy;
    let mut both = [Reader::new(2, 8, 8, u64::MAX / 2), busy];
    let read = serve(&mut harness, &mut both, 800);
    assert!(read[0].abs_diff(read[1]) <= 16, "after idling it got {read:?}");
}

#[test]
fn a_stream_that_often_goes_idle_gets_no_more_than_its_share() {
    // One stream has one request at a time, the other always has requests queued.
    let mut harness = Harness::new(&spec("fair:quantum_bytes=0"), 64);
    let mut readers = [Reader::new(1, 8, 1, u64::MAX / 2), Reader::new(2, 8, 32, u64::MAX / 2)];
    let read = serve(&mut harness, &mut readers, 80_000);
    assert!(read[0] <= read[1] + 16, "with one request at a time it got {read:?}");
}
