//! Volumes that writes extend: appends, truncations and growth at any time, steps of the file, limits of its length,
//! another program that makes the file longer. Other programs that read the file, and page caches whose memory changes.
//! All features of disks and programs on volumes with bounced I/O. They are drawn from random numbers of their own, so
//! that a seed keeps the rest of its scenario.

use iopath_core::Duration;

use super::disks::{self, Disks};
use super::{Action, CachePlan, Do, Fine, Layout, VolumePlan, draw_faults};
use crate::random::Random;

/// The extension of a volume by writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extends {
    /// The file of a volume with a page cache grows in steps of this length.
    pub(crate) step_bytes: Option<u64>,
    /// The system refuses a longer file.
    pub(crate) limit_bytes: u64,
    /// The system refuses one in this many changes of the length; 0 for none.
    pub(crate) refuses: u64,
}

/// Adds the features to a scenario.
pub(super) fn add(seed: u64, volumes: &mut [VolumePlan], actions: &mut Vec<Action>) {
    let random = &mut Random::new(seed ^ 0x0A99_E4D5_F11E_0003);
    for plan in volumes.iter_mut().filter(|plan| plan.extras.bounces) {
        if random.one_in(2) {
            plan.extras.disks = Disks::draw(random, plan);
        }
    }
    for (volume, plan) in volumes.iter_mut().enumerate() {
        if plan.extras.bounces && random.one_in(2) {
            let events = disks::events(random, plan);
            disks::insert(random, volume, events, actions);
        }
    }
    for (volume, plan) in volumes.iter_mut().enumerate() {
        if !is_file(plan) || random.one_in(3) {
            continue;
        }
        make_file(random, plan);
        if plan.layout == Layout::Plain {
            let is_cut =
                |action: &Action| action.volume == volume && matches!(action.what, Do::CutOutside { .. });
            actions.retain(|action| !is_cut(action));
        }
        add_actions(random, volume, plan, actions);
    }
    add_readers(seed, volumes, actions);
    add_budgets(seed, volumes, actions);
}

/// Takes memory from page caches, and returns it.
fn add_budgets(seed: u64, volumes: &mut [VolumePlan], actions: &mut Vec<Action>) {
    let random = &mut Random::new(seed ^ 0x0B4D_6E70_F4A3_0003);
    for (volume, plan) in volumes.iter_mut().enumerate() {
        let Some(cache) = plan.cache else { continue };
        if !random.one_in(3) {
            continue;
        }
        plan.extras.changes_budget = true;
        let budgets = (0..random.between(1, 30)).map(|_| {
            let frames = random.between(1, u64::from(cache.frames) + 1) as u32;
            Do::SetBudget { frames }
        });
        let budgets: Vec<Do> = budgets.collect();
        disks::insert(random, volume, budgets, actions);
    }
}

/// Adds programs that read the file of a volume through page caches of their own.
fn add_readers(seed: u64, volumes: &mut [VolumePlan], actions: &mut Vec<Action>) {
    let random = &mut Random::new(seed ^ 0x0EAD_E401_5E1F_0003);
    for (volume, plan) in volumes.iter_mut().enumerate() {
        if matches!(plan.layout, Layout::Mapped { .. }) || !random.one_in(3) {
            continue;
        }
        plan.extras.reader = Some(CachePlan::draw(random));
        let cells = plan.bytes / 64;
        let rate = random.between(2, 16);
        let mut all = Vec::with_capacity(actions.len());
        for action in actions.drain(..) {
            let pause = Duration::from_nanos(random.below(action.pause.as_nanos() as u64 + 1));
            all.push(action);
            if random.one_in(rate) {
                let what = match random.below(8) {
                    0 => Do::ReaderDrops,
                    1 => Do::ReaderFollows,
                    _ => Do::ReaderReads { at: random.below(cells), len: random.between(1, 200) },
                };
                all.push(Action { volume, pause, what, fine: Fine::NONE });
            }
        }
        *actions = all;
    }
}

/// Whether writes may extend a volume with this plan.
fn is_file(plan: &VolumePlan) -> bool {
    let changes_size = match plan.layout {
        Layout::Plain => plan.extras.disks.outsider_page.is_none(),
        Layout::Mapped { .. } => plan.extras.resizes,
        Layout::Striped { .. } => false,
    };
    changes_size && plan.base_bytes() == 0
}

fn make_file(random: &mut Random, plan: &mut VolumePlan) {
    plan.extras.resizes = true;
    let refuses = if random.one_in(3) { random.between(2, 12) } else { 0 };
    if plan.layout != Layout::Plain {
        let limit_bytes = plan.bytes;
        plan.extras.extends = Some(Extends { step_bytes: None, limit_bytes, refuses: 0 });
        return;
    }
    plan.bytes = plan.bytes.next_multiple_of(4096);
    let limit_bytes = if random.one_in(3) { random.between(plan.bytes / 2, plan.bytes) } else { plan.bytes };
    let step_bytes = plan.cache.map(|_| 4096 * *random.pick(&[1, 2, 4, 16]));
    plan.extras.first_bytes = Some(random.below(limit_bytes + 1));
    plan.extras.extends = Some(Extends { step_bytes, limit_bytes, refuses });
    // The length of a file is durable after a flush.
    plan.has_write_cache = true;
    // The model of a file does not know a write at another place.
    let without_silent = Layout::Striped { members: 2, chunk_sectors: 8 };
    plan.faults = draw_faults(random, without_silent, plan.bytes);
}

fn add_actions(random: &mut Random, volume: usize, plan: &VolumePlan, actions: &mut Vec<Action>) {
    let cells = plan.bytes / 64;
    let rate = random.between(2, 12);
    let is_plain = plan.layout == Layout::Plain;
    let has_others = is_plain && random.one_in(4);
    let is_aligned = plan.cache.is_none() && !plan.extras.bounces;
    let len_max = 1 << random.between(1, 8);
    let mut all = Vec::with_capacity(actions.len());
    for action in actions.drain(..) {
        let pause = Duration::from_nanos(random.below(action.pause.as_nanos() as u64 + 1));
        all.push(action);
        if !random.one_in(rate) {
            continue;
        }
        let mut edge = || if random.one_in(3) { random.below(2) } else { random.below(64) } as u8;
        let fine = Fine { start: edge(), end: edge() };
        let what = match random.below(16) {
            0..10 => {
                let unit = if is_aligned && random.below(8) > 0 { 8 } else { 1 };
                let near = |random: &mut Random| random.below(3) * random.below(32) * unit;
                let (back, gap) = if random.one_in(2) { (0, 0) } else { (near(random), near(random)) };
                Do::Append {
                    back,
                    gap,
                    len: random.between(1, len_max) * unit,
                    hold: Duration::from_nanos(if random.one_in(3) { random.below(1 << 20) } else { 0 }),
                    forced: random.one_in(6),
                    is_direct: random.one_in(4),
                    queue: random.below(plan.queues as u64) as usize,
                    stream: random.below(4) as u32,
                }
            }
            10..14 => Do::Resize { cells: random.below(cells + 1) },
            14 if has_others => Do::GrowOutside { cells: random.between(1, 64) },
            _ if has_others => Do::FollowGrowth,
            _ => Do::Flush { queue: 0 },
        };
        all.push(Action { volume, pause, what, fine });
    }
    *actions = all;
}
