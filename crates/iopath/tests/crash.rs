//! The content after a power failure: every workload of up to three operations, a power failure after each or while the
//! last is in flight, and every outcome that the write cache allows. The torture covers longer workloads.

use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{BatchOptions, Options, Request, Volume};
use std::collections::BTreeSet;

const SECTOR: usize = 512;
const SECTORS: usize = 2;

/// An operation on a disk of two sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    /// Writes `sectors` sectors at `first`. A forced write is durable when it completes.
    Write {
        first: usize,
        sectors: usize,
        forced: bool,
    },
    Zero {
        first: usize,
        sectors: usize,
    },
    Discard {
        first: usize,
        sectors: usize,
    },
    Flush,
}

const ALL: &[Operation] = &[
    Operation::Write { first: 0, sectors: 2, forced: false },
    Operation::Write { first: 0, sectors: 1, forced: false },
    Operation::Write { first: 1, sectors: 1, forced: false },
    Operation::Write { first: 0, sectors: 2, forced: true },
    Operation::Write { first: 1, sectors: 1, forced: true },
    Operation::Zero { first: 0, sectors: 2 },
    Operation::Discard { first: 1, sectors: 1 },
    Operation::Flush,
];

/// The possible contents of each sector after a power failure, and its content before.
#[derive(Debug, Clone, Default)]
struct Allowed {
    now: [u8; SECTORS],
    after: [BTreeSet<u8>; SECTORS],
}

impl Allowed {
    fn zeroes() -> Self {
        Self { now: [0; SECTORS], after: [[0].into(), [0].into()] }
    }

    /// Records an operation that writes `value`: either complete, or in flight at the power failure.
    fn record(&mut self, operation: Operation, value: u8, is_complete: bool) {
        let (range, value, forced) = match operation {
            Operation::Write { first, sectors, forced } => (first..first + sectors, value, forced),
            Operation::Zero { first, sectors } | Operation::Discard { first, sectors } => {
                (first..first + sectors, 0, false)
            }
            Operation::Flush if is_complete => {
                self.after = self.now.map(|now| [now].into());
                return;
            }
            Operation::Flush => return,
        };
        for sector in range {
            if forced && is_complete {
                self.after[sector].clear();
            }
            self.after[sector].insert(value);
            self.now[sector] = value;
        }
    }
}

fn execute(volume: &Volume, operation: Operation, value: u8) {
    let at = |sector: usize| (sector * SECTOR) as u64;
    let done = match operation {
        Operation::Write { first, sectors, forced: false } => {
            volume.write_at(&vec![value; sectors * SECTOR], at(first))
        }
        Operation::Write { first, sectors, forced: true } => {
            volume.write_durably_at(&vec![value; sectors * SECTOR], at(first))
        }
        Operation::Zero { first, sectors } => volume.write_zeroes(at(first), at(sectors)),
        Operation::Discard { first, sectors } => volume.discard(at(first), at(sectors)),
        Operation::Flush => volume.flush(),
    };
    done.unwrap();
}

/// Begins an operation; the power fails before its completion is reaped.
fn begin_and_crash(
    disk: &MemoryDisk,
    volume: &Volume,
    operation: Operation,
    value: u8,
    choose: impl FnMut(u32) -> u32,
) {
    let mut batch = volume.batch(&BatchOptions::new(1, SECTORS * SECTOR)).unwrap();
    let at = |sector: usize| (sector * SECTOR) as u64;
    match operation {
        Operation::Write { first, sectors, forced } => {
            let mut buffer = batch.buffer().unwrap();
            buffer.fill(value);
            let request = Request::write(buffer, at(first)).bytes(sectors * SECTOR);
            batch.queue(request.durable(forced)).unwrap();
        }
        Operation::Discard { first, sectors } => {
            batch.queue(Request::discard(at(first), at(sectors))).unwrap();
        }
        Operation::Flush => {
            batch.queue(Request::flush()).unwrap();
        }
        Operation::Zero { .. } => return disk.crash(choose),
    }
    batch.submit();
    disk.crash(choose);
    assert!(batch.wait().unwrap().unwrap().result.is_err(), "the power failed before the completion");
}

/// Tries every outcome of a power failure at the end of `workload`. Returns their number.
fn try_all(workload: &[Operation], is_in_flight: bool, fua: bool) -> u64 {
    let value = |number: usize| number as u8 + 1;
    let (last, before) = workload.split_last().unwrap();
    let mut allowed = Allowed::zeroes();
    for (number, operation) in before.iter().enumerate() {
        allowed.record(*operation, value(number), true);
    }
    allowed.record(*last, value(before.len()), !is_in_flight);

    let (mut tried, mut script) = (0, Vec::<u32>::new());
    loop {
        let config =
            MemoryConfig { cache_bytes: 1 << 20, fua, ..MemoryConfig::of_bytes((SECTORS * SECTOR) as u64) };
        let disk = MemoryDisk::new(&config).unwrap();
        let volume = Volume::memory(&disk, &Options::new().write(true)).unwrap();
        for (number, operation) in before.iter().enumerate() {
            execute(&volume, *operation, value(number));
        }
        let mut asked = Vec::new();
        let choose = |versions| {
            asked.push(versions);
            script.get(asked.len() - 1).copied().unwrap_or(0)
        };
        if is_in_flight {
            begin_and_crash(&disk, &volume, *last, value(before.len()), choose);
        } else {
            execute(&volume, *last, value(before.len()));
            disk.crash(choose);
        }
        let mut left = [0xee; SECTORS * SECTOR];
        Volume::memory(&disk, &Options::new()).unwrap().read_at(&mut left, 0).unwrap();
        for (sector, bytes) in left.chunks(SECTOR).enumerate() {
            let is_allowed =
                allowed.after[sector].contains(&bytes[0]) && bytes.iter().all(|byte| *byte == bytes[0]);
            assert!(
                is_allowed,
                "{workload:?}, last in flight: {is_in_flight}, forced writes known: {fua}, {script:?} of {asked:?} kept: \
                 sector {sector} is {}, not one of {:?}",
                bytes[0], allowed.after[sector]
            );
        }
        tried += 1;
        script.resize(asked.len(), 0);
        while script.last().is_some_and(|kept| *kept == asked[script.len() - 1]) {
            script.pop();
        }
        let Some(kept) = script.last_mut() else { return tried };
        *kept += 1;
    }
}

#[test]
fn flushed_bytes_survive_every_crash_of_every_short_workload() {
    let mut tried = 0;
    for length in 1..=3 {
        for number in 0..ALL.len().pow(length) {
            let workload: Vec<Operation> =
                (0..length).map(|place| ALL[number / ALL.len().pow(place) % ALL.len()]).collect();
            for (is_in_flight, fua) in [(false, false), (false, true), (true, false), (true, true)] {
                tried += try_all(&workload, is_in_flight, fua);
            }
        }
    }
    eprintln!("{tried} crashes");
    assert!(tried > 5_000);
}
