//! Waiting on a shared queue. Decides which thread holds the queue and which threads sleep. `core.rs` serves the queue,
//! `election.rs` decides which thread polls the device for all.
//!
//! ```text
//!   set a bit of `pending` ─▶ hold the queue? ─ no, another thread does ─▶ sleep: the holder serves this client
//!                                │ yes
//!                                ▼
//!                             serve all clients ─▶ own completions available? ─ yes ─▶ release, return
//!                                                     │ no
//!                                                     ├─ no thread polls the device: release, poll
//!                                                     └─ else: release, sleep
//! ```
//!
//! No thread waits for the queue to become free: this is flat combining (Hendler, Incze, Shavit, Tzafrir: Flat
//! Combining and the Synchronization-Parallelism Tradeoff, 2010). While the queue is saturated, one client serves it,
//! and the others rest for a fixed time before they try to hold it: `regular.rs`.
//!
//! # No lost wake-up
//!
//! `election.rs` proves it for threads whose actions all are under one lock. Here a thread that does not hold the queue
//! sleeps and returns as well:
//!
//! - **A request for service is served.** A thread sets its bit in `pending` and then tries to hold the queue. If that
//!   fails, another thread holds the queue, and that thread reads `pending` again after the release
//!   ([`QueueShared::serve`]). So a poller or a woken client that requests service is followed by a release.
//! - **A completion wakes its client.** A client announces that it sleeps, and then checks its ring. The holder
//!   publishes a completion in the ring, and then checks whether the client sleeps. At least one of the two sees the
//!   action of the other.
//! - **A sleeper is visible to the holder that must know it.** A client announces that it sleeps before it requests
//!   service, so the holder that serves the request sees the announcement. A client that was woken to poll requests
//!   service again, even if its own completions are available.

use std::io;
use std::sync::{Arc, TryLockError};

use arrayvec::ArrayVec;
use iopath_core::{Duration, Instant};

use super::QueueShared;
use super::core::{Client, Core, SERVE, bit_of};
use super::mailbox::Mailbox;
use super::regular::Pace;
use crate::clock;
use crate::device::{RealDevice, WaitError};
use crate::election::{Election, Pause, Polled, SLEEPER, Sleep, WATCHER};
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::sync::atomic::fence;
use crate::sync::thread;

/// The number of further checks of a thread that cannot hold the queue, before it sleeps. They take about as long as a
/// holder needs for a batch of 32 bios.
const SPINS: u32 = if cfg!(iopath_explore) { 1 } else { 200 };

/// The number of times that a client rests in a wait before it holds the queue itself.
const RESTS_MAX: u32 = 4;

const PANICKED: &str = "a thread has panicked while it held the shared queue";

/// The queue, held by the calling thread. The release wakes a client to poll the device if no thread does.
pub(super) struct Held<'a, D: ?Sized + RealDevice> {
    shared: &'a QueueShared<D>,
    /// Present until the release.
    core: Option<MutexGuard<'a, Core<D>>>,
    was_panicking: bool,
}

/// The next action of a thread that has served the queue.
enum Next {
    Return(Result<(), WaitError>),
    Pause(Pause),
}

impl<D: ?Sized + RealDevice> QueueShared<D> {
    /// Requests service of `clients`, by this thread or by the holder of the queue.
    pub(super) fn request_service(&self, clients: u64) {
        self.pending.fetch_or(clients, SeqCst);
        self.serve();
    }

    /// Serves all pending requests for service, unless another thread holds the queue; then that thread serves them.
    fn serve(&self) {
        loop {
            // Either this thread sees the bit in `pending`, or the thread that sets it finds the queue released.
            fence(SeqCst);
            if self.pending.load(SeqCst) == 0 {
                return;
            }
            let Some(mut held) = self.try_hold() else { return };
            held.serve();
        }
    }

    /// Collects completions of the device, unless another thread holds the queue.
    pub(super) fn reap(&self) {
        if let Some(mut held) = self.try_hold() {
            held.serve();
            held.core().collect();
        }
        self.serve();
    }

