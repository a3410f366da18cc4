//! The guarantees of a disk in memory beyond those of all devices: engines can share it, and it simulates power
//! failures.

use iopath_core::{BlockDevice, Damage, Duration, Extent, Instant, Io, IoError, Op, Tag};
use iopath_os::{Fault, Faults, Faulty, MemoryConfig, MemoryDevice, MemoryDisk, RealDevice, Segment};
use std::collections::BTreeSet;
use std::ptr::NonNull;

const SECTOR: usize = 512;

fn disk(sectors: u64, cache_sectors: u64) -> MemoryDisk {
    let config = MemoryConfig { cache_bytes: cache_sectors * 512, ..MemoryConfig::of_bytes(sectors * 512) };
    MemoryDisk::new(&config).unwrap()
}

/// Submits an I/O and ignores its outcome. The memory is copied or filled before this function returns.
fn submit(device: &mut impl RealDevice, op: Op, sector: u64, memory: &mut [u8], fua: bool) {
    let extent = Extent::from_bytes(sector * 512, memory.len() as u64).unwrap();
    // SAFETY: a device in memory accesses it only in `submit` and `poll_completion`, and the callers keep it until
    // then.
    let segment = [unsafe { Segment::new(NonNull::from(&mut *memory).cast(), memory.len()) }];
    let memory: &[Segment] = if op.has_memory() { &segment } else { &[] };
    let mut io = Io::new(Tag::from_bits(1), op, extent, memory);
    io.fua = fua;
    device.submit(&io, Instant::ZERO).unwrap();
}

fn end(device: &mut impl RealDevice) -> Result<(), IoError> {
    loop {
        device.commit_and_wait(1, None).unwrap();
        if let Some(over) = device.poll_completion(Instant::ZERO) {
            return over.result;
        }
    }
}

fn run(device: &mut impl RealDevice, op: Op, sector: u64, memory: &mut [u8]) -> Result<(), IoError> {
    submit(device, op, sector, memory, false);
    end(device)
}

fn write(device: &mut MemoryDevice, sector: u64, sectors: usize, value: u8) {
    run(device, Op::Write, sector, &mut vec![value; sectors * SECTOR]).unwrap();
}

fn flush(device: &mut MemoryDevice) {
    run(device, Op::Flush, 0, &mut []).unwrap();
}

/// The first byte of each sector. All bytes of a sector must be equal.
fn sectors(disk: &MemoryDisk) -> Vec<u8> {
    let mut bytes = vec![0xee; disk.size_bytes() as usize];
    run(&mut disk.open(), Op::Read, 0, &mut bytes).unwrap();
    let whole = |sector: &[u8]| sector.iter().all(|byte| *byte == sector[0]);
    assert!(bytes.chunks(SECTOR).all(whole), "a sector is torn");
    bytes.chunks(SECTOR).map(|sector| sector[0]).collect()
}

/// All possible contents after `live` and a crash. Tries every choice.
fn every_crash(sectors_max: u64, live: impl Fn(&MemoryDisk)) -> BTreeSet<Vec<u8>> {
    let mut left = BTreeSet::new();
    let mut script: Vec<u32> = Vec::new();
    loop {
        let disk = disk(sectors_max, 64);
        live(&disk);
        let mut asked = Vec::new();
        disk.crash(|versions| {
            let choice = script.get(asked.len()).copied().unwrap_or(0);
            asked.push(versions);
            choice
        });
        left.insert(sectors(&disk));
        script.resize(asked.len(), 0);
        while script.last().is_some_and(|choice| *choice == asked[script.len() - 1]) {
            script.pop();
        }
        let Some(choice) = script.last_mut() else { return left };
        *choice += 1;
    }
}

#[test]
fn engines_share_written_bytes() {
    let disk = disk(8, 0);
    let (mut one, mut other) = (disk.open(), disk.open());
    write(&mut one, 2, 2, 7);
    let mut bytes = [0; 2 * SECTOR];
    run(&mut other, Op::Read, 2, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 2 * SECTOR]);
}

#[test]
fn a_crash_may_keep_any_version_of_any_sector() {
    let left = every_crash(2, |disk| {
        let mut device = disk.open();
        write(&mut device, 0, 2, 1);
        write(&mut device, 0, 1, 2);
    });
    let expected = [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]];
    assert_eq!(left, expected.iter().map(|sectors| sectors.to_vec()).collect());
}

