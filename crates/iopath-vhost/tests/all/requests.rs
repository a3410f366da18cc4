//! Requests reach the file, in every form that a driver may give them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use iopath::log::{LogSink, RecordBatch, RequestLog};
use iopath::testing::{Fault, Faults};
use iopath::{IoError, Op, Options, log};
use iopath_vhost::VhostOptions;

use crate::support::front_end::{
    BLK_FLUSH, DISCARD, EVENT_INDEX, FLUSH, FrontEnd, GET_ID, READ, Slot, USUAL, VERSION_1, WRITE,
    WRITE_ZEROES,
};
use crate::support::guest::{Guest, HANG};
use crate::support::server::{Scratch, buffered, direct, pattern};

fn guest() -> Guest {
    Guest::new(16 << 20)
}

/// Reads and writes in one and several parts, at whole blocks and between them.
fn reads_and_writes(open: &Options) -> u64 {
    let scratch = Scratch::new(1, open);
    let guest = guest();
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 64, USUAL);
    let data = Slot::of(0).data();
    for (sector, parts) in [
        (0, vec![(data, 4096)]),
        (8, vec![(data + 0x2000, 4096), (data, 4096), (data + 0x6000, 8192)]),
        (1, vec![(data + 3, 512)]),
        (17, vec![(data + 0x1000, 1), (data + 0x3000, 510), (data, 513)]),
        (32, (0..30).map(|part| (data + part * 0x400, 512)).collect()),
    ] {
        let bytes: usize = parts.iter().map(|part| part.1 as usize).sum();
        let place = format!("{bytes} bytes at sector {sector}");
        assert_eq!(front_end.execute(READ, sector, &parts), 0, "{place}");
        let read: Vec<u8> = parts.iter().flat_map(|&(at, bytes)| guest.read(at, bytes as usize)).collect();
        assert!(read == pattern(sector * 512, bytes), "{place}: not the bytes of the file");
        let new: Vec<u8> = (0..bytes).map(|byte| (byte % 247) as u8 ^ 0x5a).collect();
        let mut done = 0;
        for &(at, bytes) in &parts {
            guest.write(at, &new[done..done + bytes as usize]);
            done += bytes as usize;
        }
        assert_eq!(front_end.execute(WRITE, sector, &parts), 0, "{place}");
        assert_eq!(front_end.execute(FLUSH, 0, &[]), 0);
        let mut stored = std::fs::read(scratch.file()).unwrap();
        let range = sector as usize * 512..sector as usize * 512 + bytes;
        assert!(stored[range.clone()] == new, "{place}: the file has other bytes");
        // The next cases expect the pattern.
        stored[range.clone()].copy_from_slice(&pattern(sector * 512, bytes));
        for &(at, bytes) in &parts {
            let from = stored[range.start..].to_vec();
            guest.write(at, &from[..bytes as usize]);
        }
        let mut done = range.start;
        for &(at, bytes) in &parts {
            guest.write(at, &stored[done..done + bytes as usize]);
            done += bytes as usize;
        }
        assert_eq!(front_end.execute(WRITE, sector, &parts), 0);
    }
    scratch.server().totals().copied
}

#[test]
fn reads_and_writes_reach_the_file() {
    let copied = reads_and_writes(&direct());
    // Three requests each of the two cases between sectors. Only a device of 512-byte blocks transfers single sectors.
    assert!((6..=9).contains(&copied), "{copied} requests were copied");
}

#[test]
fn a_page_cache_serves_the_same_requests() {
    assert!(reads_and_writes(&buffered()) > 0);
}

#[test]
fn indirect_tables_are_chains() {
    let scratch = Scratch::new(1, &direct());
    let guest = guest();
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 4, USUAL);
    let driver = &mut front_end.drivers[0];
    for round in 0..10u64 {
        let slot = Slot::of(round % 4);
        let data: Vec<(u64, u32)> = (0..12).map(|part| (slot.data() + part * 0x1000, 4096)).collect();
        let parts = slot.parts(&guest, READ, round * 96, &data);
        let table = Guest::data() + 0x80_0000 + round * 0x1000;
        driver.add_indirect(table, &parts).unwrap();
        driver.show();
        let (_, written) = driver.wait_used();
        assert_eq!((slot.status(&guest), written), (0, 12 * 4096 + 1));
        assert!(guest.read(slot.data(), 12 * 4096) == pattern(round * 96 * 512, 12 * 4096));
    }
}

