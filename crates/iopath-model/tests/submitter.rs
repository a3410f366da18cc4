//! A thread in front of a device: its CPU work delays each request, and its memory is made of pages.

use crate::rig::Rig;
use iopath_core::{BlockDevice, LengthOnly, Op};
use iopath_model::{Host, HostModel, Model, ModelDevice, Submitter};

const HOST: &str = "cpus = 1\nbio_ns = 1000\nio_ns = 0\nsegment_ns = 500\ncopy_mb_per_s = 1000\ninterrupt_ns = 0\nrequest_ns = 0\n";

fn rig() -> (Rig<Submitter<ModelDevice<LengthOnly>>>, Host) {
    let constant: Vec<_> =
        ["min", "p50", "p99", "max"].iter().map(|one| format!("latency_{one}_us")).collect();
    let mut overrides: Vec<_> = constant.iter().map(|name| (name.as_str(), "100")).collect();
    overrides.extend([("sustained_iops", "1000000"), ("burst_iops", "1000000"), ("depth_max", "4")]);
    overrides.extend([("sustained_mib_per_s", "100000"), ("burst_mib_per_s", "100000")]);
    let device = ModelDevice::new(&Model::preset_with("cloud", &overrides).unwrap(), 1);
    let cpu = Host::new(&HostModel::parse("host", HOST).unwrap());
    (Rig::new(Submitter::new(device, cpu.clone(), 4096, 65536)), cpu)
}

#[test]
fn a_request_reaches_the_device_after_the_work_for_all_earlier_ones() {
    let (mut rig, cpu) = rig();
    assert_eq!(rig.device.limits().request_bytes_max, 65536);
    // 1 µs for the bio and 0.5 µs for each page.
    for pages in [1, 4, 16] {
        rig.submit(Op::Read, 0, pages * 4096);
    }
    rig.commit();
    let ends: Vec<_> = (0..3).map(|_| rig.wait().end / 100 * 100).collect();
    assert_eq!(ends[..2], [101_500, 104_500]);
    assert!((113_500..114_500).contains(&ends[2]), "{ends:?}");
    assert_eq!(cpu.busy().as_nanos(), 13_500);
}

#[test]
fn a_full_device_gets_the_next_request_after_a_completion() {
    let (mut rig, _) = rig();
    let done = rig.keep(4, 100, |n| (Op::Write, u64::from(n) * 8, 4096));
    assert_eq!(done.len(), 100);
    assert_eq!(rig.in_flight(), 0);
}
