//! A virtual disk of a cloud: a latency, and caps on I/Os and bytes a second with burst credits. The mechanics of the
//! disk are not modelled: the provider does not publish them, and enforces the caps in front of them.
//!
//! With `batch_max` above 1, one server of the provider takes all waiting requests, up to this number, as one batch. It
//! passes them through the caps one after another, and reports all of them when the last has completed. Requests that
//! arrive meanwhile wait for the next batch. A virtual machine monitor that serves a queue in one thread behaves like
//! this.

use std::collections::VecDeque;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use iopath_core::{Limits, Op, Tag};

use crate::bucket::Bucket;
use crate::document::Section;
use crate::error::ModelError;
use crate::event_loop::earlier;
use crate::mechanism::{Completions, Mechanism, Nanos, Request, SECOND};
use crate::parameter::{Parameter, Unit};

/// The parameters of kind `cloud`.
pub(crate) const PARAMETERS: &[Parameter] = &[
    Parameter::new("capacity_gib", Unit::Gib, (0.001, 1e6), "the size of the disk"),
    Parameter::new("latency_min_us", Unit::Microseconds, (0.0, 1e7), "the shortest latency of an I/O"),
    Parameter::new("latency_p50_us", Unit::Microseconds, (0.0, 1e7), "the median latency of an I/O"),
    Parameter::new(
        "latency_p99_us",
        Unit::Microseconds,
        (0.0, 1e7),
        "the latency that one I/O in 100 exceeds",
    ),
    Parameter::new("latency_max_us", Unit::Microseconds, (0.0, 1e7), "the longest latency of an I/O"),
    Parameter::new("sustained_iops", Unit::Iops, (1.0, 1e8), "I/Os a second without credits"),
    Parameter::new("burst_iops", Unit::Iops, (1.0, 1e8), "I/Os a second while credits last"),
    Parameter::new(
        "credits",
        Unit::Count,
        (0.0, 1e12),
        "I/Os above the sustained rate that a full bucket holds",
    ),
    Parameter::new(
        "io_unit_kib",
        Unit::Kib,
        (0.5, 65536.0),
        "a larger I/O counts as several: one for each part of this size",
    ),
    Parameter::new("sustained_mib_per_s", Unit::MibPerS, (0.01, 1e6), "throughput without credits"),
    Parameter::new("burst_mib_per_s", Unit::MibPerS, (0.01, 1e6), "throughput while credits last"),
    Parameter::new(
        "credits_mib",
        Unit::Mib,
        (0.0, 1e9),
        "bytes above the sustained rate that a full bucket holds",
    ),
    Parameter::new(
        "io_overhead_kib",
        Unit::Kib,
        (0.0, 65536.0),
        "bytes that each I/O counts for in addition to its data",
    )
    .or(0.0),
    Parameter::new(
        "transfer_mib_per_s",
        Unit::MibPerS,
        (0.0, 1e6),
        "the transfer rate of one I/O, whose transfer time is added to its latency; 0: no transfer time",
    )
    .or(0.0),
    Parameter::new(
        "write_latency_percent",
        Unit::Percent,
        (1.0, 10_000.0),
        "the latency of a write, as a share of that of a read",
    )
    .or(100.0),
    Parameter::new(
        "write_io_percent",
        Unit::Percent,
        (1.0, 10_000.0),
        "the cost of a write under the cap on I/Os, as a share of that of a read",
    )
    .or(100.0),
    Parameter::new(
        "write_byte_percent",
        Unit::Percent,
        (1.0, 10_000.0),
        "the cost of a written byte under the cap on bytes, as a share of that of a byte read",
    )
    .or(100.0),
    Parameter::new(
        "flush_latency_us",
        Unit::Microseconds,
        (0.0, 1e7),
        "the time of a flush; 0: completed writes are durable",
    )
    .or(0.0),
    Parameter::new(
        "batch_max",
        Unit::Count,
        (1.0, 4096.0),
        "requests that the server takes as one batch and reports together",
    )
    .or(1.0),
    Parameter::new("request_max_kib", Unit::Kib, (4.0, 65536.0), "the largest request").or(1024.0),
    Parameter::new("depth_max", Unit::Count, (1.0, 4096.0), "requests in flight").or(256.0),
];

/// The checked parameters.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    latency: Latency,
    ios: Bucket,
    bytes: Bucket,
    io_unit: u64,
    /// Bytes that an I/O counts for in addition to its data.
    io_overhead: u64,
    /// The time of a byte in the latency, in 2^-16 ns.
    transfer_byte: u64,
    write_latency: Share,
    write_ios: Share,
    write_bytes: Share,
    /// Zero: a flush takes the latency of an I/O.
    flush: Nanos,
    batch_max: usize,
}

