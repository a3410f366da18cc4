//! Waiting on a shared queue. Decides which thread holds the queue, which thread polls the device for all, and which
//! threads sleep. `core.rs` serves the queue.
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
//! - **A request for service is served.** A thread sets its bit in `pending` and then tries to hold the queue. If that
//!   fails, another thread holds the queue, and that thread reads `pending` again after the release
//!   ([`QueueShared::serve`]).
//! - **A completion wakes its client.** A client announces that it sleeps, and then checks its ring. The holder
//!   publishes a completion in the ring, and then checks whether the client sleeps. At least one of the two sees the
//!   action of the other.
//! - **While I/O is in flight, a thread polls the device or has been woken to poll it.** Every release of the queue
//!   checks that ([`Held`]). A client announces that it sleeps before it requests service, so the holder that serves
//!   the request sees the announcement. A client that was woken to poll requests service again, even if its own
//!   completions are available.
//! - **While requests are held back until some time, at least one thread wakes by that time.** This thread is the
//!   poller: it polls the device with that time limit, or sleeps if no request is at the device. A holder that makes
//!   the time earlier, or submits the first request to the device, wakes the poller.

use std::io;
use std::sync::TryLockError;

use iopath_core::{Duration, Instant};

use super::QueueShared;
use super::core::{Core, SERVE, Wakes, bit_of};
use super::mailbox::{ASLEEP, AWAKE, Mailbox, Poller, WOKEN_TO_POLL};
use super::regular::Pace;
use crate::clock;
use crate::device::{RealDevice, WaitError};
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
    wakes: Wakes,
    was_panicking: bool,
}

/// The next action of a thread that has served the queue.
enum Next {
    Return(Result<(), WaitError>),
    Poll(Option<Instant>),
    SleepUntil(Instant),
    Sleep,
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
            held.collect();
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
                    held.collect();
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
                    Next::Poll(until) => error = self.poll(until, &mut has_waited).err(),
                    Next::SleepUntil(until) => {
                        self.sleep(mailbox, Some(until));
                        // This thread was the poller, although no request was at the device.
                        self.is_poller_back.store(true, SeqCst);
                    }
                    Next::Sleep => {
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
                mailbox.register();
                mailbox.state.store(ASLEEP, SeqCst);
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
        self.is_poller_back.store(true, SeqCst);
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
        Held { shared: self, core: Some(core), wakes: Wakes::new(), was_panicking: thread::panicking() }
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
        let core = self.core.as_mut().expect("the queue is held until this is dropped");
        // First `pending`, since the poller sets `is_poller_back` before it requests service.
        let pending = self.shared.pending.swap(0, SeqCst);
        if self.shared.is_poller_back.swap(false, SeqCst) {
            core.poller = None;
        }
        core.serve(pending, &mut self.wakes);
        core.correct_poller(&mut self.wakes);
    }

    /// Collects completions of the device.
    fn collect(&mut self) {
        let core = self.core.as_mut().expect("the queue is held until this is dropped");
        core.collect(&mut self.wakes);
        core.correct_poller(&mut self.wakes);
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
        if core.poller.is_some() {
            mailbox.register();
            mailbox.state.store(ASLEEP, SeqCst);
            return Next::Sleep;
        }
        let is_watching = core.pump.device().in_flight() > 0;
        let until = core.due();
        core.poller = Some(Poller { client: number, is_watching, until });
        if is_watching {
            return Next::Poll(until);
        }
        let elevator = core.pump.queue().elevator();
        let until = until.unwrap_or_else(|| panic!("{elevator} holds all requests back and names no time"));
        mailbox.register();
        mailbox.state.store(ASLEEP, SeqCst);
        Next::SleepUntil(until)
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
            core.wake_all();
        } else {
            core.wake_next_poller(&mut self.wakes);
        }
        // Threads are woken after the release, because they would find the queue held.
        self.shared.is_held.store(false, Relaxed);
        drop(core);
        for mailbox in self.wakes.drain(..) {
            mailbox.unpark();
        }
    }
}

impl<D: ?Sized + RealDevice> Core<D> {
    /// The time at which queue or device must be served without a completion.
    fn due(&self) -> Option<Instant> {
        self.pump.poll_timeout()
    }

    /// Wakes a client that has as many completions as it waits for.
    pub(super) fn notify(&mut self, number: u32, wakes: &mut Wakes) {
        let Some(Some(client)) = self.clients.get(number as usize) else { return };
        let mailbox = &client.mailbox;
        let is_polling =
            matches!(&self.poller, Some(poller) if poller.is_watching && poller.client == number);
        // First the state, which the client changes only when it sleeps. It moves the index of its ring in each call,
        // so that a load takes the cache line from its processor.
        if !(is_polling || mailbox.is_asleep()) || client.completions.len() < mailbox.wanted() {
            return;
        }
        if mailbox.wake_to(AWAKE) {
            push(wakes, mailbox);
        } else if is_polling {
            self.pump.device_mut().end_watch();
        }
    }

    /// Ends the wait of the poller if its device or time limit has changed.
    fn correct_poller(&mut self, wakes: &mut Wakes) {
        let Some(Poller { client, is_watching, until }) = self.poller else { return };
        let due = self.due();
        let is_late = due.is_some_and(|due| until.is_none_or(|until| due < until));
        if is_watching && is_late {
            self.pump.device_mut().end_watch();
        } else if !is_watching
            && (is_late || self.pump.device().in_flight() > 0)
            && let Some(Some(sleeper)) = self.clients.get(client as usize)
            && sleeper.mailbox.wake_to(AWAKE)
        {
            push(wakes, &sleeper.mailbox);
        }
    }

    /// Wakes a client to poll the device. Does nothing if a thread polls it or was woken to poll, or no I/O is in
    /// flight.
    fn wake_next_poller(&mut self, wakes: &mut Wakes) {
        if self.poller.is_some() || (self.pump.device().in_flight() == 0 && self.due().is_none()) {
            return;
        }
        let was_woken_to_poll =
            |client: &super::core::Client| client.mailbox.state.load(SeqCst) == WOKEN_TO_POLL;
        let chosen = self.next_poller.and_then(|number| self.clients.get(number as usize)?.as_ref());
        if chosen.is_some_and(was_woken_to_poll) {
            return;
        }
        let sleeper = self
            .clients
            .iter()
            .position(|client| client.as_ref().is_some_and(|client| client.mailbox.wake_to(WOKEN_TO_POLL)));
        self.next_poller = sleeper.map(|number| number as u32);
        if let Some(Some(client)) = sleeper.map(|number| &self.clients[number]) {
            push(wakes, &client.mailbox);
        }
    }

    /// Wakes every client, after a panic.
    fn wake_all(&mut self) {
        for client in self.clients.iter().flatten() {
            if client.mailbox.wake_to(AWAKE) {
                client.mailbox.unpark();
            }
        }
        if matches!(self.poller, Some(Poller { is_watching: true, .. })) {
            self.pump.device_mut().end_watch();
        }
    }
}

/// Schedules the wake-up of a client after the release; wakes it now if there are many.
fn push(wakes: &mut Wakes, mailbox: &std::sync::Arc<Mailbox>) {
    if let Err(full) = wakes.try_push(std::sync::Arc::clone(mailbox)) {
        full.element().unpark();
    }
}
