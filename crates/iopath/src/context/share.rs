//! Divides the memory of a context among the caches of its volumes. Data in, data out: `keeper.rs` looks and acts.
//!
//! ```text
//!   bytes │        ┌────┐           A cache that evicts pages gets more: first memory that no cache has, then memory
//!         │ ┌────┐ │    │           that others have and do not use, then memory of caches of closed volumes, then of
//!    fair │─│────│─│────│─┌────┐─   idle caches. A cache below its fair share also gets memory of caches above it.
//!         │ │    │ │    │ │    │    Each step is small, so that a mistake costs little: the cache that lost memory
//!     min │─│────│─│────│─│────│─   asks for it in the next round. No cache falls below its minimum.
//!         └─┴────┴─┴────┴─┴────┴─
//! ```

/// The memory of one cache, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    /// The budget.
    pub(super) budget: u64,
    /// The memory in use.
    pub(super) used: u64,
    pub(super) min: u64,
    pub(super) max: u64,
    /// It has evicted pages for lack of memory since the last round.
    pub(super) is_short: bool,
    /// No call has used it for some rounds.
    pub(super) is_idle: bool,
}

/// The part of its memory above the minimum that an idle cache loses in one round.
const IDLE_PART: u64 = 8;

/// The part of its memory above the fair share that a cache loses in one round.
const FAIR_PART: u64 = 4;

impl Share {
    /// The bytes that a cache asks for: as many as it has.
    fn want(&self) -> u64 {
        if self.is_short { self.budget.max(self.min).min(self.max.saturating_sub(self.budget)) } else { 0 }
    }

    /// The bytes that it has and does not use. Of no value for a cache that is short.
    fn unused(&self) -> u64 {
        if self.is_short { 0 } else { self.budget.saturating_sub(self.used.max(self.min)) }
    }

    /// The bytes that it loses in one round for not being used.
    fn idle(&self) -> u64 {
        if self.is_idle && !self.is_short {
            self.budget.saturating_sub(self.min).div_ceil(IDLE_PART)
        } else {
            0
        }
    }

    /// The bytes that it loses in one round for having more than others.
    fn excess(&self, fair: u64) -> u64 {
        self.budget.saturating_sub(fair.max(self.min)).div_ceil(FAIR_PART)
    }
}

/// Changes the budgets for the next round. Afterwards their sum is at most `memory`, if the minimums allow that. `kept`
/// is the memory of caches of closed volumes; returns how much of it is left for them.
pub(super) fn divide(memory: u64, kept: u64, shares: &mut [Share]) -> u64 {
    lower(memory, shares);
    let fair = fair(memory, shares);
    let wanted = |shares: &[Share]| shares.iter().map(Share::want).sum::<u64>();
    let has: u64 = shares.iter().map(|share| share.budget).sum();
    let mut kept = kept.min(memory.saturating_sub(has));
    let mut free = memory.saturating_sub(has) - kept;
    let mut lacking = wanted(shares).saturating_sub(free);
    let unused = take(shares, lacking, Share::unused);
    let of_kept = kept.min(lacking - unused);
    kept -= of_kept;
    lacking -= unused + of_kept;
    free += unused + of_kept + take(shares, lacking, Share::idle);
    // Only for caches below the fair share, or two caches would take from one another forever.
    let poor = |share: &Share| share.want().min(fair.saturating_sub(share.budget));
    let lacking = shares.iter().map(poor).sum::<u64>().saturating_sub(free);
    free += take(shares, lacking, |share| share.excess(fair));
    free -= give(shares, free, poor);
    give(shares, free, Share::want);
    kept
}

/// The equal share of the caches in use. Idle caches keep what no other cache has needed.
fn fair(memory: u64, shares: &[Share]) -> u64 {
    let is_idle = |share: &&Share| share.is_idle && !share.is_short;
    let of_idle: u64 = shares.iter().filter(is_idle).map(|share| share.budget).sum();
    let in_use = shares.len() - shares.iter().filter(is_idle).count();
    memory.saturating_sub(of_idle) / in_use.max(1) as u64
}

