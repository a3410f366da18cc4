//! Follows every bio and request through the records of a queue, and compares the counts. The encoding is tested in
//! `src/block/log/record.rs`.

use iopath_core::log::{Event, NoRoom, Step, Subject};
use iopath_core::{LogSink, NoMerge, Op, QueueStats, Record, RecordBatch};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// A sink that keeps all records of a queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept(Arc<Mutex<Vec<Record>>>);

impl LogSink for Kept {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        let steps = batch.records().iter().flat_map(|record| record.parts());
        self.0.lock().unwrap().extend(steps);
        batch.clear();
        Ok(())
    }
}

/// The stage of a request by the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Plug,
    Elevator,
    Device,
    Requeued,
}

/// The bios and requests in flight by the records.
#[derive(Debug, Default)]
struct Ledger {
    /// Bios between their first and last record.
    bios: BTreeSet<u32>,
    /// Pieces and the bio of each, until the number is reused: their completion is not recorded.
    pieces: BTreeMap<u32, u32>,
    requests: BTreeMap<u32, (Stage, u32)>,
    /// Bios that were split, by number, until they complete.
    cut: BTreeSet<u32>,
    split: u64,
    counts: BTreeMap<Event, u64>,
    refused: BTreeMap<NoMerge, u64>,
    errors: u64,
}

impl Kept {
    /// Checks that every bio begins and completes, that every request passes valid stages, and that the counts are
    /// those of the queue. Returns the number of bios that failed.
    pub(crate) fn check(&self, stats: &QueueStats) -> u64 {
        let mut ledger = Ledger::default();
        let mut time = 0;
        for record in self.0.lock().unwrap().iter() {
            assert!(record.time_low() >= time, "time decreases to {} from {time}", record.time_low());
            time = record.time_low();
            let step = record.step().expect("a queue knows its own codes");
            ledger.follow(&step);
        }
        ledger.agree_with(stats);
        ledger.errors
    }
}

impl Ledger {
    fn follow(&mut self, step: &Step) {
        *self.counts.entry(step.event).or_default() += 1;
        let is_search_over = matches!(step.event, Event::Insert | Event::SlotWait);
        let not_adjacent = step.reason == Some(NoMerge::NotAdjacent);
        if let Some(reason) = step.reason.filter(|_| !is_search_over || not_adjacent) {
            *self.refused.entry(reason).or_default() += 1;
        }
        match step.subject {
            Subject::Queue => {
                assert!(matches!(step.event, Event::Clock | Event::Unplug | Event::Elevator), "{step:?}");
            }
            Subject::Bio(bio) => self.follow_bio(bio, step),
            Subject::Request(tag) => self.follow_request(tag, step),
        }
    }

    fn follow_bio(&mut self, bio: u32, step: &Step) {
        match step.event {
            Event::Queue => {
                self.pieces.remove(&bio);
                assert!(self.bios.insert(bio), "bio {bio} is queued twice");
            }
            Event::Split => {
                assert!(self.bios.contains(&step.other), "{step:?} splits an unknown bio");
                assert!(!self.bios.contains(&bio), "{step:?} is a bio");
                self.pieces.insert(bio, step.other);
            }
            Event::BackMerge | Event::FrontMerge => {
                assert!(self.requests.contains_key(&step.other), "{step:?} merges into an unknown request");
                self.stage(bio);
            }
            Event::Complete => self.finish(bio, step.other),
            Event::Hold | Event::SlotWait | Event::NoMerge | Event::Flush | Event::Retry => {}
            _ => panic!("{step:?} of a bio"),
        }
    }

    /// A bio or piece is in a request. With its first piece, a bio has been split.
    fn stage(&mut self, bio: u32) {
        if let Some(parent) = self.pieces.get(&bio) {
            assert!(self.bios.contains(parent), "piece {bio} outlived bio {parent}");
            self.split += u64::from(self.cut.insert(*parent));
        } else {
            assert!(self.bios.contains(&bio), "bio {bio} has not begun");
        }
    }

    fn finish(&mut self, bio: u32, errno: u32) {
        assert!(self.bios.remove(&bio), "bio {bio} completes and has not begun, or is a piece");
        self.cut.remove(&bio);
        self.errors += u64::from(errno != 0);
    }

    fn follow_request(&mut self, tag: u32, step: &Step) {
        let stage = self.requests.get(&tag).map(|(stage, _)| *stage);
        let next = match (step.event, stage) {
            (Event::Get, None) => {
                self.requests.insert(tag, (Stage::Plug, step.other));
                self.stage(step.other);
                return;
            }
            (Event::Plug | Event::NoMerge, Some(Stage::Plug)) => return,
            (Event::BackMerge | Event::FrontMerge, Some(Stage::Plug | Stage::Elevator)) => {
                assert!(self.requests.contains_key(&step.other), "{step:?} merges into an unknown request");
                self.requests.remove(&tag);
                return;
            }
            (Event::Insert, Some(Stage::Plug)) => {
                assert!(step.reason.is_some(), "{step:?} has no reason");
                Stage::Elevator
            }
            (Event::Dispatch, Some(Stage::Elevator | Stage::Requeued)) => Stage::Device,
            (Event::Dispatch, None) if step.op == Op::Flush => Stage::Device,
            (Event::Requeue, Some(Stage::Device)) => Stage::Requeued,
            (Event::Complete, Some(Stage::Device)) => {
                let (_, bio) = self.requests.remove(&tag).unwrap();
                if step.is_last {
                    self.finish(bio, step.other);
                }
                return;
            }
            (event, stage) => panic!("{event:?} of request {tag} at {stage:?}"),
        };
        self.requests.entry(tag).or_insert((next, Record::NO_TAG)).0 = next;
    }

    fn agree_with(&self, stats: &QueueStats) {
        assert_eq!(self.bios, BTreeSet::new(), "bios that never complete");
        assert_eq!(self.requests, BTreeMap::new(), "requests that never complete");
        let count = |event| self.counts.get(&event).copied().unwrap_or_default();
        assert_eq!(count(Event::Queue), stats.bios);
        assert_eq!(count(Event::Dispatch), stats.dispatched);
        assert_eq!(count(Event::Requeue), stats.requeued);
        assert_eq!(count(Event::Hold), stats.held);
        assert_eq!(count(Event::SlotWait), stats.slot_waits);
        assert_eq!(count(Event::BackMerge), stats.back_merges());
        assert_eq!(count(Event::FrontMerge), stats.front_merges());
        assert_eq!(self.split, stats.split);
        for reason in NoMerge::ALL {
            let refused = self.refused.get(&reason).copied().unwrap_or_default();
            assert_eq!(refused, stats.refused(reason), "{reason:?}");
        }
    }
}
