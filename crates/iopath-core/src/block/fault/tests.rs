//! Unit tests of the device with faults, over a disk without bytes. The tests with bytes are in `tests/faults`.

use super::*;
use crate::block::timed_disk::{SERVICE, TimedDisk};
use crate::memory::LengthOnly;
use crate::sector::{Extent, Sector};

/// Reads `count` extents of 16 blocks and follows the timeout. Returns the completions in order, and the time at
/// the end.
fn run(device: &mut FaultyDevice<TimedDisk>, count: u32) -> (Vec<(u64, Completion)>, Instant) {
    let mut now = Instant::ZERO;
    let mut completions = Vec::new();
    for index in 0..count {
        let extent = Extent::new(Sector(u64::from(index) * 128), 128).unwrap();
        let memory = [LengthOnly::new(20_480), LengthOnly::new(45_056)];
        device.submit(&Io::new(Tag::from_bits(index), Op::Read, extent, &memory), now).unwrap();
    }
    device.commit(now);
    while device.in_flight() > 0 {
        now = now.max(device.poll_timeout().expect("requests in flight have a time"));
        while let Some(done) = device.poll_completion(now) {
            completions.push((now.saturating_since(Instant::ZERO).as_micros() as u64, done));
        }
        device.commit(now);
    }
    (completions, now)
}

fn faulty(seed: u64, is_shuffled: bool) -> FaultyDevice<TimedDisk> {
    let mut plan = FaultPlan::new(seed);
    plan.add(Fault::error(IoError::Media).one_in(7));
    plan.add(Fault::short().one_in(2));
    plan.shuffle(is_shuffled);
    FaultyDevice::new(TimedDisk::new(64, 4096), plan)
}

#[test]
fn a_seed_decides_faults_and_order_in_virtual_time() {
    let lives: Vec<_> = [1, 1, 2].map(|seed| run(&mut faulty(seed, true), 64)).into();
    assert_eq!(lives[0], lives[1]);
    assert_ne!(lives[0], lives[2]);
    for (completions, _) in &lives {
        assert_eq!(completions.len(), 64, "each request completes once");
        let failed = completions.iter().filter(|(_, done)| done.result.is_err()).count();
        assert!((1..63).contains(&failed), "{failed} of 64 failed");
        assert!(!completions.is_sorted_by_key(|(_, done)| done.tag.to_bits()), "the order is shuffled");
    }
}

#[test]
fn a_short_transfer_is_continued_at_a_whole_block_until_all_is_done() {
    for seed in 0..50 {
        let mut plan = FaultPlan::new(seed);
        plan.add(Fault::short());
        let mut device = FaultyDevice::new(TimedDisk::new(64, 4096), plan);
        let (completions, end) = run(&mut device, 4);
        assert!(completions.iter().all(|(_, done)| done.result.is_ok()));
        assert_eq!(device.inner().sectors_moved, 4 * 128, "each sector moves once");
        assert!(end > Instant::ZERO + SERVICE, "more than one transfer each");
    }
}

#[test]
fn an_error_in_an_extent_moves_no_sector_of_it() {
    let bad = Extent::new(Sector(128 + 64), 8).unwrap();
    let mut plan = FaultPlan::new(3);
    plan.add(Fault::error(IoError::Media).within(bad).times(1));
    let mut device = FaultyDevice::new(TimedDisk::new(64, 4096), plan);
    let (completions, _) = run(&mut device, 2);
    let failed: Vec<_> = completions.iter().filter(|(_, done)| done.result.is_err()).collect();
    assert!(matches!(failed[..], [(_, Completion { result: Err(IoError::Media), .. })]));
    assert!(device.inner().sectors_moved <= 128 + 64);
    assert_eq!(device.faults_mut().injected(), 1);
}

#[test]
fn a_completion_without_a_request_at_the_inner_device_is_due_at_once() {
    let mut plan = FaultPlan::new(0);
    plan.add(Fault::error(IoError::Media).on(Op::Flush));
    let mut device = FaultyDevice::new(TimedDisk::new(64, 4096), plan);
    let now = Instant::ZERO + SERVICE;
    let io = Io::new(Tag::from_bits(0), Op::Flush, Extent::EMPTY, &[]);
    device.submit(&io, now).unwrap();
    device.commit(now);
    assert_eq!(device.poll_timeout(), Some(now));
    assert!(device.poll_completion(now).is_some_and(|done| done.result == Err(IoError::Media)));
    assert_eq!(device.poll_timeout(), None);
}
