//! The sums of one replay, or of the recorded run, in windows of consecutive requests; and the figures of any selection
//! of windows. `resample.rs` selects them.

use hdrhistogram::Histogram;
use iopath_report::whatif::Figures;

use super::request::Request;

/// The histogram records longer latencies as this value: one day, in nanoseconds.
const LATENCY_MAX_NS: u64 = 86_400_000_000_000;

/// Two significant digits: a percentile differs from the true one by at most 0.4%.
const DIGITS: u8 = 2;

/// The sums of a window.
#[derive(Debug, Clone, PartialEq)]
struct Window {
    /// Completed reads and writes.
    ios: u64,
    bytes: u64,
    latency_ns: u128,
    histogram: Histogram<u32>,
    /// The time at which as many requests had completed as this window and the windows before have. Not the last
    /// completion of its own requests: one late request would shift the whole window.
    end_ns: u64,
    device: Usage,
}

/// The sums of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Usage {
    /// Reads and writes.
    pub(crate) ios: u64,
    pub(crate) bytes: u64,
    /// Reads and writes with a predecessor, and the distances from its end to their start.
    pub(crate) moves: u64,
    pub(crate) distance_sectors: u128,
    /// The time with a request in flight.
    pub(crate) busy_ns: u128,
}

impl Usage {
    fn add(&mut self, other: &Self) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.moves += other.moves;
        self.distance_sectors += other.distance_sectors;
        self.busy_ns += other.busy_ns;
    }
}

/// Requests and latencies of one stream in one window.
type OfStream = (u64, u128);

/// The maximum number of sums of streams. With more streams and windows, the fairness has no interval.
const STREAM_SUMS_MAX: usize = 1 << 18;

/// The sums of one replay.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tally {
    windows: Vec<Window>,
    /// The sums of each stream: of each window, or of all windows together.
    streams: Vec<OfStream>,
    stream_count: usize,
    /// The first submission.
    first_ns: u64,
    devices: usize,
    completed: u64,
    /// The number of requests of each window and the windows before.
    ends: Vec<u64>,
    /// The number of windows that have ended.
    ended: usize,
}

impl Tally {
    /// For these requests, none of which has completed.
    pub(crate) fn new(windows: usize, streams: usize, requests: &[Request]) -> Self {
        let mut ends = vec![0; windows];
        for request in requests.iter().filter(|request| request.op().has_memory()) {
            ends[usize::from(request.window)] += 1;
        }
        let mut sum = 0;
        for end in &mut ends {
            sum += *end;
            *end = sum;
        }
        let window = Window {
            ios: 0,
            bytes: 0,
            latency_ns: 0,
            histogram: Histogram::new_with_bounds(1, LATENCY_MAX_NS, DIGITS)
                .expect("the bounds are constants in order"),
            end_ns: 0,
            device: Usage::default(),
        };
        let of_streams = if windows * streams <= STREAM_SUMS_MAX { windows } else { 1 };
        Self {
            windows: vec![window; windows],
            streams: vec![(0, 0); of_streams * streams],
            stream_count: streams,
            first_ns: u64::MAX,
            devices: 1,
            completed: 0,
            ends,
            ended: 0,
        }
    }

    /// A read or write that was due at `due_ns` has completed. Calls are in the order of completion.
    #[inline]
    pub(crate) fn complete(&mut self, request: &Request, due_ns: u64, done_ns: u64) {
        let latency_ns = done_ns - due_ns;
        let number = usize::from(request.window);
        let window = &mut self.windows[number];
        window.ios += 1;
        window.bytes += request.bytes();
        window.latency_ns += u128::from(latency_ns);
        window.histogram.saturating_record(latency_ns);
        self.completed += 1;
        while self.ends.get(self.ended).is_some_and(|end| *end <= self.completed) {
            self.windows[self.ended].end_ns = done_ns;
            self.ended += 1;
        }
        let base = if self.streams.len() == self.stream_count { 0 } else { number * self.stream_count };
        let stream = &mut self.streams[base + usize::from(request.stream)];
        stream.0 += 1;
        stream.1 += u128::from(latency_ns);
        self.first_ns = self.first_ns.min(due_ns);
    }

    /// Adds the use of the device during a window.
    pub(crate) fn add_usage(&mut self, window: usize, usage: &Usage) {
        self.windows[window].device.add(usage);
    }

    /// Adds the sums of another device that was in use at the same time.
    pub(crate) fn add_device(&mut self, other: &Self) {
        for (window, other) in self.windows.iter_mut().zip(&other.windows) {
            window.ios += other.ios;
            window.bytes += other.bytes;
            window.latency_ns += other.latency_ns;
            window.histogram.add(&other.histogram).expect("all histograms have the same bounds");
            window.end_ns = window.end_ns.max(other.end_ns);
            window.device.add(&other.device);
        }
        for (stream, other) in self.streams.iter_mut().zip(&other.streams) {
            stream.0 += other.0;
            stream.1 += other.1;
        }
        self.first_ns = self.first_ns.min(other.first_ns);
        self.devices += other.devices;
    }

