//! Tests of the log of a queue: batches, borrowing by the sink, and steps combined in one record.

use super::*;
use crate::block::bio::{Bio, Stream};
use crate::block::log::NoRoom;
use crate::block::merge::NoMerge;
use crate::sector::{Extent, Sector};
use std::sync::{Arc, Mutex};

/// A sink that keeps all records, unless it is set to be full.
#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<Contents>>);

#[derive(Debug, Default)]
struct Contents {
    records: Vec<Record>,
    is_full: bool,
    published: Option<RecordBatch>,
}

impl LogSink for Kept {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        let Contents { records, is_full, .. } = &mut *self.0.lock().unwrap();
        if *is_full {
            return Err(NoRoom);
        }
        records.extend(batch.records());
        batch.clear();
        Ok(())
    }

    fn publish(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        let Contents { is_full, published, .. } = &mut *self.0.lock().unwrap();
        if *is_full {
            return Err(NoRoom);
        }
        *published = Some(std::mem::take(batch));
        Ok(())
    }

    fn reclaim(&mut self, batch: &mut RecordBatch) {
        *batch = self.0.lock().unwrap().published.take().unwrap_or_default();
    }
}

impl Kept {
    fn records(&self) -> Vec<Record> {
        self.0.lock().unwrap().records.clone()
    }

    fn events(&self) -> Vec<(Event, bool)> {
        self.records().iter().map(|record| (record.event().unwrap(), record.is_both())).collect()
    }

    /// The steps of each record after the first, which is a `Clock`.
    fn parts(&self) -> Vec<Vec<Event>> {
        let events = |record: &Record| record.parts().map(|part| part.event().unwrap()).collect();
        self.records()[1..].iter().map(events).collect()
    }

    /// The number of published records of an idle queue.
    fn published(&self) -> usize {
        self.0.lock().unwrap().published.as_ref().map_or(0, |batch| batch.records().len())
    }

    /// Reads the published records of an idle queue.
    fn read_published(&self) {
        let Contents { records, published, .. } = &mut *self.0.lock().unwrap();
        records.extend(published.take().unwrap().records());
    }

    fn set_full(&self, is_full: bool) {
        self.0.lock().unwrap().is_full = is_full;
    }
}

fn log() -> (Kept, Log) {
    let kept = Kept::default();
    (kept.clone(), Log::new(Box::new(kept)))
}

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn bio_step(slot: u32) -> Step {
    let extent = Extent::new(Sector(800), 8).unwrap();
    let bio = Bio::discard(extent, 0).with_fua().on_stream(Stream(5));
    Step::of_bio::<()>(Event::Queue, slot, &bio)
}

fn request_step(event: Event, tag: u32) -> Step {
    Step { event, subject: Subject::Request(tag), ..bio_step(0) }
}

fn inserted(tag: u32) -> Step {
    request_step(Event::Insert, tag).because(NoMerge::Direction)
}

fn insert(log: &mut Log, tag: u32, nanos: u64) {
    log.push_insert(Tag::from_bits(tag), NoMerge::Direction, || inserted(tag), at(nanos));
}

fn dispatch(log: &mut Log, tag: u32, nanos: u64) {
    log.push_dispatch(Tag::from_bits(tag), || request_step(Event::Dispatch, tag), at(nanos));
}

fn plug(log: &mut Log, tag: u32, nanos: u64) {
    log.push_plug(Tag::from_bits(tag), || request_step(Event::Plug, tag), at(nanos));
}

fn unplugged(requests: u32) -> Step {
    Step::new(Event::Unplug, Subject::Queue).with_other(requests)
}

fn got(tag: u32, bio: u32) -> Step {
    request_step(Event::Get, tag).with_other(bio)
}

fn get(log: &mut Log, tag: u32, bio: u32, nanos: u64) {
    log.push_get(bio, &got(tag, bio), at(nanos));
}

