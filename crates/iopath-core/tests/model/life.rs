//! One run of one queue: random configuration, random bios, and the checks of every completion.

use super::disk::{Arena, Disk, Span};
use super::log::Kept;
use iopath_core::elevator::{ELEVATORS, ElevatorKind, ElevatorSpec, Tunable};
use iopath_core::{
    Bio, BlockDevice, Duration, Extent, Instant, Limits, Op, Priority, QueueConfig, QueueStats, RequestQueue,
    Sector, Stream, SubmitError,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};

/// A bio between submission and completion.
#[derive(Debug)]
struct Pending {
    op: Op,
    extent: Extent,
    fua: bool,
    memory: Option<Span>,
    /// The version that a write stores in its sectors; 0 for zeroes.
    version: u64,
    /// Flush only: the versions of sectors that were certain at its submission.
    completed: Vec<(usize, u64)>,
}

pub(crate) struct Life {
    rng: ChaCha8Rng,
    queue: RequestQueue<Span>,
    disk: Disk,
    log: Kept,
    failed: u64,
    arena: Arena,
    free_memory: Vec<usize>,
    memory_sectors: usize,
    bios_max: u32,
    /// Bios by token, which counts submissions.
    pending: BTreeMap<u64, Pending>,
    submitted: u64,
    /// The possible versions of each sector: one version, and the versions of writes that failed later.
    may_hold: Vec<BTreeSet<u64>>,
    /// The version of the last successful write, if no later write failed.
    certain: BTreeMap<usize, u64>,
    /// The extent of the last bio.
    last: Extent,
    last_op: Op,
    fails: bool,
    plugs: u32,
    /// The only elevator of this run.
    elevator: Option<String>,
    now: Instant,
}

