//! What is to go wrong, and when: rules, and numbers drawn from a seed. What follows for a request is `fault.rs`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iopath_core::{Extent, IoError, Op};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use crate::device::MemoryDisk;

/// A way for requests to go wrong: what, and which of them.
///
/// ```
/// use iopath_os::Fault;
/// use iopath_core::{Extent, IoError, Op};
///
/// let bad_sector = Fault::error(IoError::Media).on(Op::Read).within(Extent::from_bytes(8192, 512).unwrap());
/// let now_and_then = Fault::short().one_in(20);
/// let first_flush = Fault::error(IoError::Media).on(Op::Flush).times(1);
/// # let _ = (bad_sector, now_and_then, first_flush);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    kind: Kind,
    op: Option<Op>,
    extent: Option<Extent>,
    one_in: u64,
    times: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Error(IoError),
    Short,
}

impl Fault {
    /// The request fails. Before it does, some of it is carried out: nothing, all, or anything from its start on; for a
    /// request that reaches into the extent of [`Fault::within`] at most what lies before that.
    pub const fn error(error: IoError) -> Self {
        Self { kind: Kind::Error(error), op: None, extent: None, one_in: 1, times: u64::MAX }
    }

    /// The system call moves fewer bytes than it was asked to; the device goes on with the rest, as it must.
    pub const fn short() -> Self {
        Self { kind: Kind::Short, op: None, extent: None, one_in: 1, times: u64::MAX }
    }

    /// Only requests of this operation.
    #[must_use]
    pub const fn on(mut self, op: Op) -> Self {
        self.op = Some(op);
        self
    }

    /// Only requests that overlap `extent`.
    #[must_use]
    pub const fn within(mut self, extent: Extent) -> Self {
        self.extent = Some(extent);
        self
    }

    /// Only one in so many requests, by chance.
    #[must_use]
    pub const fn one_in(mut self, requests: u64) -> Self {
        self.one_in = requests;
        self
    }

    /// Only so many times.
    #[must_use]
    pub const fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    fn concerns(&self, op: Op, extent: Extent) -> bool {
        let moves_bytes = self.kind != Kind::Short || op.has_memory();
        let is_there = self.extent.is_none_or(|within| within.overlaps(extent));
        self.times > 0 && moves_bytes && self.op.is_none_or(|only| only == op) && is_there
    }
}

/// What goes wrong on devices, decided by rules and a seed. Clones are the same plan: what is changed in one holds for
/// every device that has one, from the next request on. The same requests in the same order meet the same faults.
///
/// ```
/// use iopath_core::{IoError, Op};
/// use iopath_os::{Fault, Faults, Faulty, MemoryConfig, MemoryDisk};
///
/// let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20))?;
/// let faults = Faults::new(7);
/// faults.add(Fault::error(IoError::Media).on(Op::Write).one_in(100));
/// faults.add(Fault::short().one_in(10));
/// let device = Faulty::new(Box::new(disk.open()), &faults);
/// # let _ = device;
/// # Ok::<(), iopath_os::NoMemory>(())
/// ```
#[derive(Debug, Clone)]
pub struct Faults {
    plan: Arc<Mutex<Plan>>,
}

#[derive(Debug)]
struct Plan {
    random: Xoshiro256PlusPlus,
    rules: Vec<Fault>,
    is_shuffled: bool,
    loses: Option<MemoryDisk>,
    injected: u64,
}

/// What becomes of the next part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is carried out.
    Whole,
    /// So many bytes of it are moved.
    Short(u64),
    /// So many bytes of it are carried out, and it fails.
    Error(u64, IoError),
}

impl Faults {
    /// A plan by which nothing goes wrong yet.
    pub fn new(seed: u64) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let plan = Plan { random, rules: Vec::new(), is_shuffled: false, loses: None, injected: 0 };
        Self { plan: Arc::new(Mutex::new(plan)) }
    }

    /// Adds a rule. The first rule that concerns a request decides.
    pub fn add(&self, fault: Fault) {
        self.plan().rules.push(fault);
    }

    /// Takes all rules away: nothing fails or is short any more.
    pub fn clear(&self) {
        self.plan().rules.clear();
    }

    /// Whether requests are carried out in any order, each after some delay, rather than as they come.
    pub fn shuffle(&self, is_shuffled: bool) {
        self.plan().is_shuffled = is_shuffled;
    }

    /// Makes a flush that fails lose some of what it should have saved on `disk`.
    pub fn lose_on_failed_flush(&self, disk: &MemoryDisk) {
        self.plan().loses = Some(disk.clone());
    }

    /// How often something went wrong so far.
    pub fn injected(&self) -> u64 {
        self.plan().injected
    }

    /// What becomes of the next `bytes` bytes of a request, cut at multiples of `block` if it fails. It is not cut short
    /// to less than `moved_min`.
    pub(super) fn draw(&self, op: Op, extent: Extent, block: u64, moved_min: u64) -> Fate {
        self.plan().draw(op, extent, block, moved_min)
    }

    pub(super) fn is_shuffled(&self) -> bool {
        self.plan().is_shuffled
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        below(&mut self.plan().random, bound)
    }

    /// A flush has failed.
    pub(super) fn lose(&self) {
        let plan = &mut *self.plan();
        if let Some(disk) = &plan.loses {
            disk.lose_unsaved(|versions| below(&mut plan.random, u64::from(versions) + 1) as u32);
        }
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plan {
    fn draw(&mut self, op: Op, extent: Extent, block: u64, moved_min: u64) -> Fate {
        let bytes = extent.bytes();
        let Self { rules, random, injected, .. } = self;
        for rule in rules.iter_mut().filter(|rule| rule.concerns(op, extent)) {
            if rule.one_in > 1 && below(random, rule.one_in) > 0 {
                continue;
            }
            let fate = match rule.kind {
                Kind::Short if bytes <= moved_min => continue,
                Kind::Short => Fate::Short(moved_min + below(random, bytes - moved_min)),
                Kind::Error(error) => {
                    let within = rule.extent.unwrap_or(Extent::EMPTY);
                    let before = within.offset().saturating_sub(extent.offset());
                    let most = if within.is_empty() { bytes } else { before.min(bytes) };
                    Fate::Error(below(random, most / block + 1) * block, error)
                }
            };
            rule.times -= 1;
            *injected += 1;
            return fate;
        }
        Fate::Whole
    }
}

/// A number below `bound`, by multiply and shift.
fn below(random: &mut Xoshiro256PlusPlus, bound: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(bound)) >> 64) as u64
}
