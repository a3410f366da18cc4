//! Gathers and broadcasts of all ranks, on a thread of their own: such a call of MPI does not end after the death of a
//! rank, and the thread that measures can leave this one behind. Does not call MPI at the same time as that thread,
//! which waits here.

use iopath_bench::Interruption;
use iopath_lab::hosts::Lane;
use mpi::datatype::PartitionMut;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, CommunicatorCollectives as _, Root as _};
use std::cell::Cell;
use std::mem;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The time between two looks for a signal.
const TICK: Duration = Duration::from_millis(5);

/// The most bytes that all ranks together gather at once: MPI counts them with 31 bits.
const PIECES_BYTES: usize = 1 << 30;

/// An operation on the communicator of its lane.
type Operation = (Lane, Box<dyn FnOnce(&SimpleCommunicator) + Send>);

/// The thread. Its communicators are its own, because a handle of MPI belongs to one thread.
pub(super) struct Collector {
    operations: Option<Sender<Operation>>,
    thread: Option<JoinHandle<()>>,
    /// Whether the thread waits for a rank that may have died.
    is_lost: Cell<bool>,
}

impl Collector {
    /// All ranks start it at the same time, after the communicators of the other thread.
    pub(super) fn start() -> Self {
        let (operations, next) = mpsc::channel::<Operation>();
        let (ready, is_ready) = mpsc::channel();
        let collect = move || {
            let world = SimpleCommunicator::world();
            let (work, end) = (world.duplicate(), world.duplicate());
            let _ = ready.send(());
            for (lane, operation) in next {
                operation(match lane {
                    Lane::Work => &work,
                    Lane::End => &end,
                });
            }
        };
        let thread = thread::Builder::new().name("iopath-collector".to_owned()).spawn(collect);
        let thread = thread.expect("the system can start a thread");
        is_ready.recv().expect("the thread makes its communicators");
        Self { operations: Some(operations), thread: Some(thread), is_lost: Cell::new(false) }
    }

    /// The bytes of all ranks on rank 0; nothing on the others. None after a signal: then this is the last call.
    pub(super) fn gather(&self, lane: Lane, bytes: Vec<u8>) -> Option<Vec<Vec<u8>>> {
        self.execute(lane, move |ranks| gather(ranks, &bytes))
    }

    /// The bytes of rank 0. None after a signal: then this is the last call.
    pub(super) fn broadcast(&self, lane: Lane, bytes: Vec<u8>) -> Option<Vec<u8>> {
        self.execute(lane, move |ranks| broadcast(ranks, bytes))
    }

    fn execute<T: Send + 'static>(
        &self,
        lane: Lane,
        operation: impl FnOnce(&SimpleCommunicator) -> T + Send + 'static,
    ) -> Option<T> {
        let (done, result) = mpsc::channel();
        let operation = Box::new(move |ranks: &SimpleCommunicator| {
            // After a signal, the result has no receiver.
            let _ = done.send(operation(ranks));
        });
        self.operations.as_ref()?.send((lane, operation)).ok()?;
        loop {
            match result.recv_timeout(TICK) {
                Ok(result) => return Some(result),
                Err(RecvTimeoutError::Timeout) if Interruption::is_requested() => {
                    self.is_lost.set(true);
                    return None;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => panic!("an operation of all ranks has failed"),
            }
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        drop(self.operations.take());
        // The communicators are freed before the end of MPI.
        if let Some(thread) = self.thread.take().filter(|_| !self.is_lost.get()) {
            let _ = thread.join();
        }
    }
}

fn gather(ranks: &SimpleCommunicator, bytes: &[u8]) -> Vec<Vec<u8>> {
    let size = ranks.size() as usize;
    let mut lengths = vec![0u64; size];
    ranks.all_gather_into(&(bytes.len() as u64), &mut lengths[..]);
    let piece_max = PIECES_BYTES / size;
    let longest = lengths.iter().max().map_or(0, |length| *length as usize);
    let piece = |length: usize, start: usize| length.saturating_sub(start).min(piece_max);
    let root = ranks.process_at_rank(0);
    let is_root = ranks.rank() == 0;
    let mut all = vec![Vec::new(); if is_root { size } else { 0 }];
    for start in (0..longest).step_by(piece_max) {
        let from = start.min(bytes.len());
        let own = &bytes[from..from + piece(bytes.len(), start)];
        if !is_root {
            root.gather_varcount_into(own);
            continue;
        }
        let counts: Vec<i32> = lengths
            .iter()
            .map(|length| i32::try_from(piece(*length as usize, start)).unwrap_or(i32::MAX))
            .collect();
        let starts: Vec<i32> =
            counts.iter().scan(0, |next, count| Some(mem::replace(next, *next + count))).collect();
        let mut pieces = vec![0u8; counts.iter().map(|count| *count as usize).sum()];
        root.gather_varcount_into_root(
            own,
            &mut PartitionMut::new(&mut pieces[..], &counts[..], &starts[..]),
        );
        for ((one, count), start) in all.iter_mut().zip(&counts).zip(&starts) {
            one.extend_from_slice(&pieces[*start as usize..(start + count) as usize]);
        }
    }
    all
}

fn broadcast(ranks: &SimpleCommunicator, mut bytes: Vec<u8>) -> Vec<u8> {
    let root = ranks.process_at_rank(0);
    let mut length = bytes.len() as u64;
    root.broadcast_into(&mut length);
    bytes.resize(length as usize, 0);
    // An empty buffer has no address that MPI accepts.
    if length > 0 {
        root.broadcast_into(&mut bytes[..]);
    }
    bytes
}
