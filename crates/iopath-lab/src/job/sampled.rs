//! The loop of a job that takes the latency of one I/O in so many, for paths that wait for each: I/Os that have completed
//! sooner than the clock can be read are measured by it otherwise. Which one of each batch is drawn, so that no pattern
//! of the workload's can fall in with it. The loop that times them all is in `job.rs`.

use std::sync::atomic::Ordering;

use rand_xoshiro::Xoshiro256PlusPlus;

use super::{JobError, JobResult, Tally, Terms};
use crate::path::{Connection, Done, Transfer};
use crate::plan::Plan;
use crate::random::{below, generator};

/// Sets the draw apart from what a plan draws with the same seed.
const PURPOSE: u64 = 0x5A3;

/// So many transfers are drawn at once: what is done once for all of them costs none of them anything.
const BLOCK: usize = 512;

/// Runs a plan on a connection of depth 1, and takes the latency of one I/O in `every`. Time and the wish to stop are
/// looked at as often.
pub(crate) fn run(
    connection: &mut dyn Connection,
    mut plan: Plan,
    terms: &Terms,
    every: u32,
    seed: u64,
) -> Result<JobResult, JobError> {
    let every = every as usize;
    let mut draw = generator(seed, [PURPOSE, every as u64]);
    // Whole batches, but for the last of the plan.
    let block_len = (BLOCK / every).max(1) * every;
    let mut block: Vec<Transfer> = Vec::with_capacity(block_len);
    let mut tally = Tally::new();
    let started_ns = terms.clock.now_ns();
    let mut ride =
        Ride { connection, terms, deadline_ns: terms.deadline_ns(started_ns), done: Vec::with_capacity(1) };
    loop {
        block.clear();
        block.extend(plan.by_ref().take(block_len));
        let is_over = ride.run_block(&block, every, &mut draw, &mut tally)?;
        if is_over || block.len() < block_len {
            break;
        }
    }
    terms.finish(connection, started_ns, tally)
}

/// A connection on its way through a plan.
struct Ride<'a> {
    connection: &'a mut dyn Connection,
    terms: &'a Terms<'a>,
    deadline_ns: u64,
    done: Vec<Done>,
}

impl Ride<'_> {
    /// Runs a block in batches of `every`, of each of which one is timed, and none after the batch in which it is found
    /// that the time is up or all are to stop. Whether it was.
    fn run_block(
        &mut self,
        block: &[Transfer],
        every: usize,
        draw: &mut Xoshiro256PlusPlus,
        tally: &mut Tally,
    ) -> Result<bool, JobError> {
        let Terms { clock, stop, moved, .. } = *self.terms;
        let (mut ran, mut end) = (0, 0);
        let mut is_over = false;
        while end < block.len() && !is_over {
            let start = end;
            end = block.len().min(start + every);
            // Of the last batch, too, which may be shorter: no job is without a latency.
            let timed = start + below(draw, (end - start) as u64) as usize;
            // With what is left of the batch before.
            let rest = ran;
            self.run_each(&block[rest..timed])?;
            let submitted_ns = clock.now_ns();
            self.run_each(&block[timed..=timed])?;
            let ended_ns = clock.now_ns();
            tally.record(ended_ns - submitted_ns, 1);
            ran = timed + 1;
            tally.add(&block[rest..ran]);
            moved.bytes.store(tally.bytes[0] + tally.bytes[1], Ordering::Relaxed);
            is_over = ended_ns >= self.deadline_ns || stop.load(Ordering::Relaxed);
        }
        self.run_each(&block[ran..end])?;
        tally.add(&block[ran..end]);
        Ok(is_over)
    }

    fn run_each(&mut self, transfers: &[Transfer]) -> Result<(), JobError> {
        let ran = self.connection.run_each(transfers, &mut self.done);
        ran.map_err(|(transfer, error)| JobError::Transfer(transfer, error))
    }
}
