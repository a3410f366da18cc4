//! One run of one stripe: random members, random requests, and the checks of every completion.

use super::disk::{Arena, Disk, Span};
use iopath_core::elevator::ELEVATORS;
use iopath_core::{
    BlockDevice, Busy, Completion, Duration, Extent, Instant, Io, Limits, Op, Sector, Stripe, StripeConfig,
    Tag,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;
use std::rc::Rc;

/// The number of events of each kind.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Events {
    pub(crate) done: u64,
    pub(crate) failed: u64,
    /// The stripe was busy.
    pub(crate) refused: u64,
    pub(crate) merged: u64,
    /// A member was busy.
    pub(crate) requeued: u64,
    pub(crate) flushed: u64,
}

impl AddAssign for Events {
    fn add_assign(&mut self, other: Self) {
        self.done += other.done;
        self.failed += other.failed;
        self.refused += other.refused;
        self.merged += other.merged;
        self.requeued += other.requeued;
        self.flushed += other.flushed;
    }
}

/// A disk of the stripe whose content the test can check.
#[derive(Clone)]
struct Member {
    limits: Limits,
    disk: Rc<RefCell<Disk>>,
}

impl BlockDevice for Member {
    type Memory = Span;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, Span>, now: Instant) -> Result<(), Busy> {
        self.disk.borrow_mut().submit(io, now)
    }

    fn commit(&mut self, now: Instant) {
        self.disk.borrow_mut().commit(now);
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        self.disk.borrow_mut().poll_completion(now)
    }
}

/// A request between submission and completion.
#[derive(Debug)]
struct Pending {
    op: Op,
    extent: Extent,
    fua: bool,
    memory: Vec<Span>,
    /// The version that a write stores in its sectors; 0 for zeroes.
    version: u64,
    /// Flush only: the versions of sectors that were certain at its submission.
    completed: Vec<(usize, u64)>,
}

pub(crate) struct Life {
    rng: ChaCha8Rng,
    stripe: Stripe<Box<dyn BlockDevice<Memory = Span>>>,
    members: Vec<Member>,
    chunk_sectors: usize,
    arena: Arena,
    /// Requests by tag, which counts submissions.
    pending: BTreeMap<u32, Pending>,
    submitted: u32,
    /// The possible versions of each sector: one version, and the versions of writes that failed later.
    may_hold: Vec<BTreeSet<u64>>,
    /// The version of the last successful write, if no later write failed.
    certain: BTreeMap<usize, u64>,
    /// The end of the last request.
    last: u64,
    fails: bool,
    met: Events,
    now: Instant,
}

