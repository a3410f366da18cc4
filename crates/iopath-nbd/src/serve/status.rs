//! Replies to block status requests, and the turns of connections that ask for them.
//!
//! The event loop executes them itself, with two system calls for each range of data in a file. So a reply covers a
//! part of the range if there are many, which the protocol allows, and each pass of the loop executes few of them.

use std::collections::VecDeque;

use super::storage::Storage;
use crate::meta::{BlockExtent, BlockState};

/// Ranges of data in one reply: about 0.3 ms.
const RANGES_MAX: usize = 128;

/// Replies of one pass of the event loop, for all connections.
const REPLIES_MAX: u32 = 4;

/// Data and holes of a range, from its start: all of them, or the first.
pub(super) fn extents(
    storage: &impl Storage,
    offset: u64,
    length: u64,
    only_one: bool,
) -> Result<Vec<BlockExtent>, String> {
    let ranges_max = if only_one { 1 } else { RANGES_MAX };
    let ranges = storage.data_ranges(offset, length, ranges_max)?;
    let is_complete = ranges.len() < ranges_max;
    let mut extents = Vec::with_capacity(2 * ranges.len() + 1);
    let (mut at, end) = (offset, offset + length);
    let hole = BlockState::HOLE | BlockState::ZERO;
    for data in ranges {
        let (start, data_end) = (data.start.clamp(at, end), data.end.clamp(at, end));
        extents.push(BlockExtent { length: start - at, state: hole });
        extents.push(BlockExtent { length: data_end - start, state: BlockState::empty() });
        at = data_end;
    }
    if is_complete {
        extents.push(BlockExtent { length: end - at, state: hole });
    }
    extents.retain(|extent| extent.length > 0);
    extents.truncate(if only_one { 1 } else { extents.len() });
    Ok(extents)
}

/// The connections that wait with a block status request for the next pass of the event loop, in the order of their
/// turns.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Replies in this pass.
    replies: u32,
    waiting: VecDeque<usize>,
}

impl Turns {
    /// Whether a connection may have a reply in this pass. Otherwise it waits for its turn.
    pub(super) fn take(&mut self, key: usize) -> bool {
        let is_first = self.waiting.front().is_none_or(|first| *first == key);
        if self.replies < REPLIES_MAX && is_first {
            self.waiting.pop_front();
            self.replies += 1;
            return true;
        }
        if !self.waiting.contains(&key) {
            self.waiting.push_back(key);
        }
        false
    }

    /// A pass of the event loop begins.
    pub(super) fn begin_pass(&mut self) {
        self.replies = 0;
    }

    /// The connection whose turn it is, if it can be served in this pass.
    pub(super) fn next(&self) -> Option<usize> {
        self.waiting.front().copied().filter(|_| self.replies < REPLIES_MAX)
    }

    /// Whether a connection waits for the next pass.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Removes a connection that is gone, or whose next request is another one.
    pub(super) fn remove(&mut self, key: usize) {
        self.waiting.retain(|waiting| *waiting != key);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use iopath::Volume;

    use super::super::backing::Backing;
    use super::*;

    #[test]
    fn a_request_for_one_extent_gets_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        let file = std::fs::File::create_new(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        (1..4).for_each(|number| file.write_all_at(&[1; 4096], number * (1 << 18)).unwrap());
        let volume = Volume::open(&path, &iopath::Options::new()).unwrap();
        let (backing, _) = Backing::new(volume, None).unwrap();
        for offset in (0..1 << 20).step_by(4096) {
            let all = extents(&backing, offset, (1 << 20) - offset, false).unwrap();
            assert_eq!(extents(&backing, offset, (1 << 20) - offset, true).unwrap(), all[..1], "at {offset}");
            assert_eq!(all.iter().map(|extent| extent.length).sum::<u64>(), (1 << 20) - offset);
        }
    }

    #[test]
    fn a_connection_with_many_requests_shares_each_pass_with_the_others() {
        let mut turns = Turns::default();
        let served = (0..100).take_while(|_| turns.take(7)).count();
        assert_eq!(served, REPLIES_MAX as usize, "a pass has a limit");
        let others = [3, 1, 2, 9, 8];
        assert!(others.iter().all(|key| !turns.take(*key)));
        let mut order = Vec::new();
        while order.len() < 12 {
            turns.begin_pass();
            let mut replies = 0;
            while let Some(key) = turns.next() {
                // It has a further request each time.
                assert!(turns.take(key) && !turns.take(key));
                order.push(key);
                replies += 1;
            }
            assert_eq!(replies, REPLIES_MAX);
        }
        assert_eq!(order, [7, 3, 1, 2, 9, 8, 7, 3, 1, 2, 9, 8]);
    }

    #[test]
    fn a_connection_that_is_gone_keeps_no_turn() {
        let mut turns = Turns::default();
        while turns.take(1) {}
        assert!(!turns.take(2));
        turns.remove(1);
        turns.begin_pass();
        assert_eq!(turns.next(), Some(2));
        turns.remove(2);
        assert!(!turns.has_waiting());
    }
}
