//! Merges in an elevator: a grown request is found at its new extent, an absorbed request is removed, limits refuse
//! merges.

use super::{every_elevator, read, spec, write};
use iopath_core::elevator::{Harness, Outline};
use iopath_core::{Duration, Extent, Instant, NoMerge, Op, Priority, Sector};

const T0: Instant = Instant::ZERO;

/// Start and length of all requests, in the order of dispatch.
fn drain(harness: &mut Harness) -> Vec<(u64, u64)> {
    std::iter::from_fn(|| harness.dispatch(T0))
        .map(|(_, io)| (io.extent.start().0, io.extent.sectors()))
        .collect()
}

#[test]
fn a_request_that_grows_at_its_front_is_found_at_its_new_start() {
    for spec in every_elevator().filter(|spec| spec.name() != "none") {
        let mut harness = Harness::new(&spec, 8);
        let tag = harness.insert(&read(100), T0);
        assert_eq!(harness.merge(&read(92), T0), Ok(tag), "{spec}");
        assert_eq!(harness.merge(&read(84), T0), Ok(tag), "{spec}");
        assert_eq!(harness.merge(&read(108), T0), Ok(tag), "{spec}");
        assert_eq!(drain(&mut harness), [(84, 32)], "{spec}");
    }
}

#[test]
fn a_request_that_closes_a_gap_joins_both_neighbours() {
    for spec in every_elevator().filter(|spec| spec.name() != "none") {
        let mut harness = Harness::new(&spec, 8);
        harness.insert(&read(100), T0);
        harness.insert(&read(116), T0);
        harness.insert(&read(500), T0);
        assert!(harness.merge(&read(108), T0).is_ok(), "{spec}");
        assert_eq!(harness.elevator().len(), 2, "{spec}");
        assert_eq!(drain(&mut harness), [(100, 24), (500, 8)], "{spec}");
    }
}

#[test]
fn a_request_of_any_length_is_found_at_its_end() {
    let io = |start, sectors| Outline { extent: Extent::new(Sector(start), sectors).unwrap(), ..read(0) };
    for spec in every_elevator().filter(|spec| spec.name() != "none") {
        for sectors in [1, 510, 511, 512, 2048] {
            let mut harness = Harness::new(&spec, 8);
            let tag = harness.insert(&io(1000, sectors), T0);
            assert_eq!(harness.merge(&io(1001 + sectors, 1), T0), Err(NoMerge::NotAdjacent), "{spec}");
            assert_eq!(harness.merge(&io(1000 + sectors, 600), T0), Ok(tag), "{spec}: {sectors}");
            assert_eq!(harness.merge(&io(1600 + sectors, 1), T0), Ok(tag), "{spec}: {sectors}");
            assert_eq!(drain(&mut harness), [(1000, sectors + 601)], "{spec}");
        }
    }
}

#[test]
fn requests_of_other_directions_or_priorities_or_apart_do_not_merge() {
    for spec in every_elevator() {
        let mut harness = Harness::new(&spec, 8);
        harness.insert(&read(100), T0);
        assert!(harness.merge(&write(108), T0).is_err(), "{spec}");
        assert!(harness.merge(&Outline { priority: Priority::Idle, ..read(108) }, T0).is_err(), "{spec}");
        assert_eq!(harness.merge(&read(109), T0), Err(NoMerge::NotAdjacent), "{spec}");
    }
}

#[test]
fn ascend_limits_writes_while_reads_are_queued() {
    let mut harness = Harness::new(&spec("ascend:max_bomb_segments=2,max_read_pending=1"), 8);
    let tag = harness.insert(&write(0), T0);
    assert_eq!(harness.merge(&write(8), T0), Ok(tag));
    harness.insert(&read(1000), T0);
    assert_eq!(harness.merge(&write(16), T0), Ok(tag), "one read may be pending");
    harness.insert(&read(2000), T0);
    assert_eq!(harness.merge(&write(24), T0), Err(NoMerge::LatencyBound));
    assert!(harness.merge(&read(1008), T0).is_ok(), "the limit applies to writes only");
    harness.elevator().set_tunable("max_bomb_segments", 4).unwrap();
    assert_eq!(harness.merge(&write(24), T0), Ok(tag));
}

#[test]
fn ascend_refuses_merges_past_a_request_without_allowance() {
    let mut harness = Harness::new(&spec("ascend:read_latency=2"), 8);
    harness.insert(&read(0), T0);
    harness.insert(&read(1000), T0);
    // Each merge passes the first request, which has an allowance of 2.
    assert!(harness.merge(&read(1008), T0).is_ok());
    assert!(harness.merge(&read(1016), T0).is_ok());
    assert_eq!(harness.merge(&read(1024), T0), Err(NoMerge::StarvationBound));
    harness.dispatch(T0);
    harness.dispatch(T0);
    harness.insert(&read(3000), T0);
    assert!(harness.merge(&read(3008), T0).is_ok());
}

#[test]
fn deadline_keeps_the_earlier_expiry_time_of_two_merged_requests() {
    let ms = |ms| T0 + Duration::from_millis(ms);
    let mut harness = Harness::new(&spec("deadline:read_expire_ms=100,fifo_batch=1"), 8);
    harness.insert(&read(0), ms(0));
    harness.dispatch(ms(0));
    harness.insert(&read(1016), ms(10));
    harness.insert(&read(5000), ms(20));
    harness.insert(&read(1000), ms(50));
    harness.insert(&read(500), ms(50));
    // The request at 1016, which expires at 110, is merged into the request at 1000.
    assert!(harness.merge(&read(1008), ms(60)).is_ok());
    let (_, expired) = harness.dispatch(ms(110)).unwrap();
    assert_eq!((expired.extent.start().0, expired.extent.sectors()), (1000, 24));
}

#[test]
fn deadline_checks_expiry_only_when_a_batch_starts() {
    let mut harness = Harness::new(&spec("deadline:read_expire_ms=100,fifo_batch=2"), 8);
    for start in [900, 100, 200, 300, 400] {
        harness.insert(&read(start), T0);
    }
    let late = T0 + Duration::from_millis(100);
    let start_at = |harness: &mut Harness, now| harness.dispatch(now).unwrap().1.extent.start().0;
    assert_eq!(start_at(&mut harness, T0), 100);
    assert_eq!(start_at(&mut harness, late), 200, "expiry times are soft: the batch continues");
    assert_eq!(start_at(&mut harness, late), 900);
    assert_eq!(start_at(&mut harness, late), 300, "no request lies upward: the oldest");
}

#[test]
fn deadline_dispatches_two_batches_of_reads_before_writes() {
    let mut harness = Harness::new(&spec("deadline:fifo_batch=1"), 16);
    (0..4).for_each(|block| {
        harness.insert(&read(block * 100), T0);
        harness.insert(&write(block * 100 + 50), T0);
    });
    let letter = |op: Op| if op.is_write() { 'W' } else { 'R' };
    let ops: String = std::iter::from_fn(|| harness.dispatch(T0)).map(|(_, io)| letter(io.op)).collect();
    assert_eq!(ops, "RRWRRWWW");
}
