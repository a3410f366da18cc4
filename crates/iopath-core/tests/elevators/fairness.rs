//! What `fair` promises: equal streams end together, shares follow weights, idling saves nothing up.

use crate::{read, spec};
use iopath_core::elevator::{Harness, Outline};
use iopath_core::{Extent, Instant, Sector, Stream};

/// Reads of `sectors` sectors by one stream, one after another, `depth` of them queued at a time.
struct Reader {
    stream: Stream,
    sectors: u64,
    depth: u64,
    queued: u64,
    next: u64,
    /// Sectors still to be asked for.
    left: u64,
    /// Sectors read when it ended.
    ended_at: Option<u64>,
}

impl Reader {
    fn new(stream: u32, sectors: u64, depth: u64, total: u64) -> Self {
        let next = u64::from(stream) << 30;
        Self { stream: Stream(stream), sectors, depth, queued: 0, next, left: total, ended_at: None }
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

/// Serves the readers until all have ended, or `sectors_max` have been read; sectors read by each.
fn serve(harness: &mut Harness, readers: &mut [Reader], sectors_max: u64) -> Vec<u64> {
    let mut read = vec![0; readers.len()];
    let mut total = 0;
    while total < sectors_max {
        for reader in &mut *readers {
            reader.fill(harness);
        }
        let Some((_, io)) = harness.dispatch(Instant::ZERO) else { break };
        total += io.extent.sectors();
        let place = readers.iter().position(|reader| reader.stream == io.stream).unwrap();
        read[place] += io.extent.sectors();
        readers[place].queued -= 1;
        if readers[place].queued == 0 && readers[place].left < readers[place].sectors {
            readers[place].ended_at = Some(total);
        }
    }
    read
}

#[test]
fn eight_equal_streams_end_within_a_hundredth_of_each_other() {
    for depth in [1, 4, 32] {
        let mut harness = Harness::new(&spec("fair"), 256);
        let mut readers: Vec<_> = (0..8).map(|stream| Reader::new(stream, 128, depth, 128 * 2048)).collect();
        serve(&mut harness, &mut readers, u64::MAX);
        let ends: Vec<_> = readers.iter().map(|reader| reader.ended_at.expect("it has ended")).collect();
        let (first, last) = (ends.iter().min().unwrap(), ends.iter().max().unwrap());
        assert!((last - first) * 100 <= *last, "depth {depth}: ended from {first} to {last} sectors");
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
        let due = total * u64::from(weight) / 10_350;
        assert!(read.abs_diff(due) * 50 <= due, "weight {weight}: {read} of {due} sectors due");
    }
}

#[test]
fn cost_is_per_request_and_per_byte() {
    // 8 and 2048 sectors, each with 32 for the request: 40 to 2080, as bytes 8 × 52 to 2048.
    let mut harness = Harness::new(&spec("fair"), 256);
    let mut readers = [Reader::new(0, 8, 64, u64::MAX / 2), Reader::new(1, 2048, 4, u64::MAX / 2)];
    let read = serve(&mut harness, &mut readers, 20_000_000);
    let ratio = read[1] as f64 / read[0] as f64;
    let due = (2048.0 / 2080.0) / (8.0 / 40.0);
    assert!((ratio / due - 1.0).abs() < 0.01, "{read:?}: {ratio} instead of {due}");
}

#[test]
fn a_stream_that_wakes_has_saved_nothing_up() {
    let mut harness = Harness::new(&spec("fair:quantum_bytes=0"), 64);
    let mut busy = [Reader::new(1, 8, 8, u64::MAX / 2)];
    serve(&mut harness, &mut busy, 8_000_000);
    let [busy] = busy;
    let mut both = [Reader::new(2, 8, 8, u64::MAX / 2), busy];
    let read = serve(&mut harness, &mut both, 800);
    assert!(read[0].abs_diff(read[1]) <= 16, "after sleeping it got {read:?}");
}

#[test]
fn a_stream_that_comes_and_goes_pays_for_what_it_got() {
    // One request at a time, each as soon as the last has completed, beside a stream that always waits.
    let mut harness = Harness::new(&spec("fair:quantum_bytes=0"), 64);
    let mut readers = [Reader::new(1, 8, 1, u64::MAX / 2), Reader::new(2, 8, 32, u64::MAX / 2)];
    let read = serve(&mut harness, &mut readers, 80_000);
    assert!(read[0] <= read[1] + 16, "by coming and going it got {read:?}");
}