    /// The same sums in the form that selections of windows need.
    pub(crate) fn digest(&self) -> Digest {
        let mut until = self.first_ns;
        let window = |window: &Window| {
            let before = until;
            until = until.max(window.end_ns);
            Part {
                ios: window.ios,
                bytes: window.bytes,
                latency_ns: window.latency_ns as f64,
                span_ns: until - before,
                device: window.device,
            }
        };
        let parts: Vec<Part> = self.windows.iter().map(window).collect();
        let mut values: Vec<u64> = Vec::new();
        let mut counts = Vec::with_capacity(self.windows.len());
        for window in &self.windows {
            values.extend(window.histogram.iter_recorded().map(|at| at.value_iterated_to()));
        }
        values.sort_unstable();
        values.dedup();
        for window in &self.windows {
            let of = window.histogram.iter_recorded().map(|at| {
                let index = values.binary_search(&at.value_iterated_to()).unwrap_or(0);
                (index as u32, at.count_since_last_iteration() as u32)
            });
            counts.push(of.collect());
        }
        // The histogram reports the highest value of a bucket; the middle is nearer on average.
        let middle = |value: &u64| {
            let histogram = &self.windows[0].histogram;
            histogram.median_equivalent(*value) as f64
        };
        Digest {
            parts,
            values: values.iter().map(middle).collect(),
            counts,
            streams: self.streams.iter().map(|(ios, latency_ns)| (*ios as f64, *latency_ns as f64)).collect(),
            stream_count: self.stream_count,
            devices: self.devices,
        }
    }
}

/// The sums of a window, for selections.
#[derive(Debug, Clone, Copy)]
struct Part {
    ios: u64,
    bytes: u64,
    latency_ns: f64,
    span_ns: u64,
    device: Usage,
}

/// The sums of a replay, for selections of windows.
#[derive(Debug, Clone)]
pub(crate) struct Digest {
    parts: Vec<Part>,
    /// The latencies that occur, in order.
    values: Vec<f64>,
    /// For each window: the index of a latency and its frequency.
    counts: Vec<Vec<(u32, u32)>>,
    streams: Vec<(f64, f64)>,
    stream_count: usize,
    devices: usize,
}

/// Memory of [`Digest::figures`], kept between calls.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    counts: Vec<u64>,
    streams: Vec<(f64, f64)>,
}

impl Digest {
    /// The number of windows.
    pub(crate) fn windows(&self) -> usize {
        self.parts.len()
    }

    /// The figures of all windows.
    pub(crate) fn all(&self) -> Figures {
        self.figures(0..self.parts.len(), &mut Scratch::default())
    }

