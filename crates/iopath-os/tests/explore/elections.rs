//! The election of the thread that polls, over a disk and a queue that are as simple as possible. Each request is held
//! back for a time, and takes a time at the disk. The clock stands still while a thread can run, so a thread that waits
//! for its requests returns at the exact time at which the last one ends. Otherwise a wake-up was lost, and a time
//! limit or another request hid that.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use iopath_core::Instant;
use iopath_os::now;
use iopath_os::sync::atomic::AtomicU32;
use iopath_os::sync::thread::{self, Thread};
use iopath_os::sync::{Condvar, Exploration, Mutex, MutexGuard, is_timed, pick};

use crate::buffered::on_threads;
use crate::election::{Election, Pause, Polled, SLEEPER, Sleep, WATCHER};

const THREADS: usize = 3;

const MILLI: Duration = Duration::from_millis(1);

/// The disk and the states of the threads, which are accessible without the lock of the queue.
#[derive(Default)]
struct Shared {
    over: Mutex<Over>,
    changed: Condvar,
    /// Pollers report their return here, as the clients of a shared queue do: another thread may see it first.
    back: AtomicU32,
    sleeps: [AtomicU32; THREADS],
}

#[derive(Default)]
struct Over {
    /// The threads whose requests have completed.
    completed: Vec<usize>,
    is_watched: bool,
    is_ended: bool,
}

#[derive(Default)]
struct Queue {
    shared: Arc<Shared>,
    election: Election,
    threads: [Option<Thread>; THREADS],
    /// The number of requests of each thread that have not completed.
    unfinished: [u32; THREADS],
    /// The time at which the last request of each thread ends.
    ends: [Instant; THREADS],
    /// Requests that are held back: until when, of which thread, and their time at the disk.
    held: Vec<(Instant, usize, Duration)>,
    in_flight: usize,
    has_failed: bool,
}

impl Shared {
    /// Executes a request of that thread.
    fn execute(self: &Arc<Self>, number: usize, takes: Duration) {
        let shared = Arc::clone(self);
        thread::spawn(move || {
            thread::sleep(takes);
            shared.over.lock().unwrap().completed.push(number);
            shared.changed.notify_all();
        });
    }

    fn watch(&self, until: Option<Instant>) {
        let mut over = self.over.lock().unwrap();
        assert!(!over.is_watched, "two threads watch the device");
        over.is_watched = true;
        let waits = |over: &mut Over| over.completed.is_empty() && !over.is_ended;
        over = match until {
            Some(until) => {
                let timeout = until.saturating_since(now());
                self.changed.wait_timeout_while(over, timeout, waits).unwrap().0
            }
            None => self.changed.wait_while(over, waits).unwrap(),
        };
        (over.is_watched, over.is_ended) = (false, false);
    }
}

impl Polled for Queue {
    fn election(&mut self) -> &mut Election {
        &mut self.election
    }

    fn has_io(&self) -> bool {
        self.in_flight > 0
    }

    fn due(&self) -> Option<Instant> {
        self.held.iter().map(|(due, ..)| *due).min()
    }

    fn end_watch(&mut self) {
        self.shared.over.lock().unwrap().is_ended = true;
        self.shared.changed.notify_all();
    }

    fn numbers_end(&self) -> usize {
        THREADS
    }

    fn was_woken_to_poll(&self, number: usize) -> bool {
        self.shared.sleeps[number].load(SeqCst) == Sleep::WokenToPoll as u32
    }

    fn wake_to(&mut self, number: usize, state: Sleep) -> bool {
        let sleep = &self.shared.sleeps[number];
        let is_woken = sleep.compare_exchange(Sleep::Asleep as u32, state as u32, SeqCst, SeqCst).is_ok();
        if is_woken {
            self.threads[number].as_ref().expect("a thread that sleeps").unpark();
        }
        is_woken
    }
}

impl Queue {
    /// Passes requests that are due to the disk, and handles completions.
    fn advance(&mut self) {
        self.election.handle_back(self.shared.back.swap(0, SeqCst));
        if !self.election.is_watched() {
            let completed = {
                let mut over = self.shared.over.lock().unwrap();
                assert!(!over.is_watched, "a completion is taken from the thread that watches the device");
                std::mem::take(&mut over.completed)
            };
            self.in_flight -= completed.len();
            for number in completed {
                self.unfinished[number] -= 1;
                if self.unfinished[number] == 0 {
                    self.wake(number);
                }
            }
        }
        for (_, number, takes) in self.held.extract_if(.., |(due, ..)| *due <= now()) {
            self.shared.execute(number, takes);
            self.in_flight += 1;
        }
    }
}

fn release(mut queue: MutexGuard<'_, Queue>) {
    let is_asleep = |sleep: &AtomicU32| sleep.load(SeqCst) == Sleep::Asleep as u32;
    if queue.election.is_polled() || queue.shared.sleeps.iter().any(is_asleep) {
        queue.ensure_polled();
    }
}

