//! A thread that serves connections: an event loop over sockets and completions of I/O.

mod accept;

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use slab::Slab;

use super::connection::{Closed, Connection, Reading};
use super::core::{Advanced, Core};
use super::gather::Gather;
use super::listener::Listener;
use super::poll_time::PollTime;
use super::shared::{Mailbox, Shared};
use super::stream::Stream;
use super::timer::Timer;

/// Number of the first listener among the events; connections have lower numbers.
const LISTENERS: u64 = 1 << 63;
/// Number of the wake-up among the events.
const WAKE: u64 = u64::MAX - 1;
/// Number of all completions of I/O among the events.
const IO: u64 = u64::MAX - 2;

/// Interval of the search for silent clients.
const CHECK: Duration = Duration::from_secs(1);

/// Buffers that are freed together for connections that need one: the pieces of a request of 1 MiB.
const PARKED_AT_ONCE: u32 = 8;

/// The descriptors that one worker waits on. They exist before its thread starts, so that a server without free
/// descriptors fails to start; a worker that failed later would leave its connections without service.
#[derive(Debug)]
pub(super) struct Waiting {
    epoll: OwnedFd,
    /// Ends the wait for events at the next timeout of the I/O.
    timer: Timer,
}

impl Waiting {
    pub(super) fn new(mailbox: &Mailbox, listeners: &[Listener]) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &mailbox.wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        let timer = Timer::new()?;
        epoll::add(&epoll, &timer, EventData::new_u64(IO), EventFlags::IN)?;
        for (number, listener) in (LISTENERS..).zip(listeners) {
            epoll::add(&epoll, listener, EventData::new_u64(number), EventFlags::IN)?;
        }
        Ok(Self { epoll, timer })
    }
}

/// One thread of a server.
#[derive(Debug)]
pub(super) struct Worker {
    number: usize,
    shared: Arc<Shared>,
    listeners: Vec<Listener>,
    epoll: OwnedFd,
    core: Core,
    timer: Timer,
    poll_time: PollTime,
    gather: Gather,
    /// Descriptors of batches, which must stay open as long as the event loop watches them.
    descriptors: Vec<OwnedFd>,
    connections: Slab<Watched>,
    /// Connections with replies or state to look at.
    touched: Vec<usize>,
    /// Connections that negotiate, in the order of their acceptance.
    handshakes: VecDeque<usize>,
    /// The listeners are not watched until this time, because the system refused a connection.
    refused_until: Option<Instant>,
    /// The last time at which the system refused one.
    shortage: Option<Instant>,
    next_mailbox: usize,
    checked: Instant,
    has_closed: bool,
}

/// A connection, and the events that the loop watches for.
#[derive(Debug)]
struct Watched {
    connection: Connection,
    flags: EventFlags,
}

/// Closes the mailbox of a worker at the end of its thread, also after a panic.
struct CloseAtEnd<'a> {
    shared: &'a Shared,
    number: usize,
}

impl Drop for CloseAtEnd<'_> {
    fn drop(&mut self) {
        for stream in self.shared.workers[self.number].close() {
            drop(stream);
            self.shared.release_handshake();
        }
    }
}

impl Worker {
    /// A worker. The first worker of a server has the listeners.
    pub(super) fn new(
        number: usize,
        shared: Arc<Shared>,
        listeners: Vec<Listener>,
        waiting: Waiting,
        core: Core,
    ) -> Self {
        Self {
            number,
            shared,
            listeners,
            epoll: waiting.epoll,
            core,
            timer: waiting.timer,
            poll_time: PollTime::new(std::thread::available_parallelism().map_or(1, usize::from)),
            gather: Gather::new(),
            descriptors: Vec::new(),
            connections: Slab::new(),
            touched: Vec::new(),
            handshakes: VecDeque::new(),
            refused_until: None,
            shortage: None,
            next_mailbox: 0,
            checked: Instant::now(),
            has_closed: false,
        }
    }

