//! The metrics of a run: from its progress, which they forward. Does not publish them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use iopath_bench::progress::{Completed, CompletedTarget, Progress, Sample, Stage};
use iopath_report::metrics::{
    BYTES, IOPS, LATENCY, LOST, PROGRESS, RECONNECTS, REPETITIONS, THROUGHPUT, TRANSFERS,
};
use iopath_report::result::{Connections, Latencies};

use super::{Exporter, INTERVAL, described};

/// The counters of one target.
#[derive(Debug, Clone, Copy, Default)]
struct Moved {
    bytes: u64,
    ios: u64,
}

/// Publishes the progress of a run, and forwards it.
pub struct RunMetrics<'a> {
    inner: &'a mut dyn Progress,
    exporter: Option<Exporter>,
    /// The counters of the jobs before the present ones, and of the present ones, for each target.
    before: BTreeMap<String, Moved>,
    present: BTreeMap<String, Moved>,
    elapsed: Duration,
    latencies: Latencies,
    repetitions: u32,
    connections: Option<Connections>,
    done: f64,
    published: Instant,
    /// The sums at the last publication, and the rates up to it.
    last: Moved,
    rates: [f64; 2],
}

impl fmt::Debug for RunMetrics<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunMetrics").field("exporter", &self.exporter).finish_non_exhaustive()
    }
}

impl<'a> RunMetrics<'a> {
    /// Forwards the progress to `inner`. Without an exporter, does nothing else.
    pub fn new(inner: &'a mut dyn Progress, exporter: Option<Exporter>) -> Self {
        Self {
            inner,
            exporter,
            before: BTreeMap::new(),
            present: BTreeMap::new(),
            elapsed: Duration::ZERO,
            latencies: Latencies::default(),
            repetitions: 0,
            connections: None,
            done: 0.0,
            published: Instant::now(),
            last: Moved::default(),
            rates: [0.0; 2],
        }
    }

    /// The counters of all jobs so far.
    fn moved(&self) -> BTreeMap<&str, Moved> {
        let mut all: BTreeMap<&str, Moved> = BTreeMap::new();
        for (target, moved) in self.before.iter().chain(&self.present) {
            let sum = all.entry(target).or_default();
            (sum.bytes, sum.ios) = (sum.bytes + moved.bytes, sum.ios + moved.ios);
        }
        all
    }

    /// The counters of the present jobs are complete: others begin at 0.
    fn end_jobs(&mut self) {
        for (target, moved) in std::mem::take(&mut self.present) {
            let sum = self.before.entry(target).or_default();
            (sum.bytes, sum.ios) = (sum.bytes + moved.bytes, sum.ios + moved.ios);
        }
        self.elapsed = Duration::ZERO;
    }

    fn publish(&mut self) {
        if self.exporter.is_none() {
            return;
        }
        let moved = self.moved();
        let mut metrics = described();
        let mut sum = Moved::default();
        for (target, moved) in moved {
            metrics.add(&BYTES, &[("target", target)], moved.bytes as f64);
            metrics.add(&TRANSFERS, &[("target", target)], moved.ios as f64);
            (sum.bytes, sum.ios) = (sum.bytes + moved.bytes, sum.ios + moved.ios);
        }
        let elapsed = self.published.elapsed();
        if elapsed >= INTERVAL {
            let rate = |after: u64, before: u64| after.saturating_sub(before) as f64 / elapsed.as_secs_f64();
            self.rates = [rate(sum.bytes, self.last.bytes), rate(sum.ios, self.last.ios)];
            (self.last, self.published) = (sum, Instant::now());
        }
        metrics.add(&THROUGHPUT, &[], self.rates[0]);
        metrics.add(&IOPS, &[], self.rates[1]);
        metrics.add_latencies(&LATENCY, &[], &self.latencies);
        metrics.add(&REPETITIONS, &[], self.repetitions.into());
        metrics.add(&PROGRESS, &[], self.done);
        if let Some(Connections { lost, reconnected }) = self.connections {
            metrics.add(&LOST, &[], lost as f64);
            metrics.add(&RECONNECTS, &[], reconnected as f64);
        }
        let text = metrics.text();
        if let Some(exporter) = &self.exporter {
            exporter.publish(text);
        }
    }
}

