//! An adapter that several devices share: the limit of its slots, and the order in which devices get a freed slot.

mod rig;

use iopath_core::{BlockDevice, Instant, Op};
use iopath_model::{Adapter, Attached, Model, SlotOrder};
use rig::{Device, Rig, device};

/// A millisecond for each request.
const STEADY: &str = "kind = \"cloud\"\ncapacity_gib = 1\nlatency_min_us = 1000\nlatency_p50_us = 1000\n\
    latency_p99_us = 1000\nlatency_max_us = 1000\nsustained_iops = 1e6\nburst_iops = 1e6\ncredits = 0\n\
    io_unit_kib = 1024\nsustained_mib_per_s = 1e5\nburst_mib_per_s = 1e5\ncredits_mib = 0\ndepth_max = 64\n";

fn rigs(devices: usize, slots: u32, order: SlotOrder) -> Vec<Rig<Attached<Device>>> {
    let (adapter, model) = (Adapter::new(slots, order), Model::parse("steady", STEADY).unwrap());
    (0..devices).map(|_| Rig::new(adapter.attach(device(&model)))).collect()
}

/// Submits `each` reads to every device, then completes all. The device and time, in milliseconds, of each completion.
fn run(rigs: &mut [Rig<Attached<Device>>], each: u64) -> Vec<(usize, u64)> {
    for rig in rigs.iter_mut() {
        for number in 0..each {
            rig.submit(Op::Read, number * 8, 4096);
        }
        rig.commit();
    }
    let (mut done, mut now) = (Vec::new(), 0);
    while done.len() < rigs.len() * each as usize {
        for (index, rig) in rigs.iter_mut().enumerate() {
            rig.now = now;
            while rig.poll().is_some() {
                done.push((index, now / 1_000_000));
            }
        }
        let due = |rig: &Rig<Attached<Device>>| rig.device.poll_timeout().map(Instant::as_nanos);
        now = rigs.iter().filter_map(due).min().map_or(now, |due| due.max(now));
    }
    done
}

#[test]
fn a_request_without_a_slot_waits_for_the_completion_of_another() {
    let mut rigs = rigs(1, 2, SlotOrder::RoundRobin);
    assert_eq!(run(&mut rigs, 5), [(0, 1), (0, 1), (0, 2), (0, 2), (0, 3)]);
}

#[test]
fn a_scan_serves_the_device_that_completed_and_then_the_first_of_the_list() {
    let mut rigs = rigs(3, 1, SlotOrder::Scan);
    let order: Vec<_> = run(&mut rigs, 2).into_iter().map(|(device, _)| device).collect();
    assert_eq!(order, [0, 0, 1, 1, 2, 2]);
}

#[test]
fn round_robin_serves_the_devices_in_turn() {
    let mut rigs = rigs(3, 1, SlotOrder::RoundRobin);
    let order: Vec<_> = run(&mut rigs, 3).into_iter().map(|(device, _)| device).collect();
    assert_eq!(order, [0, 1, 2].repeat(3));
}

#[test]
fn a_device_refuses_more_requests_than_it_accepts_without_the_adapter() {
    let mut rigs = rigs(1, 1, SlotOrder::Scan);
    let accepted =
        (0..100).filter(|&number| rigs[0].try_submit(Op::Read, number * 8, 4096).is_some()).count();
    assert_eq!(accepted, 64);
}
