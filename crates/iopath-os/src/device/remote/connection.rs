//! The thread of one connection: waits for requests and for the socket, connects, and executes the events of the
//! session. Bytes are sent and received in `wire.rs`.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use iopath_core::IoError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::entries::Entries;
use super::job::Job;
use super::mailbox::{Mailbox, Taken};
use super::session::{RemoteEvent, RemoteFacts, RemoteProtocol, RemoteSession};
use super::stream::{RemoteAddress, Stream};
use super::wire::{Progress, Wire};
use crate::clock;

/// The state that the connections of one device share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) protocol: Arc<dyn RemoteProtocol>,
    pub(super) address: RemoteAddress,
    pub(super) mailboxes: Box<[Mailbox]>,
    /// The reason of the last failure of a connection.
    failure: Mutex<Option<String>>,
    /// All requests fail from now on.
    is_given_up: AtomicBool,
    lost: AtomicU64,
    reconnected: AtomicU64,
}

impl Shared {
    pub(super) fn new(
        protocol: Arc<dyn RemoteProtocol>,
        address: RemoteAddress,
        mailboxes: Box<[Mailbox]>,
    ) -> Self {
        Self {
            protocol,
            address,
            mailboxes,
            failure: Mutex::default(),
            is_given_up: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            reconnected: AtomicU64::new(0),
        }
    }

    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::SeqCst);
        // This wakes the threads, too.
        self.mailboxes.iter().for_each(Mailbox::close);
    }

    pub(super) fn losses(&self) -> Losses {
        Losses {
            lost: self.lost.load(Ordering::Relaxed),
            reconnected: self.reconnected.load(Ordering::Relaxed),
        }
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Connections of an export that ended, and that were made anew, since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// Established connections that the server or the network ended, or that were closed because of the server.
    pub lost: u64,
    /// Connections that were established again.
    pub reconnected: u64,
}

/// The outcome of the first negotiation.
pub(super) type Opened = Result<Option<Box<RemoteFacts>>, String>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Closed,
    /// Waits for the connect to this choice of address.
    Connecting(usize),
    Connected,
}

/// A connection and its requests.
#[derive(Debug)]
pub(super) struct Connection {
    number: usize,
    shared: Arc<Shared>,
    session: Box<dyn RemoteSession>,
    stream: Option<Stream>,
    phase: Phase,
    wire: Wire,
    entries: Entries,
    taken: VecDeque<Job>,
    /// The thread that opens the device waits for the first negotiation.
    opening: Option<SyncSender<Opened>>,
}

impl Connection {
    pub(super) fn new(number: usize, shared: &Arc<Shared>, opening: SyncSender<Opened>) -> Self {
        Self {
            number,
            session: shared.protocol.session(number),
            shared: Arc::clone(shared),
            stream: None,
            phase: Phase::Closed,
            wire: Wire::new(),
            entries: Entries::default(),
            taken: VecDeque::new(),
            opening: Some(opening),
        }
    }

    /// The main function of the thread. It ends when the mailbox is closed and no request is left, if the first
    /// negotiation fails, or if the requests are given up.
    pub(super) fn run(mut self) {
        self.session.handle_open(clock::now());
        self.execute_events();
        loop {
            let taken = self.take(false);
            if taken == Taken::Closed && (self.entries.is_empty() || self.is_given_up()) {
                return;
            }
            if self.session.poll_timeout().is_some_and(|time| time <= clock::now()) {
                self.session.handle_timeout(clock::now());
                self.execute_events();
            }
            if self.phase == Phase::Connected && !self.wire.is_blocked {
                self.send();
            }
            self.deliver();
            // After a failure to open, nothing ends a wait. Each step above can fail.
            if self.fails_to_open() {
                return;
            }
            // From now on, a job ends the wait. A job that arrived meanwhile is sent first.
            match self.take(true) {
                Taken::Nothing => self.wait(),
                Taken::Closed if !self.entries.is_empty() => self.wait(),
                Taken::Jobs | Taken::Closed => {}
            }
        }
    }