/// Queues a bio that gets its request at once.
fn queue_and_get(log: &mut Log, tag: u32, bio: u32, nanos: u64) {
    log.note_queued(bio);
    get(log, tag, bio, nanos);
}

/// The record of a step at `nanos`.
fn record(step: &Step, nanos: u64) -> Record {
    Record::new(step, at(nanos))
}

#[test]
fn the_upper_bits_of_the_time_are_recorded_when_they_change() {
    let (kept, mut log) = log();
    let times = [5, 6, (1 << Record::TIME_BITS) - 1, 1 << Record::TIME_BITS, u64::MAX - 1, u64::MAX];
    for nanos in times {
        log.push(&bio_step(0), at(nanos));
    }
    drop(log);
    let clocks: Vec<_> =
        kept.records().into_iter().filter(|record| record.event() == Some(Event::Clock)).collect();
    assert_eq!(clocks.iter().map(|record| record.other()).collect::<Vec<_>>(), [0, 1, (1 << 24) - 1]);
    assert_eq!(kept.records().len(), times.len() + clocks.len());
    assert_eq!(kept.events()[0].0, Event::Clock);
}

#[test]
fn a_batch_goes_to_the_sink_when_full_or_old_or_at_the_end() {
    let (kept, mut log) = log();
    // One less than the capacity: the batch begins with a `Clock`.
    for nanos in 1..RecordBatch::CAPACITY as u64 {
        assert_eq!(kept.records().len(), 0);
        log.push(&bio_step(0), at(nanos));
    }
    assert_eq!(kept.records().len(), RecordBatch::CAPACITY);
    log.push(&bio_step(0), at(2000));
    log.push(&bio_step(0), at(PENDING_MAX_NS));
    assert_eq!(kept.records().len(), RecordBatch::CAPACITY);
    log.push(&bio_step(0), at(PENDING_MAX_NS + 1));
    assert_eq!(kept.records().len(), RecordBatch::CAPACITY + 2);
    drop(log);
    assert_eq!(kept.records().len(), RecordBatch::CAPACITY + 3);
}

#[test]
fn a_record_of_missing_ones_precedes_the_next_and_has_the_whole_time() {
    let (kept, mut log) = log();
    let hour = at(3_600_000_000_000);
    kept.set_full(true);
    log.push(&bio_step(0), hour);
    log.flush();
    log.push(&bio_step(1), hour);
    log.push(&bio_step(2), hour);
    log.flush();
    kept.set_full(false);
    log.push(&bio_step(3), hour);
    drop(log);
    let records = kept.records();
    assert_eq!(kept.events(), [(Event::Missed, false), (Event::Queue, false)]);
    // Clock, bio 0, 1 and 2; not the record that stated the first two.
    assert_eq!(records[0].sector(), 4);
    assert_eq!(u64::from(records[0].other()), hour.as_nanos() >> Record::TIME_BITS);
    assert_eq!(records[1].tag(), 3);
}

#[test]
fn queue_and_get_at_the_same_time_are_one_record() {
    let (kept, mut log) = log();
    queue_and_get(&mut log, 3, 7, 50);
    assert_eq!(log.take_queued(), None);
    drop(log);
    assert_eq!(kept.events()[1..], [(Event::Get, true)]);
    let parts: Vec<_> = kept.records()[1].parts().collect();
    assert_eq!(parts, [record(&bio_step(7), 50), record(&got(3, 7), 50)]);
}

#[test]
fn a_bio_with_another_next_step_has_a_record_of_its_own() {
    let (kept, mut log) = log();
    log.note_queued(7);
    get(&mut log, 3, 8, 50);
    assert_eq!(log.take_queued(), Some(7));
    assert_eq!(log.take_queued(), None);
    get(&mut log, 3, 7, 50);
    drop(log);
    assert_eq!(kept.events()[1..], [(Event::Get, false), (Event::Get, false)]);
}

