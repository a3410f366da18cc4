//! The queue and device that clients share, and the work of the thread that holds them: it collects the bios of all
//! clients, dispatches requests, and posts each completion to its client. Waiting is in `wait.rs`.

use std::sync::Arc;

use arrayvec::ArrayVec;
use iopath_core::{Bio, BioDone, Instant, IoError, QueuedDevice, SubmitError};

use super::mailbox::Mailbox;
use super::ring::{Consumer, Producer};
use crate::clock;
use crate::device::RealDevice;
use crate::election::{Election, Polled};
use crate::memory::Segment;
use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// The number of bits of [`pending`](super::QueueShared::pending) for clients: client `n` has bit `n % CLIENT_BITS`.
pub(super) const CLIENT_BITS: usize = 63;

/// The bit of a request for service without bios: only completions and due requests are served.
pub(super) const SERVE: u64 = 1 << CLIENT_BITS;

/// The state that a thread holds exclusively.
#[derive(Debug)]
pub(super) struct Core<D: ?Sized + RealDevice> {
    pub(super) pump: QueuedDevice<Box<D>>,
    pub(super) clients: Vec<Option<Client>>,
    bios_max: u32,
    /// The capacity of the device in sectors, as other threads set it.
    capacity: Arc<AtomicU64>,
    /// Clients whose bios found the queue full, as bits.
    backlog: u64,
    /// The client with which the next pass begins, as a bit number.
    first: u32,
    pub(super) election: Election,
    /// Threads to wake after the release of the queue. If there are more, the rest is woken before.
    pub(super) wakes: ArrayVec<Arc<Mailbox>, 16>,
    pub(super) now: Instant,
}

/// The queue's ends of the rings of a client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) submissions: Consumer<Bio<Segment>>,
    pub(super) completions: Producer<BioDone>,
}

/// The bit of a client in a set of clients.
pub(super) const fn bit_of(number: u32) -> u64 {
    1 << (number as usize % CLIENT_BITS)
}

/// The numbers of the clients in a set, of `count` clients.
fn numbers(set: u64, count: usize, first: u32) -> impl Iterator<Item = usize> {
    let rotated = (set & !SERVE).rotate_right(first);
    let bits = std::iter::successors(Some(rotated), |rest| Some(rest & rest.wrapping_sub(1)));
    let bits =
        bits.take_while(|rest| *rest != 0).map(move |rest| (rest.trailing_zeros() + first) as usize % 64);
    bits.flat_map(move |bit| (bit..count).step_by(CLIENT_BITS))
}

/// The token of a bio in the queue: its client, and its number at that client.
pub(super) const fn token(client: u32, number: u32) -> u64 {
    (client as u64) << 32 | number as u64
}

/// The number of the client in a token.
const fn client_of(token: u64) -> usize {
    (token >> 32) as usize
}

impl<D: ?Sized + RealDevice> Core<D> {
    pub(super) fn new(pump: QueuedDevice<Box<D>>, bios_max: u32, capacity: Arc<AtomicU64>) -> Self {
        Self {
            pump,
            clients: Vec::new(),
            bios_max,
            capacity,
            backlog: 0,
            first: 0,
            election: Election::default(),
            wakes: ArrayVec::new(),
            now: Instant::ZERO,
        }
    }

    /// Moves the bios of the clients in `pending` into the queue, and dispatches to the device while it has room.
    pub(super) fn serve(&mut self, pending: u64) {
        self.now = clock::now();
        // Before the bios, which their clients have checked against this capacity.
        move_end(&mut self.pump, &self.capacity);
        self.admit(pending);
        self.advance();
    }

    /// Collects completions of the device once, and dispatches further requests. Completions of these requests are left
    /// to the next call, so that clients can add bios for the elevator to order in between. Does nothing while a thread
    /// waits for the device by its watch, since a completion collected here would not end that wait.
    pub(super) fn collect(&mut self) {
        if self.election.is_watched() || !self.has_io() {
            return;
        }
        self.now = clock::now();
        self.pump.collect(self.now);
        self.post();
        // Now the queue has room for bios that found it full.
        self.admit(0);
        self.advance();
    }

