//! Transfers that start in batches: a job whose depth is in flight waits for several completions, or until few
//! transfers are in flight, before it fills its depth again.

use std::num::NonZeroU32;

use crate::batches::Batches;

/// The batches of a running job.
#[derive(Debug)]
pub(super) struct Batch {
    complete_min: u32,
    low: u32,
    depth: u32,
    /// Whether the depth has been in flight, and not enough transfers have completed since.
    is_draining: bool,
    completed: u32,
}

impl Batch {
    /// The batches of a job with this depth; none if each completion permits a transfer.
    pub(super) fn of(Batches { complete_min, low, submit_max: _ }: Batches, depth: u32) -> Option<Self> {
        let complete_min = complete_min.map_or(1, NonZeroU32::get).min(depth);
        let low = low.map_or(depth, NonZeroU32::get).min(depth);
        let is_used = complete_min > 1 || low + 1 < depth;
        is_used.then_some(Self { complete_min, low, depth, is_draining: false, completed: 0 })
    }

    /// Whether a transfer may start.
    pub(super) fn permits(&mut self, in_flight: u32) -> bool {
        if in_flight == self.depth && !self.is_draining {
            (self.is_draining, self.completed) = (true, 0);
        }
        // The last transfers of a job may be fewer than a batch.
        let is_drained = in_flight == 0 || (self.completed >= self.complete_min && in_flight <= self.low);
        self.is_draining &= !is_drained;
        !self.is_draining
    }

    /// Whether no transfer starts before a completion.
    pub(super) const fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// The completions that the job waits for together, with so many transfers in flight; 0 if it takes each as it
    /// comes.
    pub(super) fn wanted(&self, in_flight: u32) -> u32 {
        if self.is_draining { self.complete_min.saturating_sub(self.completed).min(in_flight) } else { 0 }
    }

    /// A transfer has completed.
    pub(super) fn handle_done(&mut self) {
        self.completed += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts as many transfers as permitted, and returns the number in flight.
    fn fill(batch: &mut Batch, mut in_flight: u32) -> u32 {
        while in_flight < batch.depth && batch.permits(in_flight) {
            in_flight += 1;
        }
        // The job asks once more, and finds no free slot.
        batch.permits(in_flight);
        in_flight
    }

    fn batch(complete_min: u32, low: u32, depth: u32) -> Option<Batch> {
        let [complete_min, low] = [complete_min, low].map(NonZeroU32::new);
        Batch::of(Batches { complete_min, low, ..Batches::default() }, depth)
    }

    #[test]
    fn a_job_waits_for_its_batch_of_completions() {
        let mut batch = batch(3, 0, 8).unwrap();
        assert_eq!(fill(&mut batch, 0), 8);
        assert_eq!((batch.wanted(8), batch.wanted(2)), (3, 2));
        for in_flight in [7, 6] {
            batch.handle_done();
            assert_eq!(fill(&mut batch, in_flight), in_flight);
        }
        batch.handle_done();
        assert_eq!(fill(&mut batch, 5), 8);
    }

    #[test]
    fn a_job_waits_until_few_transfers_are_in_flight() {
        let mut batch = batch(0, 2, 8).unwrap();
        assert_eq!(fill(&mut batch, 0), 8);
        for in_flight in (3..8).rev() {
            batch.handle_done();
            assert_eq!(fill(&mut batch, in_flight), in_flight);
        }
        batch.handle_done();
        assert_eq!(fill(&mut batch, 2), 8);
    }

    #[test]
    fn batches_of_one_completion_need_no_state() {
        assert!(batch(0, 0, 8).is_none() && batch(1, 7, 8).is_none() && batch(5, 5, 1).is_none());
        assert!(batch(0, 6, 8).is_some());
    }
}
