//! The communicator of MPI: messages, barriers and gathers of all ranks. Not the protocol of the ranks: see `hosts.rs`
//! of `iopath-lab`.

use iopath_lab::hosts::{Communicator, Lane, Tag};
use mpi::datatype::PartitionMut;
use mpi::environment::Universe;
use mpi::point_to_point::MatchedReceiveVec as _;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{
    Communicator as _, CommunicatorCollectives as _, Destination as _, Root as _, Source as _,
};
use std::fmt;
use std::mem;
use std::thread;
use std::time::Duration;

/// The time between two looks at a barrier.
const POLL: Duration = Duration::from_micros(200);

/// The most bytes that all ranks together gather at once: MPI counts them with 31 bits.
const PIECES_BYTES: usize = 1 << 30;

/// The communicator of all ranks, once for each lane.
pub(super) struct Ranks {
    work: SimpleCommunicator,
    end: SimpleCommunicator,
}

impl Ranks {
    pub(super) fn of(universe: &Universe) -> Self {
        let world = universe.world();
        Self { work: world.duplicate(), end: world.duplicate() }
    }

    /// What ends the program on all ranks.
    pub(super) fn to_abort(&self) -> SimpleCommunicator {
        self.end.duplicate()
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

    fn start_together(&self, lane: Lane) {
        self.lane(lane).barrier();
    }

    fn gather(&self, lane: Lane, bytes: &[u8]) -> Vec<Vec<u8>> {
        let (ranks, size) = (self.lane(lane), self.size() as usize);
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

    fn broadcast(&self, lane: Lane, mut bytes: Vec<u8>) -> Vec<u8> {
        let root = self.lane(lane).process_at_rank(0);
        let mut length = bytes.len() as u64;
        root.broadcast_into(&mut length);
        bytes.resize(length as usize, 0);
        // An empty buffer has no address that MPI accepts.
        if length > 0 {
            root.broadcast_into(&mut bytes[..]);
        }
        bytes
    }

    fn send(&self, to: u32, tag: Tag, bytes: &[u8]) {
        self.end.process_at_rank(to.cast_signed()).send_with_tag(bytes, tag as i32);
    }

    fn poll(&self, tag: Tag) -> Option<(u32, Vec<u8>)> {
        let message = self.end.any_process().immediate_matched_probe_with_tag(tag as i32)?;
        let (bytes, status) = message.matched_receive_vec();
        Some((status.source_rank() as u32, bytes))
    }

    fn receive(&self, from: u32, tag: Tag) -> Vec<u8> {
        self.end.process_at_rank(from.cast_signed()).receive_vec_with_tag(tag as i32).0
    }
}
