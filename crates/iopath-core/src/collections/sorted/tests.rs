//! Compares a [`SortedSet`] with a `BTreeSet` over long random histories, and checks its structure after every step.

use std::collections::BTreeSet;
use std::ops::Bound;

use proptest::prelude::*;

use super::node::{INNER_MIN, LEAF_MAX, LEAF_MIN, NONE};
use super::prefetch::PREFETCH_MAX;
use super::*;

impl SortedSet {
    /// Panics unless order, bounds, fill, links, fingers and node counts are as documented.
    fn check(&self) {
        let mut leaves = Vec::new();
        let inners = self.check_below(self.root, self.height, (0, 0), None, &mut leaves);
        assert_eq!(self.inners.in_use(), inners, "inner nodes lost or shared");
        assert_eq!(self.leaves.in_use(), leaves.len(), "leaves lost or shared");
        let (leaves_max, inners_max) = nodes_max(self.capacity);
        assert!(leaves.len() <= leaves_max && inners <= inners_max);

        assert_eq!((leaves.first(), leaves.last()), (Some(&FIRST_LEAF), Some(&self.last_leaf)));
        for pair in leaves.windows(2) {
            assert_eq!((self.leaves[pair[0]].next, self.leaves[pair[1]].prev), (pair[1], pair[0]));
        }
        assert_eq!((self.leaves[FIRST_LEAF].prev, self.leaves[self.last_leaf].next), (NONE, NONE));
        assert_eq!(leaves.iter().map(|&leaf| self.leaves[leaf].len()).sum::<usize>(), self.len);
    }

    /// Checks a subtree whose entries lie in `low..high`; returns its inner nodes and collects its leaves.
    fn check_below(
        &self,
        node: u32,
        height: usize,
        low: Entry,
        high: Option<Entry>,
        leaves: &mut Vec<u32>,
    ) -> usize {
        if height == 0 {
            self.check_leaf(node, low, high);
            leaves.push(node);
            return 0;
        }
        let inner = &self.inners[node];
        assert!(inner.len() >= if node == self.root { 2 } else { INNER_MIN });
        assert_eq!(inner.low(0), low, "a node and its parent disagree on its bound");
        inner.check_keys();
        let mut inners = 1;
        for slot in 0..inner.len() {
            let above = if slot + 1 < inner.len() { Some(inner.low(slot + 1)) } else { high };
            assert!(above.is_none_or(|above| inner.low(slot) < above), "bounds out of order");
            inners += self.check_below(inner.child(slot), height - 1, inner.low(slot), above, leaves);
        }
        inners
    }

    fn check_leaf(&self, node: u32, low: Entry, high: Option<Entry>) {
        let leaf = &self.leaves[node];
        assert!(self.height == 0 || leaf.len() >= LEAF_MIN, "underfull leaf of {}", leaf.len());
        let entries: Vec<_> = (leaf.start()..leaf.end()).map(|slot| leaf.get(slot).unwrap()).collect();
        assert!(entries.is_sorted_by(|a, b| a < b));
        assert!(entries.iter().all(|&entry| low <= entry && high.is_none_or(|high| entry < high)));
        leaf.check_padding();
        for finger in self.near.iter().chain([&self.head]).filter(|finger| finger.leaf == node) {
            assert!(finger.low >= low.0 && high.is_none_or(|high| finger.high <= high.0), "finger too wide");
        }
    }

    fn footprint(&self) -> [[(usize, usize); 2]; 2] {
        [self.leaves.footprint(), self.inners.footprint()]
    }
}

/// The oracle: a `BTreeSet` with the same operations.
#[derive(Default)]
struct Model(BTreeSet<Entry>);

impl Model {
    fn at_or_after(&self, key: u64) -> Option<Entry> {
        self.0.range((key, 0)..).next().copied()
    }

    fn before(&self, key: u64) -> Option<Entry> {
        self.0.range(..(key, 0)).next_back().copied()
    }

    fn after(&self, entry: Entry) -> Option<Entry> {
        self.0.range((Bound::Excluded(entry), Bound::Unbounded)).next().copied()
    }
}