impl Life {
    pub(crate) fn new(seed: u64, elevator: Option<&str>) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let limits = random_limits(&mut rng);
        let config = QueueConfig {
            bios_max: rng.random_range(1..96),
            requests_max: rng.random_range(1..32),
            depth: rng.random_range(1..16),
            plug_requests_max: rng.random_range(1..16),
            elevator: random_elevator(&mut rng, elevator),
        };
        let memory_sectors = limits.capacity as usize;
        let arena = Arena::default();
        arena.borrow_mut().resize(memory_sectors * config.bios_max as usize, 0);
        let fails = if rng.random_bool(0.5) { rng.random_range(1..64) } else { 0 };
        let busy = if rng.random_bool(0.5) { rng.random_range(1..128) } else { 0 };
        let depth = config.depth.min(limits.depth_max);
        let disk =
            Disk::new(limits.clone(), depth, arena.clone(), fails, busy, ChaCha8Rng::seed_from_u64(seed + 1));
        let log = Kept::default();
        let may_hold = vec![BTreeSet::from([0]); limits.capacity as usize];
        let mut queue = RequestQueue::new(limits, &config);
        queue.start_log(Box::new(log.clone()));
        Self {
            may_hold,
            queue,
            disk,
            log,
            failed: 0,
            arena,
            free_memory: (0..config.bios_max as usize).collect(),
            memory_sectors,
            bios_max: config.bios_max,
            pending: BTreeMap::new(),
            submitted: 0,
            certain: BTreeMap::new(),
            last: Extent::EMPTY,
            last_op: Op::Read,
            fails: fails > 0,
            plugs: 0,
            elevator: elevator.map(str::to_owned),
            now: Instant::ZERO,
            rng,
        }
    }

    /// Does `ops` operations and completes all bios. Returns the counters of the queue.
    pub(crate) fn live(mut self, ops: u64) -> QueueStats {
        for _ in 0..ops {
            self.now = self.now + Duration::from_micros(self.rng.random_range(0..1000));
            match self.rng.random_range(0..100) {
                0..40 => self.submit(),
                40..45 => self.plug(),
                45..52 => self.unplug(),
                52..70 => self.dispatch(),
                70..90 => self.disk.step(),
                90..99 => self.collect(),
                _ => self.change_elevator(),
            }
        }
        self.end();
        self.queue.end_log();
        assert_eq!(self.log.check(self.queue.stats()), self.failed, "errors in the log");
        *self.queue.stats()
    }

    fn plug(&mut self) {
        if self.plugs < 3 {
            self.queue.plug();
            self.plugs += 1;
        }
    }

    fn unplug(&mut self) {
        if self.plugs > 0 {
            self.queue.unplug(self.now);
            self.plugs -= 1;
        }
    }

    fn change_elevator(&mut self) {
        match self.rng.random_range(0..5) {
            0 => self.queue.set_elevator(&random_elevator(&mut self.rng, self.elevator.as_deref()), self.now),
            1 => self.queue.apply_spec(&random_elevator(&mut self.rng, self.elevator.as_deref()), self.now),
            2 => {
                let (stream, weight) = (self.rng.random_range(0..3), self.rng.random_range(1..=10_000));
                self.queue.set_weight(Stream(stream), weight);
            }
            _ => self.set_tunable(),
        }
    }

    fn set_tunable(&mut self) {
        let kind = ELEVATORS.iter().find(|kind| kind.name == self.queue.elevator()).unwrap();
        let tunables = kind.tunables();
        if !tunables.is_empty() {
            let tunable = &tunables[self.rng.random_range(0..tunables.len())];
            let value = random_value(&mut self.rng, tunable);
            self.queue.set_tunable(tunable.name, value).unwrap();
        }
    }

    fn submit(&mut self) {
        let token = self.submitted;
        let (op, extent) = self.random_io();
        let is_full = self.pending.len() == self.bios_max as usize;
        // When the queue is full, all memory is in use. A refused bio may have any memory.
        let memory_start = self.free_memory.last().map_or(0, |slot| slot * self.memory_sectors);
        // Sometimes the position in memory is that on disk, so that adjacent bios are contiguous in both.
        let memory =
            op.has_memory().then_some(Span { start: memory_start, sectors: extent.sectors() as usize });
        let fua = op == Op::Write && self.rng.random_bool(0.2);
        let stream = Stream(self.rng.random_range(0..3));
        let mut priority = Priority::BestEffort;
        if self.rng.random_bool(0.2) {
            priority = Priority::ALL[self.rng.random_range(0..3)];
        }
        let bio = Bio { op, extent, memory, fua, stream, priority, token };
        let version = if op == Op::Write { token + 1 } else { 0 };
        match self.queue.submit_bio(bio, self.now) {
            Ok(()) => assert!(!is_full, "accepted more bios than it has slots for"),
            Err(SubmitError::QueueFull(_)) => {
                assert!(is_full, "refused a bio with {} of {} pending", self.pending.len(), self.bios_max);
                return;
            }
            Err(SubmitError::Unsupported(_)) => {
                assert_eq!(self.queue.limits().sectors_max(op), 0);
                return;
            }
            Err(refused) => panic!("{refused}"),
        }
        if let Some(span) = memory.filter(|_| op == Op::Write) {
            self.arena.borrow_mut()[span.start..span.start + span.sectors].fill(version);
        }
        if memory.is_some() {
            self.free_memory.pop();
        }
        let completed = if op == Op::Flush { self.certain.clone().into_iter().collect() } else { Vec::new() };
        self.pending.insert(token, Pending { op, extent, fua, memory, version, completed });
        self.submitted += 1;
    }

    fn random_io(&mut self) -> (Op, Extent) {
        // Often of the same kind as the last bio, short and adjacent to it, so that merges are common.
        let op = match self.rng.random_range(0..40) {
            20..40 => self.last_op,
            0..9 => Op::Read,
            9..17 => Op::Write,
            17 => Op::Flush,
            18 => Op::Discard,
            _ => Op::WriteZeroes,
        };
        if op == Op::Flush {
            return (op, Extent::EMPTY);
        }
        let block = self.queue.limits().block_sectors();
        let blocks = self.queue.limits().capacity / block;
        let start = match self.rng.random_range(0..4) {
            0 | 1 => self.last.end().0 / block % blocks,
            2 => (self.last.start().0 / block).saturating_sub(1),
            _ => self.rng.random_range(0..blocks),
        };
        let length_max = if self.rng.random_bool(0.8) { 4.min(blocks - start) } else { blocks - start };
        let length = self.rng.random_range(1..=length_max);
        self.last_op = op;
        self.last = Extent::new(Sector(start * block), length * block).unwrap();
        (op, self.last)
    }

    fn dispatch(&mut self) {
        self.queue.handle_timeout(self.now);
        while let Some(io) = self.queue.poll_dispatch(self.now) {
            if let Err(busy) = self.disk.submit(&io, self.now) {
                self.queue.requeue(busy.tag, self.now);
            }
        }
    }

    fn collect(&mut self) {
        while let Some(over) = self.disk.poll_completion(self.now) {
            self.queue.handle_completion(over.tag, over.result, self.now);
        }
        let flush_failed = std::mem::take(&mut self.disk.has_failed_flush);
        let is_reported = self.queue.take_failed_flush().is_some();
        let mut may_be_of_both = false;
        while let Some(done) = self.queue.poll_completion() {
            let bio = self.pending.remove(&done.token).expect("a bio completed twice or never submitted");
            if let Some(memory) = bio.memory {
                self.free_memory.push(memory.start / self.memory_sectors);
            }
            self.check_order(done.token, &bio);
            may_be_of_both |= done.result.is_err() && bio.fua && self.queue.limits().fua;
            if done.result.is_ok() {
                self.check_success(&bio);
            } else {
                self.failed += 1;
                self.note_failure(&bio);
            }
        }
        assert!(is_reported || !flush_failed, "a failed flush is not reported");
        assert!(!is_reported || flush_failed || may_be_of_both, "no flush has failed");
    }

    /// Earlier overlapping bios have completed, unless both are reads.
    fn check_order(&self, token: u64, bio: &Pending) {
        for (earlier, other) in self.pending.range(..token) {
            let in_the_way = bio.op.is_write() || other.op.is_write();
            assert!(
                !(in_the_way && other.extent.overlaps(bio.extent)),
                "bio {token} ({} {}) overtook bio {earlier} ({} {})",
                bio.op,
                bio.extent,
                other.op,
                other.extent
            );
        }
    }

    fn check_success(&mut self, bio: &Pending) {
        let sectors = bio.extent.start().0 as usize..bio.extent.end().0 as usize;
        match bio.op {
            Op::Read => {
                let memory = bio.memory.unwrap();
                let arena = self.arena.borrow();
                for (sector, cell) in sectors.zip(memory.start..) {
                    let allowed = &self.may_hold[sector];
                    assert!(
                        allowed.contains(&arena[cell]),
                        "sector {sector} read {}, not {allowed:?}",
                        arena[cell]
                    );
                }
            }
            Op::Flush => {
                for (sector, version) in &bio.completed {
                    self.check_medium(*sector, *version);
                }
            }
            Op::Write | Op::Discard | Op::WriteZeroes => {
                for sector in sectors {
                    self.may_hold[sector] = BTreeSet::from([bio.version]);
                    if bio.op == Op::Write {
                        self.certain.insert(sector, bio.version);
                    } else {
                        self.certain.remove(&sector);
                    }
                    if bio.fua {
                        self.check_medium(sector, bio.version);
                    }
                }
            }
        }
    }

    /// The medium has that version or that of a later write.
    fn check_medium(&self, sector: usize, version: u64) {
        let on_medium = self.disk.medium[sector];
        // A later discard or failed write may have changed it: check only sectors that are certain.
        if self.certain.get(&sector) == Some(&version) && !self.overwrite_pending(sector) {
            assert!(
                on_medium == version,
                "sector {sector}: {on_medium} on the medium, flushed was {version}"
            );
        }
    }

    fn overwrite_pending(&self, sector: usize) -> bool {
        let sector = Extent::new(Sector(sector as u64), 1).unwrap();
        self.pending.values().any(|bio| bio.op.is_write() && bio.extent.overlaps(sector))
    }

    fn note_failure(&mut self, bio: &Pending) {
        assert!(self.fails, "a bio failed on a disk without failures");
        if bio.op.is_write() {
            for sector in bio.extent.start().0 as usize..bio.extent.end().0 as usize {
                self.may_hold[sector].insert(bio.version);
                self.certain.remove(&sector);
            }
        }
    }

    /// Unplugs the queue and completes all bios.
    fn end(&mut self) {
        while self.plugs > 0 {
            self.unplug();
        }
        let mut idle_rounds = 0;
        while !self.pending.is_empty() {
            self.now = self.queue.poll_timeout().unwrap_or(self.now).max(self.now);
            let before = self.pending.len();
            self.dispatch();
            self.disk.step();
            self.collect();
            idle_rounds = if self.pending.len() < before { 0 } else { idle_rounds + 1 };
            assert!(idle_rounds < 10_000, "{} bios never complete: {:?}", self.pending.len(), self.queue);
        }
        assert!(self.disk.is_idle(), "the disk has requests of completed bios");
        assert_eq!((self.queue.bios_in(), self.queue.in_flight()), (0, 0));
        for (sector, held) in self.disk.cached.iter().enumerate() {
            assert!(self.may_hold[sector].contains(held), "sector {sector} holds {held}");
        }
    }
}

