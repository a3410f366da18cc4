//! The requests of futures between tasks and driver. Tasks and driver hold its lock only to move entries, never during
//! I/O. The driver is woken by the notifier of its batch.

use crate::batch::{Completion, Request};
use crate::error::{Error, ErrorKind, Result};
use crate::volume::Volume;
use iopath_os::sync::{Mutex, MutexGuard};
use iopath_os::{AnyBuf, Notifier};
use slab::Slab;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::PoisonError;
use std::task::Waker;
use std::thread;

/// The number of dropped futures among the queued ones from which they are removed before the driver takes them.
const DROPPED_MAX: usize = 32;

/// The place of a request in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(usize);

/// Shared by the handles of a volume, its futures and the driver.
pub(super) struct Shared {
    table: Mutex<Table>,
    /// Wakes the driver.
    notifier: Notifier,
    /// The path of the volume, for errors. The volume itself would keep itself open.
    path: PathBuf,
}

#[derive(Default)]
struct Table {
    slots: Slab<Slot>,
    /// Entries of requests that are no reads.
    changes: usize,
    /// Entries that the driver has not taken, in order.
    queued: VecDeque<usize>,
    /// Those among them whose futures are dropped.
    dropped: usize,
    /// No further requests begin: the last handle is dropped.
    is_ended: bool,
    /// The driver is dropped: no request completes any more.
    is_undriven: bool,
}

struct Slot {
    /// It is no read.
    is_change: bool,
    entry: Entry,
}

pub(super) enum Entry {
    /// Not in the batch yet. A future that was dropped has no request any more.
    Queued(Option<(Request<AnyBuf>, Waker)>),
    /// In the batch. A future that was dropped has no waker any more.
    InBatch(Option<Waker>),
    Completed(Result<usize>, Option<AnyBuf>),
}

impl Table {
    /// Removes an entry that the driver no longer uses.
    fn remove(&mut self, key: usize) -> Entry {
        let Slot { is_change, entry } = self.slots.remove(key);
        self.changes -= usize::from(is_change);
        entry
    }

    fn insert(&mut self, is_change: bool, entry: Entry) -> usize {
        self.changes += usize::from(is_change);
        self.slots.insert(Slot { is_change, entry })
    }

    /// Takes the next queued request, whose entry is then in the batch.
    fn take_queued(&mut self) -> Option<(usize, Request<AnyBuf>)> {
        loop {
            let key = self.queued.pop_front()?;
            let entry = &mut self.slots[key].entry;
            if let Entry::Queued(Some((request, waker))) = std::mem::replace(entry, Entry::InBatch(None)) {
                *entry = Entry::InBatch(Some(waker));
                return Some((key, request));
            }
            self.dropped -= 1;
            self.remove(key);
        }
    }

    /// Removes the queued entries of dropped futures once they are more than the others. While the device is stuck,
    /// tasks with timeouts would otherwise add entries without a limit. O(1) for each dropped future.
    fn remove_dropped(&mut self) {
        if self.dropped <= DROPPED_MAX || 2 * self.dropped <= self.queued.len() {
            return;
        }
        self.dropped = 0;
        let mut queued = std::mem::take(&mut self.queued);
        queued.retain(|&key| {
            let is_dropped = matches!(self.slots[key].entry, Entry::Queued(None));
            if is_dropped {
                self.remove(key);
            }
            !is_dropped
        });
        self.queued = queued;
    }
}

impl Shared {
    pub(super) fn new(volume: &Volume, notifier: Notifier) -> Self {
        Self { table: Mutex::default(), notifier, path: volume.facts().path.clone() }
    }

    fn cancelled(&self) -> Error {
        Error::new(ErrorKind::Cancelled, &self.path)
    }

