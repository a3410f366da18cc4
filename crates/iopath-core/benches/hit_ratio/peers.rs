//! The caches for comparison, written for clarity: LRU, CLOCK (second chance), and Belady's optimum, which knows the
//! future.

use super::Cache;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Evicts the page that was not used for longest.
pub(crate) struct Lru {
    frames: usize,
    turn: u64,
    used: HashMap<u64, u64>,
    by_turn: BTreeMap<u64, u64>,
}

impl Lru {
    pub(crate) fn new(frames: usize) -> Self {
        Self { frames, turn: 0, used: HashMap::new(), by_turn: BTreeMap::new() }
    }
}

impl Cache for Lru {
    fn access(&mut self, page: u64) -> bool {
        self.turn += 1;
        let before = self.used.insert(page, self.turn);
        if let Some(turn) = before {
            self.by_turn.remove(&turn);
        }
        self.by_turn.insert(self.turn, page);
        if self.used.len() > self.frames {
            let (_, victim) = self.by_turn.pop_first().expect("there are pages");
            self.used.remove(&victim);
        }
        before.is_some()
    }
}

/// Evicts the first page that was not used since the hand passed it last.
pub(crate) struct Clock {
    frames: usize,
    places: HashMap<u64, usize>,
    ring: Vec<(u64, bool)>,
    hand: usize,
}

impl Clock {
    pub(crate) fn new(frames: usize) -> Self {
        Self { frames, places: HashMap::new(), ring: Vec::new(), hand: 0 }
    }
}

impl Cache for Clock {
    fn access(&mut self, page: u64) -> bool {
        if let Some(place) = self.places.get(&page) {
            self.ring[*place].1 = true;
            return true;
        }
        if self.ring.len() < self.frames {
            self.places.insert(page, self.ring.len());
            self.ring.push((page, false));
            return false;
        }
        while std::mem::take(&mut self.ring[self.hand].1) {
            self.hand = (self.hand + 1) % self.frames;
        }
        self.places.remove(&self.ring[self.hand].0);
        self.ring[self.hand] = (page, false);
        self.places.insert(page, self.hand);
        self.hand = (self.hand + 1) % self.frames;
        false
    }
}

/// The optimal hit ratio: evicts the page whose next use is furthest away.
pub(crate) fn best(frames: usize, pages: &[u64]) -> f64 {
    let mut next_use = vec![usize::MAX; pages.len()];
    let mut seen: HashMap<u64, usize> = HashMap::new();
    for (at, page) in pages.iter().enumerate().rev() {
        next_use[at] = seen.insert(*page, at).unwrap_or(usize::MAX);
    }
    let mut held: HashMap<u64, usize> = HashMap::new();
    let mut by_use: BTreeSet<(usize, u64)> = BTreeSet::new();
    let mut hits = 0;
    for (at, page) in pages.iter().enumerate() {
        if let Some(use_at) = held.insert(*page, next_use[at]) {
            by_use.remove(&(use_at, *page));
            hits += 1;
        }
        by_use.insert((next_use[at], *page));
        if held.len() > frames {
            let (_, victim) = by_use.pop_last().expect("there are pages");
            held.remove(&victim);
        }
    }
    hits as f64 / pages.len() as f64
}
