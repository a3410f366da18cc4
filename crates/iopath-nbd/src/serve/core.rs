//! The exports and transfers of one worker, which all of its connections share. It has no knowledge of sockets.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iopath::stats::LatencyCounts;
use slab::Slab;

use super::quota::{Hold, Quota};
use super::status::Turns;
use super::storage::{Done, Storage};
use super::transfer::{Submitted, Transfer};
use crate::export::Export;
use crate::server::ServerTls;

/// A transfer with its place.
#[derive(Debug)]
struct Entry<S: Storage> {
    transfer: Transfer<S>,
    /// `None` when the client is gone.
    connection: Option<usize>,
    export: usize,
    quota: Quota,
    /// Whether it is in the list of those that wait, once.
    is_hungry: bool,
    /// When its request was read.
    arrived: Instant,
}

/// A transfer whose I/O has completed, and its connection.
pub(super) struct Advanced {
    pub(super) transfer: usize,
    pub(super) connection: usize,
}

/// The rules for the connections of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Whether connections are encrypted.
    pub(crate) tls: ServerTls,
    /// The limit of [`super::ServeOptions::patience`].
    pub(crate) patience: Duration,
    /// The limit of [`super::ServeOptions::rate_min`].
    pub(crate) rate_min: u64,
    /// Buffers, and I/O in flight, for each worker and export.
    pub(crate) depth: u32,
}

/// The exports and transfers of one worker.
#[derive(Debug)]
pub(crate) struct Core<S: Storage> {
    pub(super) exports: Arc<[Export]>,
    /// The rule of the encryption of connections.
    pub(super) tls: ServerTls,
    pub(crate) source: S::Source,
    pub(super) backings: Vec<Option<S>>,
    transfers: Slab<Entry<S>>,
    /// Transfers that wait for a buffer or room.
    hungry: VecDeque<usize>,
    /// An I/O of a client that is gone has completed.
    pub(super) has_freed: bool,
    /// Exports without a free buffer for a connection that may hold one more, each once.
    pub(super) starved: Vec<usize>,
    /// Connections that wait with a block status request.
    pub(super) turns: Turns,
    /// The limit of [`super::ServeOptions::patience`].
    pub(super) patience: Duration,
    /// The limit of [`super::ServeOptions::rate_min`].
    pub(super) rate_min: u64,
    /// Buffers for each export.
    pub(super) depth: u32,
    /// Connections of the worker.
    pub(super) connections: usize,
    /// Transfers that were started, buffers that were taken, and pieces of writes that were queued.
    pub(super) grants: u64,
    /// Completed requests with I/O.
    pub(super) requests: u64,
    /// Bytes of their data.
    pub(super) bytes: u64,
    /// Their latencies, for each [`super::ServeDirection`].
    latencies: Arc<[LatencyCounts; 3]>,
    /// The time of the present step of the event loop, which requests and replies have: a reading of the clock for each
    /// of them would cost more than the counts.
    pub(super) now: Instant,
}

impl<S: Storage> Core<S> {
    pub(crate) fn new(
        exports: Arc<[Export]>,
        source: S::Source,
        latencies: Arc<[LatencyCounts; 3]>,
        limits: &Limits,
        now: Instant,
    ) -> Self {
        let backings = exports.iter().map(|_| None).collect();
        let &Limits { tls, patience, rate_min, depth } = limits;
        Self {
            exports,
            tls,
            source,
            backings,
            transfers: Slab::new(),
            hungry: VecDeque::new(),
            has_freed: false,
            starved: Vec::new(),
            turns: Turns::default(),
            patience,
            rate_min,
            depth,
            connections: 0,
            grants: 0,
            requests: 0,
            bytes: 0,
            latencies,
            now,
        }
    }

    /// Opens an export at its first use.
    pub(super) fn open(&mut self, export: usize) -> Result<(), String> {
        if self.backings[export].is_none() {
            self.backings[export] = Some(S::open(&mut self.source, export)?);
        }
        Ok(())
    }

    /// The backing of an export that is open.
    pub(super) fn backing(&mut self, export: usize) -> &mut S {
        self.backings[export].as_mut().expect("the connection opened it")
    }

    /// Starts a transfer for a connection.
    pub(super) fn start(
        &mut self,
        transfer: Transfer<S>,
        connection: usize,
        export: usize,
        quota: Quota,
    ) -> usize {
        let key = self.transfers.insert(Entry {
            transfer,
            connection: Some(connection),
            export,
            quota,
            is_hungry: false,
            arrived: self.now,
        });
        self.grants += 1;
        self.submit(key);
        key
    }

    /// Buffers that one connection may hold, once for reads and once for writes: an equal share, at most half, at least
    /// one.
    fn share(&self) -> u32 {
        (self.depth / self.connections.max(2) as u32).max(1)
    }

