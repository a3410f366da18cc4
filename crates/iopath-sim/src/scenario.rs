//! The scenario of a run: volumes, features and faults, and the actions of programs, all drawn from a seed. Each run
//! draws which features and faults it uses (swarm testing: Groce and others, 2012), because a feature that is always on
//! can hide the defects of another.

use iopath_core::buffered::Advice;
use iopath_core::elevator::{ELEVATORS, ElevatorSpec};
use iopath_core::mapper::Boundary;
use iopath_core::readahead::WindowPolicy;
use iopath_core::{Duration, Fault, IoError, Op};

use crate::elevator;
use crate::random::Random;

mod appends;
mod bounced;
mod bypass;
mod bytes;
mod disks;
mod extras;
mod new_files;

pub(crate) use appends::Extends;
pub(crate) use extras::Extras;

/// The part of a scenario to draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draw {
    /// All features.
    All,
    /// Only the features of the fourth version, in which no write and no flush bypassed the queue.
    Fourth,
    /// Only the features of the third version, in which no write extended a volume.
    Third,
    /// Only the features of the second version, which had calls of whole cells.
    Second,
    /// Only the features of the first version of the simulator. Seeds that failed then keep their scenario.
    First,
}

/// A whole run.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) volumes: Vec<VolumePlan>,
    pub(crate) actions: Vec<Action>,
}

/// A volume: its path, its layout on disks, and the faults of these.
#[allow(clippy::struct_excessive_bools, reason = "independent features")]
#[derive(Debug, Clone)]
pub(crate) struct VolumePlan {
    pub(crate) bytes: u64,
    pub(crate) layout: Layout,
    /// A volume without a page cache has none.
    pub(crate) cache: Option<CachePlan>,
    /// The number of queues for direct I/O.
    pub(crate) queues: usize,
    pub(crate) bios_max: u32,
    pub(crate) requests_max: u32,
    pub(crate) depth: u32,
    pub(crate) plug_requests_max: u32,
    pub(crate) request_bytes_max: u64,
    pub(crate) segments_max: u16,
    pub(crate) disk_depth: u32,
    pub(crate) has_write_cache: bool,
    pub(crate) has_fua: bool,
    pub(crate) has_discard: bool,
    pub(crate) discard_zeroes: bool,
    pub(crate) writes_early: bool,
    pub(crate) latency: Duration,
    pub(crate) seek_nanos: u64,
    pub(crate) channels: usize,
    pub(crate) elevator: String,
    pub(crate) faults: Vec<Fault>,
    pub(crate) is_shuffled: bool,
    pub(crate) flush_loses: bool,
    /// Sectors that a request to a plain disk must not cross; 0 for none.
    pub(crate) chunk_sectors: u64,
    /// Its queues stay plugged while calls wait.
    pub(crate) stays_plugged: bool,
    /// The maximum number of calls at the same time.
    pub(crate) calls_max: usize,
    pub(crate) seed: u64,
    pub(crate) extras: Extras,
}

/// The location of the bytes of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    Plain,
    Striped {
        members: usize,
        chunk_sectors: u64,
    },
    /// A mapped file on one disk, or on a stripe.
    Mapped {
        mapper: &'static str,
        boundary: Boundary,
        members: usize,
    },
}

/// The page cache of a volume.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CachePlan {
    pub(crate) frames: u32,
    pub(crate) io_pages_max: u32,
    pub(crate) reads_max: u32,
    pub(crate) writes_max: u32,
    pub(crate) background_percent: u8,
    pub(crate) expire: Duration,
    pub(crate) readahead: Option<WindowPolicy>,
}

/// What a program does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Action {
    pub(crate) volume: usize,
    /// The time since the previous action.
    pub(crate) pause: Duration,
    pub(crate) what: Do,
    pub(crate) fine: Fine,
}

impl Action {
    /// An action without a pause.
    pub(crate) const fn at_once(volume: usize, what: Do) -> Self {
        Self { volume, pause: Duration::ZERO, what, fine: Fine::NONE }
    }
}

/// The bytes of its first and its last cell that a buffered call leaves out, so that it begins and ends at any byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fine {
    pub(crate) start: u8,
    pub(crate) end: u8,
}

