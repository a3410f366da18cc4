//! A disk with bytes behind a device with faults, and the bytes that its writers expect. Requests never overlap in
//! flight, as behind a queue.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use iopath_core::{
    BlockDevice, Damage, Extent, FaultPlan, FaultSource, FaultyDevice, Instant, Io, IoError, Limits, Op,
    Outcome, Sector, Tag,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::disk::{Arena, Disk};

pub(crate) const SECTORS: u64 = 256;

/// A shared plan that also flips the bits of the disk.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    plan: Rc<RefCell<FaultPlan>>,
    damage: Rc<RefCell<Vec<Damage>>>,
    disk: Disk,
}

impl FaultSource for Source {
    fn draw(&mut self, op: Op, extent: Extent, block_bytes: u64, moved_min: u64) -> Outcome {
        self.plan.draw(op, extent, block_bytes, moved_min)
    }

    fn is_shuffled(&self) -> bool {
        self.plan.is_shuffled()
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.plan.below(bound)
    }

    fn releases(&self) -> u64 {
        self.plan.releases()
    }

    fn on_damage(&mut self, damage: Damage) {
        if let Damage::BitFlipped { offset, bit } = damage {
            self.disk.flip(offset, bit);
        }
        self.plan.on_damage(damage);
        self.damage.borrow_mut().extend(self.plan.borrow_mut().take_damage());
    }
}

pub(crate) struct Rig {
    pub(crate) plan: Rc<RefCell<FaultPlan>>,
    device: FaultyDevice<Disk, Source>,
    disk: Disk,
    arena: Arena,
    damage: Rc<RefCell<Vec<Damage>>>,
    now: Instant,
    pub(crate) submitted: usize,
    pub(crate) results: BTreeMap<u32, Result<(), IoError>>,
    pub(crate) extents: BTreeMap<u32, Extent>,
    /// The times of the completions.
    pub(crate) times: Vec<Instant>,
    /// The write of each request that is a write.
    values: BTreeMap<u32, u8>,
}

impl Rig {
    pub(crate) fn new(seed: u64) -> Self {
        let limits = Limits { depth_max: 64, ..Limits::with_capacity(SECTORS) };
        let arena = Arena::default();
        let disk = Disk::new(&limits, &arena);
        let mut plan = FaultPlan::new(seed);
        plan.keep_damage();
        let (plan, damage) = (Rc::new(RefCell::new(plan)), Rc::new(RefCell::new(Vec::new())));
        let source = Source { plan: Rc::clone(&plan), damage: Rc::clone(&damage), disk: disk.clone() };
        Self {
            plan,
            device: FaultyDevice::new(disk.clone(), source),
            disk,
            arena,
            damage,
            now: Instant::ZERO,
            submitted: 0,
            results: BTreeMap::new(),
            extents: BTreeMap::new(),
            times: Vec::new(),
            values: BTreeMap::new(),
        }
    }

    /// Submits a write of each fourth run of eight sectors, and reads of other runs.
    pub(crate) fn submit_mix(&mut self, seed: u64) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        for run in 0..SECTORS / 8 {
            let sectors = random.random_range(1..=8);
            let extent = Extent::new(Sector(run * 8), sectors).unwrap();
            if random.random_bool(0.4) {
                self.write(extent, run as u8 + 1);
            } else {
                self.submit(Op::Read, extent, 0);
            }
        }
        self.device.commit(self.now);
    }

    pub(crate) fn write(&mut self, extent: Extent, value: u8) {
        self.submit(Op::Write, extent, value);
        self.device.commit(self.now);
    }

    fn submit(&mut self, op: Op, extent: Extent, value: u8) {
        let memory = self.arena.take(extent.bytes() as usize);
        self.arena.with(memory, |bytes| bytes.fill(value));
        let number = self.submitted as u32;
        self.device.submit(&Io::new(Tag::from_bits(number), op, extent, &[memory]), self.now).unwrap();
        self.submitted += 1;
        self.extents.insert(number, extent);
        if op == Op::Write {
            self.values.insert(number, value);
        }
    }

    /// Follows the timeouts of the device until it has none.
    pub(crate) fn run_until_idle(&mut self) {
        let mut rounds = 0;
        while let Some(due) = self.device.poll_timeout() {
            self.now = self.now.max(due);
            while let Some(done) = self.device.poll_completion(self.now) {
                let twice = self.results.insert(done.tag.to_bits(), done.result);
                assert!(twice.is_none(), "{:?} completes twice", done.tag);
                self.times.push(self.now);
            }
            self.device.commit(self.now);
            rounds += 1;
            assert!(rounds < 10_000, "the device has a timeout but makes no progress");
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.device.poll_timeout()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.device.in_flight() as usize
    }

    pub(crate) fn injected(&self) -> u64 {
        self.plan.borrow().injected()
    }

    pub(crate) fn damage(&self) -> Vec<Damage> {
        self.damage.borrow().clone()
    }

    pub(crate) fn medium(&self) -> Vec<u8> {
        self.disk.bytes()
    }

    /// The values that each sector may have if no fault is silent.
    pub(crate) fn expected(&self) -> Vec<Vec<u8>> {
        let mut expected = vec![vec![0xEE]; SECTORS as usize];
        for (request, value) in &self.values {
            let extent = self.extents[request];
            for sector in &mut expected[extent.start().0 as usize..extent.end().0 as usize] {
                match self.results[request] {
                    Ok(()) => *sector = vec![*value],
                    Err(_) => sector.push(*value),
                }
            }
        }
        expected
    }
}
