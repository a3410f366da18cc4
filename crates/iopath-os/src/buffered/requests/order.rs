//! The order of requests that overlap. If at least one of two overlapping requests is not a read, the later one begins
//! after the earlier one has completed. Does not order requests of different queues.

use iopath_core::Op;

use super::CacheQueue;
use super::request::Request;
use crate::io_buf::IoBuf;

impl<B: IoBuf> CacheQueue<B> {
    /// The request that must complete before this one begins: the latest of those with a number below `before` that
    /// conflict. O(requests in flight), unless all are reads.
    pub(super) fn conflict(&self, op: Op, offset: u64, bytes: u64, before: u64) -> Option<u32> {
        if op == Op::Flush || self.requests.is_empty() || (op == Op::Read && self.changes == 0) {
            return None;
        }
        let end = offset.saturating_add(bytes);
        let conflicts = |earlier: &Request<B>| {
            earlier.number <= before
                && earlier.op != Op::Flush
                && (op != Op::Read || earlier.op != Op::Read)
                && earlier.offset < end
                && offset < earlier.offset.saturating_add(earlier.bytes)
        };
        let earlier = self.requests.iter().filter(|(_, earlier)| conflicts(earlier));
        earlier.max_by_key(|(_, earlier)| earlier.number).map(|(key, _)| key as u32)
    }

    /// The request begins after `earlier` has completed.
    pub(super) fn follow(&mut self, key: u32, earlier: u32) {
        let first = self.requests[earlier as usize].first_follower.replace(key);
        self.requests[key as usize].next_follower = first;
    }

    /// Releases the followers of a completed request, of which `first` is the first.
    pub(super) fn release_followers(&mut self, first: Option<u32>) {
        let mut next = first;
        while let Some(key) = next {
            let request = &mut self.requests[key as usize];
            next = request.next_follower.take();
            let Request { op, offset, bytes, number, .. } = *request;
            match self.conflict(op, offset, bytes, number - 1) {
                Some(earlier) => self.follow(key, earlier),
                None => self.runnable.push_back(key),
            }
        }
    }
}