/// A share of the cost of a read, in 2^-10.
#[derive(Debug, Clone, Copy)]
struct Share(u64);

impl Share {
    const READ: Self = Self(1 << 10);

    fn of_percent(percent: f64) -> Self {
        Self((percent * 10.24).round() as u64)
    }

    const fn of(self, amount: u64) -> u64 {
        (amount * self.0) >> 10
    }
}

impl Spec {
    pub(crate) fn read(section: &Section<'_>, others: &[&str]) -> Result<(Self, Limits), ModelError> {
        let values = section.read(PARAMETERS, others)?;
        let quantiles = ["latency_min_us", "latency_p50_us", "latency_p99_us", "latency_max_us"];
        for pair in quantiles.windows(2) {
            if values.amount(pair[0]) > values.amount(pair[1]) {
                return Err(section.conflict(pair[1], format!("this must be at least `{}`", pair[0])));
            }
        }
        for (sustained, burst) in
            [("sustained_iops", "burst_iops"), ("sustained_mib_per_s", "burst_mib_per_s")]
        {
            if values.number(sustained) > values.number(burst) {
                return Err(section.conflict(burst, format!("this must be at least `{sustained}`")));
            }
        }
        let [ios, bytes] = [
            ["sustained_iops", "burst_iops", "credits"],
            ["sustained_mib_per_s", "burst_mib_per_s", "credits_mib"],
        ]
        .map(|[sustained, burst, credits]| {
            Bucket::new(values.number(sustained), values.number(burst), values.number(credits))
        });
        let limits = Limits {
            request_bytes_max: values.amount("request_max_kib") >> 9 << 9,
            depth_max: values.amount("depth_max") as u32,
            volatile_cache: values.amount("flush_latency_us") > 0,
            ..Limits::with_capacity(values.amount("capacity_gib") >> 9)
        };
        let latency = Latency { quantiles: quantiles.map(|name| values.amount(name)) };
        let transfer = values.number("transfer_mib_per_s");
        let per_byte = SECOND as f64 * 65536.0 / transfer.max(1.0);
        let share = |name: &str| Share::of_percent(values.number(name));
        let spec = Self {
            latency,
            ios,
            bytes,
            io_unit: values.amount("io_unit_kib"),
            io_overhead: values.amount("io_overhead_kib"),
            transfer_byte: if transfer > 0.0 { per_byte.round() as u64 } else { 0 },
            write_latency: share("write_latency_percent"),
            write_ios: share("write_io_percent"),
            write_bytes: share("write_byte_percent"),
            flush: values.amount("flush_latency_us"),
            batch_max: values.amount("batch_max") as usize,
        };
        Ok((spec, limits))
    }
}

/// A distribution of latencies, linear between its minimum, median, 99th percentile and maximum.
#[derive(Debug, Clone)]
struct Latency {
    quantiles: [Nanos; 4],
}

impl Latency {
    /// The quantile of the latency at the share `draw` / 2^32.
    fn at(&self, draw: u32) -> Nanos {
        const STEPS: [u64; 4] = [0, 1 << 31, 4_252_017_623, 1 << 32];
        let draw = u64::from(draw);
        let part = usize::from(draw >= STEPS[1]) + usize::from(draw >= STEPS[2]);
        let (from, to) = (self.quantiles[part], self.quantiles[part + 1]);
        from + (u128::from(to - from) * u128::from(draw - STEPS[part])
            / u128::from(STEPS[part + 1] - STEPS[part])) as Nanos
    }
}

/// The state of a virtual disk. Requests pass the caps in order of arrival. After the caps, a request takes its latency
/// to complete.
#[derive(Debug)]
pub(crate) struct Cloud {
    spec: Spec,
    random: Xoshiro256PlusPlus,
    submitted: Vec<Request>,
    /// Requests that wait for the next batch.
    waiting: VecDeque<Request>,
    /// The time at which the server takes the next batch.
    server_free: Nanos,
    /// The tags of one batch.
    batch: Vec<Tag>,
    completions: Completions,
}

