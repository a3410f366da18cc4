//! The cost of the sorted set of the elevators: the time to insert one entry and remove one, by number of entries. The
//! B-tree of the standard library (a `BTreeSet` is a `BTreeMap` without values) is measured on the same keys.
//! `figures.rs` measures the elevators.
//!
//! Keys have the three patterns of device I/O. `sweep` removes the next entry at or after a moving head, as a one-way
//! elevator does. `merge` finds both neighbours of the key before the insert. `plug` is `sweep` in batches, prefetched.
//! `first` removes the least entry; its random keys are little above that entry.

#![expect(missing_docs, reason = "criterion_group! makes a public function without a comment")]

use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use iopath_core::sorted::{Entry, SortedSet};

const QUEUED: [usize; 4] = [32, 1 << 10, 1 << 15, 1_000_000];

/// Requests in one plug.
const PLUG: usize = 32;

/// The operations that both structures have.
trait Order {
    fn insert(&mut self, key: u64, value: u32);
    fn prefetch(&mut self, _keys: &[u64]) {}
    fn neighbours(&mut self, key: u64) -> (Option<Entry>, Option<Entry>);
    fn pop_first(&mut self) -> Option<Entry>;
    fn pop_at_or_after(&mut self, key: u64) -> Option<Entry>;
}

impl Order for SortedSet {
    fn insert(&mut self, key: u64, value: u32) {
        SortedSet::insert(self, key, value);
    }

    fn prefetch(&mut self, keys: &[u64]) {
        SortedSet::prefetch_inserts(self, keys.iter().copied());
    }

    fn neighbours(&mut self, key: u64) -> (Option<Entry>, Option<Entry>) {
        SortedSet::neighbours(self, key)
    }

    fn pop_first(&mut self) -> Option<Entry> {
        SortedSet::pop_first(self)
    }

    fn pop_at_or_after(&mut self, key: u64) -> Option<Entry> {
        SortedSet::pop_at_or_after(self, key)
    }
}

impl Order for BTreeSet<Entry> {
    fn insert(&mut self, key: u64, value: u32) {
        BTreeSet::insert(self, (key, value));
    }

    fn neighbours(&mut self, key: u64) -> (Option<Entry>, Option<Entry>) {
        (self.range(..(key, 0)).next_back().copied(), self.range((key, 0)..).next().copied())
    }

    fn pop_first(&mut self) -> Option<Entry> {
        BTreeSet::pop_first(self)
    }

    fn pop_at_or_after(&mut self, key: u64) -> Option<Entry> {
        let found = self.range((key, 0)..).next().copied()?;
        self.remove(&found);
        Some(found)
    }
}

/// An endless stream of start sectors.
#[derive(Clone, Copy)]
enum Keys {
    Random(u64),
    Sequential(u64),
    /// Two interleaved ascending streams, far apart.
    Interleaved([u64; 2]),
}

impl Keys {
    const ALL: [(&str, Self); 3] = [
        ("random", Self::Random(0x2545_F491_4F6C_DD1D)),
        ("sequential", Self::Sequential(0)),
        ("interleaved", Self::Interleaved([1 << 40, 0])),
    ];

    #[inline]
    fn next(&mut self) -> u64 {
        match self {
            Self::Random(state) => {
                *state ^= *state << 13;
                *state ^= *state >> 7;
                *state ^= *state << 17;
                *state >> 16
            }
            Self::Sequential(sector) => {
                *sector += 8;
                *sector
            }
            Self::Interleaved(sectors) => {
                sectors.swap(0, 1);
                sectors[0] += 8;
                sectors[0]
            }
        }
    }
}

/// A queue in its steady state: one removal for each insert.
struct Queue<O> {
    order: O,
    keys: Keys,
    head: u64,
    tag: u32,
}

impl<O: Order> Queue<O> {
    fn new(order: O, keys: Keys, queued: usize) -> Self {
        let mut queue = Self { order, keys, head: 0, tag: 0 };
        for _ in 0..queued {
            let key = queue.keys.next();
            queue.insert(key);
        }
        queue
    }

    fn insert(&mut self, key: u64) {
        self.tag = self.tag.wrapping_add(1);
        self.order.insert(key, self.tag);
    }

    fn take(&mut self) {
        let next = self.order.pop_at_or_after(self.head).or_else(|| self.order.pop_at_or_after(0));
        self.head = next.map_or(0, |(key, _)| key);
    }

    fn sweep(&mut self) {
        let key = self.keys.next();
        self.insert(key);
        self.take();
    }

    fn merge(&mut self) {
        let key = self.keys.next();
        black_box(self.order.neighbours(key));
        self.insert(key);
        self.take();
    }

    fn plug(&mut self) {
        let keys: [u64; PLUG] = std::array::from_fn(|_| self.keys.next());
        self.order.prefetch(&keys);
        for key in keys {
            self.insert(key);
        }
        for _ in keys {
            self.take();
        }
    }

    fn first(&mut self) {
        let key = match self.keys {
            Keys::Random(_) => self.head + (self.keys.next() >> 8),
            _ => self.keys.next(),
        };
        self.insert(key);
        let next = self.order.pop_first();
        self.head = next.map_or(0, |(key, _)| key);
    }
}

/// A step of a queue: its name, the number of inserts, and the function.
type Step<O> = (&'static str, u64, fn(&mut Queue<O>));

fn bench_one<O: Order>(c: &mut Criterion, name: &str, new: impl Fn(usize) -> O) {
    let steps: [Step<O>; 4] = [
        ("sweep", 1, Queue::sweep),
        ("merge", 1, Queue::merge),
        ("plug", PLUG as u64, Queue::plug),
        ("first", 1, Queue::first),
    ];
    for (pattern, keys) in Keys::ALL {
        for (work, inserts, step) in steps {
            let mut group = c.benchmark_group(format!("sorted/{work}/{pattern}"));
            for queued in QUEUED {
                let mut queue = None;
                group.bench_function(BenchmarkId::new(name, queued), |b| {
                    let queue = queue.get_or_insert_with(|| Queue::new(new(queued + PLUG), keys, queued));
                    b.iter_custom(|iterations| {
                        let calls = iterations.div_ceil(inserts);
                        let start = Instant::now();
                        (0..calls).for_each(|_| step(queue));
                        start.elapsed().mul_f64(iterations as f64 / (calls * inserts) as f64)
                    });
                });
            }
        }
    }
}

fn benches(c: &mut Criterion) {
    bench_one(c, "SortedSet", SortedSet::with_capacity);
    bench_one(c, "BTreeSet", |_| BTreeSet::new());
}

criterion_group! {
    name = sorted;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(500));
    targets = benches
}
criterion_main!(sorted);
