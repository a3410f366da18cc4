//! Disks that fail as a whole, events from outside, and programs that die: features that are drawn from random numbers
//! of their own, so that a seed keeps the rest of its scenario.

use iopath_core::Duration;

use super::{Action, Do, EXPIRE_MIN, Layout, VolumePlan};
use crate::random::Random;

/// The features of the disks of a volume.
#[derive(Debug, Clone)]
pub(crate) struct Disks {
    /// Sectors that a medium writes together.
    pub(crate) physical_sectors: u64,
    /// The sectors of each disk that may be written; all if not set.
    pub(crate) space_sectors: Option<u64>,
    /// A disk refuses one in this many requests; 0 for none.
    pub(crate) refuses: u64,
    /// One in this many requests for memory of metadata is refused; 0 for none.
    pub(crate) refuses_memory: u64,
    /// The program reads completions only after this time.
    pub(crate) read_interval: Duration,
    /// The page that only another program writes.
    pub(crate) outsider_page: Option<u64>,
}

impl Disks {
    /// No feature.
    pub(crate) const NONE: Self = Self {
        physical_sectors: 1,
        space_sectors: None,
        refuses: 0,
        refuses_memory: 0,
        read_interval: Duration::ZERO,
        outsider_page: None,
    };

    pub(super) fn draw(random: &mut Random, plan: &VolumePlan) -> Self {
        let is_mapped = matches!(plan.layout, Layout::Mapped { .. });
        let pages = plan.bytes / 4096;
        // A damaged page, or an end that moves, would hide what the volume writes.
        let has_outsider = random.one_in(5) && !is_mapped && !plan.extras.resizes && pages > 2;
        let page = random.below(pages);
        Self {
            physical_sectors: if random.one_in(3) { 8 } else { 1 },
            space_sectors: random.one_in(8).then(|| random.between(1, plan.bytes / 512)),
            refuses: if random.one_in(4) { random.between(2, 20) } else { 0 },
            refuses_memory: if is_mapped && random.one_in(2) { random.between(2, 30) } else { 0 },
            // The model orders a discard of a mapped file by its completion.
            read_interval: if random.one_in(5) && !is_mapped {
                Duration::from_nanos(1000 << random.below(12))
            } else {
                Duration::ZERO
            },
            outsider_page: has_outsider.then_some(page),
        }
    }
}

/// Adds the features to a scenario.
pub(super) fn add(seed: u64, volumes: &mut [VolumePlan], actions: &mut Vec<Action>) {
    let random = &mut Random::new(seed ^ 0x0D15_C0FA_11ED_0002);
    // The model of bounced I/O does not know these features.
    for plan in volumes.iter_mut().filter(|plan| !plan.extras.bounces) {
        plan.extras.disks = Disks::draw(random, plan);
        let is_full_at_times = plan.extras.disks.space_sectors.is_some();
        if let (Some(cache), true) = (&mut plan.cache, is_full_at_times) {
            cache.expire = cache.expire.max(EXPIRE_MIN);
        }
    }
    for (volume, plan) in volumes.iter_mut().enumerate().filter(|(_, plan)| !plan.extras.bounces) {
        let events = events(random, plan);
        insert(random, volume, events, actions);
    }
}

/// Inserts events of a volume at any place.
pub(super) fn insert(random: &mut Random, volume: usize, events: Vec<Do>, actions: &mut Vec<Action>) {
    for event in events {
        let place = random.below(actions.len() as u64 + 1) as usize;
        actions.insert(place, Action::at_once(volume, event));
    }
}

/// The events of a volume, each at a time of its own.
pub(super) fn events(random: &mut Random, plan: &mut VolumePlan) -> Vec<Do> {
    let mut events = Vec::new();
    if plan.extras.disks.outsider_page.is_some() {
        events.extend((0..random.between(1, 20)).map(|_| Do::WriteOutside));
    }
    if plan.extras.disks.space_sectors.is_some() {
        events.extend((0..random.below(6)).map(|_| Do::AddSpace { sectors: random.between(1, 64) }));
    }
    // Only these lose metadata.
    let survives_power = plan.extras.survives_power;
    if random.one_in(if survives_power { 2 } else { 6 }) {
        events.extend([Do::SetLying(true), Do::SetLying(true), Do::SetLying(false), Do::PowerCut]);
    }
    if survives_power {
        events.extend((0..random.below(4)).map(|_| Do::PowerCut));
    }
    if random.one_in(8) {
        let members = random.between(1, 2);
        events.extend((0..members).map(|_| Do::Detach { member: random.below(4) as usize }));
    }
    if random.one_in(8) {
        events.push(Do::CutOutside { at: random.below(plan.bytes / 64) });
    }
    if random.one_in(5) {
        events.extend((0..random.between(1, 6)).map(|_| Do::Kill));
    }
    let fails = |event: &Do| matches!(event, Do::Detach { .. } | Do::CutOutside { .. });
    if events.iter().any(fails) {
        events.extend([Do::Repair, Do::Repair]);
        if let Some(cache) = &mut plan.cache {
            // A refused write takes no time: retries in short intervals would be most of the run.
            cache.expire = cache.expire.max(EXPIRE_MIN);
        }
    }
    events
}