#[test]
fn plugged_requests_dispatched_at_the_time_of_their_bios_are_one_record_each() {
    let (kept, mut log) = log();
    queue_and_get(&mut log, 0, 7, 50);
    plug(&mut log, 0, 50);
    (1..4).for_each(|tag| queue_and_get(&mut log, tag, 7 + tag, 50));
    log.push_unplug(3, at(50));
    (0..3).for_each(|tag| insert(&mut log, tag, 50));
    (0..2).for_each(|tag| dispatch(&mut log, tag, 50));
    drop(log);
    let [queue, get, insert, dispatch] = [Event::Queue, Event::Get, Event::Insert, Event::Dispatch];
    assert_eq!(
        kept.parts(),
        [
            vec![queue, get, insert, dispatch],
            vec![Event::Plug],
            vec![queue, get, insert, dispatch],
            vec![queue, get, insert],
            vec![queue, get],
            vec![Event::Unplug],
        ]
    );
    let parts: Vec<_> = kept.records()[3].parts().collect();
    let steps = [bio_step(8), got(1, 8), inserted(1), request_step(Event::Dispatch, 1)];
    assert_eq!(parts, steps.map(|step| record(&step, 50)));
}

#[test]
fn a_request_alone_in_the_plug_is_one_record_up_to_its_last_step_at_that_time() {
    let steps = [
        bio_step(7),
        got(3, 7),
        request_step(Event::Plug, 3),
        unplugged(1),
        inserted(3),
        request_step(Event::Dispatch, 3),
    ];
    let further: [fn(&mut Log); 2] = [|log| insert(log, 3, 50), |log| dispatch(log, 3, 50)];
    for (count, codes) in (0..).zip([[Event::Get.code()], [Event::Insert.code()], [20]]) {
        let (kept, mut log) = log();
        queue_and_get(&mut log, 3, 7, 50);
        plug(&mut log, 3, 50);
        log.push_unplug(1, at(50));
        further[..count].iter().for_each(|step| step(&mut log));
        drop(log);
        let records = &kept.records()[1..];
        assert_eq!(records.iter().map(|record| record.event_code()).collect::<Vec<_>>(), codes);
        assert!(records[0].is_alone());
        let parts: Vec<_> = records[0].parts().collect();
        assert_eq!(parts, steps[..4 + count].iter().map(|step| record(step, 50)).collect::<Vec<_>>());
        let without_plug: Vec<_> = records[0].without_plug().parts().collect();
        assert_eq!((&without_plug[..2], &without_plug[2..]), (&parts[..2], &parts[4..]));
    }
}

#[test]
fn a_plug_that_holds_its_request_for_longer_has_records_of_its_own() {
    let between: [fn(&mut Log); 5] = [
        |log| log.push_unplug(1, at(51)),
        |log| log.push_unplug(2, at(50)),
        |log| {
            log.push(&Step { event: Event::BackMerge, ..bio_step(9) }, at(50));
            log.push_unplug(1, at(50));
        },
        |log| {
            log.publish();
            log.push_unplug(1, at(50));
        },
        |log| {
            queue_and_get(log, 4, 8, 51);
            log.push_unplug(2, at(51));
        },
    ];
    for (case, between) in between.into_iter().enumerate() {
        let (kept, mut log) = log();
        queue_and_get(&mut log, 3, 7, 50);
        plug(&mut log, 3, 50);
        between(&mut log);
        drop(log);
        let parts = kept.parts();
        assert_eq!(parts[..2], [vec![Event::Queue, Event::Get], vec![Event::Plug]], "case {case}");
        assert_eq!(parts.last(), Some(&vec![Event::Unplug]), "case {case}");
        assert_eq!(kept.records()[2], record(&request_step(Event::Plug, 3), 50), "case {case}");
    }
    let (kept, mut log) = log();
    queue_and_get(&mut log, 3, 7, 50);
    plug(&mut log, 3, 50);
    drop(log);
    assert_eq!(kept.parts(), [vec![Event::Queue, Event::Get], vec![Event::Plug]], "still plugged");
}

