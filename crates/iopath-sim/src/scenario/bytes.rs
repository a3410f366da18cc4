//! Calls that begin and end at any byte, volumes that end at any byte or at the highest offset, pages that are
//! borrowed for a long time. They are drawn from random numbers of their own, so that a seed keeps the rest of its
//! scenario.

use iopath_core::Duration;

use super::{Action, Do, Fine, Layout, VolumePlan, draw_faults};
use crate::random::Random;

/// Adds the features to a scenario.
pub(super) fn add(seed: u64, volumes: &mut [VolumePlan], actions: &mut [Action]) {
    let random = &mut Random::new(seed ^ 0x0B17_E5C0_FFEE_0001);
    for plan in volumes.iter_mut() {
        end_anywhere(random, plan);
        move_to_the_end(random, plan);
    }
    if random.below(4) > 0 {
        let many = random.between(1, 4);
        for action in actions.iter_mut().filter(|action| ends_anywhere(&action.what, &volumes[action.volume]))
        {
            if random.one_in(many) {
                // Often one byte beside the edge of a cell.
                let mut edge = || if random.one_in(3) { random.below(2) } else { random.below(64) } as u8;
                action.fine = Fine { start: edge(), end: edge() };
            }
        }
    }
    if random.one_in(40) {
        borrow_long(random, volumes, actions);
    }
}

/// Lets a volume end at any byte, if its last block can be a part of one.
fn end_anywhere(random: &mut Random, plan: &mut VolumePlan) {
    if plan.cache.is_none() || plan.layout != Layout::Plain || random.one_in(2) {
        return;
    }
    plan.bytes -= random.below(64);
    if let Some(first_bytes) = &mut plan.extras.first_bytes {
        *first_bytes = (*first_bytes + random.below(64)).min(plan.bytes);
    }
}

/// Moves a volume so that it ends at the last offset of a file.
fn move_to_the_end(random: &mut Random, plan: &mut VolumePlan) {
    if plan.layout != Layout::Plain || !random.one_in(8) {
        return;
    }
    let room = plan.bytes.next_multiple_of(4096);
    plan.extras.base_bytes = (1 << 63) - room;
    // A disk has whole sectors. With a page cache, the size is that of the largest file.
    plan.bytes = room - if plan.cache.is_some() { 1 } else { 512 };
    plan.extras.first_bytes = plan.extras.first_bytes.map(|bytes| bytes.min(plan.bytes));
    // A silent fault could choose a place that does not exist.
    let without_silent = Layout::Striped { members: 2, chunk_sectors: 8 };
    plan.faults = draw_faults(random, without_silent, plan.bytes);
}

/// Whether the bytes of an action may be any.
fn ends_anywhere(what: &Do, plan: &VolumePlan) -> bool {
    match what {
        Do::Read { .. }
        | Do::Write { .. }
        | Do::Resize { .. }
        | Do::WriteBack { .. }
        | Do::Prefetch { .. }
        | Do::DropPages { .. } => true,
        Do::Grow { .. } => plan.layout == Layout::Plain && plan.cache.is_some(),
        _ => false,
    }
}

/// Lets programs borrow pages for so long that a call which lacks a frame fails.
fn borrow_long(random: &mut Random, volumes: &mut [VolumePlan], actions: &mut [Action]) {
    let volume = random.below(volumes.len() as u64) as usize;
    if let Some(cache) = &mut volumes[volume].cache {
        cache.frames = random.between(2, 4) as u32;
    }
    let many = random.between(2, 8);
    for action in actions.iter_mut().filter(|action| action.volume == volume) {
        if let Do::Read { len, hold, .. } = &mut action.what
            && random.one_in(many)
        {
            // One page or two: each is borrowed for this time.
            *len = (*len).min(64);
            *hold = Duration::from_millis(random.between(100, 20_000));
        }
    }
}
