//! Reads a log in one pass, follows each bio and request, and counts. Its memory does not grow with the log. The fields
//! of the report are in `summary/report.rs`; `iopath-report` shows them.

mod accesses;
mod contents;
mod depth;
mod devices;
mod elevators;
mod histogram;
mod intervals;
mod join;
mod latency;
mod repeats;
mod report;
mod seeks;
mod sizes;
mod slots;
mod slowest;
mod stages;
mod streams;
mod tallies;
mod timeline;

pub(crate) use contents::Seen;
pub use intervals::{Interval, Intervals};
pub use report::{
    AccessCounts, Contents, Depth, DeviceShare, ElevatorChange, ErrorCount, EventCounts, FileAccess, Flow,
    OpCounts, Plugging, Reasons, RepeatShare, Report, SCHEMA as SUMMARY_SCHEMA, Seeks, SizeClass, Slow,
    Stage, Stages, StreamShare,
};

use crate::block::{Block, Mark};
use crate::error::LogError;
use crate::filter::{Filter, Matcher};
use crate::format::LogInfo;
use crate::reader::LogReader;
use iopath_core::Record;
use iopath_core::log::Event;
use join::Join;
use slots::Budget;
use std::io::Read;
use tallies::{Reading, Tallies};

impl<R: Read + Send> LogReader<R> {
    /// Summarises the steps that pass the filter. A damaged log is summarised up to the damage, and the report states
    /// it.
    ///
    /// # Errors
    /// If the operating system reports an error while reading.
    pub fn summarise(self, filter: &Filter) -> Result<Report, LogError> {
        let info = self.info().clone();
        let mut summary = Summary::new(filter, &info);
        let end = self.for_each_block(|block| summary.add(block))?;
        let Summary { joins, tallies, seen, .. } = summary;
        let queues = joins.iter().flatten().filter(|join| join.is_queue()).count();
        Ok(tallies.report(Reading { info, end, queues, seen }))
    }
}

/// A summary in progress.
#[derive(Debug)]
struct Summary {
    matcher: Matcher,
    /// The join of each queue, by its number; `None` for queues without a block so far.
    joins: Vec<Option<Join>>,
    budget: Budget,
    tallies: Tallies,
    /// The number of marks processed.
    marks: usize,
    /// `Some` if a filter was given.
    seen: Option<Seen>,
}

impl Summary {
    fn new(filter: &Filter, info: &LogInfo) -> Self {
        let start_ns = info.start_ns;
        let matcher = Matcher::new(filter, start_ns);
        let seen = (!matcher.passes_all()).then(Seen::default);
        Self {
            matcher,
            joins: Vec::new(),
            budget: Budget::default(),
            tallies: Tallies::new(start_ns, info.has_devices()),
            marks: 0,
            seen,
        }
    }

    fn add(&mut self, block: &Block) {
        for Mark { repeat, at_ns } in &block.marks()[self.marks..] {
            self.tallies.repeats.mark(*repeat, *at_ns);
            self.tallies.timeline.mark(*at_ns);
        }
        self.marks = block.marks().len();
        if !self.matcher.passes_queue(block) {
            if let Some(seen) = &mut self.seen {
                block.entries().for_each(|entry| seen.note(&entry));
            }
            return;
        }
        let queue = usize::from(block.queue());
        if self.joins.len() <= queue {
            self.joins.resize_with(queue + 1, || None);
        }
        let Self { matcher, joins, budget, tallies, seen, .. } = self;
        let join = joins[queue].get_or_insert_with(|| Join::new(block.queue()));
        let mut visit = tallies.begin_visit(block.time_ns());
        let mut follow = |join: &mut Join, record: Record, now: u64, tallies: &mut Tallies| {
            if !visit.note(now) {
                tallies.end_visit(visit);
                visit = tallies.begin_visit(now);
                visit.note(now);
            }
            join.follow(record, now, budget, tallies);
        };
        let Some(seen) = seen else {
            for (time, record) in block.records() {
                follow(join, record, time.as_nanos(), tallies);
            }
            return tallies.end_visit(visit);
        };
        for entry in block.entries() {
            seen.note(&entry);
            if matcher.passes(&entry) {
                follow(join, entry.record, entry.time.as_nanos(), tallies);
            } else if entry.record.event_code() == Event::Missed.code() {
                join.forget(entry.time.as_nanos(), tallies);
            }
        }
        tallies.end_visit(visit);
    }
}

#[cfg(test)]
mod tests;
