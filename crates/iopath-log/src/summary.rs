//! One pass over a log: follows each bio and request, and counts. In memory that does not grow with the log.
//! The page and the JSON: `summary/report.rs`, `summary/page.rs`.

mod depth;
mod elevators;
mod join;
mod page;
mod report;
mod seeks;
mod sizes;
mod slots;
mod stages;
mod streams;
mod times;

pub use report::{
    Depth, ElevatorChange, ErrorCount, EventCounts, OpCounts, Plugging, Refusals, Report, Seeks, SizeClass,
    Slow, Stage, Stages, StreamShare,
};

use crate::block::Block;
use crate::error::LogError;
use crate::filter::{Filter, Sieve};
use crate::format::LogInfo;
use crate::reader::{End, LogReader};
use depth::DepthOverTime;
use iopath_core::log::Event;
use iopath_core::{Instant, NoMerge};
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
    /// How often each event happened, by its code.
    steps: [u64; 32],
    /// Elevators that took over.
    elevators: elevators::Changes,
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
            steps: [0; 32],
            elevators: elevators::Changes::default(),
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
            let number = self.joins.len();
            self.joins.extend((number..=queue).map(|number| Join::new(number as u16)));
        }
        if self.sieve.is_open() {
            self.add_all(block, queue);
        } else {
            self.add_selected(block, queue);
        }
    }

    fn add_all(&mut self, block: &Block, queue: usize) {
        let (join, tallies) = (&mut self.joins[queue], &mut self.tallies);
        let (mut first, mut last) = (None, Instant::ZERO);
        for (time, record) in block.records() {
            first = first.or(Some(time));
            last = last.max(time);
            join.follow(record, time.as_nanos(), &mut self.budget, tallies);
        }
        tallies.note_time(first.unwrap_or_default());
        tallies.note_time(last);
    }

    fn add_selected(&mut self, block: &Block, queue: usize) {
        let (join, tallies) = (&mut self.joins[queue], &mut self.tallies);
        for entry in block.entries() {
            if self.sieve.passes(&entry) {
                tallies.note_time(entry.time);
                join.follow(entry.record, entry.time.as_nanos(), &mut self.budget, tallies);
            } else if entry.record.event_code() == Event::Missed.code() {
                join.forget();
            }
        }
    }

    fn finish(mut self, info: LogInfo, end: End) -> Report {
        let queues = self.joins.len();
        for join in &mut self.joins {
            join.finish(&mut self.tallies);
        }
        Report::new(info, end, !self.sieve.is_open(), queues, &self.tallies)
    }
}

impl Tallies {
    fn note_time(&mut self, time: Instant) {
        self.first_ns = self.first_ns.min(time.as_nanos());
        self.last_ns = self.last_ns.max(time.as_nanos());
    }

    fn count(&self, event: Event) -> u64 {
        self.steps[usize::from(event.code())]
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