impl Progress for RunMetrics<'_> {
    fn stage(&mut self, stage: &Stage) {
        self.inner.stage(stage);
        self.done = 0.0;
        self.publish();
    }

    fn advance(&mut self, done: f64) {
        self.inner.advance(done);
        self.done = done.clamp(0.0, 1.0);
    }

    fn sample(&mut self, sample: &Sample) {
        self.inner.sample(sample);
        if self.exporter.is_none() {
            return;
        }
        if sample.elapsed < self.elapsed {
            self.end_jobs();
        }
        self.elapsed = sample.elapsed;
        self.done = sample.done.clamp(0.0, 1.0);
        self.present.clear();
        for job in &sample.jobs {
            let sum = self.present.entry(job.target.clone()).or_default();
            (sum.bytes, sum.ios) = (sum.bytes + job.bytes, sum.ios + job.ios);
        }
        self.publish();
    }

    fn completed(&mut self, completed: &Completed) {
        self.inner.completed(completed);
        self.repetitions += 1;
        self.latencies.add(completed.latency_ns);
        self.connections = match (self.connections, completed.connections) {
            (Some(before), Some(new)) => Some([before, new].into_iter().sum()),
            (before, new) => before.or(new),
        };
        // The last sample is some transfers before the end. A counter never falls.
        for CompletedTarget { target, bytes, ios } in &completed.targets {
            let moved = self.present.entry(target.clone()).or_default();
            (moved.bytes, moved.ios) = (moved.bytes.max(*bytes), moved.ios.max(*ios));
        }
        self.end_jobs();
        self.publish();
    }
}

#[cfg(test)]
mod tests {
    use super::super::MetricsPlace;
    use super::*;
    use iopath_bench::progress::{JobSample, Silent};
    use iopath_report::fixtures::openmetrics::parse;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};

    fn scraped(address: SocketAddr) -> Vec<iopath_report::fixtures::openmetrics::Sample> {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        parse(text.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    #[test]
    fn counters_rise_over_repetitions_and_the_histogram_has_the_complete_ones() {
        let exporter = Exporter::start(&"127.0.0.1:0".parse::<MetricsPlace>().unwrap(), false).unwrap();
        let address = exporter.address.unwrap();
        let mut silent = Silent;
        let mut metrics = RunMetrics::new(&mut silent, Some(exporter));
        let value = |name: &str| {
            let found = scraped(address).into_iter().find(|sample| sample.name == name);
            found.map(|sample| sample.value)
        };
        let job = |bytes| JobSample { target: "a".to_owned(), bytes, ios: bytes / 4096, latency_ns: 1 };
        let sample = |seconds, bytes| Sample {
            elapsed: Duration::from_secs(seconds),
            done: 0.5,
            jobs: vec![job(bytes), job(bytes)],
        };
        let mut latency_ns = Latencies::default();
        latency_ns.record(5000, 3);
        for repetition in 1..=2u32 {
            let before = f64::from(repetition - 1) * 20_000_000.0;
            metrics.sample(&sample(1, 4_096_000));
            assert_eq!(value("iopath_transferred_bytes_total"), Some(before + 8_192_000.0));
            assert_eq!(value("iopath_progress_ratio"), Some(0.5));
            let target = CompletedTarget { target: "a".to_owned(), bytes: 20_000_000, ios: 3 };
            let connections = Some(Connections { lost: 1, reconnected: 1 });
            metrics.completed(&Completed { targets: vec![target], latency_ns: &latency_ns, connections });
            assert_eq!(value("iopath_transferred_bytes_total"), Some(before + 20_000_000.0));
            assert_eq!(value("iopath_latency_seconds_count"), Some(3.0 * f64::from(repetition)));
            assert_eq!(value("iopath_reconnects_total"), Some(repetition.into()));
        }
        assert_eq!(value("iopath_repetitions_total"), Some(2.0));
    }
}
