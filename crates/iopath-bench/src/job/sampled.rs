//! A job that measures one latency per group of transfers, as a state machine. For synchronous paths on which a
//! transfer takes less time than reading the clock. A random draw selects the measured transfer of each group, so that
//! it cannot coincide with a pattern of the workload. The job that measures every latency is in `job.rs`.
//!
//! The job returns transfers in runs. The driver makes the transfers of a run one after another, and reads the clock
//! between runs: before and after a measured transfer. The job never waits, so it has no timeout.

use std::ops::Range;

use iopath_report::random::{below, generator};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Deadline;
use super::tally::Tally;
use crate::path::Transfer;
use crate::plan::Plan;

/// Separates this generator from the plan's, which has the same seed.
const PURPOSE: u64 = 0x5A3;

/// Transfers that the plan draws at once, outside of the measured transfers.
const BLOCK: usize = 512;

/// A job of depth 1 that measures one transfer of each group of `every`.
#[derive(Debug)]
pub(crate) struct SampledJob {
    plan: Plan,
    every: usize,
    draw: Xoshiro256PlusPlus,
    /// Whole groups, except at the end of the plan.
    block: Vec<Transfer>,
    block_len: usize,
    /// The transfers of the block that were polled.
    polled: usize,
    /// The end of the current group in the block.
    group_end: usize,
    /// The transfer of the current group to measure; none after it was polled.
    measured: Option<usize>,
    /// The run in progress, and whether its one transfer is measured.
    run: Range<usize>,
    is_measured: bool,
    submitted_ns: u64,
    deadline: Deadline,
    is_stopped: bool,
    tally: Tally,
}

impl SampledJob {
    /// A job that starts now.
    pub(crate) fn new(plan: Plan, every: u32, seed: u64, runtime_ns: Option<u64>, now_ns: u64) -> Self {
        let every = every as usize;
        let block_len = (BLOCK / every).max(1) * every;
        Self {
            plan,
            every,
            draw: generator(seed, [PURPOSE, every as u64]),
            block: Vec::with_capacity(block_len),
            block_len,
            polled: 0,
            group_end: 0,
            measured: None,
            run: 0..0,
            is_measured: false,
            submitted_ns: now_ns,
            deadline: Deadline::after(now_ns, runtime_ns),
            is_stopped: false,
            tally: Tally::new(now_ns),
        }
    }

    /// The next run: the transfers before the next measured transfer, or the measured transfer alone. None at the end
    /// of the plan. After the deadline or a stop, none at the end of the current group, so that each group has a
    /// measured latency.
    pub(crate) fn poll_run(&mut self, now_ns: u64) -> Option<&[Transfer]> {
        self.is_stopped |= self.deadline.is_reached(now_ns);
        if self.polled == self.block.len() && !self.is_stopped {
            self.block.clear();
            self.block.extend(self.plan.by_ref().take(self.block_len));
            (self.polled, self.group_end) = (0, 0);
        }
        // A run continues into the next group, up to its measured transfer.
        if self.measured.is_none() && !self.is_stopped && self.group_end < self.block.len() {
            self.begin_group();
        }
        if self.polled == self.group_end {
            self.is_stopped = true;
            return None;
        }
        let (end, is_measured) = match self.measured {
            Some(at) if at == self.polled => (at + 1, true),
            Some(at) => (at, false),
            None => (self.group_end, false),
        };
        if is_measured {
            self.measured = None;
            self.submitted_ns = now_ns;
        }
        (self.run, self.is_measured) = (self.polled..end, is_measured);
        self.polled = end;
        Some(&self.block[self.run.clone()])
    }

    /// Whether the driver has to read the clock after this run: a measured transfer ends or may begin at this point.
    /// After other runs the driver passes the last reading.
    pub(crate) fn needs_clock(&self) -> bool {
        self.is_measured || self.measured.is_some() || self.polled == self.block.len()
    }

    /// The run has completed: counts it. Records its latency if its transfer is the measured one.
    pub(crate) fn handle_run(&mut self, now_ns: u64) {
        let transfers = &self.block[self.run.clone()];
        self.tally.count_all(transfers);
        if let ([transfer], true) = (transfers, self.is_measured) {
            self.tally.measure(transfer.direction, now_ns - self.submitted_ns);
        }
    }

    /// Ends the job at the end of the current group.
    pub(crate) fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// The measurements so far.
    #[inline]
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The measurements.
    pub(crate) fn into_tally(self) -> Tally {
        self.tally
    }

    /// Draws the transfer to measure in the next group.
    fn begin_group(&mut self) {
        let begin = self.group_end;
        self.group_end = self.block.len().min(begin + self.every);
        let len = (self.group_end - begin) as u64;
        self.measured = Some(begin + below(&mut self.draw, len) as usize);
    }
}
