//! What the order structure costs an elevator: insert and take the next, with so many entries queued, beside
//! `std::collections::BTreeSet` on the same keys. Says nothing of the elevators themselves.
//!
//! Keys come in the three patterns that a device sees. `sweep` takes the next entry at or after a moving head, as
//! a one-way elevator does; `merge` looks at both neighbours of the key before inserting it; `first` takes the least.

#![allow(missing_docs, reason = "criterion's macros make functions without")]

use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use iopath_core::sorted::SortedSet;

const QUEUED: [usize; 4] = [32, 1 << 10, 1 << 15, 1_000_000];

type Neighbours = (Option<(u64, u32)>, Option<(u64, u32)>);

/// The operations compared, on either structure.
trait Order {
    fn insert(&mut self, key: u64, value: u32);
    fn neighbours(&mut self, key: u64) -> Neighbours;
    fn pop_first(&mut self) -> Option<(u64, u32)>;
    fn pop_at_or_after(&mut self, key: u64) -> Option<(u64, u32)>;
}

impl Order for SortedSet {
    fn insert(&mut self, key: u64, value: u32) {
        SortedSet::insert(self, key, value);
    }

    fn neighbours(&mut self, key: u64) -> Neighbours {
        SortedSet::neighbours(self, key)
    }

    fn pop_first(&mut self) -> Option<(u64, u32)> {
        SortedSet::pop_first(self)
    }

    fn pop_at_or_after(&mut self, key: u64) -> Option<(u64, u32)> {
        SortedSet::pop_at_or_after(self, key)
    }
}

impl Order for BTreeSet<(u64, u32)> {
    fn insert(&mut self, key: u64, value: u32) {
        BTreeSet::insert(self, (key, value));
    }

    fn neighbours(&mut self, key: u64) -> Neighbours {
        (self.range(..(key, 0)).next_back().copied(), self.range((key, 0)..).next().copied())
    }

    fn pop_first(&mut self) -> Option<(u64, u32)> {
        BTreeSet::pop_first(self)
    }

    fn pop_at_or_after(&mut self, key: u64) -> Option<(u64, u32)> {
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
    /// Two ascending streams, far apart, taking turns.
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

/// A queue in its steady state: as many entries come as go.
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
            queue.insert();
        }
        queue
    }

    #[inline]
    fn insert(&mut self) {
        self.tag = self.tag.wrapping_add(1);
        self.order.insert(self.keys.next(), self.tag);
    }

    #[inline]
    fn sweep(&mut self) {
        self.insert();
        let next = self.order.pop_at_or_after(self.head).or_else(|| self.order.pop_at_or_after(0));
        self.head = next.map_or(0, |(key, _)| key);
    }

    #[inline]
    fn merge(&mut self) {
        let mut ahead = self.keys;
        black_box(self.order.neighbours(ahead.next()));
        self.sweep();
    }

    #[inline]
    fn first(&mut self) {
        self.insert();
        black_box(self.order.pop_first());
    }
}

fn bench_one<O: Order>(c: &mut Criterion, name: &str, new: impl Fn(usize) -> O) {
    for (pattern, keys) in Keys::ALL {
        for (work, step) in [
            ("sweep", Queue::<O>::sweep as fn(&mut Queue<O>)),
            ("merge", Queue::<O>::merge),
            ("first", Queue::<O>::first),
        ] {
            let mut group = c.benchmark_group(format!("sorted/{work}/{pattern}"));
            group.throughput(Throughput::Elements(1));
            for queued in QUEUED {
                // One more: the step inserts before it takes.
                let mut queue = Queue::new(new(queued + 1), keys, queued);
                group.bench_function(BenchmarkId::new(name, queued), |b| b.iter(|| step(&mut queue)));
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