impl Fine {
    /// Whole cells.
    pub(crate) const NONE: Self = Self { start: 0, end: 0 };
}

/// An action on a volume. Offsets and lengths are in cells, or in blocks for direct I/O; a volume limits them to its
/// size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Do {
    Read {
        at: u64,
        len: u64,
        hold: Duration,
    },
    Write {
        at: u64,
        len: u64,
        hold: Duration,
    },
    Direct {
        op: Op,
        at: u64,
        len: u64,
        forced: bool,
        queue: usize,
        stream: u32,
    },
    /// Direct I/O one after another, `stride` cells apart, `window` of them at the same time.
    Sweep {
        op: Op,
        at: u64,
        len: u64,
        stride: u64,
        window: u64,
        count: u64,
        queue: usize,
        stream: u32,
    },
    Flush {
        queue: usize,
    },
    /// Makes the writes to a range durable.
    FlushRange {
        at: u64,
        len: u64,
    },
    WriteBack {
        at: u64,
        len: u64,
    },
    Prefetch {
        at: u64,
        len: u64,
    },
    DropPages {
        at: u64,
        len: u64,
    },
    Advise(Advice),
    SetElevator(String),
    /// Sets a tunable of the elevator, by its number.
    SetTunable {
        tunable: usize,
        value: u64,
    },
    SetDepth(u32),
    SetWeight {
        stream: u32,
        weight: u32,
    },
    ForgetMetadata,
    /// Moves the end of another volume up by this distance.
    Grow {
        cells: u64,
    },
    /// Moves the end of a file.
    Resize {
        cells: u64,
    },
    /// A write that may extend the volume: `back` cells before its end, `gap` cells past it.
    Append {
        back: u64,
        gap: u64,
        len: u64,
        hold: Duration,
        forced: bool,
        /// Direct I/O, also on a volume with a page cache.
        is_direct: bool,
        queue: usize,
        stream: u32,
    },
    /// Another program makes the file longer.
    GrowOutside {
        cells: u64,
    },
    /// Moves the end to that of the file.
    FollowGrowth,
    /// So many frames of the page cache may have memory.
    SetBudget {
        frames: u32,
    },
    /// A program that only reads the file does so through a page cache of its own.
    ReaderReads {
        at: u64,
        len: u64,
    },
    /// It drops its pages.
    ReaderDrops,
    /// It follows the growth of the file.
    ReaderFollows,
    Release,
    /// From now on, the disks refuse all writes for lack of space, or accept them again.
    SetFull(bool),
    PowerCut,
    /// The program dies, and another one starts.
    Kill,
    /// Another program writes its page.
    WriteOutside,
    /// The target is truncated from outside.
    CutOutside {
        at: u64,
    },
    /// A disk is detached: all I/O fails.
    Detach {
        member: usize,
    },
    /// The disks are attached again, and have their size again.
    Repair,
    /// Thin disks get space.
    AddSpace {
        sectors: u64,
    },
    /// From now on, the disks acknowledge flushes that they do not execute, or execute them again.
    SetLying(bool),
}

const MAPPERS: [&str; 2] = ["extent", "indirect"];

/// The shortest interval of retries on a disk that refuses writes.
const EXPIRE_MIN: Duration = Duration::from_millis(10);

impl Scenario {
    /// The scenario of a seed.
    pub(crate) fn draw(seed: u64, draw: Draw) -> Self {
        let mut random = Random::new(seed);
        let random = &mut random;
        let count = *random.pick(&[1, 1, 1, 2, 3]);
        let mut volumes: Vec<VolumePlan> = (0..count).map(|_| VolumePlan::draw(random)).collect();
        let steps = *random.pick(&[100, 400, 1500]);
        let mix = Mix::draw(random);
        let mut actions = (0..steps)
            .map(|_| {
                let volume = random.below(count) as usize;
                let pause = Duration::from_nanos(random.below(mix.pause_nanos));
                let what = mix.action(random, &volumes[volume]);
                Action { volume, pause, what, fine: Fine::NONE }
            })
            .collect();
        if draw != Draw::First {
            extras::add(seed, &mut volumes, &mut actions);
            extras::add_full_disk(seed, &mut volumes, &mut actions);
        }
        if matches!(draw, Draw::Third | Draw::Fourth | Draw::All) {
            bytes::add(seed, &mut volumes, &mut actions);
            bounced::add(seed, &mut volumes, &mut actions);
            disks::add(seed, &mut volumes, &mut actions);
        }
        if matches!(draw, Draw::Fourth | Draw::All) {
            appends::add(seed, &mut volumes, &mut actions);
        }
        if draw == Draw::All {
            bypass::add(seed, &mut volumes, &mut actions);
            new_files::add(seed, &mut volumes, &mut actions);
        }
        Self { seed, volumes, actions }
    }
}