    /// Adds a request, and wakes the driver unless it has been woken for an earlier one.
    pub(super) fn begin(&self, request: Request<AnyBuf>, waker: &Waker) -> Ticket {
        let is_change = !request.is_read();
        let own_waker = waker.clone();
        let mut table = self.lock();
        if table.is_undriven {
            let entry = Entry::Completed(Err(self.cancelled()), request.into_buffer());
            let key = table.insert(is_change, entry);
            drop(table);
            own_waker.wake();
            return Ticket(key);
        }
        let key = table.insert(is_change, Entry::Queued(Some((request, own_waker))));
        let is_first = table.queued.is_empty();
        table.queued.push_back(key);
        drop(table);
        if is_first {
            self.notifier.notify();
        }
        Ticket(key)
    }

    /// The result of a request and its buffer; `None` if it has not completed: then `waker` is woken.
    pub(super) fn poll(&self, ticket: Ticket, waker: &Waker) -> Option<(Result<usize>, Option<AnyBuf>)> {
        let mut table = self.lock();
        match &mut table.slots[ticket.0].entry {
            Entry::Queued(Some((_, known))) | Entry::InBatch(Some(known)) => {
                let old = (!known.will_wake(waker)).then(|| std::mem::replace(known, waker.clone()));
                // The drop of a waker may drop a task, and with it futures of this table.
                drop(table);
                drop(old);
                return None;
            }
            Entry::Queued(None) | Entry::InBatch(None) => return None,
            Entry::Completed(..) => {}
        }
        match table.remove(ticket.0) {
            Entry::Completed(result, buffer) => Some((result, buffer)),
            Entry::Queued(_) | Entry::InBatch(_) => None,
        }
    }

    /// The future is dropped. A request that the driver has taken keeps its buffer until it has completed.
    pub(super) fn abandon(&self, ticket: Ticket) {
        let mut table = self.lock();
        // Dropped without the lock: wakers and buffers run code of the program.
        let dropped = match &mut table.slots[ticket.0].entry {
            Entry::Queued(request) => (request.take(), None),
            Entry::InBatch(waker) => (None, waker.take().map(Entry::of_waker)),
            Entry::Completed(..) => (None, Some(table.remove(ticket.0))),
        };
        if dropped.0.is_some() {
            table.dropped += 1;
            table.remove_dropped();
        }
        drop(table);
        drop(dropped);
    }

    /// Moves up to `max` queued requests to `taken`, with their keys as tokens.
    pub(super) fn take_queued(&self, max: usize, taken: &mut Vec<Request<AnyBuf>>) {
        let mut table = self.lock();
        while taken.len() < max
            && let Some((key, request)) = table.take_queued()
        {
            taken.push(request.token(key as u64));
        }
    }

    /// Completes requests, and moves the wakers of their futures to `wakers`. Returns the results of dropped futures,
    /// whose buffers run code of the program when they are dropped.
    pub(super) fn complete(
        &self,
        done: &mut Vec<Completion<AnyBuf>>,
        wakers: &mut Vec<Waker>,
    ) -> Option<Vec<Entry>> {
        let mut dropped = None;
        let mut table = self.lock();
        for Completion { token, buffer, result } in done.drain(..) {
            let key = token as usize;
            match std::mem::replace(&mut table.slots[key].entry, Entry::Completed(result, buffer)) {
                Entry::InBatch(Some(waker)) | Entry::Queued(Some((_, waker))) => wakers.push(waker),
                Entry::InBatch(None) | Entry::Queued(None) | Entry::Completed(..) => {
                    dropped.get_or_insert_with(Vec::new).push(table.remove(key));
                }
            }
        }
        drop(table);
        dropped
    }

    /// Whether all requests are reads: a cached read that completes at once then overtakes no change.
    pub(super) fn has_only_reads(&self) -> bool {
        self.lock().changes == 0
    }

    /// Whether queued requests wait for the driver.
    pub(super) fn has_queued(&self) -> bool {
        !self.lock().queued.is_empty()
    }

    /// Whether the last handle, and with it each future, is dropped.
    pub(super) fn is_ended(&self) -> bool {
        self.lock().is_ended
    }

    /// Ends the driver when its requests have completed.
    pub(super) fn end(&self) {
        self.lock().is_ended = true;
        self.notifier.notify();
    }