    /// A buffer for data of a write.
    pub(super) fn buffer(&mut self, export: usize, quota: &Quota) -> Option<(S::Buffer, Hold)> {
        let hold = quota.take(self.share())?;
        let buffer = self.free_buffer(export)?;
        self.grants += 1;
        Some((buffer, hold))
    }

    /// A buffer for a connection that has the permission for it.
    pub(super) fn free_buffer(&mut self, export: usize) -> Option<S::Buffer> {
        let backing = self.backing(export);
        // Without room, a completion frees both.
        if !backing.has_room() {
            return None;
        }
        let buffer = backing.buffer();
        if buffer.is_none() {
            self.starve(export);
        }
        buffer
    }

    fn starve(&mut self, export: usize) {
        if !self.starved.contains(&export) {
            self.starved.push(export);
        }
    }

    /// Queues I/O of a transfer, now or when there is room.
    pub(super) fn submit(&mut self, key: usize) {
        let share = self.share();
        let Entry { transfer, export, quota, is_hungry, .. } = &mut self.transfers[key];
        let backing = self.backings[*export].as_mut().expect("the connection opened it");
        let submitted = transfer.submit(backing, quota, share, |number| token(key, number));
        let export = *export;
        if submitted != Submitted::All && !std::mem::replace(is_hungry, true) {
            self.hungry.push_back(key);
        }
        if submitted == Submitted::NeedsBuffer {
            self.starve(export);
        }
    }

    /// Queues I/O that waited for a buffer or room.
    pub(super) fn retry(&mut self) {
        for _ in 0..self.hungry.len() {
            let Some(key) = self.hungry.pop_front() else { return };
            if let Some(entry) = self.transfers.get_mut(key) {
                entry.is_hungry = false;
                self.submit(key);
            }
        }
    }

    /// Requests without a reply.
    pub(crate) fn in_flight(&self) -> u64 {
        self.transfers.len() as u64
    }

    pub(super) fn transfer(&mut self, key: usize) -> &mut Transfer<S> {
        &mut self.transfers[key].transfer
    }

    /// Queues a piece of the data of a write.
    pub(super) fn write(&mut self, key: usize, buffer: (S::Buffer, Hold)) {
        self.grants += 1;
        let Entry { transfer, export, .. } = &mut self.transfers[key];
        let backing = self.backings[*export].as_mut().expect("the connection opened it");
        transfer.write(buffer, backing, token(key, 0));
    }

    /// Removes a transfer that has replied.
    pub(super) fn finish(&mut self, key: usize) {
        self.requests += 1;
        let Entry { transfer, arrived, .. } = self.transfers.remove(key);
        self.bytes += transfer.data_bytes();
        self.latencies[transfer.direction() as usize].record(self.now.saturating_duration_since(arrived));
    }

    /// Ends the transfers of a connection that is gone. Their I/O continues, without a reply.
    pub(super) fn abandon(&mut self, connection: usize) {
        self.transfers.retain(|_, entry| {
            if entry.connection == Some(connection) {
                entry.connection = None;
                entry.transfer.abandon();
            }
            entry.connection.is_some() || !entry.transfer.is_idle()
        });
    }

    /// A descriptor of a batch is readable: the next [`Core::poll`] polls all batches.
    pub(super) fn handle_notification(&mut self) {
        self.backings.iter_mut().flatten().for_each(S::handle_notification);
    }

    /// Submits queued I/O.
    pub(super) fn submit_all(&mut self) {
        self.backings.iter_mut().flatten().for_each(S::submit);
    }

    /// The next transfer of which an I/O has completed.
    pub(super) fn poll(&mut self) -> Option<Advanced> {
        loop {
            let done = self.backings.iter_mut().flatten().find_map(S::poll)?;
            if let Some(advanced) = self.handle_done(done) {
                return Some(advanced);
            }
        }
    }

    fn handle_done(&mut self, done: Done<S>) -> Option<Advanced> {
        let transfer = (done.token >> 32) as usize;
        let number = done.token as u32;
        let entry = &mut self.transfers[transfer];
        entry.transfer.handle_done(number, done);
        if let Some(connection) = entry.connection {
            return Some(Advanced { transfer, connection });
        }
        // No reply follows, but others may wait for the room and the buffer.
        self.has_freed = true;
        if entry.transfer.is_idle() {
            self.transfers.remove(transfer);
        }
        None
    }

    /// The shortest time until the next [`Core::poll`].
    pub(super) fn next_timeout(&self) -> Option<Duration> {
        self.backings.iter().flatten().filter_map(S::next_timeout).min()
    }
}

/// The number of an I/O: transfer and piece.
fn token(key: usize, number: u32) -> u64 {
    (key as u64) << 32 | u64::from(number)
}