/// Lowers the largest budgets to one level, so that the sum is at most `memory`.
fn lower(memory: u64, shares: &mut [Share]) {
    let sum_at = |shares: &[Share], level: u64| {
        shares.iter().map(|share| share.budget.min(level.max(share.min))).sum::<u64>()
    };
    let (mut low, mut high) = (0, shares.iter().map(|share| share.budget).max().unwrap_or(0));
    if sum_at(shares, high) <= memory {
        return;
    }
    while high - low > 1 {
        let level = low.midpoint(high);
        if sum_at(shares, level) <= memory { low = level } else { high = level }
    }
    for share in shares {
        share.budget = share.budget.min(low.max(share.min));
    }
}

/// Takes up to `bytes` from caches, each in proportion to its part. Returns the bytes taken.
fn take(shares: &mut [Share], bytes: u64, part: impl Fn(&Share) -> u64) -> u64 {
    let all: u64 = shares.iter().map(&part).sum();
    let mut taken = 0;
    for share in shares {
        let bytes = in_proportion(part(share), bytes, all);
        share.budget -= bytes;
        taken += bytes;
    }
    taken
}

/// Gives up to `bytes` to caches, each in proportion to its part. Returns the bytes given.
fn give(shares: &mut [Share], bytes: u64, part: impl Fn(&Share) -> u64) -> u64 {
    let all: u64 = shares.iter().map(&part).sum();
    let mut given = 0;
    for share in shares {
        let bytes = in_proportion(part(share), bytes, all);
        share.budget += bytes;
        given += bytes;
    }
    given
}

