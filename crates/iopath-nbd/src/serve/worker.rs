//! A thread that serves connections: waits for sockets and completions of I/O, and drives [`Service`].

mod accept;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::backing::Backing;
use super::core::Core;
use super::gather::Gather;
use super::listener::Listener;
use super::poll_time::PollTime;
use super::service::{CHECK, Interest, Service};
use super::shared::{Mailbox, Shared};
use super::stream::Stream;
use super::timer::Timer;
use crate::tls::TlsServer;

/// Number of the first listener among the events; connections have lower numbers.
const LISTENERS: u64 = 1 << 63;
/// Number of the wake-up among the events.
const WAKE: u64 = u64::MAX - 1;
/// Number of all completions of I/O among the events.
const IO: u64 = u64::MAX - 2;

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
    service: Service<Backing, Stream>,
    timer: Timer,
    poll_time: PollTime,
    gather: Gather,
    /// Descriptors of batches, which must stay open as long as the event loop watches them.
    descriptors: Vec<OwnedFd>,
    /// The listeners are not watched until this time, because the system refused a connection.
    refused_until: Option<Instant>,
    /// The last time at which the system refused one.
    shortage: Option<Instant>,
    next_mailbox: usize,
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
            self.shared.clients.release_handshake();
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
        core: Core<Backing>,
        tls: Option<TlsServer>,
    ) -> Self {
        let service = Service::new(core, tls, Arc::clone(&shared.clients), Instant::now());
        Self {
            number,
            shared,
            listeners,
            epoll: waiting.epoll,
            service,
            timer: waiting.timer,
            poll_time: PollTime::new(std::thread::available_parallelism().map_or(1, usize::from)),
            gather: Gather::new(),
            descriptors: Vec::new(),
            refused_until: None,
            shortage: None,
            next_mailbox: 0,
        }
    }

    /// Serves until the server stops and the last reply is sent. Without this thread, the others get its connections.
    pub(super) fn run(mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let _closed_at_end = CloseAtEnd { shared: &shared, number: self.number };
        let result = self.serve();
        if let Err(error) = &result {
            shared.clients.note(&format!("a thread of the server ended: {error}"));
            self.service.close_all();
        }
        result
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(128);
        loop {
            if let Some(stops_at) = self.shared.stops_at.get().copied() {
                self.stop(stops_at);
                if self.service.is_empty() {
                    return Ok(());
                }
            }
            self.wait(&mut events)?;
            let now = Instant::now();
            self.service.begin_pass(now);
            for event in events.drain(..) {
                self.handle_event(event, now);
            }
            self.resume_listeners(now);
            self.service.advance(now, Instant::now);
            while self.watch() {
                // The buffers of a connection that could not be watched are free.
                self.service.advance(now, Instant::now);
            }
            let mailbox = &self.shared.workers[self.number];
            let core = &mut self.service.core;
            mailbox.requests.store(core.requests, Ordering::Relaxed);
            mailbox.bytes.store(core.bytes, Ordering::Relaxed);
            mailbox.in_flight.store(core.in_flight(), Ordering::Relaxed);
            // Before the next wait, which the completions of a new export must end.
            for descriptor in std::mem::take(&mut core.source.new_descriptors) {
                epoll::add(&self.epoll, &descriptor, EventData::new_u64(IO), EventFlags::IN)?;
                self.descriptors.push(descriptor);
            }
        }
    }

    /// Polls for events if recent waits were short, after a pause if requests gather in it, then sleeps until there are
    /// some.
    fn wait(&mut self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let next = self.service.next_timeout();
        self.timer.set(next.filter(|time| !time.is_zero()))?;
        // There is work already: look at the events, and do not sleep.
        if next.is_some_and(|time| time.is_zero()) {
            return self.wait_for_events(events, Duration::ZERO).map(drop);
        }
        let began = Instant::now();
        let poll_time = self.poll_time.get();
        // The I/O in flight of a device paces the requests; without any, the client does.
        if !poll_time.is_zero() && self.service.core.in_flight() == 0 {
            let pause = self.gather.pause(self.service.core.requests, began);
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
            IO => self.service.core.handle_notification(),
            number if number >= LISTENERS => self.accept((number - LISTENERS) as usize, now),
            // An earlier event of this pass may have closed it. If a new connection has its key, it finds no bytes.
            key => {
                let key = key as usize;
                self.service.handle_ready(key);
                let flags = event.flags;
                if flags.contains(EventFlags::HUP) && self.has_hung_up(key) {
                    self.service.handle_hang_up(key);
                }
            }
        }
    }

    /// Whether the client of the connection that has the key now has closed it in both directions.
    fn has_hung_up(&self, key: usize) -> bool {
        let Some(stream) = self.service.stream(key) else { return false };
        let mut state = [PollFd::new(stream, PollFlags::empty())];
        let now = Timespec::default();
        poll(&mut state, Some(&now)).is_ok() && state[0].revents().contains(PollFlags::HUP)
    }

    fn add(&mut self, stream: Stream, now: Instant) {
        let Some(key) = self.service.add(stream, now) else { return };
        let Some(stream) = self.service.stream(key) else { return };
        let flags = flags_of(Interest::NEW);
        // Fails at a limit of the user or of the memory, which passes.
        if let Err(error) = epoll::add(&self.epoll, stream, EventData::new_u64(key as u64), flags) {
            self.service.handle_unwatchable(key, &error.into());
        }
    }

    /// Watches for the events that the connections wait for. Returns whether one could not be watched.
    fn watch(&mut self) -> bool {
        let mut has_failed = false;
        while let Some((key, interest)) = self.service.poll_interest() {
            let Some(stream) = self.service.stream(key) else { continue };
            let data = EventData::new_u64(key as u64);
            if let Err(error) = epoll::modify(&self.epoll, stream, data, flags_of(interest)) {
                self.service.handle_unwatchable(key, &error.into());
                has_failed = true;
            }
        }
        has_failed
    }

    /// Accepts nothing more, and ends the connections after their requests in flight, or at a time.
    fn stop(&mut self, at: Instant) {
        self.listeners.clear();
        for stream in self.shared.workers[self.number].take() {
            drop(stream);
            self.shared.clients.release_handshake();
        }
        let is_over = Instant::now() >= at;
        if is_over {
            self.shared.workers[self.number].abandon();
        }
        self.service.stop(is_over);
        self.watch();
    }
}

fn flags_of(interest: Interest) -> EventFlags {
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::IN, interest.input);
    flags.set(EventFlags::OUT, interest.output);
    flags
}
