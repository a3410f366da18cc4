//! Changes of the elevator during the log.

use super::report::ElevatorChange;
use iopath_core::Record;

/// The maximum number of changes in the list; later ones are only counted.
const CHANGES_MAX: usize = 64;

/// The first changes, in file order.
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
