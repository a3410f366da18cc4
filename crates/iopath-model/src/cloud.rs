//! A virtual disk of a cloud: a latency, and caps on I/Os and bytes a second with burst credits. The mechanics of the
//! disk are not modelled: the provider does not publish them, and enforces the caps in front of them.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use iopath_core::{Limits, Tag};

use crate::bucket::Bucket;
use crate::document::Section;
use crate::error::ModelError;
use crate::mechanism::{Completions, Mechanism, Nanos, Request};
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
    Parameter::new("io_unit_kib", Unit::Kib, (0.5, 65536.0), "a larger I/O counts as one for each such part"),
    Parameter::new("sustained_mib_per_s", Unit::MibPerS, (0.01, 1e6), "throughput without credits"),
    Parameter::new("burst_mib_per_s", Unit::MibPerS, (0.01, 1e6), "throughput while credits last"),
    Parameter::new(
        "credits_mib",
        Unit::Mib,
        (0.0, 1e9),
        "bytes above the sustained rate that a full bucket holds",
    ),
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
            ..Limits::with_capacity(values.amount("capacity_gib") >> 9)
        };
        let latency = Latency { quantiles: quantiles.map(|name| values.amount(name)) };
        Ok((Self { latency, ios, bytes, io_unit: values.amount("io_unit_kib") }, limits))
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
    completions: Completions,
}

impl Cloud {
    pub(crate) fn new(spec: &Spec, depth_max: u32, seed: u64) -> Self {
        Self {
            spec: spec.clone(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            submitted: Vec::with_capacity(depth_max as usize),
            completions: Completions::with_capacity(depth_max),
        }
    }

    /// The time at which a request that arrives now has passed both caps.
    fn pass(&mut self, request: &Request, now: Nanos) -> Nanos {
        if !request.op.has_memory() {
            return now;
        }
        let bytes = request.extent.bytes();
        let Spec { ios, bytes: bandwidth, io_unit, .. } = &mut self.spec;
        let at = ios.ready(bandwidth.ready(now));
        ios.take(bytes.div_ceil(*io_unit), at);
        bandwidth.take(bytes, at);
        at
    }
}

impl Mechanism for Cloud {
    fn submit(&mut self, request: Request, _now: Nanos) {
        self.submitted.push(request);
    }

    fn commit(&mut self, now: Nanos) {
        for index in 0..self.submitted.len() {
            let request = self.submitted[index];
            let passed = self.pass(&request, now);
            let latency = self.spec.latency.at((self.random.next_u64() >> 32) as u32);
            self.completions.push(request.tag, passed + latency);
        }
        self.submitted.clear();
    }

    fn poll(&mut self, now: Nanos) -> Option<Tag> {
        self.completions.pop(now)
    }

    fn next_event(&self) -> Option<Nanos> {
        self.completions.next()
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
}