/// A random elevator, or the `pinned` one, with random settings.
fn random_elevator(rng: &mut ChaCha8Rng, pinned: Option<&str>) -> ElevatorSpec {
    let name = pinned.unwrap_or(ELEVATORS[rng.random_range(0..ELEVATORS.len())].name);
    let kind = ElevatorKind::named(name).unwrap_or_else(|| panic!("no elevator is called {name:?}"));
    let mut spec = ElevatorSpec::new(*kind);
    for tunable in kind.tunables() {
        if rng.random_bool(0.3) {
            spec = spec.with(tunable.name, random_value(rng, tunable)).unwrap();
        }
    }
    spec
}

/// A random value in range, or a small one that takes effect in a short run.
fn random_value(rng: &mut ChaCha8Rng, tunable: &Tunable) -> u64 {
    let (least, most) = (*tunable.range.start(), *tunable.range.end());
    if rng.random_bool(0.2) {
        rng.random_range(least..=most)
    } else {
        rng.random_range(least..=most.min(least + 16))
    }
}

fn random_limits(rng: &mut ChaCha8Rng) -> Limits {
    let block_sectors = [1, 1, 2, 8][rng.random_range(0..4)];
    let blocks = rng.random_range(1..256);
    let request_blocks = rng.random_range(1..16);
    let bytes = block_sectors * 512;
    let or_none = |rng: &mut ChaCha8Rng, value| if rng.random_bool(0.7) { value } else { 0 };
    let chunk_blocks = rng.random_range(1..16);
    Limits {
        logical_block_bytes: bytes as u32,
        request_bytes_max: request_blocks * bytes,
        segments_max: rng.random_range(1..8),
        chunk_sectors: or_none(rng, chunk_blocks * block_sectors),
        depth_max: rng.random_range(1..16),
        discard_bytes_max: or_none(rng, 8 * bytes),
        write_zeroes_bytes_max: or_none(rng, 4 * bytes),
        volatile_cache: rng.random_bool(0.5),
        fua: rng.random_bool(0.5),
        ..Limits::with_capacity(blocks * block_sectors)
    }
}
