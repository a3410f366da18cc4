//! The rotating disk as a mechanism: what must hold for every disk. Figures of presets are in `figures.rs`.

use crate::rig::{Device, Random, Rig, device, iops, mb_per_s};
use iopath_core::Op;
use iopath_model::Model;

fn model(preset: &str, overrides: &[(&str, &str)]) -> Model {
    Model::preset_with(preset, overrides).unwrap_or_else(|error| panic!("{error}"))
}

fn rig(preset: &str, overrides: &[(&str, &str)]) -> Rig<Device> {
    Rig::new(device(&model(preset, overrides)))
}

/// Bytes on a track of the outermost zone over a turn and a head switch: no stream is faster.
fn media_mb_per_s(model: &Model) -> f64 {
    let value = |path: &str| model.settings().iter().find(|one| one.path == path).unwrap().value;
    let turn_ms = 60_000.0 / value("rotation_rpm");
    value("zone.0.sectors_per_track") * 0.512 / (turn_ms + value("head_switch_ms"))
}

const DISKS: [&str; 4] = ["ide-2001", "fc15k-2002", "sata-2006", "hdd-20tb"];

#[test]
fn sequential_reads_come_at_the_rate_of_the_media_at_any_size_and_depth() {
    for preset in DISKS {
        let model = model(preset, &[]);
        let media = media_mb_per_s(&model);
        for kib in [16, 64, 128] {
            for depth in [1, 4] {
                let depth = depth.min(model.limits().depth_max);
                let mut rig = Rig::new(device(&model));
                let bytes = kib << 10;
                let done = rig.keep(depth, 4000, |n| (Op::Read, u64::from(n) * bytes / 512, bytes));
                let rate = mb_per_s(&done);
                assert!(rate <= media * 1.01, "{preset}, {kib} KiB, depth {depth}: {rate} of {media}");
                assert!(rate >= media * 0.93, "{preset}, {kib} KiB, depth {depth}: {rate} of {media}");
            }
        }
    }
}

#[test]
fn a_deep_queue_keeps_the_rate_of_a_sequential_stream() {
    let names = DISKS.into_iter().chain(["iscsi-gbe"]);
    for (preset, kib) in names.flat_map(|preset| [64, 512].map(|kib| (preset, kib))) {
        let model = model(preset, &[]);
        let bytes = model.limits().request_bytes_max.min(kib << 10);
        let done = |depth: u32| {
            let next = |n: u32| (Op::Read, u64::from(n) * bytes / 512, bytes);
            Rig::new(device(&model)).keep(depth, 2000, next)
        };
        let alone = mb_per_s(&done(1));
        for depth in [2, 8, 16, 32].map(|depth: u32| depth.min(model.limits().depth_max)) {
            let done = done(depth);
            let rate = mb_per_s(&done);
            // More requests in flight may hide the latency of the link, but never cost a turn.
            assert!(rate >= alone * 0.97, "{preset}, {bytes} bytes, depth {depth}: {rate} of {alone}");
            let bound = preset == "iscsi-gbe" || rate <= alone * 1.03;
            assert!(bound, "{preset}, {bytes} bytes, depth {depth}: {rate} of {alone}");
            assert!(
                done.windows(2).all(|two| two[0].number < two[1].number),
                "{preset}, depth {depth}: order"
            );
        }
    }
}

#[test]
fn sectors_read_ahead_stay_available_while_the_heads_return_to_read_on() {
    let mut rig = rig("sata-2006", &[]);
    rig.run(Op::Read, 0, 65536);
    rig.now += 1_000_000_000;
    // The heads have read 512 KiB ahead and stopped. Half of it is used up by the fourth read.
    for n in 1..=8 {
        let read = rig.run(Op::Read, n * 128, 65536);
        assert!(read.latency() < 400_000, "read {n}: {} ns", read.latency());
    }
}

