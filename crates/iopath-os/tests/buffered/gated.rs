//! A device that completes nothing while its gate is closed: for tests that need an I/O in flight until they say so.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use iopath_core::{BlockDevice, Busy, Completion, Instant, Io, Limits};
use iopath_os::{Bell, MemoryDevice, RealDevice, Segment, WaitError, Watch};

/// Open until it is closed. A clone is the same gate.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared { is_open: Mutex::new(true), opened: Condvar::new() }))
    }

    pub(crate) fn open(&self) {
        *self.0.is_open.lock().unwrap() = true;
        self.0.opened.notify_all();
    }

    pub(crate) fn close(&self) {
        *self.0.is_open.lock().unwrap() = false;
    }

    fn is_open(&self) -> bool {
        *self.0.is_open.lock().unwrap()
    }
}

impl Watch for Gate {
    fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        let is_open = self.0.is_open.lock().unwrap();
        let timeout = timeout.unwrap_or(Duration::MAX);
        drop(self.0.opened.wait_timeout_while(is_open, timeout, |is_open| !*is_open).unwrap());
        Ok(())
    }
}

/// A disk in memory behind a gate.
#[derive(Debug)]
pub(crate) struct Gated {
    pub(crate) inner: MemoryDevice,
    pub(crate) gate: Gate,
}

impl BlockDevice for Gated {
    type Memory = Segment;

    fn limits(&self) -> &Limits {
        self.inner.limits()
    }

    fn submit(&mut self, io: &Io<'_, Segment>, now: Instant) -> Result<(), Busy> {
        self.inner.submit(io, now)
    }

    fn commit(&mut self, now: Instant) {
        self.inner.commit(now);
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        if self.gate.is_open() { self.inner.poll_completion(now) } else { None }
    }
}

// SAFETY: the inner device keeps to the contract, and this one reports each completion later.
unsafe impl RealDevice for Gated {
    fn commit_and_wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.inner.commit_and_wait(completions, timeout)?;
        self.gate.wait(timeout)
    }

    fn watch(&self) -> Arc<dyn Watch> {
        Arc::new(self.gate.clone())
    }

    fn in_flight(&self) -> u32 {
        self.inner.in_flight()
    }

    fn syscalls(&self) -> u64 {
        self.inner.syscalls()
    }

    fn ring_when_over(&mut self, bell: &Bell) -> std::io::Result<()> {
        self.inner.ring_when_over(bell)
    }
}