    /// Reports a failure of the first negotiation.
    fn fails_to_open(&mut self) -> bool {
        let Some(failure) = self.session.failure().filter(|_| self.opening.is_some()) else { return false };
        if let Some(opening) = self.opening.take() {
            // Fails only if the opening thread is gone.
            let _ = opening.send(Err(failure.to_owned()));
        }
        true
    }

    fn is_given_up(&self) -> bool {
        self.shared.is_given_up.load(Ordering::SeqCst)
    }

    fn mailbox(&self) -> &Mailbox {
        &self.shared.mailboxes[self.number]
    }

    /// Passes the jobs of the mailbox to the session.
    fn take(&mut self, sleeps: bool) -> Taken {
        let mut taken = std::mem::take(&mut self.taken);
        let result = self.mailbox().take(&mut taken, sleeps);
        let now = clock::now();
        for job in taken.drain(..) {
            let request = job.request;
            let key = self.entries.insert(job);
            self.session.handle_request(key, request, now);
        }
        self.taken = taken;
        if result == Taken::Jobs {
            self.execute_events();
        }
        result
    }

    /// Waits for the mailbox, the socket, and the next timeout. Receives.
    fn wait(&mut self) {
        let now = clock::now();
        let timeout = self.session.poll_timeout().map(|time| time.saturating_since(now));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut wanted = PollFlags::IN;
        if self.wire.is_blocked || self.phase != Phase::Connected {
            wanted |= PollFlags::OUT;
        }
        let mailbox = &self.shared.mailboxes[self.number];
        let of_mailbox = PollFd::new(mailbox, PollFlags::IN);
        let stream = self.stream.as_ref().map_or(mailbox.as_fd(), AsFd::as_fd);
        let mut descriptors = [of_mailbox, PollFd::from_borrowed_fd(stream, wanted)];
        let count = 1 + usize::from(self.stream.is_some());
        self.wire.syscalls += 1;
        // A failed wait is repeated by the loop of the caller.
        if poll(&mut descriptors[..count], timeout.as_ref()).unwrap_or(0) == 0 {
            return;
        }
        let [of_mailbox, of_stream] = descriptors.map(|descriptor| descriptor.revents());
        if !of_mailbox.is_empty() {
            mailbox.clear();
            self.wire.syscalls += 1;
        }
        if count == 1 || of_stream.is_empty() {
            return;
        }
        match self.phase {
            Phase::Connecting(choice) => self.finish_connect(choice),
            Phase::Connected => {
                if of_stream.contains(PollFlags::OUT) {
                    self.wire.is_blocked = false;
                }
                // Receiving also finds errors and the end of the stream.
                if of_stream.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                    self.receive();
                }
            }
            Phase::Closed => {}
        }
    }

    fn send(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        let progress = self.wire.send(stream, &mut *self.session, &mut self.entries);
        self.handle_progress(progress);
    }

    fn receive(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        let progress = self.wire.receive(stream, &mut *self.session, &mut self.entries);
        self.handle_progress(progress);
    }

    fn handle_progress(&mut self, progress: Progress) {
        match progress {
            Progress::Waits => {}
            Progress::Lost(reason) => self.lose(&reason),
            Progress::Violated => self.close(),
        }
        self.execute_events();
    }

    /// Closes the stream. Neither kernel nor thread accesses the memory of a request afterwards.
    fn close(&mut self) {
        if self.mailbox().is_up() {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(mut stream) = self.stream.take() {
            stream.shut_down();
        }
        self.phase = Phase::Closed;
        self.wire.reset();
        self.entries.end_all_sending();
        self.mailbox().set_up(false);
    }

    fn lose(&mut self, reason: &str) {
        self.close();
        self.session.handle_lost(reason, clock::now());
    }

    fn connect(&mut self, choice: usize) {
        match Stream::connect(&self.shared.address, choice) {
            Ok((stream, is_connected)) => {
                self.stream = Some(stream);
                self.phase = Phase::Connecting(choice);
                if is_connected {
                    self.finish_connect(choice);
                }
            }
            Err(error) => self.try_next(choice, &error),
        }
    }

    fn finish_connect(&mut self, choice: usize) {
        match self.stream.as_ref().map_or(Ok(()), Stream::connected) {
            Ok(()) => {
                self.phase = Phase::Connected;
                self.session.handle_connected(clock::now());
                self.execute_events();
            }
            Err(error) => {
                self.stream = None;
                self.try_next(choice, &error);
            }
        }
    }

    fn try_next(&mut self, choice: usize, error: &std::io::Error) {
        if choice + 1 < self.shared.address.choices() {
            return self.connect(choice + 1);
        }
        self.lose(&format!("cannot connect: {error}{}", remedy(error)));
        self.execute_events();
    }

    fn execute_events(&mut self) {
        self.entries.execute_events(&mut *self.session);
        while let Some(event) = self.entries.poll_event() {
            match event {
                RemoteEvent::Connect => self.connect(0),
                RemoteEvent::Close => self.close(),
                RemoteEvent::Ready(facts) => {
                    self.mailbox().set_up(true);
                    if let Some(opening) = self.opening.take() {
                        // Fails only if the opening thread is gone.
                        let _ = opening.send(Ok(facts));
                    } else {
                        self.shared.reconnected.fetch_add(1, Ordering::Relaxed);
                    }
                }
                RemoteEvent::Redirect { key, to } => self.redirect(key, to),
                RemoteEvent::Zeroes { .. } | RemoteEvent::Completed { .. } => {}
            }
            self.entries.execute_events(&mut *self.session);
        }
        if let Some(failure) = self.session.failure() {
            let mut last = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
            if last.as_deref() != Some(failure) {
                *last = Some(failure.to_owned());
            }
        }
    }

    fn redirect(&mut self, key: u32, to: usize) {
        let mut jobs = VecDeque::from([self.entries.remove(key)]);
        self.mailbox().sub_outstanding(1);
        self.shared.mailboxes[to].add_outstanding();
        self.shared.mailboxes[to].submit(&mut jobs);
        for job in jobs {
            self.shared.mailboxes[to].sub_outstanding(1);
            self.mailbox().add_outstanding();
            self.entries.fail(job, IoError::Disconnected);
        }
    }

    fn deliver(&mut self) {
        let mailbox = &self.shared.mailboxes[self.number];
        self.entries.deliver(mailbox, &mut self.wire.syscalls);
    }
}

impl Drop for Connection {
    /// Ends the session in good order. If the thread panics, its requests fail, so that no device waits for them
    /// forever.
    fn drop(&mut self) {
        let stream = self.stream.as_mut().filter(|_| self.phase == Phase::Connected);
        if !std::thread::panicking() {
            if let Some(stream) = stream {
                self.wire.send_last(stream, &mut *self.session);
            }
            // Others must not route flushes to this connection.
            self.session.handle_lost("the connection is closed", clock::now());
        }
        // The end of a session is no loss.
        self.mailbox().set_up(false);
        self.close();
        self.mailbox().close();
        let mut left = VecDeque::new();
        self.mailbox().take(&mut left, false);
        for job in left {
            self.entries.fail(job, IoError::Disconnected);
        }
        self.entries.fail_all(IoError::Disconnected);
        self.deliver();
    }
}

/// What the user can do about a failed connect.
fn remedy(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::ConnectionRefused => "; no server listens there: start it, or correct the address",
        ErrorKind::NotFound => "; start the server, or correct the path of its socket",
        ErrorKind::PermissionDenied => "; the socket permits other users only",
        ErrorKind::TimedOut => "; a firewall may discard the packets",
        _ => "",
    }
}