/// Submits a request for thread `number`, of random times.
fn submit(queue: &Mutex<Queue>, number: usize) {
    submit_timed(queue, number, MILLI * pick(3) as u32, MILLI * pick(4) as u32);
}

/// Submits a request for thread `number` that is held back for `held_for`, and then takes `takes`.
fn submit_timed(queue: &Mutex<Queue>, number: usize, held_for: Duration, takes: Duration) {
    let due = now() + held_for;
    let mut queue = queue.lock().unwrap();
    queue.unfinished[number] += 1;
    queue.ends[number] = queue.ends[number].max(due + takes);
    queue.held.push((due, number, takes));
    queue.advance();
    release(queue);
}

/// Waits for all requests of thread `number`, or for a failure. Returns the time at which the last request ends, or
/// that of the call.
fn wait(locked: &Mutex<Queue>, number: usize) -> Instant {
    let mut queue = locked.lock().unwrap();
    let shared = Arc::clone(&queue.shared);
    let sleep = &shared.sleeps[number];
    queue.threads[number] = Some(thread::current());
    let began = now();
    loop {
        queue.advance();
        if queue.unfinished[number] == 0 || queue.has_failed {
            let ends = queue.ends[number].max(began);
            release(queue);
            return ends;
        }
        // A thread may also have a time limit of its own.
        let until = (pick(4) == 0).then(|| now() + MILLI);
        let pause = queue.elect(number, until);
        if !matches!(pause, Pause::Watch(_)) {
            sleep.store(Sleep::Asleep as u32, SeqCst);
        }
        release(queue);
        let back = match pause {
            Pause::Watch(until) => {
                shared.watch(until);
                WATCHER
            }
            Pause::SleepUntil(until) => {
                thread::park_timeout(until.saturating_since(now()));
                SLEEPER
            }
            Pause::Sleep => {
                match until {
                    Some(until) => thread::park_timeout(until.saturating_since(now())),
                    None => thread::park(),
                }
                0
            }
        };
        sleep.store(Sleep::Awake as u32, SeqCst);
        shared.back.fetch_or(back, SeqCst);
        queue = locked.lock().unwrap();
    }
}

#[test]
fn each_thread_returns_when_its_requests_end() {
    Exploration::new("each_thread_returns_when_its_requests_end").run(|| {
        let queue = Arc::<Mutex<Queue>>::default();
        let others = Arc::clone(&queue);
        on_threads(THREADS as u64, move |number| {
            let number = number as usize;
            for _ in 0..2 {
                // Also for another thread, as a read for which others wait, too.
                for _ in 0..=pick(2) {
                    submit(&others, [number, pick(THREADS as u64) as usize][pick(2) as usize]);
                }
                if pick(4) == 0 {
                    // The others poll for its requests.
                    return;
                }
                let ends = wait(&others, number);
                assert!(!is_timed() || now() == ends, "returned at {:?}, not at {ends:?}", now());
            }
        });
        for number in 0..THREADS {
            let _ = wait(&queue, number);
        }
    });
}

/// A thread waits for a request that another submits later, while the poller sleeps for a request that is held back.
#[test]
fn a_poller_that_sleeps_returns_for_io_at_the_device() {
    Exploration::new("a_poller_that_sleeps_returns_for_io_at_the_device").run(|| {
        let queue = Arc::<Mutex<Queue>>::default();
        queue.lock().unwrap().unfinished[0] = 1;
        on_threads(THREADS as u64, move |number| {
            match number {
                0 => {}
                1 => submit_timed(&queue, 1, 4 * MILLI, MILLI),
                _ => {
                    thread::sleep(MILLI);
                    submit_timed(&queue, 0, Duration::ZERO, MILLI);
                    let mut queue = queue.lock().unwrap();
                    queue.unfinished[0] -= 1;
                    if queue.unfinished[0] == 0 {
                        queue.wake(0);
                    }
                    return release(queue);
                }
            }
            let ends = wait(&queue, number as usize);
            assert!(!is_timed() || now() == ends, "returned at {:?}, not at {ends:?}", now());
        });
    });
}

#[test]
fn a_failure_ends_all_waits() {
    Exploration::new("a_failure_ends_all_waits").run(|| {
        let queue = Arc::<Mutex<Queue>>::default();
        let others = Arc::clone(&queue);
        let started = now();
        on_threads(THREADS as u64, move |number| {
            if number > 0 {
                submit(&others, number as usize);
                wait(&others, number as usize);
                return;
            }
            let mut queue = others.lock().unwrap();
            queue.has_failed = true;
            queue.wake_waiters();
            release(queue);
        });
        assert!(!is_timed() || now() == started, "returned at {:?}", now());
        queue.lock().unwrap().has_failed = false;
        for number in 0..THREADS {
            let _ = wait(&queue, number);
        }
    });
}
