//! Which elevators took over while the log was taken, and when. What they did is in the other counts.

use super::report::ElevatorChange;
use iopath_core::Record;

/// Changes kept; the rest are only counted.
const CHANGES_MAX: usize = 64;

/// The first changes, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Changes {
    changes: Vec<ElevatorChange>,
}

impl Changes {
    pub(super) fn note(&mut self, record: Record, queue: u16, now: u64) {
        if self.changes.len() < CHANGES_MAX {
            self.changes.push(ElevatorChange { at_ns: now, queue, elevator: record.name() });
        }
    }

    pub(super) fn report(&self, start_ns: u64) -> Vec<ElevatorChange> {
        let since_start = |change: &ElevatorChange| ElevatorChange {
            at_ns: change.at_ns.saturating_sub(start_ns),
            ..change.clone()
        };
        self.changes.iter().map(since_start).collect()
    }
}