    /// The driver is dropped: the queued requests and all later ones fail.
    pub(super) fn end_driving(&self) {
        let mut wakers = Vec::new();
        let mut table = self.lock();
        table.is_undriven = true;
        while let Some((key, request)) = table.take_queued() {
            let failed = Entry::Completed(Err(self.cancelled()), request.into_buffer());
            if let Entry::InBatch(Some(waker)) = std::mem::replace(&mut table.slots[key].entry, failed) {
                wakers.push(waker);
            }
        }
        drop(table);
        // A panic of a waker has been reported.
        let _ = wake_all(&mut wakers);
    }

    /// The batch returns no request any more. Those that are not complete are lost, by a panic in the driver or because
    /// the system refuses to wait for them: they fail without their buffers.
    pub(super) fn fail_lost(&self) {
        let mut wakers = Vec::new();
        let mut table = self.lock();
        let keys: Vec<usize> = table.slots.iter().map(|(key, _)| key).collect();
        for key in keys {
            let entry = &mut table.slots[key].entry;
            match entry {
                Entry::InBatch(Some(_)) => {
                    let failed = Entry::Completed(Err(self.cancelled()), None);
                    if let Entry::InBatch(Some(waker)) = std::mem::replace(entry, failed) {
                        wakers.push(waker);
                    }
                }
                Entry::InBatch(None) => drop(table.remove(key)),
                Entry::Queued(_) | Entry::Completed(..) => {}
            }
        }
        drop(table);
        let _ = wake_all(&mut wakers);
    }

    /// Requests whose futures have not returned.
    pub(super) fn in_flight(&self) -> usize {
        self.lock().slots.len()
    }

    /// Ignores poisoning: no panic can leave the table half changed.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes each task, also after a waker of the program has panicked. Returns the first panic.
pub(super) fn wake_all(wakers: &mut Vec<Waker>) -> thread::Result<()> {
    let mut result = Ok(());
    for waker in wakers.drain(..) {
        let woken = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        result = result.and(woken);
    }
    result
}

impl Entry {
    const fn of_waker(waker: Waker) -> Self {
        Self::InBatch(Some(waker))
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::Options;
    use crate::testing::{MemoryConfig, MemoryDisk};

    fn table() -> Shared {
        let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 16)).unwrap();
        Shared::new(&Volume::memory(&disk, &Options::new()).unwrap(), Notifier::new().unwrap())
    }

    fn begin(table: &Shared, offset: u64) -> Ticket {
        table.begin(Request::discard(offset, 0), Waker::noop())
    }

    #[test]
    fn futures_that_are_dropped_before_the_driver_takes_them_need_no_memory_without_a_limit() {
        let table = table();
        for number in 0..10_000 {
            let ticket = begin(&table, number);
            if number % 1000 != 0 {
                table.abandon(ticket);
            }
        }
        assert!(table.in_flight() <= 10 + 2 * DROPPED_MAX, "{} entries", table.in_flight());
        let mut taken = Vec::new();
        table.take_queued(usize::MAX, &mut taken);
        let order: Vec<_> = taken.iter().map(|request| format!("{request:?}")).collect();
        let expected = |number: usize| format!("offset: {}, ", number * 1000);
        assert!(order.iter().enumerate().all(|(number, it)| it.contains(&expected(number))), "{order:?}");
        assert_eq!((order.len(), table.in_flight(), table.lock().changes), (10, 10, 10));
    }

    #[test]
    fn requests_that_a_panic_has_lost_fail() {
        let table = table();
        let (kept, dropped) = (begin(&table, 0), begin(&table, 1));
        let mut taken = Vec::new();
        table.take_queued(2, &mut taken);
        table.abandon(dropped);
        let queued = begin(&table, 2);
        drop(taken);
        table.end_driving();
        table.fail_lost();
        for ticket in [kept, queued] {
            let (result, buffer) = table.poll(ticket, Waker::noop()).unwrap();
            assert_eq!((result.unwrap_err().kind(), buffer.is_none()), (ErrorKind::Cancelled, true));
        }
        assert_eq!(table.in_flight(), 0);
    }
}
