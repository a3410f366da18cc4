//! The loop of a job that takes the latency of one I/O in so many, for paths that wait for each: I/Os that are over
//! sooner than the clock can be read are measured by it otherwise. Which one of each batch is drawn, so that no pattern
//! of the workload's can fall in with it. The loop that times them all is in `job.rs`.

use std::sync::atomic::Ordering;

use super::{JobError, JobResult, Tally, Terms};
use crate::path::{Connection, Done, Transfer};
use crate::plan::Plan;
use crate::random::{below, generator};

/// Sets the draw apart from what a plan draws with the same seed.
const PURPOSE: u64 = 0x5A3;

/// Runs a plan on a connection of depth 1, and takes the latency of one I/O in `every`. Time and the wish to stop are
/// looked at as often.
pub(crate) fn run(
    connection: &mut dyn Connection,
    mut plan: Plan,
    terms: &Terms,
    every: u32,
    seed: u64,
) -> Result<JobResult, JobError> {
    let clock = terms.clock;
    let mut draw = generator(seed, [PURPOSE, every.into()]);
    let mut batch: Vec<Transfer> = Vec::with_capacity(every as usize);
    let mut done: Vec<Done> = Vec::with_capacity(1);
    let mut tally = Tally::new();
    let started_ns = clock.now_ns();
    let deadline_ns = terms.deadline_ns(started_ns);
    loop {
        batch.clear();
        batch.extend(plan.by_ref().take(every as usize));
        // Of the last batch, too, which may be shorter: no job is without a latency.
        let (before, rest) = batch.split_at(below(&mut draw, batch.len() as u64) as usize);
        run_each(connection, before, &mut done)?;
        let submitted_ns = clock.now_ns();
        let (timed, after) = rest.split_at(rest.len().min(1));
        run_each(connection, timed, &mut done)?;
        if !timed.is_empty() {
            let ended_ns = clock.now_ns();
            tally.record(ended_ns - submitted_ns, 1);
            if ended_ns >= deadline_ns {
                plan.stop();
            }
        }
        run_each(connection, after, &mut done)?;
        tally.add(&batch);
        terms.moved.bytes.store(tally.bytes[0] + tally.bytes[1], Ordering::Relaxed);
        if batch.len() < every as usize {
            break;
        }
        if terms.stop.load(Ordering::Relaxed) {
            plan.stop();
        }
    }
    terms.finish(connection, started_ns, tally)
}

fn run_each(
    connection: &mut dyn Connection,
    transfers: &[Transfer],
    done: &mut Vec<Done>,
) -> Result<(), JobError> {
    connection.run_each(transfers, done).map_err(|(transfer, error)| JobError::Transfer(transfer, error))
}
