//! The order of each elevator by its published definition, in the simplest form: a full search through a list of
//! requests. It shares no code with the elevators.

use iopath_core::elevator::Outline;
use iopath_core::{Duration, Instant, Tag};
use std::collections::BTreeMap;

/// A queued request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    pub(crate) tag: Tag,
    pub(crate) io: Outline,
    pub(crate) arrived: Instant,
    /// The number of earlier arrivals.
    number: u64,
}

impl Item {
    fn start(&self) -> u64 {
        self.io.extent.start().0
    }

    fn end(&self) -> u64 {
        self.io.extent.end().0
    }
}

/// The queued requests and the counts so far. A `Policy` chooses the next request.
pub(crate) struct Oracle {
    pub(crate) items: Vec<Item>,
    arrived: u64,
    departed: u64,
    head: u64,
    policy: Box<dyn Policy>,
}

/// The input of a policy.
struct View<'a> {
    /// In the order of arrival.
    items: &'a [Item],
    departed: u64,
    head: u64,
    now: Instant,
}

trait Policy {
    fn arrived(&mut self, _item: &Item, _head: u64) {}
    /// Chooses one of the items, which are not empty.
    fn next(&mut self, view: &View<'_>) -> Item;
    fn passes_count(&self) -> bool {
        false
    }
}

impl Oracle {
    /// The oracle of the elevator of that name, set to those values.
    pub(crate) fn new(name: &str, values: &[u64]) -> Self {
        let policy: Box<dyn Policy> = match name {
            "none" => Box::new(Fifo),
            "ascend" => Box::new(Ascend { read: values[0], write: values[1] }),
            "two-list" => Box::new(TwoList { max: values[0], swept: 0, next: Vec::new() }),
            "closest" => Box::new(Closest { patience: values[0] }),
            "deadline" => Box::new(Deadline::new(values)),
            "fair" => Box::new(Fair::new(values)),
            name => panic!("{name} has no oracle: write one from its definition"),
        };
        Self { items: Vec::new(), arrived: 0, departed: 0, head: 0, policy }
    }

    pub(crate) fn insert(&mut self, tag: Tag, io: Outline, now: Instant) {
        let item = Item { tag, io, arrived: now, number: self.arrived };
        self.arrived += 1;
        self.policy.arrived(&item, self.head);
        self.items.push(item);
    }

    /// `tag` has grown to `io` and has absorbed the other request inside that extent, if there is one.
    pub(crate) fn merged(&mut self, tag: Tag, io: Outline) {
        let is_absorbed = |item: &Item| item.tag != tag && item.io.extent.overlaps(io.extent);
        let absorbed = self.items.iter().position(is_absorbed).map(|index| self.items.remove(index));
        let index = self.items.iter().position(|item| item.tag == tag).expect("merged into a queued request");
        self.items[index].io = io;
        if let Some(absorbed) = absorbed {
            self.departed += 1;
            self.pass();
            if absorbed.arrived < self.items[index].arrived {
                self.items[index].arrived = absorbed.arrived;
                if !self.policy.passes_count() {
                    // It also takes that position in the order of arrival.
                    let survivor = self.items.remove(index);
                    let at = self.items.partition_point(|item| item.number < absorbed.number);
                    self.items.insert(at, Item { number: absorbed.number, ..survivor });
                }
            }
        }
        self.pass();
    }

    /// Counts a merged request: it arrives and departs at once.
    fn pass(&mut self) {
        self.arrived += 1;
        self.departed += 1;
    }