impl Life {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let arena = Arena::default();
        let fails = if rng.random_bool(0.5) { rng.random_range(1..64) } else { 0 };
        let busy = if rng.random_bool(0.5) { rng.random_range(1..128) } else { 0 };
        let mut chunk_sectors = rng.random_range(1..16_u64);
        let members: Vec<Member> = (0..rng.random_range(1..6))
            .map(|member| {
                let limits = random_limits(&mut rng);
                let block = u64::from(limits.logical_block_bytes) / 512;
                chunk_sectors = chunk_sectors.next_multiple_of(block);
                let rng = ChaCha8Rng::seed_from_u64(seed + member + 1);
                let disk = Disk::new(limits.clone(), limits.depth_max, arena.clone(), fails, busy, rng);
                Member { limits, disk: Rc::new(RefCell::new(disk)) }
            })
            .collect();
        // Blocks are powers of two, so the result is a multiple of the largest block.
        let elevator = ELEVATORS[rng.random_range(0..ELEVATORS.len())].into();
        let config = StripeConfig { chunk_sectors, elevator, ..StripeConfig::default() };
        let boxed =
            members.iter().map(|member| Box::new(member.clone()) as Box<dyn BlockDevice<Memory = Span>>);
        let stripe = Stripe::new(boxed.collect(), &config).unwrap();
        Self {
            may_hold: vec![BTreeSet::from([0]); stripe.limits().capacity as usize],
            stripe,
            members,
            chunk_sectors: chunk_sectors as usize,
            arena,
            pending: BTreeMap::new(),
            submitted: 0,
            certain: BTreeMap::new(),
            last: 0,
            fails: fails > 0,
            met: Events::default(),
            now: Instant::ZERO,
            rng,
        }
    }

    /// Does `ops` operations and completes all requests.
    pub(crate) fn live(mut self, ops: u64) -> Events {
        for _ in 0..ops {
            self.now = self.now + Duration::from_micros(self.rng.random_range(0..1000));
            match self.rng.random_range(0..100) {
                0..30 => self.submit(),
                30..40 => self.stripe.commit(self.now),
                40..85 => self.step(),
                _ => self.collect(),
            }
        }
        self.end();
        for stats in self.stripe.queue_stats() {
            self.met.merged += stats.back_merges() + stats.front_merges();
            self.met.requeued += stats.requeued;
        }
        self.met
    }

    fn submit(&mut self) {
        let Some((op, extent)) = self.random_io() else { return };
        let fua = op == Op::Write && self.rng.random_bool(0.2);
        let memory = if op.has_memory() { self.random_memory(extent) } else { Vec::new() };
        let tag = Tag::from_bits(self.submitted);
        let mut io = Io::new(tag, op, extent, &memory);
        io.fua = fua;
        let version = if op == Op::Write { u64::from(self.submitted) + 1 } else { 0 };
        let bios = |stripe: &Stripe<_>| stripe.queue_stats().map(|stats| stats.bios).sum::<u64>();
        let before = bios(&self.stripe);
        if let Err(busy) = self.stripe.submit(&io, self.now) {
            assert_eq!((busy.tag, bios(&self.stripe)), (tag, before), "refused, but a part was submitted");
            assert!(!self.pending.is_empty(), "{op} of {extent} refused by an idle stripe");
            self.met.refused += 1;
            return;
        }
        if op == Op::Write {
            let mut arena = self.arena.borrow_mut();
            for span in &memory {
                arena[span.start..span.start + span.sectors].fill(version);
            }
        }
        let completed = if op == Op::Flush { self.certain.clone().into_iter().collect() } else { Vec::new() };
        self.pending.insert(tag.to_bits(), Pending { op, extent, fua, memory, version, completed });
        self.submitted += 1;
    }

    /// A request that a queue might send: it overlaps no request in flight, and at most one flush is in flight.
    fn random_io(&mut self) -> Option<(Op, Extent)> {
        let op = match self.rng.random_range(0..40) {
            0..18 => Op::Read,
            18..36 => Op::Write,
            36 | 37 => Op::Flush,
            38 => Op::Discard,
            _ => Op::WriteZeroes,
        };
        if op == Op::Flush {
            let flushing = self.pending.values().any(|other| other.op == Op::Flush);
            return (!flushing).then_some((op, Extent::EMPTY));
        }
        let limits = self.stripe.limits();
        let block = limits.block_sectors();
        let blocks = limits.capacity / block;
        let blocks_max = limits.sectors_max(op) / block;
        if blocks_max == 0 {
            return None;
        }
        let start =
            if self.rng.random_bool(0.6) { self.last % blocks } else { self.rng.random_range(0..blocks) };
        let length_max = blocks_max.min(blocks - start);
        let length_max = if self.rng.random_bool(0.5) { length_max.min(4) } else { length_max };
        let length = self.rng.random_range(1..=length_max);
        let extent = Extent::new(Sector(start * block), length * block).unwrap();
        self.last = start + length;
        let in_the_way =
            |other: &Pending| (op.is_write() || other.op.is_write()) && other.extent.overlaps(extent);
        (!self.pending.values().any(in_the_way)).then_some((op, extent))
    }

    /// New memory for `extent`, in pieces of whole blocks with gaps between some.
    fn random_memory(&mut self, extent: Extent) -> Vec<Span> {
        let limits = self.stripe.limits();
        let block = limits.block_sectors() as usize;
        let (mut left, segments_max) = (extent.sectors() as usize, usize::from(limits.segments_max));
        let mut memory = Vec::new();
        let mut arena = self.arena.borrow_mut();
        while left > 0 {
            let is_last = memory.len() + 1 == segments_max || self.rng.random_bool(0.3);
            let sectors = if is_last { left } else { self.rng.random_range(1..=left / block) * block };
            let start = arena.len() + self.rng.random_range(0..2);
            arena.resize(start + sectors, 0);
            memory.push(Span { start, sectors });
            left -= sectors;
        }
        memory
    }

    fn step(&mut self) {
        let member = self.rng.random_range(0..self.members.len());
        self.members[member].disk.borrow_mut().step();
    }

    fn collect(&mut self) {
        while let Some(over) = self.stripe.poll_completion(self.now) {
            let request = self.pending.remove(&over.tag.to_bits());
            let request = request.expect("a request completed twice or was never submitted");
            match over.result {
                Ok(()) => self.check_success(&request),
                Err(_) => self.note_failure(&request),
            }
        }
    }

    fn check_success(&mut self, request: &Pending) {
        self.met.done += 1;
        let sectors = request.extent.start().0 as usize..request.extent.end().0 as usize;
        match request.op {
            Op::Read => {
                let arena = self.arena.borrow();
                let cells = request.memory.iter().flat_map(|span| span.start..span.start + span.sectors);
                for (sector, cell) in sectors.zip(cells) {
                    let (read, allowed) = (arena[cell], &self.may_hold[sector]);
                    assert!(allowed.contains(&read), "sector {sector} read {read}, not {allowed:?}");
                }
            }
            Op::Flush => {
                self.met.flushed += 1;
                for (sector, version) in &request.completed {
                    self.check_medium(*sector, *version);
                }
            }
            Op::Write | Op::Discard | Op::WriteZeroes => {
                for sector in sectors {
                    self.may_hold[sector] = BTreeSet::from([request.version]);
                    // All zeroes are equal: on the medium, later zeroes cannot be distinguished from earlier ones.
                    if request.op == Op::Write {
                        self.certain.insert(sector, request.version);
                    } else {
                        self.certain.remove(&sector);
                    }
                    if request.fua {
                        self.check_medium(sector, request.version);
                    }
                }
            }
        }
    }

    /// The medium has that version, unless a later write changed it.
    fn check_medium(&self, sector: usize, version: u64) {
        let here = Extent::new(Sector(sector as u64), 1).unwrap();
        let is_written =
            self.pending.values().any(|other| other.op.is_write() && other.extent.overlaps(here));
        if self.certain.get(&sector) == Some(&version) && !is_written {
            let (member, on_member) = self.position_of(sector);
            let on_medium = self.members[member].disk.borrow().medium[on_member];
            assert!(
                on_medium == version,
                "sector {sector}: {on_medium} on the medium, flushed was {version}"
            );
        }
    }

    /// The position of a sector, by counting chunks round robin.
    fn position_of(&self, sector: usize) -> (usize, usize) {
        let mut dealt = vec![0; self.members.len()];
        let chunk = sector / self.chunk_sectors;
        let turns = (0..self.members.len()).cycle().take(chunk);
        turns.for_each(|member| dealt[member] += 1);
        let member = chunk % self.members.len();
        (member, dealt[member] * self.chunk_sectors + sector % self.chunk_sectors)
    }

    fn note_failure(&mut self, request: &Pending) {
        assert!(self.fails, "a request failed on disks that do not");
        self.met.failed += 1;
        if request.op.is_write() {
            for sector in request.extent.start().0 as usize..request.extent.end().0 as usize {
                self.may_hold[sector].insert(request.version);
                self.certain.remove(&sector);
            }
        }
    }

    /// After a commit, the stripe completes all requests without further calls.
    fn end(&mut self) {
        self.stripe.commit(self.now);
        let mut idle_rounds = 0;
        while !self.pending.is_empty() {
            self.now = self.stripe.poll_timeout().unwrap_or(self.now).max(self.now);
            let before = self.pending.len();
            self.members.iter().for_each(|member| member.disk.borrow_mut().step());
            self.collect();
            idle_rounds = if self.pending.len() < before { 0 } else { idle_rounds + 1 };
            assert!(idle_rounds < 10_000, "{} requests never complete", self.pending.len());
        }
        assert!(self.members.iter().all(|member| member.disk.borrow().is_idle()));
        for (sector, allowed) in self.may_hold.iter().enumerate() {
            let (member, on_member) = self.position_of(sector);
            let held = self.members[member].disk.borrow().cached[on_member];
            assert!(allowed.contains(&held), "sector {sector} holds {held}, not {allowed:?}");
        }
    }
}

fn random_limits(rng: &mut ChaCha8Rng) -> Limits {
    let block_sectors = [1, 1, 2, 8][rng.random_range(0..4)];
    let bytes = block_sectors * 512;
    let or_none = |rng: &mut ChaCha8Rng, value| if rng.random_bool(0.7) { value } else { 0 };
    let boundary_blocks = rng.random_range(1..16);
    Limits {
        logical_block_bytes: bytes as u32,
        request_bytes_max: rng.random_range(1..16) * bytes,
        segments_max: rng.random_range(1..8),
        // A member may be a stripe of another kind.
        chunk_sectors: or_none(rng, boundary_blocks * block_sectors),
        depth_max: rng.random_range(1..16),
        discard_bytes_max: or_none(rng, 8 * bytes),
        write_zeroes_bytes_max: or_none(rng, 4 * bytes),
        volatile_cache: rng.random_bool(0.5),
        fua: rng.random_bool(0.5),
        ..Limits::with_capacity(rng.random_range(8..64) * 4 * block_sectors)
    }
}
