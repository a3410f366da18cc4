//! Several targets at the same time: the end of the last job on each disk, and the transfers of each target.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::{RunningJobs, TargetRan, Transferred, Worker};
use crate::counters::in_flight;
use crate::target::Target;

/// The longest wait for an idle disk after the last transfer, and the interval of its polls.
const IDLE_MAX: Duration = Duration::from_millis(100);
const IDLE_POLL: Duration = Duration::from_micros(100);

impl RunningJobs<'_> {
    /// Whether all jobs on the disk of a target have ended.
    pub(super) fn is_last_on_disk(&self, target: &Target) -> bool {
        let disk = target.disk();
        let is_on_disk = |worker: &Worker| self.volumes[worker.volume].target.disk() == disk;
        let mut on_disk = self.workers.iter().zip(&self.ended).filter(|(worker, _)| is_on_disk(worker));
        on_disk.all(|(_, ended)| ended.load(Ordering::SeqCst))
    }

    /// Waits until a disk has nothing in flight. Returns that time; none if it was idle at once, or is not idle within
    /// [`IDLE_MAX`] because other programs use it.
    pub(super) fn wait_until_idle(&self, disk: &str) -> Option<u64> {
        let until_ns = self.clock.now_ns() + IDLE_MAX.as_nanos() as u64;
        if in_flight(disk)? == 0 {
            return None;
        }
        while self.clock.now_ns() < until_ns {
            thread::sleep(IDLE_POLL);
            if in_flight(disk)? == 0 {
                return Some(self.clock.now_ns());
            }
        }
        None
    }

    /// The transfers of each target. Those of a disk are of a target only if no other target is on that disk.
    pub(super) fn targets_ran(&self, transfers: Vec<Transferred>) -> Vec<TargetRan> {
        let of_target = |(target, transferred): (&&Target, Transferred)| {
            let disk = target.disk();
            let on_disk = self.targets.iter().filter(|other| other.disk() == disk).count();
            TargetRan {
                transferred,
                has_own_disk: disk.is_some() && on_disk == 1,
                is_accessed_by_process: target.storage().is_accessed_by_process(),
                ..TargetRan::default()
            }
        };
        self.targets.iter().zip(transfers).map(of_target).collect()
    }
}