#[test]
fn data_covered_by_a_flush_or_a_forced_write_survives() {
    let left = every_crash(2, |disk| {
        let mut device = disk.open();
        write(&mut device, 0, 2, 1);
        flush(&mut device);
        write(&mut device, 0, 1, 2);
        submit(&mut device, Op::Write, 1, &mut [3; SECTOR], true);
        end(&mut device).unwrap();
    });
    assert_eq!(left, [[1, 3], [2, 3]].iter().map(|sectors| sectors.to_vec()).collect());
}

#[test]
fn an_older_version_does_not_come_back_over_a_forced_one() {
    let left = every_crash(1, |disk| {
        let mut device = disk.open();
        write(&mut device, 0, 1, 1);
        submit(&mut device, Op::Write, 0, &mut [2; SECTOR], true);
        end(&mut device).unwrap();
        flush(&mut device);
    });
    assert_eq!(left, [vec![2]].into());
}

#[test]
fn a_flush_does_not_cover_a_write_that_is_in_flight() {
    let left = every_crash(2, |disk| {
        let (mut writer, mut flusher) = (disk.open(), disk.open());
        submit(&mut writer, Op::Write, 0, &mut [1; SECTOR], false);
        write(&mut flusher, 1, 1, 1);
        flush(&mut flusher);
        end(&mut writer).unwrap();
    });
    assert_eq!(left, [[0, 1], [1, 1]].iter().map(|sectors| sectors.to_vec()).collect());
}

#[test]
fn zeroes_and_discards_can_be_lost_like_writes() {
    for op in [Op::WriteZeroes, Op::Discard] {
        let left = every_crash(1, |disk| {
            let mut device = disk.open();
            write(&mut device, 0, 1, 1);
            flush(&mut device);
            run(&mut device, op, 0, &mut [0; SECTOR]).unwrap();
        });
        assert_eq!(left, [vec![0], vec![1]].into(), "{op}");
    }
}

#[test]
fn a_full_cache_writes_its_oldest_versions_to_the_medium() {
    let disk = disk(4, 2);
    let mut device = disk.open();
    for sector in 0..4 {
        write(&mut device, sector, 1, 1);
    }
    assert_eq!(disk.unsaved_sectors(), 2);
    disk.crash(|_| 0);
    assert_eq!(sectors(&disk), [1, 1, 0, 0]);
}

#[test]
fn after_a_crash_open_devices_are_gone() {
    let disk = disk(1, 1);
    let mut device = disk.open();
    submit(&mut device, Op::Write, 0, &mut [1; SECTOR], true);
    disk.crash(|versions| versions);
    assert_eq!(end(&mut device), Err(IoError::Gone), "the device is gone");
    assert_eq!(run(&mut device, Op::Read, 0, &mut [0; SECTOR]), Err(IoError::Gone));
    assert_eq!(sectors(&disk), [1]);
}

#[test]
fn a_failed_flush_loses_only_the_writes_that_it_covers() {
    let disk = disk(3, 8);
    let faults = Faults::new(1);
    faults.lose_on_failed_flush(&disk);
    let mut device = Faulty::new(Box::new(disk.open()), &faults);
    let mut outcomes = BTreeSet::new();
    for value in 1..60 {
        run(&mut device, Op::Write, 0, &mut [value; 2 * SECTOR]).unwrap();
        let mut other = disk.open();
        submit(&mut other, Op::Write, 2, &mut [value; SECTOR], false);
        faults.add(Fault::error(IoError::Media).on(Op::Flush).times(1));
        assert_eq!(run(&mut device, Op::Flush, 0, &mut []), Err(IoError::Media));
        let left = sectors(&disk);
        assert_eq!(left[2], value, "the flush does not lose a write in flight");
        outcomes.insert((left[0] == value, left[1] == value));
        end(&mut other).unwrap();
        run(&mut device, Op::Flush, 0, &mut []).unwrap();
        disk.lose_unsaved(|_| 0);
        assert_eq!(sectors(&disk), left, "reads return the saved contents");
    }
    assert_eq!(outcomes.len(), 4, "any of them: {outcomes:?}");
}