    pub(crate) fn dispatch(&mut self, now: Instant) -> Option<Tag> {
        if self.items.is_empty() {
            return None;
        }
        let view = View { items: &self.items, departed: self.departed, head: self.head, now };
        let next = self.policy.next(&view);
        self.items.retain(|item| item.tag != next.tag);
        self.departed += 1;
        self.head = next.end();
        Some(next.tag)
    }
}

fn least_by(items: impl Iterator<Item = Item>, key: impl Fn(&Item) -> u64) -> Option<Item> {
    items.min_by_key(|item| key(item))
}

/// First come, first served.
struct Fifo;

impl Policy for Fifo {
    fn next(&mut self, view: &View<'_>) -> Item {
        view.items[0]
    }
}

/// The lowest request at the head or above, or else the lowest of all. Requests without allowance go first, the most
/// overdue of them before the others.
struct Ascend {
    read: u64,
    write: u64,
}

impl Policy for Ascend {
    fn next(&mut self, view: &View<'_>) -> Item {
        // A read goes before a write that is equally overdue.
        let due = |item: &Item| {
            let allowance = if item.io.op.is_write() { self.write } else { self.read };
            (item.number + allowance) * 2 + u64::from(item.io.op.is_write())
        };
        let overdue = view.items.iter().copied().filter(|item| due(item) / 2 <= view.departed);
        let ahead = view.items.iter().copied().filter(|item| item.start() >= view.head);
        least_by(overdue, due)
            .or_else(|| least_by(ahead, Item::start))
            .or_else(|| least_by(view.items.iter().copied(), Item::start))
            .expect("there are items")
    }

    fn passes_count(&self) -> bool {
        true
    }
}

/// The request nearest to the head; of two, the higher. Requests out of patience go first.
struct Closest {
    patience: u64,
}

impl Policy for Closest {
    fn next(&mut self, view: &View<'_>) -> Item {
        let oldest = view.items.iter().min_by_key(|item| item.number).expect("there are items");
        if oldest.number + self.patience <= view.departed {
            return *oldest;
        }
        let distance =
            |item: &Item| item.start().abs_diff(view.head) * 2 + u64::from(item.start() < view.head);
        least_by(view.items.iter().copied(), distance).expect("there are items")
    }

    fn passes_count(&self) -> bool {
        true
    }
}

/// Two lists: requests at the head or above join the current sweep, until it has had `max` dispatches.
struct TwoList {
    max: u64,
    swept: u64,
    /// The tags in the list of the next sweep; all others are in the current one.
    next: Vec<Tag>,
}

impl Policy for TwoList {
    fn arrived(&mut self, item: &Item, head: u64) {
        self.next.retain(|tag| *tag != item.tag);
        if item.start() < head || self.swept >= self.max {
            self.next.push(item.tag);
        }
    }

    fn next(&mut self, view: &View<'_>) -> Item {
        let in_sweep = |next: &[Tag]| {
            least_by(view.items.iter().copied().filter(|i| !next.contains(&i.tag)), Item::start)
        };
        self.swept += 1;
        in_sweep(&self.next).unwrap_or_else(|| {
            self.swept = 1;
            self.next.clear();
            in_sweep(&[]).expect("there are items")
        })
    }
}

/// Batches per priority and direction, as in mq-deadline.
struct Deadline {
    expire_ms: [u64; 2],
    writes_starved: u64,
    fifo_batch: u64,
    aging_ms: u64,
    was_aged: bool,
    /// Per priority: direction and length of the batch so far, and batches of reads dispatched while writes waited.
    batches: [(usize, u64, u64); 3],
    /// Per priority and direction: the end of the last request.
    heads: [[u64; 2]; 3],
}

impl Deadline {
    fn new(values: &[u64]) -> Self {
        Self {
            expire_ms: [values[0], values[1]],
            writes_starved: values[2],
            fifo_batch: values[3],
            aging_ms: values[4],
            was_aged: false,
            batches: [(0, u64::MAX, 0); 3],
            heads: [[0; 2]; 3],
        }
    }