    /// Dispatches to the device while it has room, and posts completed bios.
    fn advance(&mut self) {
        self.dispatch();
        // Some bios complete at once, such as flushes of a device without a cache. They make room for bios that found
        // the queue full, and no completion of the device announces that room.
        while self.backlog != 0 && self.pump.queue().bios_in() < self.bios_max {
            self.admit(0);
            self.dispatch();
        }
        // No later step of an idle queue would pass its records to the sink.
        if self.pump.queue().bios_in() == 0 {
            self.pump.queue_mut().publish_log();
        }
    }

    fn dispatch(&mut self) {
        self.pump.dispatch(self.now);
        self.pump.commit(self.now);
        self.post();
    }

    /// Moves bios into the queue while it has room: from the rings of the clients in `pending`, and of clients that
    /// found it full before.
    fn admit(&mut self, pending: u64) {
        let pending = (pending | std::mem::take(&mut self.backlog)) & !SERVE;
        if pending == 0 {
            return;
        }
        let mut refusals = 0;
        let Self { pump, clients, bios_max, capacity, backlog, first, now, .. } = self;
        for number in numbers(pending, clients.len(), *first) {
            let Some(client) = &mut clients[number] else { continue };
            while let Some(bio) = client.submissions.peek() {
                if pump.queue().bios_in() >= *bios_max {
                    *backlog |= bit_of(number as u32);
                    break;
                }
                debug_assert_eq!(client_of(bio.token), number, "the bio of another client");
                let mut submitted = pump.submit_bio(*bio, *now);
                // The client may have checked the bio against a capacity that has changed since this thread last read
                // it.
                if matches!(submitted, Err(SubmitError::OutOfRange { .. })) && move_end(pump, capacity) {
                    submitted = pump.submit_bio(*bio, *now);
                }
                if let Err(refused) = submitted {
                    let result = Err(error_of(&refused));
                    client.completions.push(BioDone { token: bio.token & 0xffff_ffff, result });
                    refusals |= bit_of(number as u32);
                }
                client.submissions.skip();
            }
            // Once for all bios, because the client reads this index from its own cache line.
            client.submissions.release();
        }
        pump.unplug(*now);
        // Begin with another client next time, so that none of them always finds the queue full.
        if self.backlog != 0 {
            self.first = (self.first + 1) % 64;
        }
        self.publish(refusals);
    }

    /// Posts completed bios to their clients, and wakes clients that wait for them.
    fn post(&mut self) {
        let mut touched = 0;
        let mut next = self.pump.poll_completion();
        while let Some(first) = next {
            let number = client_of(first.token);
            let client = self.clients[number].as_mut().expect("a client with bios in flight is registered");
            // Most often the next ones are of the same client.
            while let Some(BioDone { token, result }) = next.filter(|done| client_of(done.token) == number) {
                client.completions.push(BioDone { token: token & 0xffff_ffff, result });
                next = self.pump.poll_completion();
            }
            touched |= bit_of(number as u32);
        }
        self.publish(touched);
    }

    /// Publishes the completions of these clients.
    fn publish(&mut self, touched: u64) {
        if touched == 0 {
            return;
        }
        for number in numbers(touched, self.clients.len(), 0) {
            if let Some(client) = &mut self.clients[number] {
                client.completions.publish();
            }
        }
        // Between the publication of completions and the look at `state`, as a client has a fence between its
        // announcement and the look at its ring: at least one of the two sees the other.
        fence(Ordering::SeqCst);
        for number in numbers(touched, self.clients.len(), 0) {
            self.notify(number);
        }
    }
}

/// Sets the capacity of queue and device to `capacity`. Returns whether it has changed.
fn move_end<D: ?Sized + RealDevice>(pump: &mut QueuedDevice<Box<D>>, capacity: &AtomicU64) -> bool {
    let sectors = capacity.load(Ordering::Acquire);
    let has_moved = pump.queue().limits().capacity != sectors;
    if has_moved {
        pump.device_mut().set_capacity(sectors);
        pump.queue_mut().set_capacity(sectors);
    }
    has_moved
}

/// The error of a bio that passed the checks of its client and that the queue refuses: the volume has shrunk meanwhile.
fn error_of(refused: &SubmitError<Segment>) -> IoError {
    match refused {
        SubmitError::OutOfRange { .. } => IoError::EndOfDevice,
        SubmitError::Unaligned { .. } | SubmitError::MemoryMismatch { .. } => IoError::Alignment,
        SubmitError::Unsupported(_) | SubmitError::QueueFull(_) => IoError::Unsupported,
    }
}