#[test]
fn bit_rot_changes_one_bit_of_the_medium_and_survives_a_crash() {
    let disk = disk(4, 16);
    write(&mut disk.open(), 0, 4, 0xff);
    flush(&mut disk.open());
    let faults = Faults::new(2);
    faults.rot(&disk);
    faults.keep_damage();
    let mut device = Faulty::new(Box::new(disk.open()), &faults);
    let within = Extent::from_bytes(1024, 512).unwrap();
    faults.add(Fault::bit_rot().within(within).times(1));
    let mut bytes = vec![0; 4 * SECTOR];
    run(&mut device, Op::Read, 0, &mut bytes).unwrap();
    let [Damage::BitFlipped { offset, bit }] = faults.take_damage()[..] else { panic!("one bit") };
    assert!(within.offset() <= offset && offset < within.end().offset());
    let mut expected = vec![0xff; 4 * SECTOR];
    expected[offset as usize] ^= 1 << bit;
    assert_eq!(bytes, expected, "the read that follows finds it");
    disk.crash(|_| 0);
    run(&mut disk.open(), Op::Read, 0, &mut bytes).unwrap();
    assert_eq!(bytes, expected);
}

#[test]
fn a_wait_ends_with_a_delay_or_a_release() {
    let disk = disk(1, 0);
    let faults = Faults::new(2);
    let mut device = Faulty::new(Box::new(disk.open()), &faults);
    faults.add(Fault::delay(Duration::from_millis(3)).times(1));
    run(&mut device, Op::Write, 0, &mut [1; SECTOR]).unwrap();
    assert_eq!((sectors(&disk), faults.injected()), (vec![1], 1));

    faults.add(Fault::stuck());
    let mut bytes = [2; SECTOR];
    submit(&mut device, Op::Write, 0, &mut bytes, false);
    device.commit_and_wait(1, Some(Duration::from_millis(5))).unwrap();
    assert_eq!(device.poll_completion(Instant::ZERO), None, "no time ends the wait");
    assert_eq!(sectors(&disk), [1]);
    let other = faults.clone();
    let stopper = std::thread::spawn(move || other.stop());
    end(&mut device).unwrap();
    stopper.join().unwrap();
    assert_eq!(sectors(&disk), [2]);
}

#[test]
fn a_resized_disk_gains_zeroes() {
    let disk = disk(4, 16);
    write(&mut disk.open(), 0, 4, 1);
    disk.resize(700).unwrap();
    assert_eq!(disk.limits().capacity, 2);
    disk.resize(4 * 512).unwrap();
    let shown = |disk: &MemoryDisk| {
        let mut bytes = vec![0xee; 2048];
        run(&mut disk.open(), Op::Read, 0, &mut bytes).unwrap();
        bytes
    };
    let expected: Vec<u8> = (0..2048).map(|at| u8::from(at < 700)).collect();
    assert_eq!(shown(&disk), expected);
    flush(&mut disk.open());
    disk.crash(|_| 0);
    assert_eq!(shown(&disk), expected, "and keeps what was flushed");
}

#[test]
fn a_bad_sector_fails_requests_that_overlap_it_and_keeps_the_blocks_before() {
    let disk = disk(8, 0);
    let faults = Faults::new(3);
    faults.add(Fault::error(IoError::Media).on(Op::Write).within(Extent::from_bytes(2048, 512).unwrap()));
    let mut device = Faulty::new(Box::new(disk.open()), &faults);
    let mut reached = BTreeSet::new();
    for value in 1..40 {
        assert_eq!(run(&mut device, Op::Write, 1, &mut [value; 5 * SECTOR]), Err(IoError::Media));
        assert_eq!(run(&mut device, Op::Write, 5, &mut [value; 3 * SECTOR]), Ok(()));
        let left = sectors(&disk);
        assert_eq!(left[4], 0, "the bad sector");
        reached.insert(left[1..4].partition_point(|byte| *byte == value));
    }
    assert_eq!(reached, (0..=3).collect(), "none to all of the three before it");
    assert_eq!(faults.injected(), 39);
}

#[test]
fn a_sparse_disk_stays_sparse_when_it_grows() {
    const TERABYTE: u64 = 1 << 40;
    let disk =
        MemoryDisk::new(&MemoryConfig { is_sparse: true, ..MemoryConfig::of_bytes(TERABYTE) }).unwrap();
    let mut bytes = [7; SECTOR];
    run(&mut disk.open(), Op::Write, (TERABYTE - 512) / 512, &mut bytes).unwrap();
    // More memory than any test machine has.
    disk.resize(8 * TERABYTE).unwrap();
    disk.resize(TERABYTE).unwrap();
    disk.resize(16 * TERABYTE).unwrap();
    let mut device = disk.open();
    for (offset, expected) in [(TERABYTE - 512, 7), (TERABYTE, 0), (16 * TERABYTE - 512, 0)] {
        run(&mut device, Op::Read, offset / 512, &mut bytes).unwrap();
        assert_eq!(bytes, [expected; SECTOR], "at {offset}");
    }
}