#[test]
fn the_device_notifies_only_of_the_event_that_the_driver_awaits() {
    let scratch = Scratch::new(1, &direct());
    let guest = guest();
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 64, USUAL);
    // The notification of the start.
    assert!(front_end.drivers[0].is_notified(HANG));
    let driver = &mut front_end.drivers[0];
    driver.call.read().unwrap();
    driver.set_event(7);
    for number in 0..8 {
        assert!(!driver.is_notified(Duration::ZERO), "after {number} completions");
        let slot = Slot::of(number);
        driver.add(&slot.parts(&guest, READ, 8 * number, &[(slot.data(), 4096)])).unwrap();
        driver.show();
        while driver.pop_used().is_none() {
            std::thread::yield_now();
        }
    }
    assert!(driver.is_notified(HANG), "the eighth completion");
    assert_eq!(driver.call.read().unwrap(), 1);
}

#[test]
fn without_event_indices_flags_suppress_notifications() {
    let scratch = Scratch::new(1, &direct());
    let guest = guest();
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, USUAL & !EVENT_INDEX);
    let driver = &mut front_end.drivers[0];
    assert!(driver.is_notified(HANG), "the notification of the start");
    driver.call.read().unwrap();
    guest.write(driver.available(), &1u16.to_le_bytes());
    let slot = Slot::of(0);
    driver.add(&slot.parts(&guest, READ, 0, &[(slot.data(), 4096)])).unwrap();
    driver.show();
    while driver.pop_used().is_none() {
        std::thread::yield_now();
    }
    assert!(!driver.is_notified(Duration::ZERO));
    guest.write(driver.available(), &0u16.to_le_bytes());
    assert_eq!(front_end.execute(READ, 0, &[(slot.data(), 4096)]), 0);
}

#[test]
fn ranges_are_zeroed_and_freed() {
    for open in [direct(), buffered()] {
        let scratch = Scratch::new(1, &open);
        let guest = guest();
        let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, USUAL | 1 << 13 | 1 << 14);
        let data = Slot::of(0).data();
        let range = |sector: u64, sectors: u32, flags: u32| {
            [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
        };
        guest.write(data, &[range(8, 8, 0), range(4096, 64, 0)].concat());
        assert_eq!(front_end.execute(DISCARD, 0, &[(data, 32)]), 0);
        guest.write(data, &[range(100, 3, 0), range(200, 8, 1)].concat());
        assert_eq!(front_end.execute(WRITE_ZEROES, 0, &[(data, 7), (data + 7, 25)]), 0);
        assert_eq!(front_end.execute(FLUSH, 0, &[]), 0);
        let file = std::fs::read(scratch.file()).unwrap();
        for (sector, sectors) in [(8, 8), (4096, 64), (100, 3), (200, 8)] {
            let zeroed = &file[sector * 512..(sector + sectors) * 512];
            assert!(zeroed.iter().all(|&byte| byte == 0), "sector {sector}");
            let after = (sector + sectors) * 512;
            assert!(file[after..after + 512] == pattern(after as u64, 512), "after sector {sector}");
        }
        for (kind, bytes, expected) in [
            (DISCARD, range(0, 8, 1), 2),
            (WRITE_ZEROES, range(0, 8, 2), 2),
            (DISCARD, range(u64::MAX, 8, 0), 1),
            (WRITE_ZEROES, range(32767, 2, 0), 1),
            (DISCARD, range(0, u32::MAX, 0), 1),
        ] {
            guest.write(data, &bytes);
            assert_eq!(front_end.execute(kind, 0, &[(data, 16)]), expected);
        }
        assert_eq!(front_end.execute(DISCARD, 0, &[(data, 15)]), 1);
        assert_eq!(front_end.execute(DISCARD, 0, &[]), 1);
        assert_eq!(front_end.execute(DISCARD, 0, &[(data, 17 * 16)]), 1, "too many ranges");
    }
}

