//! Merges the steps of all queues by time, in bounded memory. Blocks of different queues follow each other in a log.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use iopath_log::{Block, BlockBuilder, Entry};

/// The maximum number of steps that wait while the log has several queues: about 80 MiB.
const WAITING_MAX: usize = 1 << 20;

/// Room of a queue for steps is released if it is above this number, and eight times the steps that wait.
const ROOM_MIN: usize = 64;

/// The same while it has one queue: a block of a second queue follows within eight blocks of the first.
const WAITING_MAX_ALONE: usize = 16 * BlockBuilder::RECORDS_MAX;

/// The steps of all queues.
#[derive(Debug, Default)]
pub(crate) struct Merge {
    queues: Vec<VecDeque<Entry>>,
    /// The time of the first step of each queue that has steps.
    firsts: BinaryHeap<Reverse<(u64, usize)>>,
    waiting: usize,
    /// Whether each queue had steps, and the number of queues that had.
    has_had: Vec<bool>,
    used: usize,
    is_at_end: bool,
}

impl Merge {
    pub(crate) fn add(&mut self, block: &Block) {
        let queue = usize::from(block.queue());
        while self.queues.len() <= queue {
            self.queues.push(VecDeque::new());
            self.has_had.push(false);
        }
        let entries = &mut self.queues[queue];
        let before = entries.len();
        self.used += usize::from(!std::mem::replace(&mut self.has_had[queue], true));
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
        // Otherwise the room of all queues is the sum of the largest numbers, which they do not have at the same time.
        if entries.capacity() > ROOM_MIN && entries.len() < entries.capacity() / 8 {
            entries.shrink_to(2 * entries.len());
        }
        if let Some(first) = entries.front() {
            self.firsts.push(Reverse((first.time.as_nanos(), queue)));
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use iopath_core::log::{Event, Step, Subject};
    use iopath_core::{Instant, Record};

    use super::*;

    #[test]
    fn queues_that_are_used_in_turn_do_not_keep_their_room() {
        let (mut merge, mut block, mut now, mut steps) = (Merge::default(), Block::default(), 0, 0);
        for queue in 0..40 {
            for _ in 0..16 {
                let mut builder = BlockBuilder::new(queue);
                while !builder.is_full() {
                    now += 1;
                    let record =
                        Record::new(&Step::new(Event::Queue, Subject::Bio(0)), Instant::from_nanos(now));
                    builder.push_at(record, Instant::from_nanos(now));
                }
                builder.move_to(&mut block, 0);
                merge.add(&block);
                while let Some(entry) = merge.next() {
                    steps += u64::from(entry.record.event() == Some(Event::Queue));
                }
            }
        }
        let room: usize = merge.queues.iter().map(VecDeque::capacity).sum();
        assert!(room <= 3 * WAITING_MAX, "room for {room} steps of {} that wait", merge.waiting);
        merge.end();
        while let Some(entry) = merge.next() {
            steps += u64::from(entry.record.event() == Some(Event::Queue));
        }
        assert_eq!((steps, merge.waiting), (now, 0));
    }
}
