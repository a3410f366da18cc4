//! The communicator of MPI: messages, barriers and gathers of all ranks. Not the protocol of the ranks: see `hosts.rs`
//! of `iopath-lab`.
//!
//! MPI has no end of the wait for a rank that has died. A rank that has received the launcher's warning gives up, so
//! that it removes its files and shows its results before the launcher kills it, and makes no call of MPI afterwards.

use super::collector::Collector;
use iopath_bench::Interruption;
use iopath_lab::hosts::{Communicator, Lane, Tag};
use mpi::environment::Universe;
use mpi::point_to_point::MatchedReceiveVec as _;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, CommunicatorCollectives as _, Destination as _, Source as _};
use std::cell::Cell;
use std::fmt;
use std::mem;
use std::thread;
use std::time::{Duration, Instant};

/// The time between two looks at a barrier.
const POLL: Duration = Duration::from_micros(200);

/// The time for which a rank looks for an event without a pause.
const BUSY: Duration = Duration::from_micros(500);

/// The pause between two looks afterwards.
const PAUSE: Duration = Duration::from_micros(20);

/// The communicator of all ranks, once for each lane.
pub(super) struct Ranks {
    work: SimpleCommunicator,
    end: SimpleCommunicator,
    collector: Collector,
    /// Whether a call was given up, and may never end.
    gave_up: Cell<bool>,
}

impl Ranks {
    pub(super) fn of(universe: &Universe) -> Self {
        let world = universe.world();
        Self {
            work: world.duplicate(),
            end: world.duplicate(),
            collector: Collector::start(),
            gave_up: Cell::new(false),
        }
    }

    /// What ends the program on all ranks.
    pub(super) fn to_abort(&self) -> SimpleCommunicator {
        self.end.duplicate()
    }

    /// Whether this rank waits for others no longer, because it was warned.
    fn gives_up(&self) -> bool {
        if Interruption::is_requested() {
            self.gave_up.set(true);
        }
        self.gave_up.get()
    }

    /// Looks for an event until it occurs: without a pause at first, because it is part of a measurement. None after a
    /// signal.
    fn look<T>(&self, mut event: impl FnMut() -> Option<T>) -> Option<T> {
        let begun = Instant::now();
        while !self.gives_up() {
            if let Some(event) = event() {
                return Some(event);
            }
            // Where ranks share CPUs, those that wait must leave them to the others: a yield does not.
            if begun.elapsed() < BUSY { thread::yield_now() } else { thread::sleep(PAUSE) }
        }
        None
    }

    fn collect<T>(&self, of: impl FnOnce(&Collector) -> Option<T>) -> Option<T> {
        if self.gave_up.get() {
            return None;
        }
        let collected = of(&self.collector);
        self.gave_up.set(collected.is_none());
        collected
    }

    fn lane(&self, lane: Lane) -> &SimpleCommunicator {
        match lane {
            Lane::Work => &self.work,
            Lane::End => &self.end,
        }
    }
}

impl fmt::Debug for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank(), self.size())
    }
}

impl Communicator for Ranks {
    fn rank(&self) -> u32 {
        self.end.rank() as u32
    }

    fn size(&self) -> u32 {
        self.end.size() as u32
    }

    fn seconds(&self) -> f64 {
        mpi::time()
    }

    fn barrier(&self, lane: Lane, give_up: &mut dyn FnMut() -> bool) -> bool {
        if self.gave_up.get() {
            return false;
        }
        let mut request = self.lane(lane).immediate_barrier();
        loop {
            match request.test() {
                Ok(_) => return true,
                Err(open) => request = open,
            }
            if give_up() {
                // Its drop is a panic. MPI keeps it, and the program ends without it.
                mem::forget(request);
                return false;
            }
            thread::sleep(POLL);
        }
    }

    fn start_together(&self, lane: Lane) -> Option<()> {
        if self.gave_up.get() {
            return None;
        }
        let mut request = Some(self.lane(lane).immediate_barrier());
        let is_together =
            self.look(|| request.take()?.test().map(|_| ()).map_err(|open| request = Some(open)).ok());
        mem::forget(request);
        is_together
    }

    fn gather(&self, lane: Lane, bytes: Vec<u8>) -> Option<Vec<Vec<u8>>> {
        self.collect(|collector| collector.gather(lane, bytes))
    }

    fn broadcast(&self, lane: Lane, bytes: Vec<u8>) -> Option<Vec<u8>> {
        self.collect(|collector| collector.broadcast(lane, bytes))
    }

    fn send(&self, to: u32, tag: Tag, bytes: &[u8]) {
        if !self.gave_up.get() {
            self.end.process_at_rank(to.cast_signed()).send_with_tag(bytes, tag as i32);
        }
    }

    fn poll(&self, tag: Tag) -> Option<(u32, Vec<u8>)> {
        if self.gave_up.get() {
            return None;
        }
        let message = self.end.any_process().immediate_matched_probe_with_tag(tag as i32)?;
        let (bytes, status) = message.matched_receive_vec();
        Some((status.source_rank() as u32, bytes))
    }

    fn receive(&self, from: u32, tag: Tag) -> Option<Vec<u8>> {
        let from = self.end.process_at_rank(from.cast_signed());
        let message = self.look(|| from.immediate_matched_probe_with_tag(tag as i32))?;
        // A message that is this short is complete when it is known.
        Some(message.matched_receive_vec().0)
    }
}