#[test]
fn a_disk_without_readahead_loses_a_turn_between_reads_one_at_a_time() {
    let mut with = rig("fc15k-2002", &[]);
    let mut without = rig("fc15k-2002", &[("readahead_kib", "0")]);
    let next = |n: u32| (Op::Read, u64::from(n) * 128, 65536);
    let (with, without) = (mb_per_s(&with.keep(1, 500, next)), mb_per_s(&without.keep(1, 500, next)));
    // 65 KB a turn of 4 ms.
    assert!((12.0..17.0).contains(&without) && with > 4.0 * without, "{with} and {without}");
}

#[test]
fn sequential_writes_need_the_cache_or_a_queue_to_keep_the_turn() {
    let next = |n: u32| (Op::Write, u64::from(n) * 256, 131_072);
    let rate = |cache_kib: &str, depth: u32| {
        let mut rig = rig("sata-2006", &[("write_cache_kib", cache_kib)]);
        mb_per_s(&rig.keep(depth, 2000, next))
    };
    let media = media_mb_per_s(&model("sata-2006", &[]));
    let (cached, queued, neither) = (rate("8192", 1), rate("0", 8), rate("0", 1));
    assert!(cached > media * 0.9 && cached < media * 1.1, "{cached} of {media}");
    assert!(queued > media * 0.9 && queued <= media * 1.01, "{queued} of {media}");
    assert!(neither < media * 0.4, "{neither} of {media}");
}

#[test]
fn random_reads_take_seek_rotation_overhead_and_transfer() {
    for (preset, seek_ms, turn_ms, overhead_ms) in
        [("ide-2001", 9.8, 11.11, 0.5), ("fc15k-2002", 3.6, 4.0, 0.1), ("sata-2006", 8.5, 8.33, 0.3)]
    {
        let mut rig = rig(preset, &[]);
        let (mut random, capacity) = (Random(1), model(preset, &[]).capacity());
        let done = rig.keep(1, 4000, |_| (Op::Read, random.below(capacity / 8) * 8, 4096));
        let mean = 1e3 / iops(&done);
        let expected = seek_ms + turn_ms / 2.0 + overhead_ms;
        assert!((mean / expected - 1.0).abs() < 0.05, "{preset}: {mean} ms instead of {expected}");
    }
}

#[test]
fn the_queue_of_the_disk_shortens_positioning() {
    let mut rates = [1, 4, 32].map(|depth| {
        let mut rig = rig("sata-2006", &[]);
        let (mut random, capacity) = (Random(1), model("sata-2006", &[]).capacity());
        iops(&rig.keep(depth, 4000, |_| (Op::Read, random.below(capacity / 8) * 8, 4096)))
    });
    assert!(rates.is_sorted() && rates[2] > 2.0 * rates[0] && rates[2] < 4.0 * rates[0], "{rates:?}");
    rates.reverse();
}

#[test]
fn no_command_waits_longer_than_its_age_and_the_queue_before_it() {
    let mut rig = rig("sata-2006", &[("queue_age_max_ms", "100")]);
    let mut random = Random(3);
    // All but one request in 50 are close together: shortest positioning time alone would starve the others.
    let done = rig.keep(32, 6000, |n| {
        let sector = if n % 50 == 0 { 900_000_000 } else { random.below(100_000) };
        (Op::Read, sector / 8 * 8, 4096)
    });
    let longest = done.iter().map(crate::rig::Done::latency).max().unwrap();
    assert!(longest < 100_000_000 + 32 * 25_000_000, "{longest}");
    let oldest_far =
        done.iter().filter(|one| one.sector == 900_000_000).map(crate::rig::Done::latency).max().unwrap();
    assert!(oldest_far > 90_000_000, "the bound takes effect: {oldest_far}");
}

#[test]
fn a_cached_write_completes_at_once_and_a_flush_when_it_is_on_the_medium() {
    let mut rig = rig("sata-2006", &[]);
    let write = rig.run(Op::Write, 500_000_000, 4096);
    assert!(write.latency() < 1_000_000, "{}", write.latency());
    let flush = rig.run(Op::Flush, 0, 0);
    assert!(flush.latency() > 2_000_000 && flush.latency() < 30_000_000, "{}", flush.latency());
    let again = rig.run(Op::Flush, 0, 0);
    assert!(again.latency() < 1_000_000, "nothing is left to write: {}", again.latency());
}

