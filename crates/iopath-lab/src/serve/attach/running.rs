//! The servers of a process, and their ends. Each server ends on a thread of its own, so that the flush of one device
//! delays no other. Opens no targets.

use std::panic::resume_unwind;
use std::thread::{self, JoinHandle};

use iopath_nbd::ServeTotals;
use iopath_ublk::{DeviceInfo, UblkEnd, UblkError, UblkServer, UblkTotals};

use super::record::Record;
use crate::serve::service;

/// The servers of the devices of a process.
#[derive(Debug, Default)]
pub(super) struct Running {
    servers: Vec<UblkServer>,
    ends: Ends<End>,
    /// The work of the servers that end or have ended.
    ended: ServeTotals,
    messages: Vec<String>,
    left: Vec<u32>,
    error: Option<UblkError>,
}

/// The end of a server.
#[derive(Debug)]
struct End {
    device: DeviceInfo,
    result: Result<UblkEnd, UblkError>,
    /// Since the end began.
    totals: UblkTotals,
    messages: Vec<String>,
}

/// The end of all devices.
#[derive(Clone, Debug)]
pub struct AttachEnd {
    /// Counters since the start.
    pub totals: ServeTotals,
    /// Devices that are in use and wait for another server.
    pub left: Vec<u32>,
    /// Messages since the last report.
    pub messages: Vec<String>,
}

impl Running {
    pub(super) fn add(&mut self, server: UblkServer) {
        self.servers.push(server);
    }

    pub(super) fn note(&mut self, message: String) {
        self.messages.push(message);
    }

    /// Ends the servers whose device was detached, or has failed. Returns whether none is left. Does not wait.
    pub(super) fn poll(&mut self) -> bool {
        self.begin_ends(UblkServer::has_ended);
        for end in self.ends.take_ended() {
            self.handle_end(end);
        }
        self.servers.is_empty() && self.ends.is_empty()
    }

    /// Ends all servers, beside each other. Also returns the last error; those before are messages.
    pub(super) fn stop(mut self) -> (AttachEnd, Option<UblkError>) {
        self.begin_ends(|_| true);
        for end in self.ends.take_all() {
            self.handle_end(end);
        }
        let Self { ended: totals, left, messages, error, .. } = self;
        (AttachEnd { totals, left, messages }, error)
    }

    fn begin_ends(&mut self, is_to_end: impl Fn(&UblkServer) -> bool) {
        for mut server in self.servers.extract_if(.., |server| is_to_end(server)) {
            let before = server.totals();
            self.ended.requests += before.requests;
            self.ended.bytes += before.bytes;
            self.ends.begin(move || {
                let result = server.stop(&mut service::extends_stop);
                let UblkTotals { requests, bytes } = server.totals();
                let totals = UblkTotals { requests: requests - before.requests, bytes: bytes - before.bytes };
                End { device: *server.info(), result, totals, messages: server.take_messages() }
            });
        }
    }

    fn handle_end(&mut self, end: End) {
        self.ended.requests += end.totals.requests;
        self.ended.bytes += end.totals.bytes;
        self.messages.extend(end.messages);
        match end.result {
            Ok(UblkEnd::Removed) => Record::remove(&end.device),
            Ok(UblkEnd::Left) => self.left.push(end.device.device),
            Err(error) => self.messages.extend(self.error.replace(error).map(|before| before.to_string())),
        }
    }

    pub(super) fn totals(&self) -> ServeTotals {
        let mut totals = ServeTotals { connections: self.servers.len() as u32, ..self.ended };
        for server in self.servers.iter().map(UblkServer::totals) {
            totals.requests += server.requests;
            totals.bytes += server.bytes;
        }
        totals
    }

    pub(super) fn take_messages(&mut self) -> Vec<String> {
        let mut messages = std::mem::take(&mut self.messages);
        messages.extend(self.servers.iter().flat_map(UblkServer::take_messages));
        messages
    }
}

/// Work that ends in any order, each on a thread of its own.
#[derive(Debug)]
struct Ends<T>(Vec<JoinHandle<T>>);

impl<T> Default for Ends<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Send + 'static> Ends<T> {
    fn begin(&mut self, work: impl FnOnce() -> T + Send + 'static) {
        self.0.push(thread::spawn(work));
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The results of the work that has ended.
    fn take_ended(&mut self) -> Vec<T> {
        self.0.extract_if(.., |thread| thread.is_finished()).map(result_of).collect()
    }

    /// All results, after a wait.
    fn take_all(&mut self) -> Vec<T> {
        self.0.drain(..).map(result_of).collect()
    }
}

fn result_of<T>(thread: JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    /// Guards against a hang.
    const HANG: Duration = Duration::from_secs(60);

    #[test]
    fn a_slow_end_delays_no_other() {
        let (release, slow) = sync_channel(1);
        let mut ends = Ends::default();
        ends.begin(move || slow.recv_timeout(HANG).is_ok());
        // The second one ends while the first one waits for it.
        ends.begin(move || release.send(()).is_ok());
        assert_eq!(ends.take_all(), [true, true]);
        assert!(ends.is_empty());
    }

    #[test]
    fn an_end_is_taken_once_while_others_release() {
        let (release, slow) = sync_channel(1);
        let mut ends = Ends::default();
        ends.begin(move || slow.recv_timeout(HANG).map(|()| 1));
        ends.begin(|| Ok(2));
        while !ends.0[1].is_finished() {
            thread::yield_now();
        }
        assert_eq!(ends.take_ended(), [Ok(2)]);
        assert_eq!(ends.take_ended(), []);
        release.send(()).unwrap();
        assert_eq!(ends.take_all(), [Ok(1)]);
    }
}