impl VolumePlan {
    fn draw(random: &mut Random) -> Self {
        let is_mapped = random.one_in(4);
        let is_buffered = random.below(3) > 0;
        let pages = random.between(2, 48);
        let odd = if is_mapped { 512 * random.below(8) } else { *random.pick(&[0, 0, 512, 64, 4032, 1088]) };
        let members = random.between(2, 4) as usize;
        let layout = if is_mapped {
            let mapper = *random.pick(&MAPPERS);
            let boundary = *random.pick(&Boundary::ALL);
            Layout::Mapped { mapper, boundary, members: if random.one_in(2) { 1 } else { members } }
        } else if random.one_in(3) {
            Layout::Striped { members, chunk_sectors: *random.pick(&[8, 16, 64]) }
        } else {
            Layout::Plain
        };
        // The capacity of a stripe is whole chunks of all members, and it has no end within a block.
        let bytes = match layout {
            Layout::Striped { members, chunk_sectors } => {
                (pages * 4096).next_multiple_of(members as u64 * chunk_sectors * 512)
            }
            _ if is_buffered => pages * 4096 + odd,
            _ => pages * 4096 + odd / 512 * 512,
        };
        let cache = is_buffered.then(|| CachePlan::draw(random));
        let faults = draw_faults(random, layout, bytes);
        Self {
            bytes,
            layout,
            cache,
            queues: random.between(1, 3) as usize,
            bios_max: random.between(2, 40) as u32,
            requests_max: random.between(2, 40) as u32,
            depth: random.between(1, 16) as u32,
            plug_requests_max: random.between(1, 16) as u32,
            request_bytes_max: 4096 << random.below(5),
            segments_max: random.between(1, 16) as u16,
            disk_depth: random.between(1, 16) as u32,
            has_write_cache: random.below(4) > 0,
            has_fua: random.one_in(2),
            has_discard: random.one_in(2),
            discard_zeroes: random.one_in(2),
            writes_early: random.one_in(2),
            latency: Duration::from_nanos(1000 << random.below(12)),
            seek_nanos: *random.pick(&[0, 0, 100, 5000]),
            channels: random.between(1, 8) as usize,
            elevator: random.pick(ELEVATORS).name.to_owned(),
            faults,
            is_shuffled: random.one_in(3),
            flush_loses: random.one_in(3),
            chunk_sectors: if layout == Layout::Plain { *random.pick(&[0, 0, 8, 24]) } else { 0 },
            stays_plugged: random.one_in(3),
            calls_max: random.between(1, 24) as usize,
            seed: random.seed(),
            extras: Extras::NONE,
        }
    }

    /// The offset of its first byte.
    pub(crate) const fn base_bytes(&self) -> u64 {
        self.extras.base_bytes
    }

    /// The elevator of its queues, by its text.
    pub(crate) fn elevator(&self, text: &str) -> ElevatorSpec {
        elevator::spec(text, self.extras.checks_none)
    }
}

impl CachePlan {
    fn draw(random: &mut Random) -> Self {
        Self {
            frames: random.between(2, 40) as u32,
            io_pages_max: random.between(1, 8) as u32,
            reads_max: random.between(1, 6) as u32,
            writes_max: random.between(1, 6) as u32,
            background_percent: random.between(5, 50) as u8,
            expire: Duration::from_micros(10 << random.below(16)),
            readahead: *random.pick(&[
                None,
                Some(WindowPolicy::Adaptive),
                Some(WindowPolicy::Adaptive),
                Some(WindowPolicy::Linux),
            ]),
        }
    }
}

