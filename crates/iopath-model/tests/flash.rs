//! The solid-state disk as a mechanism: what must hold for every one. Figures of presets are in `figures.rs`.

use crate::rig::{Device, Random, Rig, device, iops, mb_per_s};
use iopath_core::Op;
use iopath_model::Model;

fn rig(overrides: &[(&str, &str)]) -> Rig<Device> {
    Rig::new(device(&Model::preset_with("ssd-nvme", overrides).unwrap()))
}

/// Random requests of 4 KiB over 100 GB.
fn random(op: Op) -> impl FnMut(u32) -> (Op, u64, u64) {
    let mut random = Random(5);
    move |_| (op, random.below(200_000_000 / 8) * 8, 4096)
}

#[test]
fn reads_at_depth_use_the_dies_in_parallel_up_to_the_controller() {
    let rates = [1, 8, 64, 256].map(|depth| iops(&rig(&[]).keep(depth, 20_000, random(Op::Read))));
    assert!(rates.is_sorted(), "{rates:?}");
    assert!(rates[1] > 6.0 * rates[0] && rates[3] <= 1e9 / 2040.0, "{rates:?}");
    let dies_only = iops(&rig(&[("command_ns", "0")]).keep(256, 20_000, random(Op::Read)));
    // 72 dies read a page in 65 µs each.
    assert!(dies_only < 72.0 / 65e-6 && dies_only > 0.6 * 72.0 / 65e-6, "{dies_only}");
}

#[test]
fn a_larger_read_takes_the_time_of_its_pages_in_parallel() {
    let small = rig(&[]).run(Op::Read, 0, 4096).latency();
    let large = rig(&[]).run(Op::Read, 0, 131_072).latency();
    // One more interface transfer and seven more pages on other dies, not eight reads one after another.
    assert!(large > small + 30_000 && large < 2 * small + 60_000, "{small} and {large}");
}

#[test]
fn random_writes_cost_what_the_collector_copies() {
    let steady = |fill: &str, op: fn(u32) -> u64| {
        let mut rig = rig(&[("fill_percent", fill), ("write_buffer_kib", "4096")]);
        let done = rig.keep(64, 60_000, |n| (Op::Write, op(n), 4096));
        mb_per_s(&done[30_000..])
    };
    let scattered = |n: u32| (u64::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 38) * 8;
    let sequential = steady("100", |n| u64::from(n) * 8);
    let (full, half) = (steady("100", scattered), steady("50", scattered));
    assert!(sequential > 900.0 && full < sequential / 4.0, "{sequential} {full} {half}");
    assert!(half > 3.0 * full && half < sequential, "{sequential} {full} {half}");
}

#[test]
fn a_write_completes_in_the_buffer_and_waits_when_it_is_full() {
    let mut rig = rig(&[("write_buffer_kib", "1024")]);
    let first = rig.run(Op::Write, 0, 4096).latency();
    assert!(first < 30_000, "{first}");
    let done = rig.keep(64, 20_000, random(Op::Write));
    let mean = done.iter().map(crate::rig::Done::latency).sum::<u64>() / 20_000;
    assert!(mean > 20 * first, "{mean}");
}

#[test]
fn a_flush_of_a_volatile_buffer_waits_for_the_dies() {
    let flush = |is_volatile: &str| {
        let mut rig = rig(&[("buffer_is_volatile", is_volatile)]);
        rig.run(Op::Write, 0, 4096);
        rig.run(Op::Flush, 0, 0).latency()
    };
    let (protected, volatile) = (flush("0"), flush("1"));
    assert!(protected < 10_000 && volatile > 2_000_000, "{protected} {volatile}");
    let mut rig = rig(&[("buffer_is_volatile", "1")]);
    let again = rig.run(Op::Flush, 0, 0).latency();
    assert!(again < 10_000, "nothing is left to write: {again}");
}

#[test]
fn a_write_larger_than_the_buffer_passes_through_it() {
    let mut rig = rig(&[("write_buffer_kib", "32")]);
    let done = rig.keep(4, 100, |n| (Op::Write, u64::from(n) * 256, 131_072));
    assert!(done.iter().all(|one| one.result.is_ok()));
    let odd = rig.keep(4, 100, |n| (Op::Write, u64::from(n) * 256, 12_288 + 512));
    assert_eq!(odd.len(), 100, "a part of a unit does not block the buffer");
}
