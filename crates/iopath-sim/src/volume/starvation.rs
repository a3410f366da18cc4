//! Calls that lack a frame: they check from time to time whether they may still get one, and fail in the end, as the
//! threads and batches of the crate `iopath` do.

use iopath_core::buffered::{NoFrame, Starvation};
use iopath_core::{Duration, Instant};

use super::Volume;
use super::call::{Call, Starved};

/// The shortest time without I/O after which a call may fail because all frames are borrowed.
const BORROWED_MIN: Duration = Duration::from_secs(5);

/// The same if dirty pages cannot be written back.
const UNWRITABLE_MIN: Duration = Duration::from_millis(500);

impl Volume {
    /// A caller that lacks a frame checks from time to time whether it may still get one. Returns whether it did.
    pub(super) fn check_starvation(&mut self, index: usize, now: Instant) -> bool {
        let Some(path) = &mut self.path else { return false };
        let call = self.calls[index].as_mut().expect("in progress");
        if !path.is_starved(index as u64) {
            call.starvation = None;
            return false;
        }
        let is_idle = self.queues[0].device.queue().bios_in() == 0;
        let Some(starved) = &mut call.starvation else {
            let mut limit = Starvation::default();
            let check = limit.next_check(now);
            call.starvation = Some(Starved { limit, check, since: now, is_idle, idle: Duration::ZERO });
            return true;
        };
        if starved.check > now {
            return false;
        }
        if std::mem::replace(&mut starved.is_idle, is_idle) {
            // Only time without I/O counts, since a completion can free a frame.
            let passed = now.saturating_since(starved.since);
            starved.limit.handle_idle(passed);
            starved.idle += passed;
        }
        let Some(why) = path.fail_starved(index as u64, &starved.limit) else {
            starved.check = starved.limit.next_check(now);
            starved.since = now;
            return true;
        };
        let idle = starved.idle;
        call.starvation = None;
        self.check_no_frame(index, why, idle);
        self.failed_calls += 1;
        self.finish(index, false, now);
        true
    }

    /// Rule 8: a call fails for lack of a frame only if none can become free for a long time.
    fn check_no_frame(&self, index: usize, why: NoFrame, idle: Duration) {
        let is_due = match why {
            NoFrame::AllBorrowed { pages } => {
                let frames = self.plan.cache.map_or(0, |cache| cache.frames);
                let holds_any = self.calls.iter().flatten().any(Call::holds_page);
                assert!(
                    (pages == frames || self.plan.extras.changes_budget && pages <= frames) && holds_any,
                    "rule 8: call {index} of {frames} frames fails with {why:?}"
                );
                idle >= BORROWED_MIN
            }
            NoFrame::Unwritable { pages, source } => {
                let faults = self.injected() + self.refused();
                assert!(
                    pages > 0 && faults > 0,
                    "rule 6: call {index} fails with {source:?} without a fault"
                );
                idle >= UNWRITABLE_MIN
            }
        };
        assert!(is_due, "rule 8: call {index} fails with {why:?} after {idle:?} without I/O");
    }
}