impl Cloud {
    pub(crate) fn new(spec: &Spec, depth_max: u32, seed: u64) -> Self {
        let batch = spec.batch_max.min(depth_max as usize);
        Self {
            spec: spec.clone(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            submitted: Vec::with_capacity(depth_max as usize),
            waiting: VecDeque::with_capacity(if batch > 1 { depth_max as usize } else { 0 }),
            server_free: 0,
            batch: Vec::with_capacity(batch),
            completions: Completions::in_any_order(depth_max),
        }
    }

    /// The time at which a request that arrives now has passed both caps.
    fn pass(&mut self, request: &Request, now: Nanos) -> Nanos {
        if !request.op.has_memory() {
            return now;
        }
        let data = request.extent.bytes();
        let Spec { ios, bytes, io_unit, io_overhead, write_ios, write_bytes, .. } = &mut self.spec;
        let at = ios.ready(bytes.ready(now));
        let units = data.div_ceil(*io_unit);
        let taken = data + *io_overhead;
        if request.op == Op::Write {
            ios.take_share(units, write_ios.0, at);
            bytes.take(write_bytes.of(taken), at);
        } else {
            ios.take_share(units, Share::READ.0, at);
            bytes.take(taken, at);
        }
        at
    }

    fn draw(&mut self) -> Nanos {
        self.spec.latency.at((self.random.next_u64() >> 32) as u32)
    }

    /// The latency of a request with this draw of the distribution.
    fn latency(&self, request: &Request, drawn: Nanos) -> Nanos {
        if !request.op.has_memory() {
            return if self.spec.flush > 0 { self.spec.flush } else { drawn };
        }
        let latency = drawn + ((request.extent.bytes() * self.spec.transfer_byte) >> 16);
        if request.op == Op::Write { self.spec.write_latency.of(latency) } else { latency }
    }

    /// Takes every batch that is due.
    fn advance(&mut self, now: Nanos) {
        while !self.waiting.is_empty() && self.server_free <= now {
            self.take_batch(self.server_free);
        }
    }

    /// Passes the waiting requests, at most `batch_max`, through the caps. All of them complete at the time of the
    /// last.
    fn take_batch(&mut self, at: Nanos) {
        let drawn = self.draw();
        let mut passed = at;
        let mut latency = 0;
        while self.batch.len() < self.spec.batch_max {
            let Some(request) = self.waiting.pop_front() else { break };
            passed = self.pass(&request, passed);
            latency = latency.max(self.latency(&request, drawn));
            self.batch.push(request.tag);
        }
        self.server_free = passed;
        for tag in self.batch.drain(..) {
            self.completions.push(tag, passed + latency);
        }
    }
}

impl Mechanism for Cloud {
    fn submit(&mut self, request: Request, _now: Nanos) {
        self.submitted.push(request);
    }

    fn commit(&mut self, now: Nanos) {
        let takes_batches = self.spec.batch_max > 1;
        if takes_batches {
            self.advance(now);
        }
        for index in 0..self.submitted.len() {
            let request = self.submitted[index];
            if takes_batches {
                self.waiting.push_back(request);
                continue;
            }
            let passed = self.pass(&request, now);
            let drawn = self.draw();
            self.completions.push(request.tag, passed + self.latency(&request, drawn));
        }
        self.submitted.clear();
        if takes_batches && self.server_free <= now && !self.waiting.is_empty() {
            self.take_batch(now);
        }
    }

    fn poll(&mut self, now: Nanos) -> Option<Tag> {
        self.advance(now);
        self.completions.pop(now)
    }

