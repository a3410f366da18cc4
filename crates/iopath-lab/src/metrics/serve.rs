//! The metrics of a server. Does not publish them.

use iopath_nbd::ServeDirection;
use iopath_report::metrics::{ACCEPTED, BYTES, CLIENTS, IOPS, REQUEST_LATENCY, THROUGHPUT, TRANSFERS};

use super::described;
use crate::serve::ServeRates;

/// The text for the counters of a server.
pub fn serve_metrics(rates: &ServeRates) -> String {
    let mut metrics = described();
    let totals = rates.totals;
    metrics.add(&BYTES, &[], totals.bytes as f64);
    metrics.add(&TRANSFERS, &[], totals.requests as f64);
    metrics.add(&THROUGHPUT, &[], rates.bytes_per_s);
    metrics.add(&IOPS, &[], rates.requests_per_s);
    for (direction, latencies) in ServeDirection::ALL.into_iter().zip(&totals.latencies) {
        let labels = [("direction", direction.name())];
        metrics.add_histogram(&REQUEST_LATENCY, &labels, &latencies.classes, latencies.sum_ns as f64 / 1e9);
    }
    metrics.add(&CLIENTS, &[], rates.connections.into());
    metrics.add(&ACCEPTED, &[], totals.accepted as f64);
    metrics.text()
}
