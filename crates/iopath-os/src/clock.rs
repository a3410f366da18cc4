//! The clock of real runs. Modelled runs have a virtual clock and never call this.

use iopath_core::Instant;
use rustix::time::{ClockId, clock_gettime};

/// Now, on the clock that never jumps (`CLOCK_MONOTONIC`: nanoseconds since an arbitrary start, suspend excluded).
pub fn now() -> Instant {
    #[cfg(iopath_explore)]
    if let Some(now) = crate::sync::virtual_now() {
        return now;
    }
    let time = clock_gettime(ClockId::Monotonic);
    Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_core::Duration;

    #[test]
    fn passes_as_fast_as_the_standard_librarys() {
        // The interval of the standard library contains ours, wherever another thread interrupts this one.
        let theirs = std::time::Instant::now();
        let ours = now();
        std::thread::sleep(Duration::from_millis(5));
        let passed = now().saturating_since(ours);
        let passed_of_theirs = theirs.elapsed();
        assert!(passed >= Duration::from_millis(5), "{passed:?}");
        assert!(passed <= passed_of_theirs, "{passed:?}, {passed_of_theirs:?}");
    }
}
