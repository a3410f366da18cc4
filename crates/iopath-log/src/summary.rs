//! One pass over a log: follows each bio and request, and counts. In memory that does not grow with the log.
//! The page and the JSON: `summary/report.rs`, `summary/page.rs`.

mod depth;
mod join;
mod page;
mod report;
mod seeks;
mod sizes;
mod slots;
mod stages;
mod streams;

pub use report::{
    Depth, ErrorCount, EventCounts, OpCounts, Plugging, Refusals, Report, Seeks, SizeClass, Slow, Stage,
    Stages, StreamShare,
};

use crate::block::Block;
use crate::error::LogError;
use crate::filter::{Filter, Sieve};
use crate::format::LogInfo;
use crate::reader::{End, LogReader};
use depth::DepthOverTime;
use iopath_core::NoMerge;
use iopath_core::log::Event;
use join::Join;
use sizes::Sizes;
use slots::Budget;
use stages::StageTimes;
use std::collections::BTreeMap;
use std::io::Read;
use streams::{Slowest, Streams};

impl<R: Read + Send> LogReader<R> {
    /// Summarises what passes the filter. A damaged log is summarised up to the damage, and the report says so.
    ///
    /// # Errors
    /// If the system reports an error in reading.
    pub fn summarise(self, filter: &Filter) -> Result<Report, LogError> {
        let info = self.info().clone();
        let mut summary = Summary::new(filter, info.start_ns);
        let end = self.for_each_block(|block| summary.add(block))?;
        Ok(summary.finish(info, end))
    }
}

/// Different errnos counted; a log that has more is not from a kernel.
const ERRNOS_MAX: usize = 256;

/// What a log comes to.
#[derive(Debug)]
struct Summary {
    sieve: Sieve,
    /// By queue number.
    joins: Vec<Join>,
    budget: Budget,
    tallies: Tallies,
}

/// What is counted over all queues.
#[derive(Debug)]
struct Tallies {
    selected: u64,
    /// By event code.
    events: [u64; 32],
    /// By reason code.
    refused: [u64; 16],
    unplugged: u64,
    bios_split: u64,
    requests_joined: u64,
    /// Completions of which the beginning was not seen.
    unjoined: u64,
    errnos: BTreeMap<u32, u64>,
    stages: StageTimes,
    sizes: Sizes,
    seeks: seeks::Distances,
    depth: DepthOverTime,
    streams: Streams,
    slowest: Slowest,
    first_ns: u64,
    last_ns: u64,
}

impl Summary {
    fn new(filter: &Filter, start_ns: u64) -> Self {
        let tallies = Tallies {
            selected: 0,
            events: [0; 32],
            refused: [0; 16],
            unplugged: 0,
            bios_split: 0,
            requests_joined: 0,
            unjoined: 0,
            errnos: BTreeMap::new(),
            stages: StageTimes::default(),
            sizes: Sizes::default(),
            seeks: seeks::Distances::default(),
            depth: DepthOverTime::new(start_ns),
            streams: Streams::default(),
            slowest: Slowest::default(),
            first_ns: u64::MAX,
            last_ns: 0,
        };
        Self { sieve: Sieve::new(filter, start_ns), joins: Vec::new(), budget: Budget::default(), tallies }
    }

    fn add(&mut self, block: &Block) {
        let queue = usize::from(block.queue());
        if self.joins.len() <= queue {
            self.joins.resize_with(queue + 1, Join::default);
        }
        let (join, tallies) = (&mut self.joins[queue], &mut self.tallies);
        for entry in block.entries() {
            let is_missed = entry.record.event_code() == Event::Missed.code();
            if is_missed {
                join.forget();
            }
            if self.sieve.passes(&entry) {
                tallies.selected += 1;
                let nanos = entry.time.as_nanos();
                tallies.first_ns = tallies.first_ns.min(nanos);
                tallies.last_ns = tallies.last_ns.max(nanos);
                tallies.events[usize::from(entry.record.event_code())] += 1;
                join.follow(entry.record, nanos, &mut self.budget, tallies);
            }
        }
    }

    fn finish(mut self, info: LogInfo, end: End) -> Report {
        let queues = self.joins.len();
        for join in &mut self.joins {
            join.finish(&mut self.tallies);
        }
        Report::new(info, end, queues, &self.tallies)
    }
}

impl Tallies {
    fn count(&self, event: Event) -> u64 {
        self.events[usize::from(event.code())]
    }

    fn refused(&self, reason: NoMerge) -> u64 {
        self.refused[usize::from(reason.code())]
    }

    fn note_errno(&mut self, errno: u32) {
        if errno != 0 && (self.errnos.len() < ERRNOS_MAX || self.errnos.contains_key(&errno)) {
            *self.errnos.entry(errno).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests;