#[test]
fn single_requests_dispatched_at_the_time_of_their_bios_are_one_record_each() {
    let (kept, mut log) = log();
    for (tag, nanos) in [(0, 50), (1, 50), (0, 51)] {
        queue_and_get(&mut log, tag, tag, nanos);
        insert(&mut log, tag, nanos);
        dispatch(&mut log, tag, nanos);
    }
    drop(log);
    assert!(kept.records()[1..].iter().all(|record| record.is_both() && record.is_first()));
    assert_eq!(kept.records().len(), 1 + 3);
}

#[test]
fn steps_after_another_step_or_at_another_time_have_their_own_records() {
    let between: [fn(&mut Log); 3] = [
        // The request has grown by a merge.
        |log| log.push(&Step { event: Event::BackMerge, ..bio_step(9) }, at(50)),
        |log| log.push(&request_step(Event::NoMerge, 0), at(50)),
        |log| log.push_elevator("none", at(50)),
    ];
    for between in between {
        let (kept, mut log) = log();
        queue_and_get(&mut log, 0, 0, 50);
        between(&mut log);
        insert(&mut log, 0, 50);
        drop(log);
        assert_eq!((kept.parts().len(), kept.records().iter().any(|record| record.is_first())), (3, false));

        let (kept, mut log) = self::log();
        queue_and_get(&mut log, 0, 0, 50);
        insert(&mut log, 0, 50);
        between(&mut log);
        dispatch(&mut log, 0, 50);
        drop(log);
        assert_eq!(kept.parts()[0], [Event::Queue, Event::Get, Event::Insert]);
        assert_eq!(kept.parts()[2], [Event::Dispatch]);
    }
    let (kept, mut log) = log();
    queue_and_get(&mut log, 0, 0, 50);
    insert(&mut log, 0, 51);
    dispatch(&mut log, 0, 52);
    queue_and_get(&mut log, 1, 1, 53);
    insert(&mut log, 1, 53);
    dispatch(&mut log, 1, 54);
    drop(log);
    let lengths: Vec<_> = kept.parts().iter().map(Vec::len).collect();
    assert_eq!(lengths, [2, 1, 1, 3, 1]);
}

#[test]
fn inserts_and_dispatches_in_another_order_keep_that_order() {
    let (kept, mut log) = log();
    (0..3).for_each(|tag| queue_and_get(&mut log, tag, tag, 50));
    insert(&mut log, 1, 50);
    (0..3).for_each(|tag| dispatch(&mut log, tag, 50));
    drop(log);
    let recorded: Vec<_> =
        kept.records()[4..].iter().map(|record| (record.event().unwrap(), record.tag())).collect();
    let dispatches = [0, 1, 2].map(|tag| (Event::Dispatch, tag));
    assert_eq!(recorded, [&[(Event::Insert, 1)][..], &dispatches].concat());

    let (kept, mut log) = self::log();
    (0..3).for_each(|tag| queue_and_get(&mut log, tag, tag, 50));
    (0..3).for_each(|tag| insert(&mut log, tag, 50));
    for tag in [0, 2, 1] {
        dispatch(&mut log, tag, 50);
    }
    drop(log);
    let steps: Vec<_> = kept.records().iter().flat_map(|record| record.parts()).collect();
    let is_dispatch = |step: &&Record| step.event() == Some(Event::Dispatch);
    let order: Vec<_> = steps.iter().filter(is_dispatch).map(|step| step.tag()).collect();
    assert_eq!(order, [0, 2, 1]);
}

#[test]
fn insert_and_dispatch_at_the_same_time_are_one_record() {
    let (kept, mut log) = log();
    (0..3).for_each(|tag| insert(&mut log, tag, 50));
    (0..2).for_each(|tag| dispatch(&mut log, tag, 50));
    drop(log);
    assert_eq!(
        kept.events()[1..],
        [(Event::Dispatch, true), (Event::Dispatch, true), (Event::Insert, false)]
    );
    let parts: Vec<_> = kept.records()[2].parts().collect();
    assert_eq!(parts, [record(&inserted(1), 50), record(&request_step(Event::Dispatch, 1), 50)]);
}

