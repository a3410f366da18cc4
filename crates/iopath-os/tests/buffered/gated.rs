//! A device that completes no I/O while its gate is closed, for tests that keep an I/O in flight.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use iopath_core::{BlockDevice, Busy, Completion, Instant, Io, IoError, Limits, Op, Tag};
use iopath_os::{MemoryDevice, Notifier, RealDevice, Segment, WaitError, Watch};

/// Initially open. Clones share one gate.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    closed: Mutex<Closed>,
    opened: Condvar,
}

#[derive(Debug, Default)]
struct Closed {
    reads: bool,
    others: bool,
    /// The number of reads that fail next, as if the device had become shorter.
    failing_reads: u32,
    /// I/Os in flight other than reads.
    others_in_flight: u32,
    ends_watch: bool,
}

impl Closed {
    fn holds_all_back(&self) -> bool {
        self.reads && (self.others || self.others_in_flight == 0) && !self.ends_watch
    }
}

impl Gate {
    pub(crate) fn close(&self) {
        let mut closed = self.lock();
        (closed.reads, closed.others) = (true, true);
    }

    pub(crate) fn open(&self) {
        let mut closed = self.lock();
        (closed.reads, closed.others) = (false, false);
        self.0.opened.notify_all();
    }

    /// Opens the gate for all I/O except reads, which stay in flight.
    pub(crate) fn open_except_for_reads(&self) {
        self.lock().others = false;
        self.0.opened.notify_all();
    }

    pub(crate) fn open_and_fail_a_read(&self) {
        self.lock().failing_reads = 1;
        self.open();
    }

    fn lock(&self) -> MutexGuard<'_, Closed> {
        self.0.closed.lock().unwrap()
    }
}

impl Watch for Gate {
    fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        let timeout = timeout.unwrap_or(Duration::from_secs(1000));
        let waited = self.0.opened.wait_timeout_while(self.lock(), timeout, |closed| closed.holds_all_back());
        waited.unwrap().0.ends_watch = false;
        Ok(())
    }
}

/// A disk in memory behind a gate.
#[derive(Debug)]
pub(crate) struct Gated {
    inner: MemoryDevice,
    gate: Gate,
    reads: Vec<Tag>,
    /// Completions of the disk that are not yet reported.
    done: VecDeque<Completion>,
}

impl Gated {
    pub(crate) fn new(inner: MemoryDevice, gate: &Gate) -> Self {
        Self { inner, gate: gate.clone(), reads: Vec::new(), done: VecDeque::new() }
    }
}

impl BlockDevice for Gated {
    type Memory = Segment;

    fn limits(&self) -> &Limits {
        self.inner.limits()
    }

    fn submit(&mut self, io: &Io<'_, Segment>, now: Instant) -> Result<(), Busy> {
        if io.op == Op::Read {
            self.reads.push(io.tag);
        } else {
            self.gate.lock().others_in_flight += 1;
        }
        self.inner.submit(io, now)
    }

    fn commit(&mut self, now: Instant) {
        self.inner.commit(now);
        self.gate.0.opened.notify_all();
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        while let Some(done) = self.inner.poll_completion(now) {
            self.done.push_back(done);
        }
        let mut closed = self.gate.lock();
        let may_pass = |done: &Completion| {
            if self.reads.contains(&done.tag) { !closed.reads } else { !closed.others }
        };
        let place = self.done.iter().position(may_pass)?;
        let Completion { tag, result } = self.done.remove(place)?;
        let Some(read) = self.reads.iter().position(|read| *read == tag) else {
            closed.others_in_flight -= 1;
            return Some(Completion { tag, result });
        };
        self.reads.swap_remove(read);
        if closed.failing_reads > 0 {
            closed.failing_reads -= 1;
            return Some(Completion { tag, result: Err(IoError::EndOfDevice) });
        }
        Some(Completion { tag, result })
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

    fn end_watch(&mut self) {
        self.gate.lock().ends_watch = true;
        self.gate.0.opened.notify_all();
    }

    fn in_flight(&self) -> u32 {
        self.inner.in_flight() + self.done.len() as u32
    }

    fn syscalls(&self) -> u64 {
        self.inner.syscalls()
    }

    fn set_notifier(&mut self, notifier: &Notifier) -> std::io::Result<()> {
        self.inner.set_notifier(notifier)
    }
}