#[test]
fn the_rest_of_the_protocol_has_answers() {
    let scratch = Scratch::new(1, &direct());
    let guest = guest();
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, USUAL);
    let data = Slot::of(0).data();
    assert_eq!(front_end.execute(GET_ID, 0, &[(data, 20)]), 0);
    assert_eq!(guest.read(data, 20), b"a-name-that-is-longe");
    assert_eq!(front_end.execute(99, 0, &[]), 2, "an unknown operation");
    let last = (16 << 20) / 512 - 1;
    assert_eq!(front_end.execute(READ, last, &[(data, 512)]), 0);
    assert_eq!(front_end.execute(READ, last, &[(data, 1024)]), 1, "past the end");
    assert_eq!(front_end.execute(WRITE, u64::MAX, &[(data, 512)]), 1);
    assert_eq!(front_end.execute(READ, 0, &[(data, 511)]), 1, "no whole sector");
    assert_eq!(front_end.execute(READ, 0, &[]), 0, "no bytes");
    assert!(scratch.server().take_messages().is_empty(), "a mistake of a request is its status");
}

#[test]
fn a_completion_states_the_bytes_that_were_written() {
    let faults = Faults::new(1);
    let scratch = Scratch::new(1, &direct().faults(&faults));
    let guest = guest();
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, USUAL);
    let slot = Slot::of(0);
    let (data, odd) = (slot.data(), slot.data() + 1);
    let last = (16 << 20) / 512 - 1;
    let mut written = |kind: u32, sector: u64, bytes: &[(u64, u32)]| {
        let driver = &mut front_end.drivers[0];
        driver.add(&slot.parts(&guest, kind, sector, bytes)).unwrap();
        driver.show();
        driver.wait_used().1
    };
    assert_eq!(written(READ, 0, &[(data, 4096)]), 4097);
    assert_eq!(written(READ, 0, &[(odd, 4096)]), 4097, "copied");
    assert_eq!(written(READ, last, &[(data, 1024)]), 1, "past the end");
    assert_eq!(written(WRITE, 0, &[(data, 4096)]), 1);
    assert_eq!(written(FLUSH, 0, &[]), 1);
    assert_eq!(written(GET_ID, 0, &[(data, 20)]), 21);
    assert_eq!(written(GET_ID, 0, &[(data, 8)]), 9);
    assert_eq!(written(GET_ID, 0, &[(data, 4096)]), 21, "the name has 20 bytes");
    assert_eq!(written(99, 0, &[(data, 4096)]), 1, "an unknown operation");
    faults.add(Fault::error(IoError::Media).on(Op::Read));
    for place in [data, odd] {
        assert_eq!(written(READ, 0, &[(place, 4096)]), 1, "a read that failed");
    }
}

#[test]
fn a_read_only_disk_stays_as_it_is() {
    let scratch = Scratch::with(1, &direct().write(false), false);
    let guest = guest();
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, USUAL | 1 << 5);
    let data = Slot::of(0).data();
    assert_eq!(front_end.execute(WRITE, 0, &[(data, 512)]), 1);
    for kind in [DISCARD, WRITE_ZEROES] {
        assert_eq!(front_end.execute(kind, 0, &[(data, 512)]), 2, "not offered");
    }
    assert_eq!(front_end.execute(FLUSH, 0, &[]), 0);
    assert_eq!(front_end.execute(READ, 8, &[(data, 4096)]), 0);
    assert!(guest.read(data, 4096) == pattern(4096, 4096));
}

#[test]
fn a_driver_that_cannot_flush_writes_durably() {
    let scratch = Scratch::new(1, &direct());
    let guest = guest();
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, VERSION_1 | BLK_FLUSH);
    let data = Slot::of(0).data();
    guest.write(data, &[9; 4096]);
    assert_eq!(front_end.execute(WRITE, 0, &[(data, 4096)]), 0);
    drop(front_end);
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, VERSION_1);
    assert_eq!(front_end.execute(WRITE, 8, &[(data, 4096)]), 0);
    let file = std::fs::read(scratch.file()).unwrap();
    assert!(file[..8192].iter().all(|&byte| byte == 9));
}

#[test]
fn a_driver_that_cannot_flush_zeroes_durably() {
    for open in [direct(), buffered()] {
        let faults = Faults::new(1);
        let scratch = Scratch::new(1, &open.faults(&faults));
        let guest = guest();
        let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, VERSION_1 | 1 << 13 | 1 << 14);
        let data = Slot::of(0).data();
        let range = |sector: u64| [&sector.to_le_bytes()[..], &8u32.to_le_bytes(), &[0; 4]].concat();
        guest.write(data, &[range(8), range(33)].concat());
        faults.add(Fault::error(IoError::Media).on(Op::Flush));
        for kind in [DISCARD, WRITE_ZEROES] {
            assert_eq!(front_end.execute(kind, 0, &[(data, 32)]), 1, "completed without a flush");
        }
        faults.clear();
    }
}

