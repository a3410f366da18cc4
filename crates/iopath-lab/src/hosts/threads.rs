//! Ranks that are threads of one process, for tests of the protocol. Not for measurements.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::communicator::{Communicator, Lane, Tag};

/// The state that all ranks share.
#[derive(Debug)]
pub(super) struct Hub {
    size: u32,
    started: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// The barriers that each rank has entered, of each lane.
    entered: [Vec<u32>; 2],
    /// The bytes of each rank, of each lane and of its next collective operation.
    shared: [Vec<VecDeque<Vec<u8>>>; 2],
    messages: Vec<(u32, u32, Tag, Vec<u8>)>,
    /// Whether a rank has died, and the launcher has warned the others.
    is_warned: bool,
}

/// One rank.
#[derive(Debug)]
pub(super) struct Thread {
    rank: u32,
    /// Its clock less that of the others, in seconds.
    skew: f64,
    hub: Arc<Hub>,
    /// The gathers before its death.
    gathers_left: Cell<u32>,
}

impl Thread {
    /// The rank dies in the gather after this number of them.
    pub(super) fn dies_after(self, gathers: u32) -> Self {
        self.gathers_left.set(gathers);
        self
    }
}

/// Ranks with these skews of their clocks.
pub(super) fn ranks(skews: &[f64]) -> Vec<Thread> {
    let size = skews.len();
    let state = State {
        entered: [vec![0; size], vec![0; size]],
        shared: [vec![VecDeque::new(); size], vec![VecDeque::new(); size]],
        messages: Vec::new(),
        is_warned: false,
    };
    let hub = Arc::new(Hub {
        size: size as u32,
        started: Instant::now(),
        state: Mutex::new(state),
        changed: Condvar::new(),
    });
    let rank = |(rank, skew): (usize, &f64)| Thread {
        rank: rank as u32,
        skew: *skew,
        hub: Arc::clone(&hub),
        gathers_left: Cell::new(u32::MAX),
    };
    skews.iter().enumerate().map(rank).collect()
}

impl Hub {
    /// Waits for a value of the state, and calls `poll` in between. None if it returns true, and after the death of a
    /// rank.
    fn wait<T>(
        &self,
        mut of: impl FnMut(&mut State) -> Option<T>,
        mut poll: impl FnMut() -> bool,
    ) -> Option<T> {
        loop {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.is_warned {
                return None;
            }
            if let Some(value) = of(&mut state) {
                return Some(value);
            }
            drop(self.changed.wait_timeout(state, Duration::from_millis(1)));
            // Without the lock, as it may send.
            if poll() {
                return None;
            }
        }
    }
}

impl Communicator for Thread {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.hub.size
    }

    fn seconds(&self) -> f64 {
        self.hub.started.elapsed().as_secs_f64() + self.skew
    }

    fn barrier(&self, lane: Lane, give_up: &mut dyn FnMut() -> bool) -> bool {
        let (lane, rank) = (lane as usize, self.rank as usize);
        let number = {
            let mut state = self.hub.state.lock().unwrap();
            state.entered[lane][rank] += 1;
            self.hub.changed.notify_all();
            state.entered[lane][rank]
        };
        let all = |state: &mut State| state.entered[lane].iter().all(|one| *one >= number).then_some(());
        self.hub.wait(all, give_up).is_some()
    }

    fn start_together(&self, lane: Lane) -> Option<()> {
        self.barrier(lane, &mut || false).then_some(())
    }

    fn gather(&self, lane: Lane, bytes: Vec<u8>) -> Option<Vec<Vec<u8>>> {
        let index = lane as usize;
        let mut state = self.hub.state.lock().unwrap();
        state.is_warned |= self.gathers_left.get() == 0;
        if state.is_warned {
            return None;
        }
        self.gathers_left.update(|left| left - 1);
        state.shared[index][self.rank as usize].push_back(bytes);
        drop(state);
        if self.rank > 0 {
            return Some(Vec::new());
        }
        let all = |state: &mut State| {
            let shared = &mut state.shared[index];
            shared
                .iter()
                .all(|one| !one.is_empty())
                .then(|| shared.iter_mut().filter_map(VecDeque::pop_front).collect())
        };
        self.hub.wait(all, || false)
    }

    fn broadcast(&self, _lane: Lane, bytes: Vec<u8>) -> Option<Vec<u8>> {
        if self.rank > 0 {
            return self.receive(0, Tag::Clock);
        }
        (1..self.hub.size).for_each(|rank| self.send(rank, Tag::Clock, &bytes));
        Some(bytes)
    }

    fn send(&self, to: u32, tag: Tag, bytes: &[u8]) {
        self.hub.state.lock().unwrap().messages.push((self.rank, to, tag, bytes.to_vec()));
        self.hub.changed.notify_all();
    }

    fn poll(&self, tag: Tag) -> Option<(u32, Vec<u8>)> {
        let mut state = self.hub.state.lock().unwrap();
        let index = state.messages.iter().position(|(_, to, known, _)| (*to, *known) == (self.rank, tag))?;
        let (from, _, _, bytes) = state.messages.remove(index);
        Some((from, bytes))
    }

    fn receive(&self, from: u32, tag: Tag) -> Option<Vec<u8>> {
        let message = |state: &mut State| {
            let is_wanted = |(sender, to, known, _): &(u32, u32, Tag, Vec<u8>)| {
                (*sender, *to, *known) == (from, self.rank, tag)
            };
            let index = state.messages.iter().position(is_wanted)?;
            Some(state.messages.remove(index).3)
        };
        self.hub.wait(message, || false)
    }
}
