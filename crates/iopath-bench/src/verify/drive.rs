//! Drives a job that verifies its data, with the real clock. The loop of other jobs is in `job/drive.rs`; this one also
//! fills writes, checks reads, and holds a transfer back while it overlaps one in flight.

use std::collections::VecDeque;

use super::checker::Checker;
use crate::job::drive::{JobContext, JobError, reap, submit};
use crate::job::tally::JobResult;
use crate::job::{Begin, Job, Limits};
use crate::path::{Connection, Direction, Done, Transfer};
use crate::plan::Plan;
use crate::workload::Verify;

/// Runs a job to its end.
pub(crate) fn run(
    connection: &mut dyn Connection,
    plan: Plan,
    limits: impl FnOnce(Begin) -> Limits,
    context: &JobContext,
    settings: Verify,
    checker: &mut Checker,
) -> Result<JobResult, JobError> {
    let now_ns = context.clock.now_ns();
    let mut job = context.job(plan, connection.depth(), limits, now_ns);
    let ended = run_job(connection, &mut job, context, settings, checker, now_ns);
    context.ended(connection, ended, |ended_ns| job.finish(ended_ns))
}

fn run_job(
    connection: &mut dyn Connection,
    job: &mut Job,
    context: &JobContext,
    settings: Verify,
    checker: &mut Checker,
    mut now_ns: u64,
) -> Result<(), JobError> {
    let mut done: Vec<Done> = Vec::with_capacity(connection.depth() as usize);
    let mut in_flight: Vec<Option<Transfer>> = vec![None; connection.depth() as usize];
    let mut held: Option<(u32, Transfer)> = None;
    let mut backlog: Vec<Transfer> = Vec::new();
    let backlog_max = settings.backlog.map_or(usize::MAX, |writes| writes.get() as usize);
    loop {
        while !checker.has_suspects() && backlog.len() < backlog_max {
            let Some((slot, transfer)) = held.take().or_else(|| job.poll_transfer(now_ns)) else { break };
            if in_flight.iter().flatten().any(|other| conflict(transfer, *other)) {
                held = Some((slot, transfer));
                break;
            }
            fill(connection, slot, transfer, checker)?;
            submit(connection, job, context, slot, transfer)?;
            in_flight[slot as usize] = Some(transfer);
        }
        if in_flight.iter().any(Option::is_some) {
            reap(connection, &mut done, job, now_ns)?;
            now_ns = context.clock.now_ns();
            for Done { slot, result } in done.drain(..) {
                let transfer = in_flight[slot as usize].take().unwrap_or_else(|| job.transfer(slot));
                result.map_err(|error| JobError::Transfer(transfer, error))?;
                handle_done(connection, slot, transfer, checker)?;
                if transfer.direction == Direction::Write && settings.backlog.is_some() {
                    backlog.push(Transfer { direction: Direction::Read, ..transfer });
                }
                job.handle_done(slot, now_ns);
            }
        } else if checker.has_suspects() {
            read_again(connection, checker)?;
            now_ns = context.clock.now_ns();
        } else if backlog.len() >= backlog_max {
            // A block that was written twice is read once.
            backlog.sort_unstable_by_key(|transfer| transfer.offset);
            backlog.dedup();
            read_back(connection, &mut backlog.drain(..), checker)?;
            now_ns = context.clock.now_ns();
        } else if job.is_done() {
            return context.finish(connection);
        } else if job.needs_flush() {
            now_ns = context.flush(connection, job, now_ns)?;
        } else if held.is_none() {
            now_ns = context.wait_until(job.poll_timeout());
        }
        if context.publish(job.tally()) || (settings.fatal && checker.verified.faults() > 0) {
            job.stop();
        }
    }
}

/// Reads blocks back and checks them, with all slots in flight. Blocks of an older write are read a second time.
pub(crate) fn read_back(
    connection: &mut dyn Connection,
    reads: &mut dyn Iterator<Item = Transfer>,
    checker: &mut Checker,
) -> Result<(), JobError> {
    let mut done = Vec::with_capacity(connection.depth() as usize);
    let mut in_flight: Vec<Option<Transfer>> = vec![None; connection.depth() as usize];
    let mut free: VecDeque<u32> = (0..connection.depth()).collect();
    loop {
        while let Some(slot) = free.pop_front() {
            let Some(read) = reads.next() else {
                free.push_front(slot);
                break;
            };
            connection.submit(slot, read).map_err(|error| JobError::Transfer(read, error))?;
            in_flight[slot as usize] = Some(read);
        }
        if in_flight.iter().all(Option::is_none) {
            return read_again(connection, checker);
        }
        connection.reap(&mut done).map_err(|error| JobError::Path("wait for transfers of", error))?;
        for Done { slot, result } in done.drain(..) {
            free.push_back(slot);
            let Some(read) = in_flight[slot as usize].take() else { continue };
            result.map_err(|error| JobError::Transfer(read, error))?;
            handle_done(connection, slot, read, checker)?;
        }
    }
}

/// Reads each suspect a second time, one after another.
fn read_again(connection: &mut dyn Connection, checker: &mut Checker) -> Result<(), JobError> {
    let mut done = Vec::with_capacity(1);
    for read in checker.take_suspects() {
        connection.submit(0, read).map_err(|error| JobError::Transfer(read, error))?;
        while done.is_empty() {
            connection.reap(&mut done).map_err(|error| JobError::Path("wait for transfers of", error))?;
        }
        for Done { result, .. } in done.drain(..) {
            result.map_err(|error| JobError::Transfer(read, error))?;
        }
        let content = connection.buffer(0).ok_or_else(no_content)?;
        checker.check_again(read, content);
    }
    Ok(())
}

fn fill(
    connection: &mut dyn Connection,
    slot: u32,
    transfer: Transfer,
    checker: &Checker,
) -> Result<(), JobError> {
    if transfer.direction == Direction::Write {
        checker.fill(transfer, connection.buffer(slot).ok_or_else(no_content)?);
    }
    Ok(())
}

fn handle_done(
    connection: &mut dyn Connection,
    slot: u32,
    transfer: Transfer,
    checker: &mut Checker,
) -> Result<(), JobError> {
    match transfer.direction {
        Direction::Write => checker.handle_written(transfer),
        Direction::Trim => {}
        Direction::Read => checker.check(transfer, connection.buffer(slot).ok_or_else(no_content)?),
    }
    Ok(())
}

/// The lab refuses such a path before it opens it.
fn no_content() -> JobError {
    JobError::Path("access the buffers of", std::io::ErrorKind::Unsupported.into())
}

/// Whether the content after both transfers depends on their order.
fn conflict(a: Transfer, b: Transfer) -> bool {
    let end = |transfer: Transfer| transfer.offset + u64::from(transfer.bytes);
    let is_read = |transfer: Transfer| transfer.direction == Direction::Read;
    !(is_read(a) && is_read(b)) && a.offset < end(b) && b.offset < end(a)
}
