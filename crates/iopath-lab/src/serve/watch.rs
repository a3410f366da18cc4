//! Watches a running server until it is to end: its rates every second, for the caller and the service manager. Starts
//! and stops no server.

use std::thread;
use std::time::{Duration, Instant};

use iopath_nbd::ServeTotals;

use super::{ServeRates, service};

/// Interval of reports.
const INTERVAL: Duration = Duration::from_secs(1);

/// Interval of the checks for the end.
const POLL: Duration = Duration::from_millis(50);

/// A server that runs.
pub(super) trait Watched {
    /// Whether it is to end.
    fn is_to_end(&self) -> bool;

    /// Its work so far.
    fn totals(&self) -> ServeTotals;

    /// The messages since the last call.
    fn take_messages(&self) -> Vec<String>;
}

/// Calls `report` every second until the server is to end.
pub(super) fn watch(server: &impl Watched, mut report: impl FnMut(&ServeRates, &[String])) {
    let (mut before, mut at) = (ServeTotals::default(), Instant::now());
    while !server.is_to_end() {
        thread::sleep(POLL);
        let elapsed = at.elapsed();
        if elapsed < INTERVAL {
            continue;
        }
        let messages = server.take_messages();
        let now = server.totals();
        let rate = |after: u64, before: u64| (after - before) as f64 / elapsed.as_secs_f64();
        let rates = ServeRates {
            connections: now.connections,
            requests_per_s: rate(now.requests, before.requests),
            bytes_per_s: rate(now.bytes, before.bytes),
            totals: now,
        };
        if now != before {
            service::status(&rates.to_string());
        }
        report(&rates, &messages);
        (before, at) = (now, Instant::now());
    }
    service::is_stopping();
}
