//! Merges bios and requests: finds an adjacent request in the plug, then in the elevator. The conditions are in
//! `block/merge.rs`.

use super::RequestQueue;
use crate::block::elevator::Neighbours;
use crate::block::log::{Event, Subject};
use crate::block::merge::{NoMerge, Side, may_merge};
use crate::block::request::{Chain, Outline, State, Tag};
use crate::memory::Memory;
use crate::sector::Extent;
use crate::time::Instant;

impl<M: Memory> RequestQueue<M> {
    /// Merges `chain` into a request in the plug, where a search costs least and finds most merges. Returns whether it
    /// did.
    pub(super) fn merge_in_plug(&mut self, chain: &Chain, now: Instant) -> bool {
        let subject = Subject::Bio(chain.first);
        let mut below = self.plug.len();
        while let Some((index, tag, side)) = self.plug.adjacent(chain.extent, below) {
            if self.join(tag, side, subject, chain, now).is_ok() {
                self.close_gap_in_plug(index, tag, now);
                return true;
            }
            below = index;
        }
        false
    }

    /// A request in the plug has grown: merges another one that is now adjacent.
    fn close_gap_in_plug(&mut self, index: usize, tag: Tag, now: Instant) {
        let grown = self.requests[tag].extent();
        self.plug.resize(index, grown);
        let mut below = self.plug.len();
        while let Some((other_index, other, side)) = self.plug.adjacent(grown, below) {
            let chain = self.requests[other].chain;
            let subject = Subject::Request(other.index() as u32);
            // `grown` lies at `side` of the other request, so the other lies at the opposite side of `grown`.
            if self.join(tag, side.opposite(), subject, &chain, now).is_ok() {
                self.plug.resize(index, self.requests[tag].extent());
                self.plug.remove(other_index);
                self.requests.release(other);
                return;
            }
            below = other_index;
        }
    }

    /// Merges `chain`, of `subject`, into a request that the elevator finds, or returns the reason against it.
    pub(super) fn merge_in_elevator(
        &mut self,
        subject: Subject,
        chain: &Chain,
        now: Instant,
    ) -> Result<(), NoMerge> {
        let neighbours = self.elevator.neighbours(&chain.outline(), &self.requests);
        let mut refused = NoMerge::NotAdjacent;
        for (candidate, side) in [(neighbours.before, Side::Back), (neighbours.after, Side::Front)] {
            let Some(tag) = candidate else { continue };
            self.assert_queued(tag);
            match self.join_queued(tag, side, subject, chain, now) {
                Ok(()) => {
                    self.close_gap_in_elevator(tag, now);
                    return Ok(());
                }
                Err(reason) => refused = reason,
            }
        }
        self.stats.refused[NoMerge::NotAdjacent.index()] += u64::from(neighbours == Neighbours::default());
        Err(refused)
    }

    /// A request in the elevator has grown: merges another one that is now adjacent.
    fn close_gap_in_elevator(&mut self, tag: Tag, now: Instant) {
        let grown = self.requests[tag].outline();
        let neighbours = self.elevator.neighbours(&grown, &self.requests);
        for (candidate, side) in [(neighbours.after, Side::Back), (neighbours.before, Side::Front)] {
            let Some(other) = candidate.filter(|other| *other != tag) else { continue };
            self.assert_queued(other);
            let chain = self.requests[other].chain;
            if self.may_join(tag, side, &chain).is_ok() {
                let subject = Subject::Request(other.index() as u32);
                let joined = self.join_queued(tag, side, subject, &chain, now);
                assert!(joined.is_ok(), "a merge was allowed and then refused");
                self.elevator.absorb(other, tag, &self.requests);
                self.requests.release(other);
                return;
            }
        }
    }

    fn join_queued(
        &mut self,
        tag: Tag,
        side: Side,
        subject: Subject,
        chain: &Chain,
        now: Instant,
    ) -> Result<(), NoMerge> {
        let before = self.requests[tag].extent();
        self.join(tag, side, subject, chain, now)?;
        self.elevator.merged(tag, before, &self.requests, now);
        Ok(())
    }

    /// Merges `chain`, of `subject`, into the request on that side, if limits and elevator allow it.
    fn join(
        &mut self,
        tag: Tag,
        side: Side,
        subject: Subject,
        chain: &Chain,
        now: Instant,
    ) -> Result<(), NoMerge> {
        match self.may_join(tag, side, chain) {
            Ok((extent, segments)) => {
                let own = self.requests[tag].chain;
                let (low, high) = in_order(side, &own, chain);
                self.bios[low.last].next = high.first;
                self.requests[tag].chain =
                    Chain { extent, segments, first: low.first, last: high.last, ..own };
                self.stats.merges[side as usize] += 1;
                let event = if side == Side::Back { Event::BackMerge } else { Event::FrontMerge };
                self.log_join(event, subject, chain, tag, None, now);
                Ok(())
            }
            Err(reason) => {
                self.stats.refused[reason.index()] += 1;
                self.log_join(Event::NoMerge, subject, chain, tag, Some(reason), now);
                Err(reason)
            }
        }
    }

    fn may_join(&self, tag: Tag, side: Side, chain: &Chain) -> Result<(Extent, u32), NoMerge> {
        let request = &self.requests[tag];
        let (low, high) = in_order(side, &request.chain, chain);
        if self.bios[chain.first].is_alone() || self.bios[request.chain.first].is_alone() {
            return Err(NoMerge::Barrier);
        }
        let segments = self.segments_joined(low, high);
        let extent = may_merge(low, high, segments, &self.limits)?;
        if request.state == State::Queued {
            let joined = Outline { extent, segments, ..request.outline() };
            self.elevator.allows_merge(tag, side, &joined, &self.requests)?;
        }
        Ok((extent, segments))
    }

    /// The sum of segments, less one if the memory of both is contiguous.
    fn segments_joined(&self, low: &Chain, high: &Chain) -> u32 {
        let is_contiguous = match (self.bios[low.last].bio.memory, self.bios[high.first].bio.memory) {
            (Some(end), Some(start)) => end.join(start).is_some(),
            _ => false,
        };
        (low.segments + high.segments).saturating_sub(u32::from(is_contiguous))
    }
}

fn in_order<'a>(side: Side, own: &'a Chain, added: &'a Chain) -> (&'a Chain, &'a Chain) {
    match side {
        Side::Back => (own, added),
        Side::Front => (added, own),
    }
}