    /// Waits until `is_ready`, which checks for `wanted` completions of the client.
    pub(super) fn wait(
        &self,
        number: u32,
        (mailbox, pace): (&Mailbox, &mut Pace),
        wanted: u32,
        is_ready: impl Fn() -> bool,
    ) -> Result<(), WaitError> {
        // Visible to each holder that serves this request: the exchange of `pending` orders it.
        mailbox.set_wanted(wanted);
        pace.enter(clock::now());
        let mut service = bit_of(number);
        let mut is_announced = false;
        let mut spins = SPINS;
        let mut has_waited = false;
        // The error of a wait for the device. The next poller waits again, and gets its own error if the cause
        // persists.
        let mut error = None;
        loop {
            self.pending.fetch_or(service, SeqCst);
            fence(SeqCst);
            if service != SERVE && self.is_served_by_regular(number, service, &is_ready) {
                return Ok(());
            }
            // The first pass admits the bios that were published before the wait. Later ones need only completions.
            service = SERVE;
            if let Some(mut held) = self.try_hold() {
                if std::mem::take(&mut is_announced) {
                    mailbox.awaken();
                }
                held.serve();
                let began = held.core().now;
                // With completions at hand, the caller returns and can add bios before the device is drained.
                if !is_ready() {
                    held.core().collect();
                }
                let next = held.next(number, mailbox, &mut error, &is_ready);
                if let Next::Return(Ok(())) = next {
                    let now = clock::now();
                    self.regular.leave(number, has_waited, pace.leave(began, now), now);
                }
                drop(held);
                match next {
                    Next::Return(result) => {
                        // Other threads left their requests to this one while it held the queue.
                        self.serve();
                        return result;
                    }
                    Next::Pause(Pause::Watch(until)) => error = self.poll(until, &mut has_waited).err(),
                    Next::Pause(Pause::SleepUntil(until)) => {
                        self.sleep(mailbox, Some(until));
                        self.pollers_back.fetch_or(SLEEPER, SeqCst);
                    }
                    Next::Pause(Pause::Sleep) => {
                        if !self.sleep(mailbox, None) && is_ready() {
                            self.serve();
                            return Ok(());
                        }
                    }
                }
                continue;
            }
            error = error.or_else(|| self.panic_error());
            if is_ready() || error.is_some() {
                // A client that was woken to poll must request service again before it returns.
                if std::mem::take(&mut is_announced) && mailbox.awaken() {
                    continue;
                }
                return if is_ready() { Ok(()) } else { error.map_or(Ok(()), Err) };
            }
            if !is_announced {
                // Only so often for each sleep, since the holder may be suspended before it releases the queue.
                if self.spin(&mut spins, &is_ready) {
                    continue;
                }
                mailbox.announce();
                is_announced = true;
                continue;
            }
            mailbox.park(None);
            (is_announced, spins) = (false, SPINS);
            if !mailbox.awaken() && is_ready() {
                return Ok(());
            }
        }
    }

    /// Lets the regular holder of the queue serve client `number`, whose bit in `pending` is `service`. Returns false
    /// if this client is to hold the queue itself.
    fn is_served_by_regular(&self, number: u32, service: u64, is_ready: &impl Fn() -> bool) -> bool {
        if self.regular.must_yield(number) {
            thread::sleep(self.regular.rest());
            // If the next holder does not come, this client goes on.
            self.regular.clear_next();
        }
        // Its bios must not wait in the ring for its next call.
        let is_served = || is_ready() && self.pending.load(SeqCst) & service == 0;
        for _ in 0..RESTS_MAX {
            let Some(within) = self.regular.returns_within(number) else { return false };
            if !self.sees_regular(within, &is_served) {
                return is_served();
            }
            thread::sleep(self.regular.rest());
            self.regular.rested(number, clock::now());
            if is_served() {
                return true;
            }
        }
        false
    }

    /// Waits until the regular holder, which returns `within` a time, holds the queue. Returns false if it is late, or
    /// if `is_served` meanwhile.
    fn sees_regular(&self, within: Duration, is_served: &impl Fn() -> bool) -> bool {
        let began = clock::now();
        for _ in 0..SPINS {
            if !self.core_is_free() {
                return true;
            }
            if is_served() || clock::now().saturating_since(began) > within {
                return false;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// Checks for a while whether the queue is free or the completions are available. Returns whether that is the case.
    /// `spins` is the number of checks left.
    fn spin(&self, spins: &mut u32, is_ready: &impl Fn() -> bool) -> bool {
        while *spins > 0 {
            *spins -= 1;
            std::hint::spin_loop();
            if is_ready() || self.core_is_free() {
                return true;
            }
        }
        false
    }

    /// Sleeps as announced. Returns whether the client was woken to poll the device.
    fn sleep(&self, mailbox: &Mailbox, until: Option<Instant>) -> bool {
        fence(SeqCst);
        // First serve requests that were made while this thread held the queue.
        if self.pending.load(SeqCst) == 0 {
            mailbox.park(until);
        }
        mailbox.awaken()
    }

    /// Waits for the device, as the poller.
    fn poll(&self, until: Option<Instant>, has_waited: &mut bool) -> Result<(), WaitError> {
        fence(SeqCst);
        // A request for service that arrived while this thread held the queue would wait as long as the device.
        let waited = if self.pending.load(SeqCst) == 0 {
            let began = clock::now();
            let waited = self.watch.wait(until.map(|until| until.saturating_since(began)));
            *has_waited |= self.regular.device_waited(clock::now().saturating_since(began));
            waited
        } else {
            Ok(())
        };
        self.pollers_back.fetch_or(WATCHER, SeqCst);
        waited
    }

    /// The error of every wait after a thread has panicked while it held the queue.
    fn panic_error(&self) -> Option<WaitError> {
        let has_panicked = self.has_panicked.load(SeqCst);
        has_panicked.then(|| WaitError { source: io::Error::from_raw_os_error(libc::EIO) })
    }

    /// Holds the queue if no other thread does.
    ///
    /// # Panics
    /// If a thread has panicked while it held the queue.
    fn try_hold(&self) -> Option<Held<'_, D>> {
        match self.core.try_lock() {
            Ok(core) => Some(self.held(core)),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => panic!("{PANICKED}"),
        }
    }

    /// # Panics
    /// If a thread has panicked while it held the queue.
    pub(super) fn assert_usable(&self) {
        assert!(!self.core.is_poisoned(), "{PANICKED}");
    }

    /// Holds the queue as soon as its holder releases it. For settings, not for I/O. Afterwards serves the requests for
    /// service that were made meanwhile.
    ///
    /// # Panics
    /// Panics like [`QueueShared::try_hold`].
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Core<D>) -> R) -> R {
        let core = self.core.lock().unwrap_or_else(|_| panic!("{PANICKED}"));
        let mut held = self.held(core);
        let result = act(held.core());
        drop(held);
        self.serve();
        result
    }