    /// Serves until the server stops and the last reply is sent. Without this thread, the others get its connections.
    pub(super) fn run(mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let _closed_at_end = CloseAtEnd { shared: &shared, number: self.number };
        let result = self.serve();
        if let Err(error) = &result {
            shared.note(&format!("a thread of the server ended: {error}"));
            self.connection_keys().into_iter().for_each(|key| self.close(key, &Closed::ByClient));
        }
        result
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(128);
        loop {
            if let Some(stops_at) = self.shared.stops_at.get().copied() {
                self.stop(stops_at);
                if self.connections.is_empty() {
                    return Ok(());
                }
            }
            self.wait(&mut events)?;
            let now = Instant::now();
            self.core.now = now;
            // Connections that waited for this pass go before those with new events.
            self.take_turns();
            for event in events.drain(..) {
                self.handle_event(event, now);
            }
            self.disconnect_silent_clients(now);
            self.resume_listeners(now);
            self.advance(now);
            let mailbox = &self.shared.workers[self.number];
            mailbox.requests.store(self.core.requests, Ordering::Relaxed);
            mailbox.bytes.store(self.core.bytes, Ordering::Relaxed);
            mailbox.in_flight.store(self.core.in_flight(), Ordering::Relaxed);
            // Before the next wait, which the completions of a new export must end.
            for descriptor in std::mem::take(&mut self.core.new_descriptors) {
                epoll::add(&self.epoll, &descriptor, EventData::new_u64(IO), EventFlags::IN)?;
                self.descriptors.push(descriptor);
            }
        }
    }

    /// Polls for events if recent waits were short, after a pause if requests gather in it, then sleeps until there are
    /// some.
    fn wait(&mut self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let next = self.core.next_timeout();
        self.timer.set(next.filter(|time| !time.is_zero()))?;
        // There is work already: look at the events, and do not sleep.
        if next.is_some_and(|time| time.is_zero()) || self.core.turns.has_waiting() {
            return self.wait_for_events(events, Duration::ZERO).map(drop);
        }
        let began = Instant::now();
        let poll_time = self.poll_time.get();
        // The I/O in flight of a device paces the requests; without any, the client does.
        if !poll_time.is_zero() && self.core.in_flight() == 0 {
            let pause = self.gather.pause(self.core.requests, began);
            while began.elapsed() < pause {
                std::hint::spin_loop();
            }
        }
        let began = Instant::now();
        while began.elapsed() < poll_time {
            if self.wait_for_events(events, Duration::ZERO)? > 0 {
                return Ok(());
            }
        }
        let stops_at = self.shared.stops_at.get();
        let left = stops_at.map_or(CHECK, |at| at.saturating_duration_since(began));
        self.wait_for_events(events, CHECK.min(left))?;
        self.poll_time.handle_sleep(began.elapsed());
        self.gather.handle_sleep();
        Ok(())
    }

