//! The same seed gives the same nanoseconds on every machine and in every build profile: a hash of 10,000 completions
//! of each preset. A change of a model or a preset changes its hash; the message of the failed test has the new one.

use iopath_core::{BlockDevice, Extent, Instant, Io, LengthOnly, Op, Sector, Tag};
use iopath_model::{Model, ModelDevice, Preset};

const HASHES: &[(&str, u64)] = &[
    ("ide-2001", 0xE3D9_CFD2_4127_7B9B),
    ("fc15k-2002", 0x62D1_54D8_49D0_7EF1),
    ("sata-2006", 0x5F6A_7FE0_A78A_EB0E),
    ("hdd-20tb", 0xD236_3EAE_0070_E842),
    ("ssd-sata", 0x76EA_B888_E705_3786),
    ("ssd-nvme", 0xC72D_8BC8_3AE9_3F48),
    ("cloud", 0x11D9_6167_162B_DDDE),
    ("iscsi-gbe", 0xF66E_1B13_664C_D88A),
];

/// Mixed random requests of 4 KiB; FNV-1a of time and tag of each completion.
fn hash(model: &Model) -> u64 {
    let mut device = ModelDevice::<LengthOnly>::new(model, 7);
    let (mut now, mut random, mut hash) = (Instant::ZERO, 1_u64, 0xCBF2_9CE4_8422_2325_u64);
    let mut free: Vec<_> = (0..model.limits().depth_max.min(32)).collect();
    let (memory, mut completed) = ([LengthOnly::new(4096)], 0);
    while completed < 10_000 {
        while let Some(tag) = free.pop() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let sector = (random >> 20) % (model.capacity() / 8) * 8;
            let op = if random >> 62 == 0 { Op::Write } else { Op::Read };
            let extent = Extent::new(Sector(sector), 8).expect("within the address space");
            device
                .submit(&Io::new(Tag::from_bits(tag), op, extent, &memory), now)
                .expect("the device has room");
        }
        device.commit(now);
        now = now.max(device.poll_timeout().expect("requests are in flight"));
        while let Some(done) = device.poll_completion(now) {
            free.push(done.tag.to_bits());
            completed += 1;
            for value in [now.as_nanos(), u64::from(done.tag.to_bits())] {
                hash = (hash ^ value).wrapping_mul(0x100_0000_01B3);
            }
        }
    }
    hash
}

#[test]
fn each_preset_completes_at_the_same_nanoseconds_everywhere() {
    let hashes: Vec<_> = Preset::ALL
        .iter()
        .map(|one| (one.name, hash(&Model::preset(one.name).expect("a preset is valid"))))
        .collect();
    let lines: Vec<_> = hashes.iter().map(|(name, hash)| format!("    (\"{name}\", 0x{hash:X}),")).collect();
    let list = lines.join("\n");
    assert_eq!(hashes, HASHES, "the hashes are now\n{list}");
}
