//! Merges the steps of all queues by time, in bounded memory. Blocks of different queues follow each other in a log.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use iopath_log::{Block, BlockBuilder, Entry};

/// The maximum number of steps that wait while the log has several queues: about 80 MiB.
const WAITING_MAX: usize = 1 << 20;

/// The same while it has one queue: a block of a second queue follows within eight blocks of the first.
const WAITING_MAX_ALONE: usize = 16 * BlockBuilder::RECORDS_MAX;

/// The steps of all queues.
#[derive(Debug, Default)]
pub(crate) struct Merge {
    queues: Vec<VecDeque<Entry>>,
    /// The time of the first step of each queue that has steps.
    firsts: BinaryHeap<Reverse<(u64, usize)>>,
    waiting: usize,
    /// Queues that had steps.
    used: usize,
    is_at_end: bool,
}

impl Merge {
    pub(crate) fn add(&mut self, block: &Block) {
        let queue = usize::from(block.queue());
        while self.queues.len() <= queue {
            self.queues.push(VecDeque::new());
        }
        let entries = &mut self.queues[queue];
        let before = entries.len();
        self.used += usize::from(entries.capacity() == 0);
        entries.extend(block.entries());
        self.waiting += entries.len() - before;
        if before == 0
            && let Some(first) = entries.front()
        {
            self.firsts.push(Reverse((first.time.as_nanos(), queue)));
        }
    }

    /// All steps have been added.
    pub(crate) const fn end(&mut self) {
        self.is_at_end = true;
    }

    /// The next step, if no later block can have an earlier one, or too many steps wait.
    pub(crate) fn next(&mut self) -> Option<Entry> {
        let most = if self.used > 1 { WAITING_MAX } else { WAITING_MAX_ALONE };
        if !self.is_at_end && self.waiting <= most {
            return None;
        }
        let Reverse((_, queue)) = self.firsts.pop()?;
        let entries = &mut self.queues[queue];
        let entry = entries.pop_front()?;
        self.waiting -= 1;
        if let Some(first) = entries.front() {
            self.firsts.push(Reverse((first.time.as_nanos(), queue)));
        }
        Some(entry)
    }
}