#[derive(Debug, Clone)]
enum Op {
    Insert(u64, u32),
    /// Inserts a run of adjacent keys, upwards or downwards.
    Stream {
        from: u64,
        len: u8,
        up: bool,
    },
    Remove(u64, u32),
    /// Removes the entry at or after the key, which most likely exists.
    RemoveNear(u64),
    PopFirst,
    /// Removes a number of entries in ascending order from the key.
    Sweep {
        from: u64,
        len: u8,
    },
    Around(u64),
    /// Changes the key of the entry at or after a key.
    Rekey {
        near: u64,
        by: i8,
    },
    Look(u64, u32),
    Range(u64, u64),
    Drain,
    Clear,
}

fn key() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 0..40_u64,
        8 => 0..4000_u64,
        4 => any::<u64>(),
        1 => Just(0),
        1 => Just(u64::MAX),
        1 => u64::MAX - 40..=u64::MAX,
    ]
}

fn value() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0..200_u32, 1 => Just(u32::MAX), 1 => any::<u32>()]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        30 => (key(), value()).prop_map(|(key, value)| Op::Insert(key, value)),
        6 => (key(), 1..=120_u8, any::<bool>()).prop_map(|(from, len, up)| Op::Stream { from, len, up }),
        8 => (key(), value()).prop_map(|(key, value)| Op::Remove(key, value)),
        16 => key().prop_map(Op::RemoveNear),
        8 => Just(Op::PopFirst),
        6 => (key(), 1..=100_u8).prop_map(|(from, len)| Op::Sweep { from, len }),
        8 => key().prop_map(Op::Around),
        8 => (key(), any::<i8>()).prop_map(|(near, by)| Op::Rekey { near, by }),
        8 => (key(), value()).prop_map(|(key, value)| Op::Look(key, value)),
        4 => (key(), key()).prop_map(|(from, to)| Op::Range(from, to)),
        1 => Just(Op::Drain),
        1 => Just(Op::Clear),
    ]
}

fn apply(set: &mut SortedSet, model: &mut Model, op: &Op) {
    match *op {
        Op::Insert(key, value) => insert(set, model, (key, value)),
        Op::Stream { from, len, up } => {
            for step in 0..u64::from(len) {
                let key = if up { from.saturating_add(step) } else { from.saturating_sub(step) };
                insert(set, model, (key, len.into()));
            }
        }
        Op::Remove(key, value) => assert_eq!(set.remove(key, value), model.0.remove(&(key, value))),
        Op::RemoveNear(near) => {
            let Some((key, value)) = model.at_or_after(near) else { return };
            assert!(set.remove(key, value) && model.0.remove(&(key, value)));
        }
        Op::PopFirst => assert_eq!(set.pop_first(), model.0.pop_first()),
        Op::Sweep { mut from, len } => {
            for _ in 0..len {
                let expected = model.at_or_after(from);
                assert_eq!(set.pop_at_or_after(from), expected);
                let Some(entry) = expected else { break };
                model.0.remove(&entry);
                from = entry.0;
            }
        }
        Op::Around(key) => assert_eq!(set.around(key), (model.before(key), model.at_or_after(key))),
        Op::Rekey { near, by } => {
            let Some((old, value)) = model.at_or_after(near) else { return };
            let new = old.saturating_add_signed(by.into());
            if !model.0.contains(&(new, value)) {
                assert!(set.rekey(old, new, value) && model.0.remove(&(old, value)));
                model.0.insert((new, value));
            }
        }
        Op::Look(key, value) => look(set, model, (key, value)),
        Op::Range(from, to) => {
            let (from, to) = (from.min(to), from.max(to));
            assert!(set.range(from..to).eq(model.0.range((from, 0)..(to, 0)).copied()));
            assert!(set.range(from..=to).eq(model.0.range((from, 0)..=(to, u32::MAX)).copied()));
            let above = (Bound::Excluded(from), Bound::Unbounded);
            assert!(set.range(above).eq(model.0.range((from, 0)..).filter(|e| e.0 > from).copied()));
        }
        Op::Drain => {
            while let Some(entry) = model.0.pop_first() {
                assert_eq!(set.pop_first(), Some(entry));
                set.check();
            }
            assert_eq!(set.pop_first(), None);
        }
        Op::Clear => {
            set.clear();
            model.0.clear();
        }
    }
}

