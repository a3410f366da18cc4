//! Ends a job whose rate falls below a limit: fio's `rate_min`. Checks at completions.

use std::time::Duration;

use crate::controls::RateMin;
use crate::path::{Direction, Transfer};

/// The time before the first check: the rate of the first transfers is not steady.
const SETTLED: Duration = Duration::from_secs(2);

/// The transfers of one job since the last check.
#[derive(Debug)]
pub(super) struct RateWatch {
    settings: RateMin,
    cycle_ns: u64,
    /// The last check, or the start.
    checked_ns: u64,
    /// The next check.
    next_ns: u64,
    /// Bytes and transfers of reads and writes since the last check.
    moved: [[u64; 2]; 2],
    /// The rate that ended the job, in words.
    below: Option<String>,
}

impl RateWatch {
    /// A watch of a job that starts at `started_ns`.
    pub(super) fn new(settings: RateMin, started_ns: u64) -> Self {
        let cycle_ns = u64::try_from(settings.cycle.as_nanos()).unwrap_or(u64::MAX).max(1);
        let next_ns = started_ns.saturating_add(cycle_ns.max(SETTLED.as_nanos() as u64));
        Self { settings, cycle_ns, checked_ns: started_ns, next_ns, moved: [[0; 2]; 2], below: None }
    }

    /// A transfer has completed. Returns whether the job ends with it.
    pub(super) fn handle_done(&mut self, transfer: Transfer, now_ns: u64) -> bool {
        let [bytes, ios] = &mut self.moved[usize::from(transfer.direction != Direction::Read)];
        *bytes += u64::from(transfer.bytes);
        *ios += 1;
        if now_ns < self.next_ns || self.below.is_some() {
            return false;
        }
        let seconds = now_ns.saturating_sub(self.checked_ns) as f64 / 1e9;
        let limits = self.settings.bytes.iter().zip(&self.settings.ios);
        for ((limit_bytes, limit_ios), moved) in limits.zip(self.moved) {
            let [bytes, ios] = moved.map(|count| count as f64 / seconds);
            for (limit, reached, unit) in [(limit_bytes, bytes, "bytes"), (limit_ios, ios, "transfers")] {
                if let Some(limit) = limit.filter(|limit| reached < limit.get() as f64) {
                    self.below.get_or_insert_with(|| {
                        format!("its rate fell to {reached:.0} {unit} a second, and rate_min is {limit}")
                    });
                }
            }
        }
        (self.checked_ns, self.moved) = (now_ns, [[0; 2]; 2]);
        self.next_ns = now_ns.saturating_add(self.cycle_ns);
        self.below.is_some()
    }

    /// The rate that ended the job, in words.
    pub(super) fn below(self) -> Option<String> {
        self.below
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    /// The second in which a job ends that reads 4 KiB at each of these times in milliseconds.
    fn ended(limit_bytes: u64, times_ms: impl Iterator<Item = u64>) -> Option<u64> {
        let settings =
            RateMin { bytes: [NonZeroU64::new(limit_bytes), None], ios: [None; 2], cycle: RateMin::CYCLE };
        let mut watch = RateWatch::new(settings, 0);
        let read = Transfer { direction: Direction::Read, offset: 0, bytes: 4096 };
        times_ms.into_iter().find(|ms| watch.handle_done(read, ms * 1_000_000)).map(|ms| ms / 1000)
    }

    #[test]
    fn a_job_ends_in_the_second_in_which_its_rate_falls_below_the_limit() {
        let steady = (1..100).map(|number| number * 100);
        assert_eq!(ended(40_000, steady.clone()), None, "40,960 bytes a second");
        assert_eq!(ended(42_000, steady.clone()), Some(2), "not before the rate has settled");
        let slower = steady.chain((1..20).map(|number| 9_900 + number * 200));
        assert_eq!(ended(40_000, slower), Some(10), "10 transfers in the 1.1 s from 9.0 s on");
    }

    #[test]
    fn the_rate_that_ended_a_job_is_stated() {
        let settings =
            RateMin { bytes: [NonZeroU64::new(1000), None], ios: [None; 2], cycle: RateMin::CYCLE };
        let mut watch = RateWatch::new(settings, 0);
        let read = Transfer { direction: Direction::Read, offset: 0, bytes: 1024 };
        assert!(watch.handle_done(read, 2_000_000_000));
        assert_eq!(watch.below().unwrap(), "its rate fell to 512 bytes a second, and rate_min is 1000");
    }

    #[test]
    fn a_job_with_one_transfer_in_several_seconds_is_checked_at_its_completions() {
        assert_eq!(ended(1024, (1..10).map(|number| number * 3277)), None, "1,250 bytes a second");
    }
}
