//! The CPU time of the process so far. The CPU time of the machine is in `/proc/stat`, which needs no unsafe code.

use std::time::Duration;

/// CPU time of all threads of the process, including ended ones and the kernel's `io_uring` workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTimes {
    /// In user mode.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
}

/// The CPU time of the process since its start (`getrusage(2)`, `RUSAGE_SELF`), with a resolution of a microsecond.
pub fn process_cpu_times() -> CpuTimes {
    // SAFETY: all zeroes is a valid rusage, a struct of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live rusage.
    let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    assert_eq!(result, 0, "getrusage of oneself fails only for a bad address");
    let duration = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    CpuTimes { user: duration(usage.ru_utime), system: duration(usage.ru_stime) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_costs_time() {
        let before = process_cpu_times();
        let mut sum = 0u64;
        while process_cpu_times().user + process_cpu_times().system
            < before.user + before.system + Duration::from_millis(5)
        {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(sum > 0);
    }
}
