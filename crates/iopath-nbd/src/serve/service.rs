//! The connections of one worker: which are read, answered, parked and closed, and when. It makes no system calls, and
//! knows its sockets and volumes only as [`Transport`] and [`Storage`]. `worker.rs` waits for their events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;

use super::clients::Clients;
use super::connection::Connection;
use super::core::{Advanced, Core};
use super::serving::{Closed, Reading};
use super::storage::Storage;
use super::transport::Transport;

/// Interval of the search for silent clients.
pub(crate) const CHECK: Duration = Duration::from_secs(1);

/// Buffers that are freed together for connections that need one: the pieces of a request of 1 MiB.
const PARKED_AT_ONCE: u32 = 8;

/// The events that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) input: bool,
    pub(crate) output: bool,
}

impl Interest {
    /// The events of a new connection.
    pub(crate) const NEW: Self = Self { input: true, output: false };
}

/// The connections of one worker.
#[derive(Debug)]
pub(crate) struct Service<S: Storage, T: Transport> {
    pub(crate) core: Core<S>,
    tls: Option<T::Tls>,
    clients: Arc<Clients>,
    pub(super) connections: Slab<Watched<S, T>>,
    /// Connections with replies or state to look at.
    touched: Vec<usize>,
    /// Connections whose interest may have changed.
    changed: Vec<usize>,
    /// Connections that negotiate, in the order of their acceptance.
    handshakes: VecDeque<usize>,
    checked: Instant,
    has_closed: bool,
    reads_first: bool,
    /// The connection that is the first of those that wait.
    first_stalled: usize,
}

/// A connection, and the events that the driver watches for.
#[derive(Debug)]
pub(super) struct Watched<S: Storage, T: Transport> {
    pub(super) connection: Connection<S, T>,
    interest: Interest,
}

impl<S: Storage, T: Transport> Service<S, T> {
    pub(crate) fn new(core: Core<S>, tls: Option<T::Tls>, clients: Arc<Clients>, now: Instant) -> Self {
        Self {
            core,
            tls,
            clients,
            connections: Slab::new(),
            touched: Vec::new(),
            changed: Vec::new(),
            handshakes: VecDeque::new(),
            checked: now,
            has_closed: false,
            reads_first: false,
            first_stalled: 0,
        }
    }

    /// Whether there are no connections.
    pub(crate) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// A pass of the event loop begins. Connections that waited for it go before those with new events.
    pub(crate) fn begin_pass(&mut self, now: Instant) {
        self.core.now = now;
        self.core.turns.begin_pass();
        while let Some(key) = self.core.turns.next() {
            self.read(key);
            // It may wait for its client first. Then it comes back with the request.
            if self.core.turns.next() == Some(key) {
                self.core.turns.remove(key);
            }
            self.touched.push(key);
        }
    }

    /// Adds a connection, which [`Clients::add_handshake`] counts, and returns its key. The driver watches it for
    /// [`Interest::NEW`].
    pub(crate) fn add(&mut self, stream: T, now: Instant) -> Option<usize> {
        self.make_room_for_a_handshake();
        let Ok(connection) = Connection::new(stream, &self.core, now) else {
            self.clients.release_handshake();
            return None;
        };
        let key = self.connections.insert(Watched { connection, interest: Interest::NEW });
        self.touched.push(key);
        self.handshakes.push_back(key);
        Some(key)
    }

    /// A connection has input, accepts output, or has ended. One that is closed already is ignored.
    pub(crate) fn handle_ready(&mut self, key: usize) {
        if self.connections.contains(key) {
            self.read(key);
            self.touched.push(key);
        }
    }

    /// Its client has closed the connection in both directions: no reply can reach it, and requests that are not read
    /// are dropped. Without this, the driver would report the same event until the last I/O of the client completes.
    pub(crate) fn handle_hang_up(&mut self, key: usize) {
        if self.connections.contains(key) {
            self.close(key, &Closed::ByClient);
        }
    }

