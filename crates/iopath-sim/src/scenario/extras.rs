//! Features that are drawn from random numbers of their own, so that a seed keeps the part of its scenario that is
//! drawn without them: tunables of elevators, priorities, sweeps, plugs that are held, reuse of space, silent faults
//! below stripes, full disks.

use iopath_core::buffered::Advice;
use iopath_core::elevator::{ELEVATORS, Tunable};
use iopath_core::{Duration, Fault, Op, Priority};

use super::appends::Extends;
use super::disks::Disks;
use super::{Action, CachePlan, Do, EXPIRE_MIN, Fine, Layout, VolumePlan};
use crate::random::Random;

/// The features of a volume that [`VolumePlan::draw`] does not draw.
#[allow(clippy::struct_excessive_bools, reason = "independent features")]
#[derive(Debug, Clone)]
pub(crate) struct Extras {
    /// The elevator `none` is checked as well: see `elevator.rs`.
    pub(crate) checks_none: bool,
    /// The priority of each stream.
    pub(crate) priorities: [Priority; 4],
    /// Programs submit batches: a queue for direct I/O stays plugged for this time, or until its plug is full.
    pub(crate) plug_time: Duration,
    /// A mapped file allocates the space first that it released last.
    pub(crate) reuses_space: bool,
    /// Power failures hit the mapped file, too. It has no discards, because it has no journal.
    pub(crate) survives_power: bool,
    /// The size changes: a mapped file is truncated and grows, another volume grows.
    pub(crate) resizes: bool,
    /// The size at the start, if it is not the largest one.
    pub(crate) first_bytes: Option<u64>,
    /// The offset of the first byte: the volume is the end of a vast disk, of which nothing else exists.
    pub(crate) base_bytes: u64,
    /// Unaligned direct I/O goes through a bounce buffer.
    pub(crate) bounces: bool,
    /// The page cache of another program that reads the file.
    pub(crate) reader: Option<CachePlan>,
    /// The memory of the page cache changes.
    pub(crate) changes_budget: bool,
    /// The page cache may bypass its queue: see `volume/own.rs`.
    pub(crate) bypasses_queue: bool,
    /// Writes extend the volume.
    pub(crate) extends: Option<Extends>,
    /// The features of its disks.
    pub(crate) disks: Disks,
}

impl Extras {
    /// No feature.
    pub(crate) const NONE: Self = Self {
        checks_none: false,
        priorities: [Priority::BestEffort; 4],
        plug_time: Duration::ZERO,
        reuses_space: false,
        survives_power: false,
        resizes: false,
        first_bytes: None,
        base_bytes: 0,
        bounces: false,
        reader: None,
        changes_budget: false,
        bypasses_queue: false,
        extends: None,
        disks: Disks::NONE,
    };
}

/// The features of a run, and the share of its actions that use them.
#[allow(clippy::struct_excessive_bools, reason = "independent features")]
#[derive(Debug)]
struct Features {
    tunes: bool,
    advises: bool,
    sweeps: bool,
    punches: bool,
    /// One in this many actions is followed by an action of a feature.
    rate: u64,
}

/// Adds features to a scenario.
pub(super) fn add(seed: u64, volumes: &mut [VolumePlan], actions: &mut Vec<Action>) {
    let random = &mut Random::new(seed ^ 0x5EED_0F0E_C712_A500);
    for plan in volumes.iter_mut() {
        add_to_volume(random, plan);
    }
    let features = Features {
        tunes: random.one_in(2),
        advises: random.one_in(3),
        sweeps: random.one_in(3),
        punches: random.one_in(2),
        rate: random.between(4, 40),
    };
    let mut all = Vec::with_capacity(actions.len());
    for volume in 0..volumes.len() {
        if features.sweeps && random.one_in(2) {
            // Requests wait in the elevator, not at the device.
            let what = Do::SetDepth(random.between(1, 2) as u32);
            all.push(Action::at_once(volume, what));
        }
    }
    for action in actions.drain(..) {
        let pause = Duration::from_nanos(random.below(action.pause.as_nanos() as u64 + 1));
        all.push(action);
        if random.one_in(features.rate) {
            let volume = random.below(volumes.len() as u64) as usize;
            let plan = &volumes[volume];
            if plan.extras.reuses_space && random.one_in(4) {
                all.extend(reuse(random, volume, plan));
            } else {
                all.extend(features.action(random, plan).map(|what| Action {
                    volume,
                    pause,
                    what,
                    fine: Fine::NONE,
                }));
            }
        }
    }
    *actions = all;
}

