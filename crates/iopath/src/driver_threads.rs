//! Threads that drive, for programs without an event loop that could. Each serves any number of drivers: it waits for
//! their descriptors by `epoll(7)`. It starts with its first driver, and ends when it has none.

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::num::NonZero;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The threads of a context.
static THREADS_MAX: LazyLock<usize> =
    LazyLock::new(|| thread::available_parallelism().map_or(1, NonZero::get));

/// Descriptors that one wait reports.
const EVENTS_MAX: usize = 64;

thread_local! {
    /// This is a thread of this file.
    static IS_DRIVING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// What to do after a turn of a [`Driver`](crate::futures::Driver).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Wait for the descriptor, not longer than this time if there is one; then the next turn.
    Wait(Option<Duration>),
    /// The last handle and future are dropped, and nothing is in flight: drop the driver.
    Ended,
}

/// A driver: its descriptor is readable when it needs a turn.
pub(crate) trait Drive: AsFd + Send {
    fn turn(&mut self) -> Turn;
}

/// The threads of a context: as many as there are processors, or fewer while there are fewer drivers.
#[derive(Default)]
pub(crate) struct DriverThreads(Mutex<Vec<Arc<DriverThread>>>);

struct DriverThread {
    epoll: OwnedFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The thread has not taken them.
    added: Vec<Driven>,
    /// The number of drivers, with those that are not taken.
    count: usize,
    next_key: u64,
    is_running: bool,
}

struct Driven {
    key: u64,
    due: Option<Instant>,
    driver: Box<dyn Drive>,
    // Dropped after the driver.
    end: End,
}

/// Its drop reports the end of a driver.
type End = Sender<Infallible>;

/// A driver at a thread.
pub(crate) struct Driving {
    ended: Mutex<Receiver<Infallible>>,
    // Its descriptor is closed after the driver and the thread.
    _thread: Arc<DriverThread>,
}

impl fmt::Debug for DriverThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DriverThreads").field(&self.counts()).finish()
    }
}

impl DriverThreads {
    /// The drivers of each thread.
    pub(crate) fn counts(&self) -> Vec<usize> {
        lock(&self.0).iter().map(|thread| lock(&thread.state).count).collect()
    }

    /// Moves a driver to the thread with the fewest drivers, or to a new one.
    pub(crate) fn drive(&self, driver: Box<dyn Drive>) -> io::Result<Driving> {
        let mut threads = lock(&self.0);
        let counts = threads.iter().enumerate().map(|(number, thread)| (lock(&thread.state).count, number));
        let number = match counts.min() {
            Some((count, number)) if count == 0 || threads.len() >= *THREADS_MAX => number,
            _ => {
                threads.push(Arc::new(DriverThread::new()?));
                threads.len() - 1
            }
        };
        threads[number].add(driver)
    }
}

impl Driving {
    /// Drops `last` after the driver, which is about to end: it may close a page cache, which waits for the device. If
    /// this thread drives, since a waker has dropped the last handle of a volume, a thread of its own waits.
    pub(crate) fn drop_after<T: Send + 'static>(self, last: T) {
        let end = move || {
            let Self { ended, .. } = self;
            // Nothing is sent.
            let _ = lock(&ended).recv();
            drop(last);
        };
        if IS_DRIVING.get() {
            // The driver is the last then if the system refuses the thread.
            let _ = named().spawn(end);
        } else {
            end();
        }
    }
}

impl DriverThread {
    fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, state: Mutex::default() })
    }

    fn add(self: &Arc<Self>, driver: Box<dyn Drive>) -> io::Result<Driving> {
        let mut state = lock(&self.state);
        let key = state.next_key;
        epoll::add(&self.epoll, driver.as_fd(), EventData::new_u64(key), EventFlags::IN)?;
        if !state.is_running {
            let thread = Arc::clone(self);
            if let Err(refused) = named().spawn(|| run(thread)) {
                epoll::delete(&self.epoll, driver.as_fd())?;
                return Err(refused);
            }
            state.is_running = true;
        }
        state.next_key += 1;
        state.count += 1;
        let (end, ended) = channel();
        state.added.push(Driven { key, due: None, driver, end });
        Ok(Driving { ended: Mutex::new(ended), _thread: Arc::clone(self) })
    }
}

