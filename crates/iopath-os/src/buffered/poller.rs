//! The thread that polls the device for queues of requests whose owners wait in an event loop: no thread of the program
//! waits in the device on their behalf. One for each cache, which the first such request starts, and which ends after
//! some time without one.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::CacheShared;
use super::state::State;
use crate::clock;
use crate::election::Polled;
use crate::sync::thread;

/// The time without a request after which the thread ends.
const IDLE_MAX: Duration =
    if cfg!(iopath_explore) { Duration::from_micros(500) } else { Duration::from_secs(1) };

impl CacheShared {
    /// Wakes or starts the thread.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub(super) fn ensure_poller(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let poller = &mut state.poller;
        if poller.is_running {
            if let Some(thread) = &poller.thread
                && std::mem::take(&mut poller.is_idle)
            {
                thread.thread().unpark();
            }
            return Ok(());
        }
        let shared = Arc::clone(self);
        let builder = thread::Builder::new().name("iopath-poll".to_owned());
        let started = builder.spawn(move || shared.poll_in_background())?;
        poller.is_running = true;
        if let Some(ended) = poller.thread.replace(started) {
            // It needs the lock no more. It holds the cache until it has ended.
            let _ = ended.join();
        }
        Ok(())
    }

    /// Ends the thread. The cache is closing.
    pub(super) fn stop_poller(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(thread) = state.poller.thread.take() else { return };
        // The thread sleeps as a waiter or polls the device, which `wake` ends, or it is parked without work, which the
        // `unpark` below ends.
        if let Some(waiter) = state.poller.waiter {
            state.wake(waiter);
        }
        drop(state);
        thread.thread().unpark();
        // Fails only if the thread has panicked, which was reported at that time.
        let _ = thread.join();
    }

    fn poll_in_background(&self) {
        let mut state = self.lock();
        let waiter = state.add_waiter();
        state.poller.waiter = Some(waiter);
        let mut idle_since = None;
        while !state.is_closing {
            let now = clock::now();
            if state.waiting_with_notifier > 0 && state.broken.is_none() {
                idle_since = None;
                // Another thread may collect the completions for which this one waits.
                state = self.pause(state, waiter, Some(now + IDLE_MAX));
                continue;
            }
            let idle = now.saturating_since(*idle_since.get_or_insert(now));
            if idle >= IDLE_MAX {
                break;
            }
            state.poller.is_idle = true;
            drop(state);
            thread::park_timeout(IDLE_MAX.saturating_sub(idle));
            state = self.lock();
            state.poller.is_idle = false;
        }
        state.waiters.remove(waiter);
        state.poller.waiter = None;
        state.poller.is_running = false;
    }
}

#[cfg(all(test, not(iopath_explore)))]
mod tests {
    use iopath_core::cache::CacheConfig;
    use iopath_core::{Op, QueueConfig};

    use super::*;
    use crate::buffered::{Buffered, BufferedConfig, CacheRequest};
    use crate::runner::Runner;
    use crate::{
        BufferPool, Fault, Faults, Faulty, MemoryConfig, MemoryDisk, NoMemory, Notifier, RealDevice,
    };

    const PAGE: u64 = 4096;

    fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
        let begun = std::time::Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what} did not happen");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_thread_ends_without_requests_and_starts_again_with_the_next_one() {
        let faults = Faults::new(1);
        let disk = MemoryDisk::new(&MemoryConfig::of_bytes(16 * PAGE)).unwrap();
        let config = BufferedConfig {
            cache: CacheConfig { frames: 8, ..CacheConfig::default() },
            ..BufferedConfig::of_bytes(16 * PAGE)
        };
        let opened: Result<_, NoMemory> = Buffered::new(config, |_| {
            let device: Box<dyn RealDevice + Send> = Box::new(Faulty::new(Box::new(disk.open()), &faults));
            Ok(Runner::new(device, &QueueConfig::default()))
        });
        let buffered = Arc::new(opened.unwrap());
        let is_running = || buffered.shared.lock().poller.is_running;
        let pool = BufferPool::new(1, PAGE as usize).unwrap();
        let notifier = Notifier::new().unwrap();
        notifier.arm();
        let mut queue = buffered.request_queue(2, 0);
        queue.set_notifier(&notifier).unwrap();
        for page in 0..2 {
            eventually("the end of the thread", || !is_running());
            faults.add(Fault::stuck().on(Op::Read));
            let buffer = Some(pool.take().unwrap());
            let (op, offset, bytes) = (Op::Read, page * PAGE, PAGE);
            let read =
                CacheRequest { op, offset, bytes, buffer, is_durable: false, unit_bytes: 1, token: page };
            queue.queue(read).unwrap();
            queue.submit();
            assert!(is_running(), "a read of an event loop waits");
            faults.stop();
            // The thread polls the device and notifies.
            while queue.next_completed().is_none() {
                let _ = notifier.wait(Some(Duration::from_secs(60))).unwrap();
                queue.poll();
            }
        }
    }
}
