//! The metrics of a recording: sums of its intervals, and the figures of the last one. Does not publish them.

use std::collections::BTreeMap;

use iopath_log::Interval;
use iopath_report::metrics::{
    DEVICE_BUSY, DEVICE_BYTES, DEVICE_DEPTH, DEVICE_LATENCY, DEVICE_REQUESTS, EVENTS, LOST_EVENTS,
};

use super::described;
use crate::record::EventCounts;

/// The devices of a recording.
#[derive(Debug, Default)]
pub struct RecordMetrics {
    devices: BTreeMap<String, Device>,
}

/// A device: its sums, and its figures in the last interval.
#[derive(Debug, Default)]
struct Device {
    bytes: u64,
    requests: u64,
    busy: f64,
    depth: f64,
    /// The median and the 99th percentile; none without a completion in the interval.
    latencies_ns: [Option<u64>; 2],
}

impl RecordMetrics {
    /// The text after a further interval.
    pub fn add(&mut self, interval: &Interval, counts: EventCounts) -> String {
        for device in self.devices.values_mut() {
            (device.busy, device.depth, device.latencies_ns) = (0.0, 0.0, [None; 2]);
        }
        for share in &interval.devices {
            let device = self.devices.entry(share.device.clone()).or_default();
            device.bytes += share.request_bytes;
            device.requests += share.requests;
            (device.busy, device.depth) = (share.busy, share.depth_mean);
            device.latencies_ns = [share.p50_d2c_ns, share.p99_d2c_ns];
        }
        let mut metrics = described();
        for (name, device) in &self.devices {
            let labels = [("device", name.as_str())];
            metrics.add(&DEVICE_BYTES, &labels, device.bytes as f64);
            metrics.add(&DEVICE_REQUESTS, &labels, device.requests as f64);
            metrics.add(&DEVICE_BUSY, &labels, device.busy);
            metrics.add(&DEVICE_DEPTH, &labels, device.depth);
            for (quantile, ns) in ["0.5", "0.99"].into_iter().zip(device.latencies_ns) {
                if let Some(ns) = ns {
                    let labels = [labels[0], ("quantile", quantile)];
                    metrics.add(&DEVICE_LATENCY, &labels, ns as f64 / 1e9);
                }
            }
        }
        metrics.add(&EVENTS, &[], counts.read as f64);
        metrics.add(&LOST_EVENTS, &[], counts.lost as f64);
        metrics.text()
    }
}
