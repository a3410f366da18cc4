//! Volumes with bounced I/O: direct reads and writes of any bytes, also by memory that is not aligned. They are drawn
//! from random numbers of their own, so that a seed keeps the rest of its scenario.

use super::{Action, Do, Fine, Layout, VolumePlan};
use crate::random::Random;

/// Adds bounced I/O to volumes without a page cache.
pub(super) fn add(seed: u64, volumes: &mut [VolumePlan], actions: &mut [Action]) {
    let random = &mut Random::new(seed ^ 0x0B0C_EDB0_CED0_0002);
    for plan in volumes.iter_mut().filter(|plan| plan.cache.is_none() && plan.base_bytes() == 0) {
        if random.one_in(2) {
            continue;
        }
        plan.extras.bounces = true;
        if plan.layout == Layout::Plain && random.one_in(2) {
            // The last block is a part of one.
            plan.bytes -= random.below(512);
            if let Some(first_bytes) = &mut plan.extras.first_bytes {
                *first_bytes = (*first_bytes - random.below(64)).min(plan.bytes);
            }
        }
    }
    let many = random.between(1, 4);
    for action in actions.iter_mut() {
        let is_any = match action.what {
            Do::Read { .. } | Do::Write { .. } | Do::Resize { .. } => true,
            Do::Direct { op, .. } => op.has_memory(),
            Do::Grow { .. } => volumes[action.volume].layout == Layout::Plain,
            _ => false,
        };
        if is_any && volumes[action.volume].extras.bounces && random.one_in(many) {
            let mut edge = || if random.one_in(3) { random.below(2) } else { random.below(64) } as u8;
            action.fine = Fine { start: edge(), end: edge() };
        }
    }
}