    fn held<'a>(&'a self, core: MutexGuard<'a, Core<D>>) -> Held<'a, D> {
        self.is_held.store(true, Relaxed);
        Held { shared: self, core: Some(core), was_panicking: thread::panicking() }
    }

    /// A hint: whether an attempt to hold the queue may succeed.
    fn core_is_free(&self) -> bool {
        !self.is_held.load(Relaxed)
    }
}

impl<D: ?Sized + RealDevice> Held<'_, D> {
    fn core(&mut self) -> &mut Core<D> {
        self.core.as_mut().expect("the queue is held until this is dropped")
    }

    /// Serves every pending client, and all I/O requests that are due.
    fn serve(&mut self) {
        // First `pending`, since a poller sets `pollers_back` before it requests service.
        let pending = self.shared.pending.swap(0, SeqCst);
        let back = self.shared.pollers_back.swap(0, SeqCst);
        let core = self.core();
        core.election.handle_back(back);
        core.serve(pending);
    }

    /// Decides the next action of the client that has served the queue, and prepares it.
    fn next(
        &mut self,
        number: u32,
        mailbox: &Mailbox,
        error: &mut Option<WaitError>,
        is_ready: &impl Fn() -> bool,
    ) -> Next {
        if is_ready() {
            return Next::Return(Ok(()));
        }
        if let Some(error) = error.take() {
            return Next::Return(Err(error));
        }
        let core = self.core();
        let pause = core.elect(number as usize, None);
        let has_poller = core.election.is_polled();
        assert!(has_poller, "{} holds all requests back and names no time", core.pump.queue().elevator());
        if !matches!(pause, Pause::Watch(_)) {
            mailbox.announce();
        }
        Next::Pause(pause)
    }
}

impl<D: ?Sized + RealDevice> Drop for Held<'_, D> {
    fn drop(&mut self) {
        let Some(mut core) = self.core.take() else { return };
        if thread::panicking() && !self.was_panicking {
            // Sleepers find the poisoned lock and panic as well, so that they do not sleep forever. A thread may miss
            // the poisoned lock, because another panicking thread holds it. Such a thread sees `has_panicked`: either
            // this thread sees that the other sleeps and wakes it, or the other sees the flag after it has announced
            // its sleep.
            self.shared.has_panicked.store(true, SeqCst);
            fence(SeqCst);
            core.wake_waiters();
        } else {
            core.ensure_polled();
        }
        // Threads are woken after the release, because they would find the queue held.
        let wakes = if core.wakes.is_empty() { ArrayVec::new() } else { std::mem::take(&mut core.wakes) };
        self.shared.is_held.store(false, Relaxed);
        drop(core);
        for mailbox in wakes {
            mailbox.unpark();
        }
    }
}

impl<D: ?Sized + RealDevice> Core<D> {
    /// Wakes a client that has as many completions as it waits for.
    pub(super) fn notify(&mut self, number: usize) {
        let Some(Some(client)) = self.clients.get(number) else { return };
        let mailbox = &client.mailbox;
        // First the state, which the client changes only when it sleeps. It moves the index of its ring in each call,
        // so that a load takes the cache line from its processor.
        if (mailbox.is_asleep() || self.election.is_watched_by(number))
            && client.completions.len() >= mailbox.wanted()
        {
            self.wake(number);
        }
    }
}

impl<D: ?Sized + RealDevice> Polled for Core<D> {
    fn election(&mut self) -> &mut Election {
        &mut self.election
    }

    fn has_io(&self) -> bool {
        self.pump.device().in_flight() > 0
    }

    fn due(&self) -> Option<Instant> {
        self.pump.poll_timeout()
    }

    fn end_watch(&mut self) {
        self.pump.device_mut().end_watch();
    }

    fn numbers_end(&self) -> usize {
        self.clients.len()
    }

    fn was_woken_to_poll(&self, number: usize) -> bool {
        matches!(self.clients.get(number), Some(Some(client)) if client.mailbox.was_woken_to_poll())
    }

    fn wake_to(&mut self, number: usize, state: Sleep) -> bool {
        let Some(Some(Client { mailbox, .. })) = self.clients.get(number) else { return false };
        let is_woken = mailbox.wake_to(state);
        if is_woken && let Err(full) = self.wakes.try_push(Arc::clone(mailbox)) {
            full.element().unpark();
        }
        is_woken
    }
}
