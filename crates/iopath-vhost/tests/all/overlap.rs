//! Writes of parts of blocks beside writes of the blocks, on a device whose blocks are larger than a sector.

use iopath::Op;
use iopath::testing::{Fault, Faults};
use iopath_vhost::VhostOptions;
use std::time::{Duration, Instant};

use crate::loops::{Alone, Loop};
use crate::support::front_end::{FrontEnd, Slot, USUAL, WRITE, WRITE_ZEROES};
use crate::support::guest::{Guest, HANG};
use crate::support::server::{Scratch, direct};

const ZEROES: u64 = 1 << 14;

#[test]
fn a_write_of_a_part_of_a_block_undoes_no_other_write() {
    let alone = or_skip!(Alone::wait());
    let device = or_skip!(Loop::new(&alone, 16, &["--sector-size", "4096"]));
    let faults = Faults::new(1);
    let folder = tempfile::tempdir().unwrap();
    let open = direct().faults(&faults);
    let scratch = Scratch::of(folder, &device.device, &open, |options| VhostOptions { queues: 2, ..options });
    assert_eq!(scratch.volume.facts().block_bytes, 4096);
    let guest = Guest::new(4 << 20);
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 2, 16, USUAL | ZEROES);
    let (part, whole) = (Slot::of(0), Slot::of(1));
    for (kind, expected) in [(WRITE, 9), (WRITE_ZEROES, 0)] {
        guest.write(part.data(), &[5; 4096]);
        assert_eq!(front_end.execute(WRITE, 0, &[(part.data(), 4096)]), 0);
        // The first queue has read the block, and writes it after the second queue has had its time.
        faults.add(Fault::stuck().on(Op::Write).times(1));
        let injected = faults.injected();
        guest.write(part.data(), &[7; 512]);
        let driver = &mut front_end.drivers[0];
        driver.add(&part.parts(&guest, WRITE, 1, &[(part.data(), 512)])).unwrap();
        driver.show();
        let began = Instant::now();
        while faults.injected() == injected {
            assert!(began.elapsed() < HANG, "the block is not written");
            std::thread::sleep(Duration::from_millis(1));
        }
        let driver = &mut front_end.drivers[1];
        let data = if kind == WRITE {
            guest.write(whole.data(), &[9; 4096]);
            (whole.data(), 4096)
        } else {
            guest.write(whole.data(), &[&0u64.to_le_bytes()[..], &8u32.to_le_bytes(), &[0; 4]].concat());
            (whole.data(), 16)
        };
        driver.add(&whole.parts(&guest, kind, 0, &[data])).unwrap();
        driver.show();
        // With the lock, the second queue waits. Without it, this is the time in which its write completes.
        std::thread::sleep(Duration::from_millis(100));
        faults.clear();
        faults.release();
        for driver in &mut front_end.drivers {
            driver.wait_used();
        }
        assert_eq!((part.status(&guest), whole.status(&guest)), (0, 0));
        let mut block = vec![1; 4096];
        scratch.volume.read_exact_at(&mut block, 0).unwrap();
        assert!(block[512..1024].iter().all(|&byte| byte == 7 || byte == expected), "either order");
        block.drain(512..1024);
        assert!(block.iter().all(|&byte| byte == expected), "only the second queue has written these");
    }
}

#[test]
fn a_queue_waits_for_its_own_writes_before_it_changes_a_part_of_a_block() {
    let alone = or_skip!(Alone::wait());
    let device = or_skip!(Loop::new(&alone, 16, &["--sector-size", "4096"]));
    let faults = Faults::new(1);
    let folder = tempfile::tempdir().unwrap();
    let open = direct().faults(&faults);
    let scratch = Scratch::of(folder, &device.device, &open, |options| options);
    let guest = Guest::new(4 << 20);
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 64, USUAL);
    let driver = &mut front_end.drivers[0];
    // A write of the block is in flight when the write of its part is taken: its lock is the queue's own.
    faults.add(Fault::stuck().on(Op::Write).times(1));
    for round in 0..8u8 {
        let (whole, part) = (Slot::of(0), Slot::of(1));
        guest.write(whole.data(), &[round; 4096]);
        guest.write(part.data(), &[100 + round; 512]);
        driver.add(&whole.parts(&guest, WRITE, 0, &[(whole.data(), 4096)])).unwrap();
        driver.add(&part.parts(&guest, WRITE, 3, &[(part.data(), 512)])).unwrap();
        driver.show();
        if round == 0 {
            let began = Instant::now();
            while faults.injected() == 0 {
                assert!(began.elapsed() < HANG, "the block is not written");
                std::thread::sleep(Duration::from_millis(1));
            }
            faults.release();
        }
        driver.wait_used();
        driver.wait_used();
        let mut block = vec![1; 4096];
        scratch.volume.read_exact_at(&mut block, 0).unwrap();
        assert!(block[3 * 512..4 * 512].iter().all(|&byte| byte == 100 + round), "round {round}");
        block.drain(3 * 512..4 * 512);
        assert!(block.iter().all(|&byte| byte == round), "round {round}");
    }
}
