//! Page caches that bypass their queue: small appends that the calling thread writes itself, and flushes that it
//! executes with the only write. Flushes of ranges. They are drawn from random numbers of their own, so that a seed
//! keeps the rest of its scenario.

use iopath_core::{Duration, Fault, IoError, Op};

use super::{Action, Do, Fine, Layout, VolumePlan};
use crate::random::Random;

/// Longer scenarios get fewer further actions.
const ACTIONS: usize = 2000;

/// Adds the features to a scenario.
pub(super) fn add(seed: u64, volumes: &mut [VolumePlan], actions: &mut Vec<Action>) {
    let random = &mut Random::new(seed ^ 0x0B19_A550_CACE_0004);
    for (volume, plan) in volumes.iter_mut().enumerate() {
        if plan.cache.is_none() || random.one_in(3) {
            continue;
        }
        if plan.layout == Layout::Plain && random.below(4) > 0 {
            plan.extras.bypasses_queue = true;
            if random.one_in(3) {
                // A failed flush may lose an append in progress.
                (plan.flush_loses, plan.writes_early) = (true, true);
                let rate = random.between(2, 6);
                plan.faults.push(Fault::error(IoError::Media).on(Op::Flush).one_in(rate));
            }
            if random.below(4) > 0 {
                // Otherwise the elevator hides most of it.
                "none".clone_into(&mut plan.elevator);
                let is_change =
                    |action: &Action| action.volume == volume && matches!(action.what, Do::SetElevator(_));
                actions.retain(|action| !is_change(action));
            }
        }
        add_actions(random, volume, plan, actions);
    }
}

/// Follows some actions by small appends, by flushes at once or later, and by writes beside them.
fn add_actions(random: &mut Random, volume: usize, plan: &VolumePlan, actions: &mut Vec<Action>) {
    let rate = random.between(2, 12) * if actions.len() > ACTIONS { 8 } else { 1 };
    let latency = plan.latency.as_nanos() as u64;
    let mut all = Vec::with_capacity(actions.len());
    for action in actions.drain(..) {
        all.push(action);
        if !random.one_in(rate) {
            continue;
        }
        let quiet = Duration::from_nanos(random.below(2) * random.below(32 * latency + 1));
        let first = change(random, plan);
        let then = flush(random, plan, &first);
        let mut edge = || if random.one_in(3) { random.below(2) } else { random.below(64) } as u8;
        let fine = Fine { start: edge(), end: edge() };
        let during = flush(random, plan, &first);
        let is_full = plan.extras.extends.is_some() && random.one_in(6);
        if is_full {
            // The write of a page fails while an append to the page waits, or leaves it.
            all.push(Action::at_once(volume, Do::SetFull(true)));
        }
        all.push(Action { volume, pause: quiet, what: first, fine });
        if random.one_in(3) {
            let pause = Duration::from_nanos(random.below(latency + 1));
            all.push(Action { volume, pause, what: during, fine: Fine::NONE });
        }
        if random.one_in(3) {
            let pause = Duration::from_nanos(random.below(latency + 1));
            all.push(Action { volume, pause, what: change(random, plan), fine });
        }
        let pause = Duration::from_nanos(random.below(4) * random.below(latency + 1));
        all.push(Action { volume, pause, what: then, fine });
        if is_full {
            let pause = Duration::from_nanos(random.below(4 * latency + 1));
            all.push(Action { volume, pause, what: Do::SetFull(false), fine: Fine::NONE });
        }
    }
    *actions = all;
}

/// A write to a page or two, or an append to a volume that writes extend.
fn change(random: &mut Random, plan: &VolumePlan) -> Do {
    let len = random.between(1, 100);
    let hold = Duration::from_nanos(random.below(2) * random.below(1 << 18));
    if plan.extras.extends.is_none() || random.one_in(4) {
        return Do::Write { at: random.below(plan.bytes / 64), len, hold };
    }
    // Sometimes more pages than a writer gets at once.
    let len = if random.one_in(6) { random.between(100, 1100) } else { len };
    // Often an overwrite of the last bytes, whose page then is dirty.
    let back = if random.one_in(3) { random.between(1, 40) } else { 0 };
    let forced = random.one_in(5);
    Do::Append { back, gap: 0, len, hold, forced, is_direct: false, queue: 0, stream: 0 }
}

fn flush(random: &mut Random, plan: &VolumePlan, after: &Do) -> Do {
    match *after {
        _ if random.one_in(3) => Do::Flush { queue: 0 },
        Do::Write { at, len, .. } if random.below(3) > 0 => Do::FlushRange { at, len },
        _ => {
            let cells = plan.bytes / 64;
            Do::FlushRange { at: random.below(cells), len: random.between(1, cells) }
        }
    }
}
