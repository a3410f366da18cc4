//! Figures of each device of a log of the kernel: one queue, one device. The figures over all queues are in
//! `tallies.rs`.

use super::latency::Latencies;
use super::report::DeviceShare;
use super::slots::UNKNOWN;
use crate::labels::Labels;
use iopath_core::{Record, SECTOR_BYTES};
use std::collections::BTreeMap;

/// The maximum number of devices with percentiles: 29 KiB each.
const TIMED_MAX: usize = 256;

/// Counters of all devices, by queue.
#[derive(Debug, Default)]
pub(super) struct Devices {
    /// The begin of the log, or of an interval.
    begun_ns: u64,
    devices: BTreeMap<u16, Device>,
}

#[derive(Debug, Default)]
struct Device {
    bios: u64,
    sectors: u64,
    requests: u64,
    request_sectors: u64,
    /// Bios that are bios of a device below, too.
    remapped: u64,
    remapped_sectors: u64,
    in_flight: u64,
    in_flight_max: u64,
    /// The time of the last change of `in_flight`.
    changed_ns: u64,
    busy_ns: u64,
    /// The sum of the times of all requests in flight.
    depth_ns: u128,
    d2c: Latencies,
}

impl Devices {
    fn of(&mut self, queue: u16) -> &mut Device {
        let is_timed = self.devices.len() < TIMED_MAX;
        self.devices.entry(queue).or_insert_with(|| {
            let d2c = if is_timed { Latencies::with_percentiles() } else { Latencies::default() };
            Device { d2c, ..Device::default() }
        })
    }

    pub(super) fn queued(&mut self, queue: u16, record: Record) {
        let device = self.of(queue);
        device.bios += 1;
        device.sectors += record.sectors();
    }

    /// A bio came from another device.
    pub(super) fn remapped(&mut self, record: Record) {
        if let Ok(above) = u16::try_from(record.other()) {
            let device = self.of(above);
            device.remapped += 1;
            device.remapped_sectors += record.sectors();
        }
    }

    pub(super) fn dispatched(&mut self, queue: u16, record: Record, now: u64) {
        let device = self.of(queue);
        device.requests += 1;
        device.request_sectors += record.sectors();
        device.pass_time(now);
        device.in_flight += 1;
        device.in_flight_max = device.in_flight_max.max(device.in_flight);
    }

    pub(super) fn requeued(&mut self, queue: u16, record: Record, now: u64) {
        let device = self.of(queue);
        device.requests = device.requests.saturating_sub(1);
        device.request_sectors = device.request_sectors.saturating_sub(record.sectors());
        device.leave(now);
    }

    pub(super) fn completed(&mut self, queue: u16, dispatched_ns: u64, now: u64) {
        let device = self.of(queue);
        device.leave(now);
        if dispatched_ns != UNKNOWN {
            device.d2c.add(now.saturating_sub(dispatched_ns));
        }
    }

    /// The requests in flight are unknown. Those that were dispatched at `dispatched_ns` no longer count in the depth:
    /// any of them may have completed at once.
    pub(super) fn forget(&mut self, queue: u16, dispatched_ns: impl Iterator<Item = u64>, now: u64) {
        let begun_ns = self.begun_ns;
        let device = self.of(queue);
        device.pass_time(now);
        device.in_flight = 0;
        let times = dispatched_ns.map(|ns| u128::from(now.saturating_sub(ns.max(begun_ns))));
        device.depth_ns = device.depth_ns.saturating_sub(times.sum());
    }

    /// Ends an interval, and returns the counters of the next one. Requests in flight are in both.
    pub(super) fn begin_interval(&mut self, now: u64) -> Self {
        let mut next = Self { begun_ns: now, ..Self::default() };
        for (queue, device) in &mut self.devices {
            device.pass_time(now);
            if device.in_flight > 0 {
                let Device { in_flight, changed_ns, .. } = *device;
                let new = next.of(*queue);
                (new.in_flight, new.in_flight_max, new.changed_ns) = (in_flight, in_flight, changed_ns);
            }
        }
        next
    }

    /// The devices, the busiest first. `span_ns` is the time of the log.
    pub(super) fn report(&self, labels: &Labels, span_ns: u64) -> Vec<DeviceShare> {
        let span = span_ns.max(1) as f64;
        let share = |(queue, device): (&u16, &Device)| {
            let label = labels.queue(*queue).cloned().unwrap_or_default();
            DeviceShare {
                queue: *queue,
                device: if label.name.is_empty() { format!("queue {queue}") } else { label.name },
                number: label.number,
                bios: device.bios,
                bytes: device.sectors * SECTOR_BYTES,
                requests: device.requests,
                request_bytes: device.request_sectors * SECTOR_BYTES,
                remapped_bios: device.remapped,
                remapped_bytes: device.remapped_sectors * SECTOR_BYTES,
                busy: device.busy_ns as f64 / span,
                depth_mean: device.depth_ns as f64 / span,
                depth_max: device.in_flight_max,
                completed: device.d2c.completed(),
                mean_d2c_ns: device.d2c.mean_ns(),
                p50_d2c_ns: device.d2c.quantile_ns(0.5),
                p99_d2c_ns: device.d2c.quantile_ns(0.99),
                max_d2c_ns: device.d2c.max_ns(),
            }
        };
        let mut devices: Vec<_> = self.devices.iter().map(share).collect();
        devices.sort_by(|a, b| b.busy.total_cmp(&a.busy).then(b.bytes.cmp(&a.bytes)));
        devices
    }
}

impl Device {
    fn leave(&mut self, now: u64) {
        self.pass_time(now);
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    fn pass_time(&mut self, now: u64) {
        let passed = now.saturating_sub(self.changed_ns);
        if self.in_flight > 0 {
            self.busy_ns += passed;
            self.depth_ns += u128::from(passed) * u128::from(self.in_flight);
        }
        self.changed_ns = now;
    }
}