/// The faults of the disks of a volume.
fn draw_faults(random: &mut Random, layout: Layout, bytes: u64) -> Vec<Fault> {
    let mut rules = Vec::new();
    if random.one_in(3) {
        return rules;
    }
    let rate = random.between(4, 200);
    if random.one_in(2) {
        let error = *random.pick(&[IoError::Media, IoError::NoSpace, IoError::Os(11)]);
        rules.push(Fault::error(error).one_in(rate));
    }
    if random.one_in(3) {
        rules.push(Fault::error(IoError::Media).on(Op::Flush).one_in(3));
    }
    if random.one_in(4) {
        let start = random.below(bytes / 512);
        let bad = iopath_core::Extent::new(iopath_core::Sector(start), 1).expect("on the disk");
        let times = random.between(1, 20);
        rules.push(Fault::error(IoError::Media).within(bad).times(times));
    }
    if random.one_in(2) {
        rules.push(Fault::short().one_in(random.between(1, 20)));
    }
    if random.one_in(4) {
        rules.push(Fault::delay(Duration::from_millis(1 << random.below(9))).one_in(rate));
    }
    if random.one_in(6) {
        rules.push(Fault::stuck().one_in(rate).times(random.between(1, 4)));
    }
    // The model knows the place of a silent fault only if the sectors of the disk are those of the volume.
    if layout == Layout::Plain && random.one_in(5) {
        let fault = silent_fault(random);
        rules.push(fault.one_in(rate).times(random.between(1, 3)));
    }
    rules
}

fn silent_fault(random: &mut Random) -> Fault {
    match random.below(4) {
        0 => Fault::torn_write(),
        1 => Fault::lost_write(),
        2 => Fault::misdirected_write(),
        _ => Fault::bit_rot(),
    }
}

/// The weights of the actions of a run.
#[derive(Debug, Clone)]
struct Mix {
    weights: [u64; 13],
    pause_nanos: u64,
    cells_max: u64,
    /// Actions concentrate on the first part of a volume.
    hot_percent: u64,
    /// One in this many actions continues where the previous one ended.
    at: u64,
}

impl Mix {
    fn draw(random: &mut Random) -> Self {
        let mut weights = [0; 13];
        let usual: [u64; 13] = [30, 30, 30, 6, 4, 4, 4, 2, 2, 1, 1, 2, 1];
        for (weight, usual) in weights.iter_mut().zip(usual) {
            *weight = if random.one_in(4) { 0 } else { random.below(usual * 2 + 1) };
        }
        // A run without reads and writes tests nothing.
        weights[1] += 3;
        weights[2] += 3;
        if random.one_in(2) {
            weights[12] = 0;
        }
        Self {
            weights,
            pause_nanos: 1 << random.between(4, 22),
            cells_max: 1 << random.between(1, 9),
            hot_percent: *random.pick(&[10, 30, 100]),
            at: random.between(2, 12),
        }
    }