fn insert(set: &mut SortedSet, model: &mut Model, entry: Entry) {
    if set.len() < set.capacity() && model.0.insert(entry) {
        set.insert(entry.0, entry.1);
    }
}

fn look(set: &mut SortedSet, model: &Model, entry: Entry) {
    let key = entry.0;
    assert_eq!(set.at_or_after(key), model.at_or_after(key));
    assert_eq!(set.before(key), model.before(key));
    assert_eq!(set.after(entry), model.after(entry));
    assert_eq!(set.neighbours(key), (model.before(key), model.at_or_after(key)));
    if let Some(present) = model.at_or_after(key) {
        assert_eq!(set.after(present), model.after(present));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 4096, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_btreeset_over_any_history(
        capacity in prop_oneof![1..40_usize, 100..6000_usize],
        ops in prop::collection::vec(op(), 1..600),
    ) {
        let mut set = SortedSet::with_capacity(capacity);
        let mut model = Model::default();
        let footprint = set.footprint();
        for op in &ops {
            apply(&mut set, &mut model, op);
            set.check();
            assert_eq!(set.len(), model.0.len());
            assert_eq!((set.first(), set.last()), (model.0.first().copied(), model.0.last().copied()));
            assert_eq!(set.footprint(), footprint, "it allocated");
        }
        assert!(set.range(..).eq(model.0.iter().copied()));
    }
}

/// All of `0..len` in scattered order: `step` is coprime to any power of two.
fn scattered(len: u64) -> impl Iterator<Item = u64> {
    assert!(len.is_power_of_two());
    (0..len).map(move |i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) & (len - 1))
}

#[test]
fn ahead_names_the_entries_that_follow() {
    let mut set = SortedSet::with_capacity(20_000);
    let mut state = 1_u64;
    for value in 0..20_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        set.insert(state >> 8, value);
    }
    let mut head = 1 << 54;
    let mut prefetched = 0;
    for _ in 0..10_000 {
        head = set.pop_at_or_after(head).unwrap().0;
        let Some(ahead) = set.ahead(5) else { continue };
        let expected = set.range(head..).nth(5).map(|(_, value)| value);
        prefetched += u32::from(expected == Some(ahead));
    }
    assert!(prefetched > 9_000, "only {prefetched} of 10,000 were prefetched");
}

#[test]
fn fills_drains_and_refills_in_every_order_without_growing() {
    const LEN: u64 = 1 << 15;
    let mut set = SortedSet::with_capacity(LEN as usize);
    let footprint = set.footprint();
    let orders: [Vec<u64>; 3] = [(0..LEN).collect(), (0..LEN).rev().collect(), scattered(LEN).collect()];
    for fill in &orders {
        for drain in &orders {
            for &key in fill {
                set.insert(key, 7);
            }
            set.check();
            assert!(set.height >= 2, "too shallow to test inner nodes");
            assert!(set.range(..).map(|(key, _)| key).eq(0..LEN));
            for &key in drain {
                assert!(set.remove(key, 7));
            }
            set.check();
            assert_eq!((set.leaves.in_use(), set.inners.in_use(), set.height), (1, 0, 0));
        }
    }
    assert_eq!(set.footprint(), footprint);
}

/// The worst case for which the arenas are sized: every leaf is reduced to its minimum, then others are filled.
#[test]
fn holds_its_capacity_when_every_leaf_is_at_its_minimum() {
    const LEN: u64 = 1 << 14;
    let mut set = SortedSet::with_capacity(LEN as usize);
    let footprint = set.footprint();
    let mut next = 0;
    while set.len() < set.capacity() {
        let from = next;
        while set.len() < set.capacity() {
            set.insert(next, 0);
            next += 1;
        }
        // Keep the first LEAF_MIN entries of each leaf, so that refill cannot merge any two.
        let mut leaf = set.seek((from, 0)).0;
        while leaf != NONE {
            let next = set.leaves[leaf].next;
            let surplus = set.leaves[leaf].len().saturating_sub(LEAF_MIN);
            for _ in 0..surplus {
                let (key, value) = set.leaves[leaf].last().unwrap();
                assert!(set.remove(key, value));
            }
            leaf = next;
        }
        set.check();
        if next - from < 2 * LEAF_MAX as u64 {
            break;
        }
    }
    let thin = set.leaves.in_use() * LEAF_MIN;
    assert!(
        thin * 10 >= set.len() * 9,
        "{} entries in {} leaves are not thin",
        set.len(),
        set.leaves.in_use()
    );
    while set.len() < set.capacity() {
        set.insert(next, 0);
        next += 1;
    }
    set.check();
    assert_eq!(set.footprint(), footprint);
}

