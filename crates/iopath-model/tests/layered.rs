//! Models that contain models: a stripe adds the throughput of its members, delay, throttle and faults do what their
//! parameters state, and a mapped file reads its metadata from the device below.

use crate::rig::{Device, Random, Rig, device, iops, mb_per_s};
use iopath_core::{IoError, Op};
use iopath_model::Model;

/// A virtual disk with a constant latency of 100 µs and no cap in reach.
const CONSTANT: &str = "base = 'cloud'\nlatency_min_us = 100\nlatency_p50_us = 100\nlatency_p99_us = 100\n\
                        latency_max_us = 100\nsustained_iops = 1000000\nburst_iops = 1000000\n\
                        sustained_mib_per_s = 10000\nburst_mib_per_s = 10000\n";

fn model(text: &str) -> Model {
    Model::parse("layered", text).unwrap_or_else(|error| panic!("{error}"))
}

fn over_constant(layer: &str) -> Rig<Device> {
    Rig::new(device(&model(&format!("{layer}\n[device]\n{CONSTANT}"))))
}

fn read_4k(n: u32) -> (Op, u64, u64) {
    (Op::Read, u64::from(n) * 8, 4096)
}

#[test]
fn a_stripe_reads_as_fast_as_all_its_members() {
    let rate = |members: u32| {
        let text =
            format!("kind = 'stripe'\nmembers = {members}\nchunk_kib = 128\ndevice.base = 'fc15k-2002'\n");
        let mut rig = Rig::new(device(&model(&text)));
        mb_per_s(&rig.keep(32, 1000, |n| (Op::Read, u64::from(n) * 2048, 1 << 20)))
    };
    let (one, eight) = (rate(1), rate(8));
    assert!((6.0..8.1).contains(&(eight / one)), "{one} and {eight} MB/s");
}

#[test]
fn a_delay_adds_its_time() {
    assert_eq!(over_constant("kind = 'delay'\ndelay_us = 250").run(Op::Read, 0, 4096).latency(), 350_000);
    let twice =
        "kind = 'delay'\ndelay_us = 250\n[device]\nkind = 'delay'\ndelay_us = 4\ndevice.base = 'ssd-nvme'\n";
    let [bare, twice] = ["base = 'ssd-nvme'\n", twice]
        .map(|text| Rig::new(device(&model(text))).run(Op::Read, 0, 4096).latency());
    assert_eq!(twice, bare + 254_000);
}

#[test]
fn a_throttle_caps_requests_and_bytes() {
    let rate = iops(&over_constant("kind = 'throttle'\ncap_iops = 1000").keep(32, 3000, read_4k));
    assert!((990.0..1015.0).contains(&rate), "{rate}");
    let mut rig = over_constant("kind = 'throttle'\ncap_mib_per_s = 50");
    let rate = mb_per_s(&rig.keep(32, 3000, |n| (Op::Write, u64::from(n) * 128, 65536)));
    assert!((52.0..53.5).contains(&rate), "{rate} MB/s are 50 MiB/s");
}

#[test]
fn faults_have_their_rate_and_come_from_the_seed() {
    let text = format!("kind = 'faulty'\nerror_one_in = 10\nshort_one_in = 3\n[device]\n{CONSTANT}");
    let failed = |seed| -> Vec<u32> {
        let mut rig = Rig::new(Device::new(&model(&text), seed));
        let done = rig.keep(16, 4000, read_4k);
        assert!(done.iter().all(|one| matches!(one.result, Ok(()) | Err(IoError::Media))));
        done.iter().filter(|one| one.result.is_err()).map(|one| one.number).collect()
    };
    let lives = [1, 1, 2].map(failed);
    assert_eq!(lives[0], lives[1]);
    assert_ne!(lives[0], lives[2]);
    // A short transfer is followed by another one, which may fail, too.
    assert!((400..800).contains(&lives[0].len()), "{} of 4000", lives[0].len());
}

#[test]
fn a_shuffled_device_completes_each_request_in_another_order() {
    let mut rig = over_constant("kind = 'faulty'\nreorder = 1");
    let done = rig.keep(32, 500, read_4k);
    assert!(!done.is_sorted_by_key(|one| one.number));
}

#[test]
fn a_read_through_an_indirect_block_waits_for_it() {
    let latency = |mapper: &str, sectors: [u64; 2]| {
        let mut rig = over_constant(&format!("kind = 'mapped'\nsize_mib = 64\nmapper = '{mapper}'"));
        sectors.map(|sector| rig.run(Op::Read, sector, 4096).latency())
    };
    let far = 32 << 11;
    assert_eq!(latency("extent", [0, far]), [100_000; 2]);
    // The first 12 blocks have pointers in the inode. The others need an indirect block each, once.
    assert_eq!(latency("indirect", [0, 96]), [100_000, 200_000]);
    assert_eq!(latency("indirect", [far, far + 8]), [300_000, 100_000], "a double indirect block, too");
}

#[test]
fn a_hole_reads_without_io_until_it_is_written() {
    for mapper in ["extent", "indirect"] {
        let mut rig =
            over_constant(&format!("kind = 'mapped'\nsize_mib = 64\nmapper = '{mapper}'\ncontent = 'empty'"));
        assert_eq!(rig.run(Op::Read, 8192, 65536).latency(), 1, "{mapper}: time passes, so that a run ends");
        assert_eq!(rig.run(Op::Write, 8192, 65536).result, Ok(()), "{mapper}");
        assert_eq!(rig.run(Op::Flush, 0, 0).result, Ok(()), "{mapper}");
        assert!(rig.run(Op::Read, 8192, 65536).latency() >= 100_000, "{mapper}");
    }
}

/// More metadata than the map keeps in memory: evicted blocks are read again with their contents.
#[test]
fn a_large_indirect_file_keeps_its_map() {
    let text = format!(
        "kind = 'mapped'\nsize_mib = 280\nmapper = 'indirect'\nblock_bytes = 1024\ncontent = 'empty'\n[device]\n{CONSTANT}"
    );
    let mut rig = Rig::new(device(&model(&text)));
    for start in (0..280_u64).step_by(8) {
        assert_eq!(rig.run(Op::Write, start << 11, 8 << 20).result, Ok(()));
        assert_eq!(rig.run(Op::Flush, 0, 0).result, Ok(()));
    }
    let mut random = Random(3);
    for _ in 0..200 {
        let done = rig.run(Op::Read, random.below(280 << 10) * 2, 1024);
        assert!(done.latency() >= 100_000, "no hole");
    }
}
