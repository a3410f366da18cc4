//! Shares of the I/Os of several jobs, in proportion to their weights: fio's `flow`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::controls::Flow;

/// The shortest time between two attempts of a job that is ahead of its share.
const SLEEP_MIN_NS: u64 = 50_000;

/// The jobs of one group.
#[derive(Debug, Default)]
struct Group {
    /// The transfers that running jobs have started, with those that joining jobs were credited with.
    started: AtomicU64,
    /// The weights of running jobs.
    weights: AtomicU64,
}

/// The share of one job. Its drop is the end of the job: the shares of the others then count without it.
#[derive(Debug)]
pub(crate) struct FlowShare {
    group: Arc<Group>,
    weight: u64,
    sleep_ns: u64,
    /// Whether the job has begun: before, the others count without it.
    has_joined: bool,
    /// The transfers it has started, and its credit.
    started: u64,
    /// The next attempt of a job that is ahead of its share.
    retry_ns: Option<u64>,
}

/// The shares of jobs that run at the same time, in their order.
pub(crate) fn flows<'a>(settings: impl Iterator<Item = Option<&'a Flow>>) -> Vec<Option<FlowShare>> {
    let mut groups: BTreeMap<u64, Arc<Group>> = BTreeMap::new();
    let share = |flow: &Flow| {
        let group = Arc::clone(groups.entry(flow.group).or_default());
        let sleep_ns = u64::try_from(flow.sleep.as_nanos()).unwrap_or(u64::MAX).max(SLEEP_MIN_NS);
        let weight = flow.weight.get();
        FlowShare { group, weight, sleep_ns, has_joined: false, started: 0, retry_ns: None }
    };
    let mut share = share;
    settings.map(|flow| flow.map(&mut share)).collect()
}

impl FlowShare {
    /// Joins the group with a credit: its share of the transfers so far. So the others do not wait until it has caught
    /// up.
    #[cold]
    fn join(&mut self) {
        let weights = self.group.weights.fetch_add(self.weight, Ordering::Relaxed);
        let started = self.group.started.load(Ordering::Relaxed);
        let credit = u128::from(started) * u128::from(self.weight) / u128::from(weights.max(1));
        self.started = u64::try_from(credit).unwrap_or(u64::MAX);
        self.group.started.fetch_add(self.started, Ordering::Relaxed);
        self.has_joined = true;
    }

    /// Whether the job is not ahead of its share. The first call is the begin of the job.
    pub(super) fn permits(&mut self, now_ns: u64) -> bool {
        if !self.has_joined {
            self.join();
        }
        let own = u128::from(self.started) * u128::from(self.group.weights.load(Ordering::Relaxed));
        let due = u128::from(self.group.started.load(Ordering::Relaxed)) * u128::from(self.weight);
        let is_ahead = own > due;
        self.retry_ns = is_ahead.then(|| now_ns.saturating_add(self.sleep_ns));
        !is_ahead
    }

    /// The job has started a transfer.
    pub(super) fn handle_start(&mut self) {
        self.started += 1;
        self.group.started.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) const fn poll_timeout(&self) -> Option<u64> {
        self.retry_ns
    }
}

impl Drop for FlowShare {
    fn drop(&mut self) {
        if !self.has_joined {
            return;
        }
        self.group.started.fetch_sub(self.started, Ordering::Relaxed);
        self.group.weights.fetch_sub(self.weight, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::time::Duration;

    use super::*;

    fn flow(group: u64, weight: u64) -> Flow {
        Flow { group, weight: NonZeroU64::new(weight).unwrap(), sleep: Duration::ZERO }
    }

    /// The transfers of each job after this many attempts of each.
    fn started(shares: &mut [FlowShare], attempts: u32) -> Vec<u64> {
        for _ in 0..attempts {
            for share in &mut *shares {
                if share.permits(0) {
                    share.handle_start();
                }
            }
        }
        shares.iter().map(|share| share.started).collect()
    }

    #[test]
    fn jobs_start_transfers_in_proportion_to_their_weights() {
        let (one, eight, alone) = (flow(0, 1), flow(0, 8), flow(7, 3));
        let mut shares: Vec<_> =
            flows([Some(&one), Some(&eight), Some(&alone)].into_iter()).into_iter().flatten().collect();
        let counts = started(&mut shares, 8000);
        assert_eq!(counts[2], 8000, "a group of one job has no limit");
        assert!((counts[1] as f64 / counts[0] as f64 - 8.0).abs() < 0.1, "{counts:?}");
        assert_eq!(shares[0].poll_timeout(), Some(SLEEP_MIN_NS), "ahead, so it tries again later");
    }

    #[test]
    fn the_end_of_a_job_frees_the_others() {
        let (one, eight) = (flow(0, 1), flow(0, 8));
        let mut shares: Vec<_> =
            flows([Some(&one), Some(&eight)].into_iter()).into_iter().flatten().collect();
        shares.pop();
        assert_eq!(started(&mut shares, 100), [100]);
    }

    #[test]
    fn jobs_do_not_wait_for_a_job_that_has_not_begun() {
        let (one, two) = (flow(0, 1), flow(0, 2));
        let mut shares: Vec<_> = flows([Some(&one), Some(&two)].into_iter()).into_iter().flatten().collect();
        assert_eq!(started(&mut shares[..1], 100), [100]);
        assert_eq!(started(&mut shares, 0), [100, 0]);
        let begun = started(&mut shares, 300);
        let [first, second] = [begun[0] - 100, begun[1] - 200];
        assert!(second.abs_diff(2 * first) <= 3, "by weight from then on: {first}, {second}");
    }

    #[test]
    fn a_job_without_a_flow_has_no_share() {
        assert!(flows([None].into_iter())[0].is_none());
    }
}
