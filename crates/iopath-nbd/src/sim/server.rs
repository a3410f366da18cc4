//! The server's end: drives the production [`Service`] as `serve/worker.rs` does, with channels instead of an epoll.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::channel::End;
use super::clock::{Clock, Nanos};
use super::scenario::Scenario;
use super::store::{Disk, Opener, Store};
use crate::export::Export;
use crate::serve::clients::Clients;
use crate::serve::core::{Core, Limits};
use crate::serve::service::{CHECK, Interest, Service};
use crate::server::ServerTls;

/// A server process.
#[derive(Debug)]
pub(super) struct Server {
    service: Service<Store, End>,
    clients: Arc<Clients>,
    clock: Clock,
    watched: BTreeMap<usize, Interest>,
    /// It must look at its connections.
    is_woken: bool,
    next_check: Nanos,
    /// When it stops: the time at which connections are closed.
    pub(super) stops_at: Option<Nanos>,
}

impl Server {
    pub(super) fn new(scenario: &Scenario, export: &Export, disk: &Rc<RefCell<Disk>>, clock: &Clock) -> Self {
        let limits = Limits {
            tls: ServerTls::Off,
            patience: scenario.server_patience,
            rate_min: scenario.rate_min,
            depth: scenario.depth,
        };
        let source = Opener { disk: Rc::clone(disk), clock: clock.clone() };
        let now = clock.of_server();
        let core = Core::new(Arc::from([export.clone()]), source, Arc::default(), &limits, now);
        let clients = Arc::new(Clients::new(1024, scenario.handshakes_max, scenario.server_patience));
        Self {
            service: Service::new(core, None, Arc::clone(&clients), now),
            clients,
            clock: clock.clone(),
            watched: BTreeMap::new(),
            is_woken: false,
            next_check: clock.now() + CHECK.as_nanos() as Nanos,
            stops_at: None,
        }
    }

    /// Accepts a connection.
    pub(super) fn add(&mut self, stream: End) {
        self.clients.add_handshake();
        if let Some(key) = self.service.add(stream, self.clock.of_server()) {
            self.watched.insert(key, Interest::NEW);
        }
        self.is_woken = true;
    }

    /// Its disk has no faults from now on.
    pub(super) fn calm(&mut self) {
        if let Some(store) = self.service.core.opened(0) {
            store.release();
        }
    }

    /// The process dies: its I/O in flight is executed or not.
    pub(super) fn kill(mut self) {
        if let Some(store) = self.service.core.opened(0) {
            store.kill();
        }
    }

    /// Whether a server that stops has ended.
    pub(super) fn has_stopped(&self) -> bool {
        self.stops_at.is_some() && self.service.is_empty()
    }

    pub(super) fn next(&self) -> Option<Nanos> {
        let now = self.clock.now();
        let timeout = self.service.next_timeout().map(|time| now + time.as_nanos() as Nanos);
        let streams = self.watched.keys().filter_map(|key| self.service.stream(*key));
        let arrivals = streams.filter_map(End::next_arrival);
        let check = (!self.service.is_empty()).then_some(self.next_check);
        arrivals.chain(timeout).chain(check).chain(self.stops_at.filter(|at| *at > now)).min()
    }

    /// A pass of the event loop, if there is an event. Returns whether there was.
    pub(super) fn advance(&mut self) -> Result<bool, String> {
        let now = self.clock.now();
        self.watched.retain(|key, _| self.service.stream(*key).is_some());
        let is_ready = |(key, interest): (&usize, &Interest)| {
            let stream = self.service.stream(*key)?;
            let is_ready = (interest.input && stream.is_readable())
                || (interest.output && stream.is_writable())
                || stream.is_hung_up();
            is_ready.then_some((*key, stream.is_hung_up()))
        };
        let ready: Vec<(usize, bool)> = self.watched.iter().filter_map(is_ready).collect();
        let is_due = self.service.next_timeout().is_some_and(|time| time.is_zero());
        let is_check = now >= self.next_check && !self.service.is_empty();
        if ready.is_empty() && !is_due && !is_check && !self.is_woken {
            return Ok(false);
        }
        self.is_woken = false;
        if is_check {
            self.next_check = now + CHECK.as_nanos() as Nanos;
        }
        let instant = self.clock.of_server();
        self.service.begin_pass(instant);
        for (key, is_hung_up) in ready {
            self.service.handle_ready(key);
            if is_hung_up {
                self.service.handle_hang_up(key);
            }
        }
        self.service.advance(instant, || instant);
        if let Some(at) = self.stops_at {
            self.service.stop(now >= at);
        }
        while let Some((key, interest)) = self.service.poll_interest() {
            self.watched.insert(key, interest);
        }
        for (text, parked) in self.service.held() {
            // The longest reply without data is that of a block status.
            if text > (128 << 10) + (80 << 10) || parked > 2 * self.service.core.depth() as usize {
                return Err(format!(
                    "memory: a client holds {text} bytes of replies and {parked} parked buffers"
                ));
            }
        }
        Ok(true)
    }

    /// It stops, within a time.
    pub(super) fn stop(&mut self, at: Nanos) {
        self.stops_at = Some(at);
        self.is_woken = true;
    }
}