#[test]
fn announced_keys_are_found_after_changes_of_the_tree() {
    const LEN: u64 = 1 << 14;
    let mut set = SortedSet::with_capacity(2 * LEN as usize);
    let mut keys: Vec<u64> = scattered(LEN).map(|key| key * 8).collect();
    for &key in &keys {
        set.insert(key, 0);
    }
    let mut others = scattered(LEN).map(|key| key * 8 + 1);
    while keys.len() >= PREFETCH_MAX {
        let going = keys.split_off(keys.len() - PREFETCH_MAX);
        set.prefetch_removals(going.iter().map(|&key| (key, 0)));
        let coming: Vec<u64> = others.by_ref().take(PREFETCH_MAX).collect();
        set.prefetch_inserts(coming.iter().copied());
        set.check();
        // Some operations come in another order than announced, and some not at all.
        for &key in coming.iter().rev().step_by(2).chain(coming.iter().step_by(7)) {
            let at = set.seek((key, 0)).0;
            assert_eq!(set.near_leaf((key, 0)), at);
            if set.at_or_after(key) != Some((key, 0)) {
                set.insert(key, 0);
            }
        }
        for key in going {
            let at = set.seek((key, 0)).0;
            assert_eq!(set.head_leaf((key, 0)), at);
            assert!(set.remove(key, 0));
        }
        set.check();
    }
}

#[test]
fn holds_its_capacity_of_one_repeated_key() {
    for key in [0, 5, u64::MAX] {
        let mut set = SortedSet::with_capacity(4096);
        scattered(4096).for_each(|value| set.insert(key, value as u32));
        set.check();
        assert_eq!((set.at_or_after(key), set.before(key)), (Some((key, 0)), None));
        assert_eq!(set.after((key, 2000)), Some((key, 2001)));
        for value in 0..4096 {
            assert_eq!(set.pop_at_or_after(key), Some((key, value)));
        }
        assert!(set.is_empty());
    }
}

#[test]
fn a_new_set_is_one_empty_leaf() {
    let mut set = SortedSet::with_capacity(0);
    assert_eq!((set.first(), set.last(), set.pop_first()), (None, None, None));
    assert_eq!((set.neighbours(7), set.pop_at_or_after(0)), ((None, None), None));
    assert!(!set.remove(0, 0) && set.range(..).next().is_none());
}

#[test]
#[should_panic(expected = "built for 2 entries")]
fn an_insert_beyond_the_capacity_panics() {
    let mut set = SortedSet::with_capacity(2);
    (0..3).for_each(|key| set.insert(key, 0));
}

#[test]
fn uses_the_documented_amount_of_memory() {
    const LEN: u64 = 1 << 17;
    let mut set = SortedSet::with_capacity(LEN as usize);
    let [[(_, leaves), (_, free_leaves)], [(_, inners), (_, free_inners)]] = set.footprint();
    let bytes = leaves * size_of::<Leaf>() + inners * size_of::<Inner>() + 4 * (free_leaves + free_inners);
    assert_eq!(bytes.div_ceil(set.capacity()), 66);
    scattered(LEN).for_each(|key| set.insert(key.wrapping_mul(key), key as u32));
    let bytes = set.leaves.in_use() * size_of::<Leaf>() + set.inners.in_use() * size_of::<Inner>();
    assert_eq!(bytes.div_ceil(set.len()), 20);
}

#[test]
fn the_height_bound_holds_for_the_greatest_capacity() {
    let mut level = u32::MAX as usize / LEAF_MIN;
    let mut height = 0;
    while level > 1 {
        level = (level / INNER_MIN).max(1);
        height += 1;
    }
    assert!(height <= HEIGHT_MAX);
}