    fn pick(&mut self, level: usize, view: &View<'_>) -> Item {
        let of = |direction| {
            let is_of = move |item: &Item| {
                item.io.priority.index() == level && usize::from(item.io.op.is_write()) == direction
            };
            view.items.iter().copied().filter(is_of)
        };
        let upward = |direction: usize, head: u64| {
            least_by(of(direction).filter(|item| item.start() >= head), Item::start)
        };
        let (direction, length, starved) = self.batches[level];
        if length < self.fifo_batch
            && let Some(item) = upward(direction, self.heads[level][direction])
        {
            self.batches[level].1 += 1;
            return item;
        }
        let (reads, writes) = (of(0).count() > 0, of(1).count() > 0);
        let direction = usize::from(!reads || writes && starved >= self.writes_starved);
        let starved = if direction == 1 { 0 } else { starved + u64::from(writes) };
        self.batches[level] = (direction, 1, starved);
        let oldest = of(direction).next().expect("the direction has items");
        let is_expired = view.now - oldest.arrived >= Duration::from_millis(self.expire_ms[direction]);
        let upward = upward(direction, self.heads[level][direction]);
        if is_expired { oldest } else { upward.unwrap_or(oldest) }
    }
}

impl Policy for Deadline {
    fn next(&mut self, view: &View<'_>) -> Item {
        let level = view.items.iter().map(|item| item.io.priority.index()).min().expect("there are items");
        let below = view.items.iter().filter(|item| item.io.priority.index() > level);
        let oldest = below
            .min_by_key(|item| (item.arrived, item.io.priority.index(), item.io.op.is_write(), item.number));
        let aged = oldest.filter(|item| view.now - item.arrived >= Duration::from_millis(self.aging_ms));
        self.was_aged = aged.is_some() && !self.was_aged;
        if let Some(item) = aged.filter(|_| self.was_aged) {
            return *item;
        }
        let item = self.pick(level, view);
        self.heads[level][usize::from(item.io.op.is_write())] = item.end();
        item
    }
}

/// The stream with the least virtual time is served for a quantum of cost.
struct Fair {
    request_sectors: u64,
    quantum_sectors: u64,
    clock: u64,
    /// Virtual time of each stream, and its number in the order of first arrival.
    times: BTreeMap<u32, (u64, usize)>,
    /// The stream being served, and the rest of its quantum.
    serving: Option<(u32, u64)>,
    /// The queued requests of each stream.
    waiting: BTreeMap<u32, u64>,
}

impl Fair {
    fn new(values: &[u64]) -> Self {
        Self {
            request_sectors: values[0] / 512,
            quantum_sectors: values[1] / 512,
            clock: 0,
            times: BTreeMap::new(),
            serving: None,
            waiting: BTreeMap::new(),
        }
    }
}

impl Policy for Fair {
    fn arrived(&mut self, item: &Item, _head: u64) {
        let stream = item.io.stream.0;
        let number = self.times.len();
        let (time, _) = self.times.entry(stream).or_insert((0, number));
        let waiting = self.waiting.entry(stream).or_default();
        if *waiting == 0 {
            *time = (*time).max(self.clock);
        }
        *waiting += 1;
    }

    fn next(&mut self, view: &View<'_>) -> Item {
        // Count again: absorbed requests were not dispatched.
        for (stream, waiting) in &mut self.waiting {
            *waiting = view.items.iter().filter(|item| item.io.stream.0 == *stream).count() as u64;
        }
        let queued = self.waiting.iter().filter(|(_, waiting)| **waiting > 0).map(|(stream, _)| *stream);
        let streams: Vec<u32> = queued.collect();
        let (stream, left) = self.serving.take().unwrap_or_else(|| {
            let stream = *streams.iter().min_by_key(|stream| self.times[*stream]).expect("a stream waits");
            self.clock = self.clock.max(self.times[&stream].0);
            (stream, self.quantum_sectors)
        });
        let item = *view.items.iter().find(|item| item.io.stream.0 == stream).expect("the stream waits");
        let cost = (self.request_sectors + item.io.extent.sectors()).max(1);
        self.times.get_mut(&stream).expect("known").0 += cost * 10_000 / 100;
        self.clock += (cost * 10_000 / (100 * streams.len() as u64)).max(1);
        let waiting = self.waiting.get_mut(&stream).expect("known");
        *waiting -= 1;
        if *waiting > 0 && cost < left {
            self.serving = Some((stream, left - cost));
        }
        item
    }
}