    fn next_event(&self) -> Option<Nanos> {
        let batch = (!self.waiting.is_empty()).then_some(self.server_free);
        earlier(self.completions.next(), batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_meet_their_quantiles() {
        let latency = Latency { quantiles: [100, 200, 1000, 5000] };
        assert_eq!((latency.at(0), latency.at(1 << 31)), (100, 200));
        let last = latency.at(u32::MAX);
        assert!((4990..=5000).contains(&last), "{last}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut drawn: Vec<_> = (0..100_000).map(|_| latency.at((random.next_u64() >> 32) as u32)).collect();
        drawn.sort_unstable();
        assert!(drawn[50_000].abs_diff(200) < 10, "{}", drawn[50_000]);
        assert!(drawn[99_000].abs_diff(1000) < 100, "{}", drawn[99_000]);
    }

    /// A disk with these parameters over those of the preset, and its limits.
    fn disk(overrides: &[(&str, &str)]) -> Cloud {
        let model = crate::Model::preset_with("cloud", overrides).expect("the parameters are valid");
        let crate::model::Spec::Cloud(spec) = model.spec() else {
            unreachable!("the preset is of this kind")
        };
        Cloud::new(spec, model.limits().depth_max, 1)
    }

    /// The times at which requests of these operations and sizes complete, all submitted at `at`.
    fn times(disk: &mut Cloud, requests: &[(Op, u64)], at: Nanos) -> Vec<Nanos> {
        for (tag, &(op, sectors)) in (0..).zip(requests) {
            let extent = iopath_core::Extent::new(iopath_core::Sector(0), sectors)
                .expect("the list of requests is short");
            disk.submit(Request { tag: Tag::from_bits(tag), op, extent, fua: false }, at);
        }
        disk.commit(at);
        let mut done = vec![0; requests.len()];
        while let Some(now) = disk.next_event() {
            while let Some(tag) = disk.poll(now) {
                done[tag.to_bits() as usize] = now;
            }
        }
        done
    }

    /// A constant latency of 100 µs, and caps that do not limit.
    const PLAIN: [(&str, &str); 8] = [
        ("latency_min_us", "100"),
        ("latency_p50_us", "100"),
        ("latency_p99_us", "100"),
        ("latency_max_us", "100"),
        ("sustained_iops", "100000000"),
        ("burst_iops", "100000000"),
        ("sustained_mib_per_s", "1000000"),
        ("burst_mib_per_s", "1000000"),
    ];

    fn plain(more: &[(&'static str, &'static str)]) -> Cloud {
        let is_set = |name: &str| more.iter().any(|(other, _)| *other == name);
        let rest = PLAIN.into_iter().filter(|(name, _)| !is_set(name));
        disk(&rest.chain(more.iter().copied()).collect::<Vec<_>>())
    }

    #[test]
    fn a_batch_completes_when_its_last_request_does() {
        let slow = [("sustained_iops", "100000"), ("burst_iops", "100000"), ("batch_max", "8")];
        let four = [(Op::Read, 8); 4];
        let together = times(&mut plain(&slow), &four, 0);
        assert!(
            together.iter().all(|&at| at.abs_diff(130_000) < 10),
            "three more of 10 us each: {together:?}"
        );
        let single = times(&mut plain(&[slow[0], slow[1]]), &four, 0);
        assert!(single[0] == 100_000 && single[3].abs_diff(130_000) < 10, "{single:?}");
    }

    #[test]
    fn requests_that_arrive_during_a_batch_wait_for_the_next() {
        let mut disk = plain(&[("sustained_iops", "100000"), ("burst_iops", "100000"), ("batch_max", "2")]);
        let done = times(&mut disk, &[(Op::Read, 8); 4], 0);
        assert_eq!(done[0], done[1]);
        assert!(done[2] == done[3] && done[2].abs_diff(done[0] + 20_000) < 10, "{done:?}");
    }

    #[test]
    fn a_write_has_its_own_latency_and_cost() {
        let mut disk = plain(&[("write_latency_percent", "250"), ("transfer_mib_per_s", "1000")]);
        let done = times(&mut disk, &[(Op::Read, 2048), (Op::Write, 2048), (Op::Read, 8)], 0);
        assert!(done[0].abs_diff(1_100_000) < 2_000, "1 MiB at 1000 MiB/s and the latency: {done:?}");
        assert!(done[1].abs_diff(2_750_000) < 5_000 && done[2].abs_diff(105_900) < 200, "{done:?}");
        let slow = [("sustained_iops", "10000"), ("burst_iops", "10000"), ("write_io_percent", "300")];
        let done = times(&mut plain(&slow), &[(Op::Write, 8), (Op::Read, 8), (Op::Read, 8)], 0);
        assert!(done[1].abs_diff(400_000) < 10 && done[2].abs_diff(500_000) < 10, "{done:?}");
    }

    #[test]
    fn the_throughput_of_small_requests_includes_their_overhead() {
        let slow = [("sustained_mib_per_s", "100"), ("burst_mib_per_s", "100"), ("io_overhead_kib", "96")];
        let done = times(&mut plain(&slow), &[(Op::Read, 8), (Op::Read, 8)], 0);
        assert!((done[1] - done[0]).abs_diff(976_562) < 10, "100 KiB at 100 MiB/s: {done:?}");
        let half = [slow[0], slow[1], slow[2], ("write_byte_percent", "50")];
        let done = times(&mut plain(&half), &[(Op::Write, 8), (Op::Read, 8)], 0);
        assert!((done[1] - done[0]).abs_diff(488_281) < 10, "{done:?}");
    }

    #[test]
    fn a_flush_takes_its_own_time() {
        let done = times(&mut plain(&[("flush_latency_us", "5000")]), &[(Op::Flush, 0)], 7);
        assert_eq!(done, [5_000_007]);
    }
}