/// The drivers of a thread.
#[derive(Default)]
struct Drivers {
    by_key: HashMap<u64, Driven>,
    /// The time limits of their waits.
    due: BTreeSet<(Instant, u64)>,
    /// Those that were dropped in this round.
    ended: Vec<End>,
}

fn run(thread: Arc<DriverThread>) {
    IS_DRIVING.set(true);
    let mut drivers = Drivers::default();
    let mut events = [MaybeUninit::uninit(); EVENTS_MAX];
    loop {
        {
            let mut state = lock(&thread.state);
            drivers.by_key.extend(state.added.drain(..).map(|driven| (driven.key, driven)));
            state.is_running = !drivers.by_key.is_empty();
        }
        if drivers.by_key.is_empty() {
            // Before the ends are reported: a descriptor is closed with the last volume.
            return drop(thread);
        }
        drivers.ended.clear();
        // A signal may end a wait.
        if let Ok((ready, _)) = wait(&thread.epoll, drivers.timeout(), &mut events) {
            for event in ready.iter() {
                drivers.turn(&thread, event.data.u64());
            }
        }
        drivers.turn_due(&thread);
    }
}

impl Drivers {
    /// The time until the first limit.
    fn timeout(&self) -> Option<Duration> {
        let (due, _) = self.due.first()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    fn turn_due(&mut self, thread: &DriverThread) {
        if self.due.is_empty() {
            return;
        }
        // A turn may add a limit that has passed, so each driver gets one turn.
        let not_due = self.due.split_off(&(Instant::now(), u64::MAX));
        for (_, key) in std::mem::replace(&mut self.due, not_due) {
            self.turn(thread, key);
        }
    }

    /// A turn of a driver. Nothing if it has ended, or is not taken yet.
    fn turn(&mut self, thread: &DriverThread, key: u64) {
        let Some(driven) = self.by_key.get_mut(&key) else { return };
        if let Some(due) = driven.due.take() {
            self.due.remove(&(due, key));
        }
        let turn = catch_unwind(AssertUnwindSafe(|| driven.driver.turn()));
        if let Ok(Turn::Wait(limit)) = turn {
            driven.due = limit.and_then(|limit| Instant::now().checked_add(limit));
            self.due.extend(driven.due.map(|due| (due, key)));
            return;
        }
        let Some(Driven { driver, end, .. }) = self.by_key.remove(&key) else { return };
        lock(&thread.state).count -= 1;
        // Fails only if the descriptor is not in the set.
        let _ = epoll::delete(&thread.epoll, driver.as_fd());
        if turn.is_ok() {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(driver)));
            self.ended.push(end);
            return;
        }
        // Code of the program has panicked, which was reported. The futures of the driver fail when it is dropped. That
        // waits for its requests, so it must not delay the other drivers. It is dropped here if the system refuses a
        // thread.
        let dropped = (driver, end);
        let _ = named().spawn(move || {
            IS_DRIVING.set(true);
            drop(dropped);
        });
    }
}

/// Waits for descriptors, with the resolution of `ppoll(2)`: `epoll_wait(2)` rounds a limit up to milliseconds.
fn wait<'a>(
    epoll: &OwnedFd,
    limit: Option<Duration>,
    events: &'a mut [MaybeUninit<Event>],
) -> rustix::io::Result<(&'a mut [Event], &'a mut [MaybeUninit<Event>])> {
    if limit.is_none() {
        return epoll::wait(epoll, events, None);
    }
    let limit = limit.and_then(|limit| limit.try_into().ok());
    poll(&mut [PollFd::new(epoll, PollFlags::IN)], limit.as_ref())?;
    epoll::wait(epoll, events, Some(&Timespec::default()))
}

fn named() -> thread::Builder {
    thread::Builder::new().name("iopath-driver".to_owned())
}

/// Ignores poisoning: no code of the program runs under a lock of this file.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