/// Adds a time in which the disks of a volume are full to some of the scenarios.
pub(super) fn add_full_disk(seed: u64, volumes: &mut [VolumePlan], actions: &mut Vec<Action>) {
    let random = &mut Random::new(seed ^ 0x0F01_1D15_C0FF_0003);
    if !random.one_in(4) {
        return;
    }
    let volume = random.below(volumes.len() as u64) as usize;
    if let Some(cache) = &mut volumes[volume].cache {
        // A refused write takes no time: retries in short intervals would be most of the run.
        cache.expire = cache.expire.max(EXPIRE_MIN);
    }
    let first = random.below(actions.len() as u64) as usize;
    let last = random.between(first as u64, actions.len() as u64) as usize;
    for (at, is_full) in [(last, false), (first, true)] {
        actions.insert(at, Action::at_once(volume, Do::SetFull(is_full)));
    }
}

fn add_to_volume(random: &mut Random, plan: &mut VolumePlan) {
    let is_mapped = matches!(plan.layout, Layout::Mapped { .. });
    let has_priorities = random.one_in(2);
    let mut priority = || if has_priorities { *random.pick(&Priority::ALL) } else { Priority::BestEffort };
    let priorities = [(); 4].map(|()| priority());
    let survives_power = is_mapped && random.one_in(3);
    let resizes = !survives_power && random.one_in(if is_mapped { 2 } else { 4 });
    // The end of a stripe is the end of a sector.
    let unit = if plan.layout == Layout::Plain && plan.cache.is_some() { 64 } else { 512 };
    let first_bytes = random.between(1, plan.bytes / unit) * unit;
    plan.extras = Extras {
        checks_none: random.one_in(2),
        priorities,
        plug_time: if random.one_in(3) {
            Duration::from_nanos(1 << random.below(21))
        } else {
            Duration::ZERO
        },
        reuses_space: is_mapped && !survives_power && random.one_in(2),
        survives_power,
        resizes,
        first_bytes: (resizes && !is_mapped).then_some(first_bytes),
        base_bytes: 0,
        bounces: false,
        reader: None,
        changes_budget: false,
        bypasses_queue: false,
        extends: None,
        disks: Disks::NONE,
    };
    if random.one_in(2) {
        plan.elevator = elevator(random);
    }
    if plan.extras.reuses_space {
        plan.queues = plan.queues.max(random.between(1, 3) as usize);
        // A slow read still accesses the space that a punch releases.
        let delay = Duration::from_nanos(plan.latency.as_nanos() as u64 * random.between(1, 30));
        plan.faults.push(Fault::delay(delay).on(Op::Read).one_in(random.between(2, 8)));
    }
    if matches!(plan.layout, Layout::Striped { .. }) && random.one_in(5) {
        let rate = random.between(4, 200);
        plan.faults.push(super::silent_fault(random).one_in(rate).times(random.between(1, 3)));
    }
}

/// An elevator with settings, most of them small, so that a short run reaches the starvation bounds.
fn elevator(random: &mut Random) -> String {
    let kind = random.pick(ELEVATORS);
    let mut settings = Vec::new();
    for tunable in kind.tunables() {
        if random.below(4) > 0 {
            settings.push(format!("{}={}", tunable.name, value(random, tunable)));
        }
    }
    if settings.is_empty() { kind.name.to_owned() } else { format!("{}:{}", kind.name, settings.join(",")) }
}

