//! Pauses of a job's thread that end at their time. The kernel wakes a thread late: by its timer slack, 50 µs by
//! default, and by the wake-up itself. A job with a think time of 100 µs would rest for half as long again, and one
//! with a rate would start each transfer late. The thread of a job has no slack, sleeps shorter by the usual delay of a
//! wake-up on this machine, and spins for the rest.

use std::hint::spin_loop;
use std::num::NonZeroU64;
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use rustix::thread::set_current_timer_slack;

/// The usual delay of a wake-up of a thread without slack, measured once. The processor can rest during the sleeps, as
/// during those of a job.
static DELAY_NS: LazyLock<u64> = LazyLock::new(|| {
    const SLEEP: Duration = Duration::from_micros(100);
    let delay_ns = || {
        let start = iopath_os::now();
        thread::sleep(SLEEP);
        iopath_os::now().as_nanos().saturating_sub(start.as_nanos() + SLEEP.as_nanos() as u64)
    };
    let mut delays_ns: [u64; 9] = std::array::from_fn(|_| delay_ns());
    delays_ns.sort_unstable();
    delays_ns[delays_ns.len() / 2]
});

/// Prepares a thread that pauses, before its start counts: the first one takes a millisecond.
pub(crate) fn prepare_thread() {
    // Refused by a sandbox, it leaves pauses that end later.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    LazyLock::force(&DELAY_NS);
}

/// Pauses until `clock` has reached this time. Returns its time.
pub(super) fn pause_until(end_ns: u64, clock: impl Fn() -> u64) -> u64 {
    let sleep_ns = end_ns.saturating_sub(clock()).saturating_sub(*DELAY_NS);
    if sleep_ns > 0 {
        thread::sleep(Duration::from_nanos(sleep_ns));
    }
    loop {
        let now_ns = clock();
        if now_ns >= end_ns {
            return now_ns;
        }
        spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_pause_ends_at_its_time_and_not_before() {
        prepare_thread();
        for left_ns in [1, 1_000, 50_000, 2_000_000] {
            let end_ns = iopath_os::now().as_nanos() + left_ns;
            let returned_ns = pause_until(end_ns, || iopath_os::now().as_nanos());
            assert!(returned_ns >= end_ns, "{left_ns} ns");
        }
    }

    #[test]
    fn a_pause_whose_time_has_come_reads_the_clock_twice() {
        let reads = Cell::new(0);
        let clock = || {
            reads.set(reads.get() + 1);
            100
        };
        assert_eq!(pause_until(100, clock), 100);
        assert_eq!(pause_until(7, clock), 100);
        assert_eq!(reads.get(), 4);
    }
}