    /// The figures of a selection of windows; a window may occur several times.
    pub(crate) fn figures(
        &self,
        selected: impl Iterator<Item = usize> + Clone,
        scratch: &mut Scratch,
    ) -> Figures {
        scratch.counts.clear();
        scratch.counts.resize(self.values.len(), 0);
        let (mut ios, mut bytes, mut latency_ns, mut span_ns) = (0, 0, 0.0, 0);
        let mut device = Usage::default();
        for window in selected.clone() {
            let part = &self.parts[window];
            ios += part.ios;
            bytes += part.bytes;
            latency_ns += part.latency_ns;
            span_ns += part.span_ns;
            device.add(&part.device);
            for &(index, count) in &self.counts[window] {
                scratch.counts[index as usize] += u64::from(count);
            }
        }
        let seconds = span_ns as f64 / 1e9;
        let per = |sum: f64, by: f64| if by > 0.0 { sum / by } else { 0.0 };
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| self.quantile(&scratch.counts, ios, share));
        Figures {
            bytes_per_s: per(bytes as f64, seconds),
            iops: per(ios as f64, seconds),
            mean_ns: per(latency_ns, ios as f64),
            p50_ns: p50,
            p99_ns: p99,
            p999_ns: p999,
            device_ios: device.ios as f64,
            request_bytes: per(device.bytes as f64, device.ios as f64),
            seek_bytes: per(device.distance_sectors as f64 * 512.0, device.moves as f64),
            utilisation: per(device.busy_ns as f64, span_ns as f64 * self.devices as f64).min(1.0),
            fairness: self.fairness(selected, scratch),
        }
    }

    /// The value below which a share of the requests lies.
    fn quantile(&self, counts: &[u64], ios: u64, share: f64) -> f64 {
        let rank = ((ios as f64 * share).ceil() as u64).max(1);
        let mut passed = 0;
        for (value, count) in self.values.iter().zip(counts) {
            passed += count;
            if passed >= rank {
                return *value;
            }
        }
        0.0
    }

    /// Jain's index of the streams; the share of a stream is the inverse of its mean latency.
    fn fairness(&self, selected: impl Iterator<Item = usize>, scratch: &mut Scratch) -> f64 {
        scratch.streams.clear();
        scratch.streams.resize(self.stream_count, (0.0, 0.0));
        let mut add = |window: usize| {
            let of_window = &self.streams[window * self.stream_count..][..self.stream_count];
            for (sum, (ios, latency_ns)) in scratch.streams.iter_mut().zip(of_window) {
                sum.0 += ios;
                sum.1 += latency_ns;
            }
        };
        if self.streams.len() > self.stream_count {
            selected.for_each(add);
        } else {
            add(0);
        }
        let shares = scratch.streams.iter().filter(|(ios, _)| *ios > 0.0);
        let shares: Vec<f64> = shares.map(|(ios, latency_ns)| ios / latency_ns.max(1.0)).collect();
        iopath_report::stats::fairness::jain(&shares)
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::Found;
    use super::super::trace::Builder;
    use super::*;
    use iopath_core::Op;

    /// Requests of 4 KiB, in windows of 20.
    fn requests(count: u64, streams: u32) -> Vec<Request> {
        let mut builder = Builder::default();
        for number in 0..count {
            let stream = number as u32 % streams;
            let found = Found {
                at_ns: number,
                op: Op::Read,
                is_fua: false,
                sector: 0,
                sectors: 8,
                stream,
                device: 0,
            };
            builder.push(&found).unwrap();
        }
        builder.finish().devices.remove(0).requests
    }

    fn near(a: f64, b: f64, tolerance: f64) -> bool {
        (a - b).abs() <= b.abs() * tolerance
    }

    #[test]
    fn figures_of_requests_computed_by_hand() {
        // 40 requests, one each µs; 36 take 1 µs, 4 take 101 µs: the mean is 11 µs.
        let requests = requests(40, 2);
        let mut tally = Tally::new(2, 2, &requests);
        for (number, request) in requests.iter().enumerate() {
            let due_ns = number as u64 * 1000;
            let latency_ns = if number % 10 == 9 { 101_000 } else { 1000 };
            tally.complete(request, due_ns, due_ns + latency_ns);
        }
        let usage = Usage { ios: 20, bytes: 163_840, moves: 19, distance_sectors: 190, busy_ns: 70_000 };
        tally.add_usage(0, &usage);
        let figures = tally.digest().all();
        // The last completion is that of request 39: at 140 µs. The calls are not in order, which matters only to
        // windows.
        assert!(near(figures.bytes_per_s, 163_840.0 / 140e-6, 1e-9), "{figures:?}");
        assert!(near(figures.iops, 40.0 / 140e-6, 1e-9) && near(figures.mean_ns, 11_000.0, 1e-9));
        assert!(near(figures.p50_ns, 1000.0, 0.004) && near(figures.p99_ns, 101_000.0, 0.004), "{figures:?}");
        assert!(near(figures.device_ios, 20.0, 1e-9) && near(figures.request_bytes, 8192.0, 1e-9));
        assert!(near(figures.seek_bytes, 5120.0, 1e-9) && near(figures.utilisation, 0.5, 1e-9));
        // Means of 1 µs (even) and 21 µs (odd).
        let (a, b) = (1.0, 1.0 / 21.0);
        assert!(near(figures.fairness, (a + b) * (a + b) / (2.0 * (a * a + b * b)), 1e-9), "{figures:?}");
    }

    #[test]
    fn a_selection_may_repeat_a_window() {
        let requests = requests(40, 1);
        let mut tally = Tally::new(2, 1, &requests);
        for (number, request) in requests.iter().enumerate() {
            let latency_ns = if number < 20 { 1000 } else { 3000 };
            tally.complete(request, number as u64 * 1000, number as u64 * 1000 + latency_ns);
        }
        let digest = tally.digest();
        let of = |windows: &[usize]| digest.figures(windows.iter().copied(), &mut Scratch::default()).mean_ns;
        assert!(near(of(&[0, 0]), 1000.0, 1e-9) && near(of(&[1, 1]), 3000.0, 1e-9));
        assert!(near(digest.all().mean_ns, 2000.0, 1e-9));
    }

    #[test]
    fn devices_in_use_at_the_same_time_share_the_duration() {
        let one = |shift: u64| {
            let requests = requests(10, 1);
            let mut tally = Tally::new(1, 1, &requests);
            for request in &requests {
                tally.complete(request, shift, shift + 1000);
            }
            tally.add_usage(0, &Usage { busy_ns: 1000, ..Usage::default() });
            tally
        };
        let mut both = one(0);
        both.add_device(&one(0));
        let figures = both.digest().all();
        assert!(near(figures.iops, 20.0 / 1e-6, 1e-9) && near(figures.utilisation, 1.0, 1e-9), "{figures:?}");
    }
}
