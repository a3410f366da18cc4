//! Several targets at the same time: the end of the last job on each disk, and the measurements of each target. Does
//! not run jobs.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use iopath_report::result::{CacheUse, Connections};

use super::{Jobs, Measured, Together, Transferred, all_verified};
use crate::counters::in_flight;
use crate::target::Target;

/// The longest wait for an idle disk after the last transfer, and the interval of its polls.
const IDLE_MAX: Duration = Duration::from_millis(100);
const IDLE_POLL: Duration = Duration::from_micros(100);

impl Jobs<'_> {
    /// Whether all other jobs on the disk of this one have ended.
    pub(super) fn is_last_on_disk(&self, number: usize) -> bool {
        let disk = self.workers[number].target.disk();
        let mut others =
            self.workers.iter().zip(&self.ended).filter(|(worker, _)| worker.target.disk() == disk);
        others.all(|(_, ended)| ended.load(Ordering::SeqCst))
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
}

/// The lost connections of all targets; none where none is an export.
pub(crate) fn connections_of(transfers: &[Transferred]) -> Option<Connections> {
    let of_each = || transfers.iter().filter_map(|transferred| transferred.connections);
    of_each().next().map(|_| of_each().sum())
}

impl Together {
    /// The sums of several targets, and each of them. The times of all count from the start of the first job. The
    /// transfers of a disk are those of a target only if no other target is on that disk.
    pub(super) fn of_each(self, targets: &[&Target], jobs: usize, used: &[Option<CacheUse>]) -> Measured {
        let all = Measured::of_jobs(&self.jobs);
        let started_ns = self.jobs.iter().map(|job| job.started_ns).min().unwrap_or(0);
        let mut each = Vec::with_capacity(targets.len());
        for (index, of_target) in self.jobs.chunks(jobs).enumerate() {
            let ended_ns = of_target.iter().map(|job| job.ended_ns).max().unwrap_or(started_ns);
            each.push(Measured {
                seconds: Duration::from_nanos(ended_ns - started_ns).as_secs_f64(),
                device: self.transfers[index].device.filter(|_| has_own_disk(targets, index)),
                cache: used[index],
                connections: self.transfers[index].connections,
                ..Measured::of_jobs(of_target)
            });
        }
        // Threads of this process submit the I/O of all targets, and one counter shows it; else each target has its
        // counters.
        let of_process = targets.iter().all(|target| target.storage().is_accessed_by_process());
        Measured {
            cpu: Some(self.cpu),
            device: each.iter().map(|target| target.device).sum(),
            storage: self.transfers.first().and_then(|first| first.storage).filter(|_| of_process),
            cache: used.iter().copied().sum(),
            connections: connections_of(&self.transfers),
            targets: each,
            steady: self.steady.first().map(|(_, outcome)| *outcome),
            course: self.course,
            verified: all_verified(self.verified.iter().map(Option::as_ref)),
            warnings: self.warnings,
            is_cut_off: self.is_cut_off,
            ..all
        }
    }
}

/// The disk of each target, and whether it is the only target on that disk.
fn has_own_disk(targets: &[&Target], index: usize) -> bool {
    let disk = |target: &&Target| target.disk().map(str::to_owned);
    let own = disk(&targets[index]);
    own.is_some() && targets.iter().filter(|target| disk(target) == own).count() == 1
}