#[test]
fn requests_dispatched_later_or_in_another_order_have_their_own_records() {
    let (kept, mut log) = log();
    (0..3).for_each(|tag| insert(&mut log, tag, 50));
    dispatch(&mut log, 1, 50);
    dispatch(&mut log, 0, 50);
    drop(log);
    let tags: Vec<_> = kept.records()[1..].iter().map(|record| record.tag()).collect();
    assert_eq!(tags, [0, 1, 2, 1, 0]);
    assert!(kept.events().iter().all(|(_, is_both)| !is_both));

    let (kept, mut log) = self::log();
    insert(&mut log, 0, 50);
    dispatch(&mut log, 0, 51);
    insert(&mut log, 1, 52);
    log.push(&request_step(Event::Complete, 0), at(52));
    dispatch(&mut log, 1, 52);
    drop(log);
    assert!(kept.events().iter().all(|(_, is_both)| !is_both), "{:?}", kept.events());
}

#[test]
fn a_run_of_inserts_ends_with_its_batch() {
    let (kept, mut log) = log();
    let tags = RecordBatch::CAPACITY as u32 + 10;
    (0..tags).for_each(|tag| insert(&mut log, tag, 50));
    // The sink has the first batch: no step can be added to its records.
    dispatch(&mut log, 0, 50);
    drop(log);
    assert_eq!(kept.records().len() as u32, 1 + tags + 1);
    let (kept, mut log) = self::log();
    (0..tags).for_each(|tag| insert(&mut log, tag, 50));
    dispatch(&mut log, RecordBatch::CAPACITY as u32 - 1, 50);
    drop(log);
    assert_eq!(kept.events().last(), Some(&(Event::Insert, false)));
    assert_eq!(kept.records().len() as u32, 1 + tags, "the first of the second batch includes its dispatch");
}

#[test]
fn an_unread_published_batch_is_continued() {
    let (kept, mut log) = log();
    log.push(&bio_step(0), at(50));
    for number in 1..4 {
        log.publish();
        log.publish();
        assert_eq!((kept.published() as u64, kept.records().len()), (number + 1, 0));
        log.push(&bio_step(number as u32), at(50 + number));
        assert_eq!(kept.published(), 0);
    }
    log.publish();
    log.push(&bio_step(4), at(49 + PENDING_MAX_NS));
    assert_eq!(kept.records().len(), 0);
    log.publish();
    log.push(&bio_step(5), at(50 + PENDING_MAX_NS));
    assert_eq!(kept.records().len(), 1 + 5, "an old batch goes to the sink when the queue continues");
    log.publish();
    drop(log);
    let tags: Vec<_> = kept.records()[1..].iter().map(|record| record.tag()).collect();
    assert_eq!((kept.published(), &tags[..]), (0, &[0, 1, 2, 3, 4, 5][..]));
}

#[test]
fn a_borrowed_batch_that_was_read_is_not_continued() {
    let (kept, mut log) = log();
    queue_and_get(&mut log, 3, 7, 50);
    log.publish();
    kept.read_published();
    insert(&mut log, 3, 50);
    assert_eq!(kept.events(), [(Event::Clock, false), (Event::Get, true)]);
    drop(log);
    assert_eq!(kept.events()[2..], [(Event::Insert, false)], "no second clock");
    assert!(!kept.records()[2].is_first());
}

#[test]
fn a_batch_that_the_sink_does_not_publish_is_continued() {
    let (kept, mut log) = log();
    queue_and_get(&mut log, 3, 7, 50);
    kept.set_full(true);
    log.publish();
    kept.set_full(false);
    insert(&mut log, 3, 50);
    drop(log);
    assert_eq!(kept.parts(), [[Event::Queue, Event::Get, Event::Insert]], "no step is lost or separate");
}