fn value(random: &mut Random, tunable: &Tunable) -> u64 {
    let value = match random.below(8) {
        0 => tunable.default,
        1 => *tunable.range.end(),
        2 => *tunable.range.start(),
        _ => {
            let bits = random.below(7);
            random.below(1 << bits)
        }
    };
    value.clamp(*tunable.range.start(), *tunable.range.end())
}

/// A punch, a read of the same blocks through another queue, and a write to a hole, which may get the space of the
/// punch while the read is in flight.
fn reuse(random: &mut Random, volume: usize, plan: &VolumePlan) -> [Action; 4] {
    let cells = plan.bytes / 64;
    let latency = plan.latency.as_nanos() as u64;
    let at = random.below(cells);
    let hole = random.below(cells) / 64 * 64;
    // Whole blocks, and parts of blocks at both ends, so that the punch lasts for some time.
    let len = random.between(130, 400);
    let queues = plan.queues as u64;
    let first = random.below(queues);
    let stream = random.below(4) as u32;
    let mut direct = |op, at, len, queue: u64, pause_max: u64| {
        let queue = (queue % queues) as usize;
        let pause = Duration::from_nanos(random.below(pause_max + 1));
        Action {
            volume,
            pause,
            what: Do::Direct { op, at, len, forced: false, queue, stream },
            fine: Fine::NONE,
        }
    };
    [
        direct(Op::Discard, hole, len, first, 0),
        direct(Op::Discard, at, len, first, 8 * latency),
        direct(Op::Read, at, len, first + 1, latency),
        direct(Op::Write, hole, len, first + 2, 8 * latency),
    ]
}

fn resize(random: &mut Random, plan: &VolumePlan) -> Do {
    let cells = plan.bytes / 64;
    if matches!(plan.layout, Layout::Mapped { .. }) {
        // Often to its largest size, so that there is something to truncate.
        let cells = if random.one_in(2) { cells } else { random.between(1, cells) };
        return Do::Resize { cells };
    }
    // In small steps, because it only grows.
    let unit = if plan.layout == Layout::Plain && plan.cache.is_some() { 1 } else { 8 };
    Do::Grow { cells: random.between(1, cells.div_ceil(16 * unit)) * unit }
}

impl Features {
    fn action(&self, random: &mut Random, plan: &VolumePlan) -> Option<Do> {
        let cells = plan.bytes / 64;
        let (at, len) = (random.below(cells), random.between(1, cells));
        let queue = random.below(plan.queues as u64) as usize;
        let stream = random.below(4) as u32;
        let is_mapped = matches!(plan.layout, Layout::Mapped { .. });
        if plan.extras.resizes && random.one_in(3) {
            return Some(resize(random, plan));
        }
        match random.below(5) {
            0 if self.tunes => Some(Do::SetElevator(elevator(random))),
            1 if self.tunes => {
                let tunable = random.below(8) as usize;
                let value = if random.one_in(8) { random.below(1 << 40) } else { random.below(64) };
                Some(Do::SetTunable { tunable, value })
            }
            2 if self.advises => {
                let patterns = [Advice::Normal, Advice::Sequential, Advice::Random, Advice::NoReuse];
                Some(Do::Advise(*random.pick(&patterns)))
            }
            3 if self.sweeps => {
                let gap = random.below(2) * 8;
                let (at, len) = (at / 32 * 8, 8 << random.below(2));
                let (window, count) = (random.between(1, 8), random.between(16, 400));
                let op = if random.one_in(4) { Op::Write } else { Op::Read };
                Some(Do::Sweep { op, at, len, stride: len + gap, window, count, queue, stream })
            }
            4 if self.punches && is_mapped => {
                let len = len.min(64 << random.below(6));
                Some(Do::Direct { op: Op::Discard, at, len, forced: false, queue, stream })
            }
            _ => None,
        }
    }
}