/// `part`, or its share of `bytes` if all parts are more than that.
fn in_proportion(part: u64, bytes: u64, all: u64) -> u64 {
    if all <= bytes { part } else { (u128::from(part) * u128::from(bytes) / u128::from(all)) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: u64 = 64 << 10;
    const MEMORY: u64 = 64 << 20;

    fn share(budget: u64, used: u64) -> Share {
        Share { budget, used, min: MIN, max: MEMORY, is_short: false, is_idle: false }
    }

    fn budgets(shares: &[Share]) -> Vec<u64> {
        shares.iter().map(|share| share.budget).collect()
    }

    /// Rounds in which caches use what they have, and those of `is_short` are always short.
    fn rounds(shares: &mut [Share], rounds: usize) {
        for _ in 0..rounds {
            divide(MEMORY, 0, shares);
            let has: u64 = shares.iter().map(|share| share.budget).sum();
            assert!(has <= MEMORY, "{has} of {MEMORY} bytes");
            for share in &mut *shares {
                assert!((share.min..=share.max).contains(&share.budget), "{share:?}");
                share.used = if share.is_short { share.budget } else { share.used.min(share.budget) };
            }
        }
    }

    #[test]
    fn a_cache_alone_gets_all_memory_in_a_few_rounds() {
        let mut shares = [Share { is_short: true, ..share(MIN, MIN) }];
        rounds(&mut shares, 10);
        assert_eq!(budgets(&shares), [MEMORY]);
    }

    #[test]
    fn memory_that_a_cache_does_not_use_goes_to_others_at_once() {
        let mut shares = [share(MEMORY - MIN, MIN), Share { is_short: true, ..share(MIN, MIN) }];
        rounds(&mut shares, 10);
        assert_eq!(budgets(&shares), [MIN, MEMORY - MIN]);
    }

    #[test]
    fn an_idle_cache_falls_to_its_minimum_while_others_are_short() {
        let mut shares = [share(MEMORY - MIN, MEMORY - MIN), Share { is_short: true, ..share(MIN, MIN) }];
        shares[0].is_idle = true;
        rounds(&mut shares, 200);
        assert_eq!(budgets(&shares), [MIN, MEMORY - MIN]);
        let mut alone = [Share { is_idle: true, ..share(MEMORY, MEMORY) }];
        rounds(&mut alone, 20);
        assert_eq!(budgets(&alone), [MEMORY], "pages stay while no cache needs the memory");
    }

    #[test]
    fn caches_that_are_short_get_equal_shares() {
        let mut shares = [share(MEMORY - 3 * MIN, 0), share(MIN, 0), share(MIN, 0), share(MIN, 0)];
        for share in &mut shares {
            (share.used, share.is_short) = (share.budget, true);
        }
        rounds(&mut shares, 100);
        for share in &shares {
            assert!(share.budget.abs_diff(MEMORY / 4) < MEMORY / 64, "{shares:?}");
        }
    }

    #[test]
    fn a_cache_in_use_that_fits_keeps_its_memory_up_to_the_fair_share() {
        let used = MEMORY / 2;
        let mut shares = [share(used, used), Share { is_short: true, ..share(MIN, MIN) }];
        rounds(&mut shares, 100);
        assert_eq!(budgets(&shares), [used, MEMORY - used]);
    }

    #[test]
    fn idle_caches_do_not_lower_the_equal_share() {
        let mut shares = vec![Share { is_idle: true, ..share(MIN, MIN) }; 500];
        let large = MEMORY - 501 * MIN;
        shares.push(share(large, large));
        shares.push(Share { is_short: true, ..share(MIN, MIN) });
        rounds(&mut shares, 100);
        let half = (MEMORY - 500 * MIN) / 2;
        assert!(shares[501].budget.abs_diff(half) < MEMORY / 64, "{:?}", &shares[500..]);
    }

    #[test]
    fn less_memory_lowers_the_largest_budgets_to_one_level() {
        let mut shares = [share(MEMORY, MEMORY), share(MEMORY / 2, MEMORY / 2), share(MIN, MIN)];
        divide(MEMORY / 2 + MIN, 0, &mut shares);
        assert_eq!(budgets(&shares), [MEMORY / 4, MEMORY / 4, MIN]);
        divide(0, 0, &mut shares);
        assert_eq!(budgets(&shares), [MIN; 3], "the minimum holds in any case");
        divide(MEMORY, 0, &mut []);
    }

    #[test]
    fn memory_of_closed_volumes_goes_after_unused_memory_and_before_that_of_idle_caches() {
        const QUARTER: u64 = MEMORY / 4;
        let idle = Share { is_idle: true, ..share(QUARTER, QUARTER) };
        let busy = Share { is_short: true, ..share(QUARTER, QUARTER) };
        let mut shares = [idle, share(QUARTER, MIN), busy];
        // The busy cache wants as much as it has.
        assert_eq!(divide(MEMORY, QUARTER, &mut shares), QUARTER - MIN);
        assert_eq!(budgets(&shares), [QUARTER, MIN, 2 * QUARTER]);
        let mut shares = [idle, busy];
        assert_eq!(divide(MEMORY, 2 * QUARTER, &mut shares), QUARTER);
        assert_eq!(budgets(&shares), [QUARTER, 2 * QUARTER]);
        assert_eq!(divide(MEMORY, QUARTER, &mut [idle]), QUARTER, "no cache needs it");
        assert_eq!(divide(QUARTER + 7, 2 * QUARTER, &mut [idle]), 7, "more than there is");
        assert_eq!(divide(0, QUARTER, &mut []), 0);
    }

    #[test]
    fn budgets_of_random_caches_are_within_memory_and_limits() {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 20) % below
        };
        for _ in 0..2000 {
            let count = 1 + random(20);
            let mut shares: Vec<Share> = (0..count)
                .map(|_| {
                    let max = MIN + random(MEMORY);
                    let budget = MIN + random(max - MIN + 1);
                    let used = random(2 * budget);
                    Share { budget, used, min: MIN, max, is_short: random(2) > 0, is_idle: random(2) > 0 }
                })
                .collect();
            rounds(&mut shares, 3);
        }
    }
}