    /// The next connection whose interest has changed since [`Interest::NEW`] or the last call, with its new interest.
    pub(crate) fn poll_interest(&mut self) -> Option<(usize, Interest)> {
        loop {
            let key = self.changed.pop()?;
            let Some(watched) = self.connections.get_mut(key) else { continue };
            let serving = &watched.connection.serving;
            let input = serving.reading() == Reading::Drained;
            let interest = Interest { input, output: serving.has_output() };
            if std::mem::replace(&mut watched.interest, interest) != interest {
                return Some((key, interest));
            }
        }
    }

    /// The socket of a connection, if it exists.
    pub(crate) fn stream(&self, key: usize) -> Option<&T> {
        self.connections.get(key).map(|watched| &watched.connection.stream)
    }

    /// The longest time until the next pass.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        if self.core.turns.has_waiting() { Some(Duration::ZERO) } else { self.core.next_timeout() }
    }

    /// Closes the oldest handshake if there are too many: clients that connect and stay silent lock out no other.
    fn make_room_for_a_handshake(&mut self) {
        if self.handshakes.len() >= self.clients.handshakes_max() {
            let oldest = self.handshakes[0];
            self.close(oldest, &Closed::Error("too many clients negotiate; closed the oldest".to_owned()));
        }
    }

    /// Handshakes use no buffers.
    fn count_clients(&mut self) {
        self.core.connections = self.connections.len() - self.handshakes.len();
    }

    fn read(&mut self, key: usize) {
        let connection = &mut self.connections[key].connection;
        let negotiated = connection.serving.negotiates();
        let result = connection.handle_readable(key, &mut self.core, self.tls.as_ref());
        let is_new_client = negotiated && !connection.serving.negotiates();
        let is_refused = is_new_client && self.clients.is_full();
        if is_new_client {
            self.handshakes.retain(|negotiating| *negotiating != key);
            self.clients.end_handshake();
            self.count_clients();
        }
        match result {
            Err(closed) => self.close(key, &closed),
            Ok(()) if is_refused => self.close(key, &Closed::Error("too many connections".to_owned())),
            Ok(()) => {}
        }
    }

    /// Executes all work that is possible without waiting. `clock`: the time after I/O has completed.
    pub(crate) fn advance(&mut self, now: Instant, clock: impl Fn() -> Instant) {
        self.disconnect_silent_clients(now);
        loop {
            // After the requests of all connections were read, so that one system call submits all of their I/O.
            self.core.submit_all();
            let mut has_progress = false;
            while let Some(Advanced { transfer, connection }) = self.core.poll() {
                if !has_progress {
                    self.core.now = clock();
                }
                has_progress = true;
                if let Err(closed) =
                    self.connections[connection].connection.serving.reply(transfer, &mut self.core)
                {
                    self.close(connection, &closed);
                } else {
                    self.touched.push(connection);
                }
            }
            has_progress |= self.send(now);
            has_progress |= std::mem::take(&mut self.core.has_freed);
            // The buffers of a closed connection are free.
            has_progress |= std::mem::take(&mut self.has_closed);
            // Only without progress, because parking copies the data of clients that do not read or send.
            if !has_progress && !self.park() {
                return;
            }
            // If one place is free, the first takes it. So transfers and connections that wait go first in turns.
            self.reads_first = !self.reads_first;
            if self.reads_first {
                self.read_stalled();
                self.core.retry();
            } else {
                self.core.retry();
                self.read_stalled();
            }
        }
    }

    /// Sends the replies of the connections that were touched. Returns whether a buffer may have become free.
    fn send(&mut self, now: Instant) -> bool {
        let mut has_sent = false;
        let mut touched = std::mem::take(&mut self.touched);
        // A connection may be touched several times, and sends all of its replies with one call.
        touched.sort_unstable();
        touched.dedup();
        for key in touched.drain(..) {
            let Some(watched) = self.connections.get_mut(key) else { continue };
            let connection = &mut watched.connection;
            match connection.send(now) {
                Err(closed) => self.close(key, &closed),
                Ok(sent) => {
                    has_sent |= sent;
                    if connection.serving.is_finished() {
                        self.close(key, &Closed::ByClient);
                    } else {
                        self.changed.push(key);
                    }
                }
            }
        }
        self.touched = touched;
        has_sent
    }

    /// Frees some buffers for connections that may hold one more, if clients hold them that do not read or send.
    /// Returns whether there were any.
    ///
    /// This is what gives every connection a buffer at any time. Without it, connections could hold all buffers since
    /// the time when each had a larger share, or because there are more of them than buffers.
    fn park(&mut self) -> bool {
        let mut has_parked = false;
        while let Some(export) = self.core.starved.pop() {
            has_parked |= self.park_export(export);
        }
        has_parked
    }

    fn park_export(&mut self, export: usize) -> bool {
        let mut parked = 0;
        let mut longest_first: Vec<_> = self
            .connections
            .iter()
            .map(|(key, watched)| (watched.connection.serving.progressed(), key))
            .collect();
        longest_first.sort_unstable();
        for (_, key) in longest_first {
            if parked >= PARKED_AT_ONCE {
                break;
            }
            let serving = &mut self.connections[key].connection.serving;
            parked += serving.park(export, PARKED_AT_ONCE - parked);
        }
        parked > 0
    }

    /// Continues with connections that waited for a buffer or a completion. The one after the last that got something
    /// is the first the next time, so that none takes each free buffer.
    fn read_stalled(&mut self) {
        let stalled = self.connections.iter();
        let stalled = stalled.filter(|(_, watched)| watched.connection.serving.reading() == Reading::Stalled);
        let mut stalled: Vec<usize> = stalled.map(|(key, _)| key).collect();
        let first = stalled.partition_point(|key| *key < self.first_stalled);
        stalled.rotate_left(first);
        for key in stalled {
            let before = self.core.grants;
            self.read(key);
            self.touched.push(key);
            if self.core.grants > before {
                self.first_stalled = key + 1;
            }
        }
    }

    fn disconnect_silent_clients(&mut self, now: Instant) {
        if now.saturating_duration_since(self.checked) < CHECK {
            return;
        }
        self.checked = now;
        let patience = self.clients.patience();
        let silent: Vec<usize> = self
            .connections
            .iter()
            .filter(|(_, watched)| watched.connection.serving.is_late(patience, now))
            .map(|(key, _)| key)
            .collect();
        for key in silent {
            self.close(
                key,
                &Closed::Error(
                    "the client was silent or too slow in the middle of a message, or negotiated too long"
                        .to_owned(),
                ),
            );
        }
    }

    /// Closes a connection. Its I/O continues; its replies are dropped.
    fn close(&mut self, key: usize, reason: &Closed) {
        if let Closed::Error(message) = reason {
            self.clients.note(&format!("closed a connection: {message}"));
        }
        if self.connections.contains(key) {
            let mut connection = self.connections.remove(key).connection;
            connection.stream.close();
            self.core.abandon(key);
            self.core.turns.remove(key);
            self.has_closed = true;
            if connection.serving.negotiates() {
                self.handshakes.retain(|negotiating| *negotiating != key);
                self.clients.release_handshake();
            } else {
                self.clients.release_client();
            }
            self.count_clients();
        }
    }

    /// Ends all connections.
    pub(crate) fn close_all(&mut self) {
        self.connection_keys().into_iter().for_each(|key| self.close(key, &Closed::ByClient));
    }

    /// The driver cannot watch a connection.
    pub(crate) fn handle_unwatchable(&mut self, key: usize, error: &std::io::Error) {
        self.close(key, &Closed::Error(format!("cannot watch it: {error}")));
    }

    /// Reads no further requests, and ends the connections after their requests in flight; `is_over`: all of them.
    pub(crate) fn stop(&mut self, is_over: bool) {
        for key in self.connection_keys() {
            let serving = &mut self.connections[key].connection.serving;
            serving.stop();
            if is_over || serving.is_finished() {
                self.close(key, &Closed::ByClient);
            } else {
                self.changed.push(key);
            }
        }
    }

    fn connection_keys(&self) -> Vec<usize> {
        self.connections.iter().map(|(key, _)| key).collect()
    }
}