    /// Waits for events, at most until the timeout. Returns their number.
    fn wait_for_events(&self, events: &mut Vec<epoll::Event>, timeout: Duration) -> io::Result<usize> {
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
            Ok(count) => Ok(count),
            Err(rustix::io::Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    fn handle_event(&mut self, event: epoll::Event, now: Instant) {
        match event.data.u64() {
            WAKE => {
                for stream in self.shared.workers[self.number].take() {
                    self.add(stream, now);
                }
            }
            IO => self.core.handle_notification(),
            number if number >= LISTENERS => self.accept((number - LISTENERS) as usize, now),
            key => {
                let key = key as usize;
                // An earlier event of this pass may have closed the connection. If a new one has its key, this read
                // finds no bytes.
                if self.connections.contains(key) {
                    self.read(key);
                    self.touched.push(key);
                }
            }
        }
    }

    fn add(&mut self, stream: Stream, now: Instant) {
        self.make_room_for_a_handshake();
        let Ok(connection) = Connection::new(stream, &self.core, now) else {
            self.shared.release_handshake();
            return;
        };
        let flags = EventFlags::IN;
        let key = self.connections.insert(Watched { connection, flags });
        let stream = &self.connections[key].connection.stream;
        // Fails at a limit of the user or of the memory, which passes.
        if let Err(error) = epoll::add(&self.epoll, stream, EventData::new_u64(key as u64), flags) {
            self.close(key, &Closed::Error(format!("cannot watch it: {error}")));
            return;
        }
        self.touched.push(key);
        self.handshakes.push_back(key);
    }

    /// Closes the oldest handshake if there are too many: clients that connect and stay silent lock out no other.
    fn make_room_for_a_handshake(&mut self) {
        if self.handshakes.len() >= self.shared.handshakes_max {
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
        let negotiated = connection.negotiates();
        let result = connection.handle_readable(key, &mut self.core);
        let is_new_client = negotiated && !connection.negotiates();
        let is_refused = is_new_client && self.shared.is_full();
        if is_new_client {
            self.handshakes.retain(|negotiating| *negotiating != key);
            self.shared.negotiating.fetch_sub(1, Ordering::AcqRel);
            self.count_clients();
        }
        match result {
            Err(closed) => self.close(key, &closed),
            Ok(()) if is_refused => self.close(key, &Closed::Error("too many connections".to_owned())),
            Ok(()) => {}
        }
    }

    /// Serves connections that have waited for this pass of the loop.
    fn take_turns(&mut self) {
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

    /// Executes all work that is possible without waiting.
    fn advance(&mut self, now: Instant) {
        loop {
            // After the requests of all connections were read, so that one system call submits all of their I/O.
            self.core.submit_all();
            let mut has_progress = false;
            while let Some(Advanced { transfer, connection }) = self.core.poll() {
                if !has_progress {
                    self.core.now = Instant::now();
                }
                has_progress = true;
                if let Err(closed) = self.connections[connection].connection.reply(transfer, &mut self.core) {
                    self.close(connection, &closed);
                } else {
                    self.touched.push(connection);
                }
            }
            has_progress |= self.send(now);
            // The buffers of a closed connection are free.
            has_progress |= std::mem::take(&mut self.has_closed);
            // Only without progress, because parking copies the data of clients that do not read or send.
            if !has_progress && !self.park() {
                return;
            }
            self.core.retry();
            self.read_stalled();
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
                    if connection.is_finished() {
                        self.close(key, &Closed::ByClient);
                    } else {
                        self.watch(key);
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
        let mut longest_first: Vec<_> =
            self.connections.iter().map(|(key, watched)| (watched.connection.progressed(), key)).collect();
        longest_first.sort_unstable();
        for (_, key) in longest_first {
            if parked >= PARKED_AT_ONCE {
                break;
            }
            let connection = &mut self.connections[key].connection;
            parked += connection.park(export, PARKED_AT_ONCE - parked, &mut self.core);
        }
        parked > 0
    }

    /// Continues with connections that waited for a buffer or a completion.
    fn read_stalled(&mut self) {
        let stalled: Vec<usize> = self
            .connections
            .iter()
            .filter(|(_, watched)| watched.connection.reading == Reading::Stalled)
            .map(|(key, _)| key)
            .collect();
        for key in stalled {
            self.read(key);
            self.touched.push(key);
        }
    }

    /// Watches for the events that a connection waits for.
    fn watch(&mut self, key: usize) {
        let watched = &mut self.connections[key];
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, watched.connection.reading == Reading::Drained);
        flags.set(EventFlags::OUT, watched.connection.has_output());
        if flags != watched.flags {
            watched.flags = flags;
            let stream = &watched.connection.stream;
            if let Err(error) = epoll::modify(&self.epoll, stream, EventData::new_u64(key as u64), flags) {
                self.close(key, &Closed::Error(error.to_string()));
            }
        }
    }

    fn disconnect_silent_clients(&mut self, now: Instant) {
        if now.saturating_duration_since(self.checked) < CHECK {
            return;
        }
        self.checked = now;
        let patience = self.shared.patience;
        let silent: Vec<usize> = self
            .connections
            .iter()
            .filter(|(_, watched)| watched.connection.is_late(patience, now))
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
            self.shared.note(&format!("closed a connection: {message}"));
        }
        if self.connections.contains(key) {
            let mut connection = self.connections.remove(key).connection;
            connection.stream.close();
            self.core.abandon(key);
            self.core.turns.remove(key);
            self.has_closed = true;
            if connection.negotiates() {
                self.handshakes.retain(|negotiating| *negotiating != key);
                self.shared.release_handshake();
            } else {
                self.shared.connections.fetch_sub(1, Ordering::AcqRel);
            }
            self.count_clients();
        }
    }

    fn connection_keys(&self) -> Vec<usize> {
        self.connections.iter().map(|(key, _)| key).collect()
    }

    /// Accepts nothing more, and ends the connections after their requests in flight, or at a time.
    fn stop(&mut self, at: Instant) {
        self.listeners.clear();
        for stream in self.shared.workers[self.number].take() {
            drop(stream);
            self.shared.release_handshake();
        }
        let is_over = Instant::now() >= at;
        if is_over {
            self.shared.workers[self.number].abandon();
        }
        for key in self.connection_keys() {
            self.connections[key].connection.stop();
            if is_over || self.connections[key].connection.is_finished() {
                self.close(key, &Closed::ByClient);
            } else {
                self.watch(key);
            }
        }
    }
}
