//! The requests of futures between tasks and driver. Tasks and driver hold its lock only to move entries, never during
//! I/O. The driver is woken by the notifier of its batch.

use crate::batch::{Completion, Request};
use crate::error::{Error, ErrorKind, Result};
use crate::volume::Volume;
use iopath_os::sync::{Mutex, MutexGuard};
use iopath_os::{AnyBuf, Notifier};
use slab::Slab;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::PoisonError;
use std::task::Waker;

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

enum Entry {
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
        let mut table = self.lock();
        if table.is_undriven {
            let entry = Entry::Completed(Err(self.cancelled()), request.into_buffer());
            let key = table.insert(is_change, entry);
            drop(table);
            waker.wake_by_ref();
            return Ticket(key);
        }
        let key = table.insert(is_change, Entry::Queued(Some((request, waker.clone()))));
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
        drop(table);
        drop(dropped);
    }

    /// Moves up to `max` queued requests to `taken`, with their keys as tokens.
    pub(super) fn take_queued(&self, max: usize, taken: &mut Vec<Request<AnyBuf>>) {
        let mut table = self.lock();
        while taken.len() < max
            && let Some(key) = table.queued.pop_front()
        {
            let entry = &mut table.slots[key].entry;
            if let Entry::Queued(Some((request, waker))) = std::mem::replace(entry, Entry::InBatch(None)) {
                *entry = Entry::InBatch(Some(waker));
                taken.push(request.token(key as u64));
            } else {
                table.remove(key);
            }
        }
    }

    /// Completes requests, and moves the wakers of their futures to `wakers`. The buffers of dropped futures are
    /// dropped.
    pub(super) fn complete(&self, done: &mut Vec<Completion<AnyBuf>>, wakers: &mut Vec<Waker>) {
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
        let (mut wakers, mut dropped) = (Vec::new(), Vec::new());
        let mut table = self.lock();
        table.is_undriven = true;
        while let Some(key) = table.queued.pop_front() {
            let entry = &mut table.slots[key].entry;
            if let Entry::Queued(Some((request, waker))) = std::mem::replace(entry, Entry::InBatch(None)) {
                *entry = Entry::Completed(Err(self.cancelled()), request.into_buffer());
                wakers.push(waker);
            } else {
                dropped.push(table.remove(key));
            }
        }
        drop(table);
        wakers.into_iter().for_each(Waker::wake);
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

impl Entry {
    const fn of_waker(waker: Waker) -> Self {
        Self::InBatch(Some(waker))
    }
}
