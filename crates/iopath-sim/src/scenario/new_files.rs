//! New files: a program appends a few bytes, overwrites some, and flushes, before the first call that needs the page
//! cache. They are drawn from random numbers of their own, so that a seed keeps the rest of its scenario.

use iopath_core::{Duration, Fault, IoError, Op};

use super::{Action, Do, Fine, VolumePlan};
use crate::random::Random;

/// Makes some files new, and adds what the program does first.
pub(super) fn add(seed: u64, volumes: &mut [VolumePlan], actions: &mut Vec<Action>) {
    let random = &mut Random::new(seed ^ 0x04E3_F11E_0F0F_0005);
    for (volume, plan) in volumes.iter_mut().enumerate() {
        if !can_be_new(plan) || random.one_in(4) {
            continue;
        }
        plan.extras.first_bytes = Some(0);
        if random.one_in(2) {
            // A failed flush may lose plain writes.
            (plan.flush_loses, plan.writes_early) = (true, true);
            plan.faults.push(Fault::error(IoError::Media).on(Op::Flush).one_in(random.between(2, 6)));
        }
        let latency = plan.latency.as_nanos() as u64;
        let count = random.between(1, 40);
        // One thread waits for each call; several do not.
        let is_one_thread = random.below(4) > 0;
        let first = (0..count).map(|_| {
            let waits = if is_one_thread { 8 * latency } else { latency * random.below(3) };
            let mut edge = || if random.one_in(3) { random.below(2) } else { random.below(64) } as u8;
            let fine = Fine { start: edge(), end: edge() };
            let pause = Duration::from_nanos(waits + random.below(latency + 1));
            Action { volume, pause, what: call(random), fine }
        });
        let first: Vec<Action> = first.collect();
        actions.splice(0..0, first);
    }
}

fn can_be_new(plan: &VolumePlan) -> bool {
    let has_steps = plan.extras.extends.is_some_and(|extends| extends.step_bytes.is_some());
    has_steps && plan.extras.bypasses_queue && plan.extras.disks.outsider_page.is_none()
}

fn call(random: &mut Random) -> Do {
    let hold = Duration::ZERO;
    match random.below(16) {
        0..9 => {
            let back = if random.one_in(3) { random.between(1, 40) } else { 0 };
            let forced = random.one_in(6);
            let len = random.between(1, 30);
            Do::Append { back, gap: 0, len, hold, forced, is_direct: false, queue: 0, stream: 0 }
        }
        9..11 => Do::Write { at: random.below(8), len: random.between(1, 8), hold },
        11..15 => Do::Flush { queue: 0 },
        _ => Do::Release,
    }
}