#[test]
fn a_request_of_more_parts_than_a_batch_has_room_for_is_copied() {
    let scratch = Scratch::new(1, &direct());
    let guest = guest();
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 4, USUAL);
    let driver = &mut front_end.drivers[0];
    let (slot, more) = (Slot::of(0), Guest::data() + 0x20_0000);
    let mut parts = slot.parts(&guest, READ, 0, &[]);
    parts.pop();
    parts.extend((0..1024).map(|part| (more + part * 0x1000, 0x1000, true)));
    // The last part of the data and the status are one descriptor.
    parts.push((more + 1024 * 0x1000, 0x1001, true));
    driver.add_indirect(Guest::data() + 0x10_0000, &parts).unwrap();
    driver.show();
    assert_eq!(driver.wait_used().1, 1025 * 4096 + 1);
    assert!(guest.read(more, 1025 * 4096) == pattern(0, 1025 * 4096));
    assert_eq!(guest.read(more + 1025 * 4096, 1), [0]);
    assert_eq!(scratch.server().totals().copied, 1);
}

/// The streams of a log.
#[derive(Debug, Clone, Default)]
struct Streams(Arc<Mutex<BTreeSet<u32>>>);

impl LogSink for Streams {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), log::NoRoom> {
        self.0.lock().unwrap().extend(batch.records().iter().map(|record| record.stream().0));
        batch.clear();
        Ok(())
    }
}

#[test]
fn the_log_has_each_queue_as_a_stream() {
    for open in [direct(), direct().elevator("deadline")] {
        let streams = Streams::default();
        let sink = streams.clone();
        let log = Some(RequestLog::new(move || Box::new(sink.clone())));
        let mut scratch = Scratch::changed(&open, |options| VhostOptions { queues: 3, log, ..options });
        let guest = guest();
        let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 3, 16, USUAL);
        // One on the memory of the guest, and a copied one.
        for (number, place) in [(0, 0), (2, 1)] {
            let slot = Slot::of(number);
            let driver = &mut front_end.drivers[number as usize];
            driver.add(&slot.parts(&guest, READ, 8, &[(slot.data() + place, 4096)])).unwrap();
            driver.show();
            driver.wait_used();
        }
        scratch.server.take().unwrap().stop().unwrap();
        let streams = streams.0.lock().unwrap().clone();
        assert!(streams.contains(&1) && streams.contains(&3) && !streams.contains(&2), "{streams:?}");
    }
}

#[test]
fn queues_serve_independently_at_depth() {
    const QUEUES: usize = 4;
    let scratch = Scratch::new(QUEUES as u16, &direct());
    let guest = Guest::new(64 << 20);
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, QUEUES, 64, USUAL);
    std::thread::scope(|scope| {
        for driver in &mut front_end.drivers {
            let guest = &guest;
            scope.spawn(move || {
                let first = driver.number as u64 * 16;
                let mut sectors = std::collections::HashMap::new();
                let mut next = 0;
                let mut completed = 0;
                let mut free: Vec<u64> = (first..first + 16).collect();
                while completed < 2000 {
                    while let Some(slot) = free.pop() {
                        let sector = (next * 7919 + first) % 4000 * 8;
                        let parts =
                            Slot::of(slot).parts(guest, READ, sector, &[(Slot::of(slot).data(), 4096)]);
                        let head = driver.add(&parts).unwrap();
                        sectors.insert(head, (slot, sector));
                        next += 1;
                    }
                    driver.show();
                    let (head, written) = driver.wait_used();
                    let (slot, sector) = sectors.remove(&head).unwrap();
                    assert_eq!((Slot::of(slot).status(guest), written), (0, 4097));
                    assert!(guest.read(Slot::of(slot).data(), 4096) == pattern(sector * 512, 4096));
                    free.push(slot);
                    completed += 1;
                }
            });
        }
    });
    let totals = scratch.server().totals();
    assert!(totals.requests >= 8000 && totals.copied == 0, "{totals:?}");
}