#[test]
fn a_forced_write_completes_on_the_medium() {
    let mut cached = rig("sata-2006", &[]);
    let mut forced = rig("sata-2006", &[("write_cache_kib", "0")]);
    let sector = 500_000_000;
    let cached = cached.run(Op::Write, sector, 4096);
    let forced = forced.run(Op::Write, sector, 4096);
    assert!(forced.latency() > 5 * cached.latency(), "{} and {}", forced.latency(), cached.latency());
}

#[test]
fn the_arm_seeks_while_the_data_of_a_write_arrives() {
    let mean_ms = |interface: &str| {
        let mut rig = rig("sata-2006", &[("write_cache_kib", "0"), ("interface_mb_per_s", interface)]);
        let (mut random, capacity) = (Random(1), model("sata-2006", &[]).capacity());
        1e3 / iops(&rig.keep(1, 2000, |_| (Op::Write, random.below(capacity / 256) * 256, 131_072)))
    };
    // The transfer of 128 KiB takes 0.4 ms and 1.6 ms, that from the buffer to the medium 1.7 ms or more.
    let (fast, slow) = (mean_ms("300"), mean_ms("80"));
    assert!((slow - fast).abs() < 0.2, "{fast} and {slow} ms");
    // At 10 MB/s, the last sector arrives 13.1 ms after the command.
    let starved = mean_ms("10");
    assert!((slow + 5.0..slow + 13.1).contains(&starved), "{starved} ms instead of {slow}");
}

#[test]
fn a_cache_that_is_full_makes_writes_wait_for_the_medium() {
    let mut rig = rig("ide-2001", &[]);
    let (mut random, capacity) = (Random(7), model("ide-2001", &[]).capacity());
    let done = rig.keep(1, 2000, |_| (Op::Write, random.below(capacity / 8) * 8, 4096));
    let mean_ms = 1e3 / iops(&done[1000..]);
    // Better than one at a time, because the cache orders them, but no better than the mechanics.
    assert!((3.0..16.0).contains(&mean_ms), "{mean_ms}");
}

#[test]
fn cached_writes_reach_the_medium_when_the_disk_is_idle() {
    let mut rig = rig("sata-2006", &[]);
    rig.run(Op::Write, 1_000_000, 65536);
    let mut events = 0;
    while let Some(next) = iopath_core::BlockDevice::poll_timeout(&rig.device) {
        rig.now = rig.now.max(next.as_nanos());
        assert!(rig.poll().is_none());
        events += 1;
        assert!(events < 100, "the disk comes to rest");
    }
    let flush = rig.run(Op::Flush, 0, 0);
    assert!(flush.latency() < 1_000_000, "{}", flush.latency());
}

#[test]
fn interleaved_streams_share_the_disk_without_losing_their_buffers() {
    // Two sequential streams of 64 KiB: each read ends a stream of the other, so the disk seeks, but reads ahead
    // between.
    let mut rig = rig("sata-2006", &[]);
    let done =
        rig.keep(2, 2000, |n| (Op::Read, u64::from(n % 2) * 400_000_000 + u64::from(n / 2) * 128, 65536));
    let rate = mb_per_s(&done);
    assert!((3.0..60.0).contains(&rate), "{rate}");
}

#[test]
fn a_repeated_read_comes_from_the_buffer() {
    let mut rig = rig("ide-2001", &[]);
    let first = rig.run(Op::Read, 1_000_000, 16384);
    let again = rig.run(Op::Read, 1_000_000, 16384);
    let expected = 100_000 + 16_384_000_000 / 66_600_000 * 1000; // overhead and interface, in ns
    assert!(
        first.latency() > 1_000_000 && again.latency().abs_diff(expected) < 10_000,
        "{}",
        again.latency()
    );
    rig.run(Op::Write, 1_000_008, 4096);
    rig.run(Op::Flush, 0, 0);
    let after = rig.run(Op::Read, 1_000_000, 16384);
    assert!(after.latency() > again.latency() + 100_000, "a write removes what the buffer had");
}
