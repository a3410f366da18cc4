//! Every preset and every kind of model that contains another, as a device. Each request completes exactly once,
//! requests out of range and unsupported requests fail, a full device refuses, and a flush follows the writes before
//! it. The same seed gives the same nanoseconds, independent of the number of polls.

use crate::rig::{Device, Random, Rig, device, models};
use iopath_core::{BlockDevice, Instant, IoError, Op};
use iopath_model::Model;

/// A mixed workload at random depths, with pauses.
fn mixed(model: &Model, seed: u64) -> Vec<crate::rig::Done> {
    let mut rig = Rig::new(Device::new(model, seed));
    let (mut random, mut done) = (Random(seed), Vec::new());
    for _ in 0..200 {
        for _ in 0..random.below(12) {
            let bytes = 4096 << random.below(6);
            let sector = random.below((model.capacity() - bytes / 512) / 8) * 8;
            let op = [Op::Read, Op::Write, Op::Read, Op::Flush][random.below(4) as usize];
            let (sector, bytes) = if op == Op::Flush { (0, 0) } else { (sector, bytes) };
            let _ = rig.try_submit(op, sector, bytes);
        }
        rig.commit();
        for _ in 0..random.below(12) {
            if rig.in_flight() == 0 {
                rig.now += random.below(50_000_000);
                break;
            }
            done.push(rig.wait());
        }
    }
    while rig.in_flight() > 0 {
        done.push(rig.wait());
    }
    done
}

#[test]
fn each_request_completes_once_and_the_seed_decides_when() {
    for (name, model) in models() {
        for seed in 1..6 {
            let done = mixed(&model, seed);
            assert!(done.len() > 150, "{name}: {}", done.len());
            assert!(done.iter().all(|one| one.result.is_ok() && one.end >= one.begin), "{name}, seed {seed}");
            assert_eq!(done, mixed(&model, seed), "{name}, seed {seed}");
        }
    }
}

#[test]
fn a_read_takes_time_and_leaves_an_empty_device() {
    for (name, model) in models() {
        let mut rig = Rig::new(device(&model));
        let done = rig.run(Op::Read, model.capacity() / 16 * 8, 4096);
        assert!(done.latency() > 0, "{name}");
        assert_eq!(rig.device.in_flight(), 0);
        assert_eq!(rig.device.poll_completion(Instant::from_nanos(u64::MAX >> 2)), None, "{name}");
    }
}

#[test]
fn requests_that_cannot_be_executed_fail_and_others_continue() {
    for (name, model) in models() {
        let mut rig = Rig::new(device(&model));
        assert_eq!(rig.run(Op::Read, model.capacity(), 4096).result, Err(IoError::EndOfDevice), "{name}");
        assert_eq!(
            rig.run(Op::Write, model.capacity() - 4, 4096).result,
            Err(IoError::EndOfDevice),
            "{name}"
        );
        if model.limits().write_zeroes_bytes_max == 0 {
            assert_eq!(rig.run(Op::WriteZeroes, 0, 4096).result, Err(IoError::Unsupported), "{name}");
        }
        assert_eq!(rig.run(Op::Read, 0, 4096).result, Ok(()), "{name}");
        rig.now = 1 << 63;
        assert_eq!(rig.run(Op::Read, 0, 4096).result, Err(IoError::Os(75)), "{name}");
    }
}

#[test]
fn a_full_device_refuses_and_accepts_again_after_a_completion() {
    for (name, model) in models() {
        let mut rig = Rig::new(device(&model));
        let depth = model.limits().depth_max;
        for number in 0..depth {
            rig.submit(Op::Read, u64::from(number) * 8, 4096);
        }
        assert_eq!(rig.try_submit(Op::Read, 0, 4096), None, "{name}");
        rig.commit();
        rig.wait();
        assert!(rig.try_submit(Op::Read, 0, 4096).is_some(), "{name}");
        rig.commit();
        for _ in 0..depth {
            rig.wait();
        }
        assert_eq!(rig.in_flight(), 0);
    }
}

#[test]
fn the_times_do_not_depend_on_how_often_the_device_is_polled() {
    for (name, model) in models() {
        let (mut few, mut often) = (Rig::new(device(&model)), Rig::new(device(&model)));
        let mut random = Random(9);
        for _ in 0..300 {
            let op = if random.below(3) == 0 { Op::Write } else { Op::Read };
            let sector = random.below(model.capacity() / 8 - 64) * 8;
            let accepted = [&mut few, &mut often].map(|rig| {
                let accepted = rig.try_submit(op, sector, 16384);
                rig.commit();
                accepted
            });
            assert_eq!(accepted[0], accepted[1], "{name}");
            let end = few.now + random.below(20_000_000);
            let mut ends = [Vec::new(), Vec::new()];
            for (index, (rig, steps)) in [(&mut few, 1), (&mut often, 7)].into_iter().enumerate() {
                let start = rig.now;
                for step in 1..=steps {
                    rig.now = start + (end - start) * step / steps;
                    while let Some(done) = rig.poll() {
                        ends[index].push(done.number);
                    }
                }
            }
            for numbers in &mut ends {
                numbers.sort_unstable();
            }
            assert_eq!(ends[0], ends[1], "{name}");
        }
    }
}