    fn action(&self, random: &mut Random, plan: &VolumePlan) -> Do {
        let all = self.weights.iter().sum();
        let mut chosen = random.below(all);
        let kind = self.weights.iter().position(|weight| match chosen.checked_sub(*weight) {
            Some(rest) => {
                chosen = rest;
                false
            }
            None => true,
        });
        let cells = plan.bytes / 64;
        let hot = (cells * self.hot_percent / 100).max(1);
        let mut at = random.below(hot);
        // Many calls on the same few places meet each other.
        if random.one_in(self.at) {
            at = at / 64 * 64;
        }
        let len = random.between(1, self.cells_max);
        let hold = Duration::from_nanos(if random.one_in(3) { random.below(1 << 20) } else { 0 });
        let queue = random.below(plan.queues as u64) as usize;
        match kind.unwrap_or(0) {
            0 => Do::Read { at, len, hold },
            1 => Do::Write { at, len, hold },
            2 => {
                let is_mapped = matches!(plan.layout, Layout::Mapped { .. });
                let op = match random.below(16) {
                    0..7 => Op::Read,
                    7..13 => Op::Write,
                    13 if !is_mapped => Op::Write,
                    14 => Op::WriteZeroes,
                    // Discards move the extents of a mapped file.
                    _ => Op::Discard,
                };
                let forced = random.one_in(5);
                let stream = random.below(4) as u32;
                Do::Direct { op, at, len, forced, queue, stream }
            }
            3 => Do::Flush { queue },
            4 => Do::WriteBack { at, len },
            5 => Do::Prefetch { at, len },
            6 => Do::DropPages { at, len },
            7 => Do::SetElevator(random.pick(ELEVATORS).name.to_owned()),
            8 => Do::SetDepth(random.between(1, 16) as u32),
            9 => Do::SetWeight { stream: random.below(4) as u32, weight: random.between(1, 8) as u32 },
            10 => Do::ForgetMetadata,
            11 => Do::Release,
            _ => Do::PowerCut,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_one_scenario() {
        let [first, second, other] = [7, 7, 8].map(|seed| Scenario::draw(seed, Draw::All));
        assert_eq!(first.actions, second.actions);
        assert_ne!(first.actions, other.actions);
    }

    #[test]
    fn features_leave_the_first_part_of_a_scenario_as_it_is() {
        let first = Scenario::draw(7, Draw::First);
        let second = Scenario::draw(7, Draw::Second);
        let mut rest = second.actions.iter();
        assert!(first.actions.iter().all(|action| rest.any(|other| other == action)));
        assert!(second.actions.len() > first.actions.len());
        // The later features change the ranges of calls, and add actions.
        let all = Scenario::draw(7, Draw::All);
        let kind = |action: &Action| std::mem::discriminant(&action.what);
        let mut rest = all.actions.iter();
        assert!(second.actions.iter().all(|action| rest.any(|other| kind(other) == kind(action))));
    }

    #[test]
    fn seeds_draw_each_layout_and_each_action() {
        let scenarios: Vec<_> = (0..200).map(|seed| Scenario::draw(seed, Draw::All)).collect();
        let plans = || scenarios.iter().flat_map(|scenario| &scenario.volumes);
        assert!(plans().any(|plan| plan.layout == Layout::Plain && plan.cache.is_some()));
        assert!(plans().any(|plan| matches!(plan.layout, Layout::Striped { .. }) && plan.cache.is_none()));
        assert!(plans().any(|plan| matches!(plan.layout, Layout::Mapped { members: 2.., .. })));
        let actions = || scenarios.iter().flat_map(|scenario| &scenario.actions);
        assert!(actions().any(|action| action.what == Do::PowerCut));
        assert!(actions().any(|action| matches!(action.what, Do::Direct { op: Op::Discard, .. })));
        assert!(actions().any(|action| matches!(action.what, Do::Sweep { .. })));
        assert!(actions().any(|action| matches!(action.what, Do::SetTunable { .. })));
        assert!(actions().any(|action| matches!(action.what, Do::Append { .. })));
        assert!(actions().any(|action| matches!(action.what, Do::GrowOutside { .. })));
        assert!(actions().any(|action| matches!(action.what, Do::SetBudget { .. })));
        assert!(actions().any(|action| matches!(action.what, Do::FlushRange { .. })));
        assert!(plans().any(|plan| plan.extras.bypasses_queue && plan.extras.extends.is_some()));
        assert!(plans().any(|plan| plan.extras.bypasses_queue && plan.extras.first_bytes == Some(0)));
        let extends =
            |what: fn(&VolumePlan) -> bool| plans().any(|plan| plan.extras.extends.is_some() && what(plan));
        assert!(extends(|plan| plan.extras.bounces) && extends(|plan| plan.cache.is_some()));
        assert!(extends(|plan| matches!(plan.layout, Layout::Mapped { .. })));
        assert!(extends(|plan| plan.cache.is_none() && !plan.extras.bounces));
        assert!(plans().any(|plan| plan.extras.reader.is_some() && plan.extras.extends.is_some()));
        assert!(plans().any(|plan| plan.extras.bounces && plan.extras.disks.outsider_page.is_some()));
    }
}
