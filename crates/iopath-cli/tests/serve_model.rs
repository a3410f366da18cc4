//! A modelled disk served in real time: the latency that a client measures, and the data. The upper limit of that
//! latency depends on other load, so `cargo xtask bench` measures it.

use crate::serving::{Serving, client, succeeds};
use crate::support::{iopath, scratch_directory};
use rustix::process::Signal;

/// Random reads of 4 KiB, one at a time, on a disk of 2001.
const MODEL: &str = "model:ide-2001";

/// The median latency of the model in virtual time, in milliseconds.
fn modelled_ms() -> f64 {
    let arguments = ["run", "--target", MODEL, "--path", "iopath-direct", "--rw", "randread", "--bs", "4k"];
    let more = ["--iodepth", "1", "--runtime", "60s", "--repeat", "1", "--json"];
    let output = iopath(&[&arguments[..], &more].concat()).output().unwrap();
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    result["runs"][0]["latency_ns"]["p50"].as_f64().unwrap() / 1e6
}

/// The median latency that fio measures over the socket, in milliseconds.
fn measured_ms(uri: &str) -> f64 {
    let job = ["--name=r", "--ioengine=nbd", "--rw=randread", "--bs=4k", "--iodepth=1", "--time_based"];
    let uri = format!("--uri={uri}");
    let text = succeeds("fio", &[&job[..], &["--runtime=5", "--output-format=json", &uri]].concat()).unwrap();
    let start = text.find('{').unwrap();
    let result: serde_json::Value = serde_json::from_str(&text[start..]).unwrap();
    result["jobs"][0]["read"]["clat_ns"]["percentile"]["50.000000"].as_f64().unwrap() / 1e6
}

#[test]
fn a_client_of_a_modelled_disk_measures_no_less_than_the_latency_of_the_model() {
    let Some(folder) = scratch_directory() else { return };
    if client("fio", &["--enghelp"]).is_none_or(|output| !output.stdout.windows(3).any(|word| word == b"nbd"))
    {
        eprintln!("skipped: fio with its nbd engine is not installed");
        return;
    }
    let socket = folder.path().join("socket");
    let mut serving = Serving::start(&["serve", MODEL, "--unix", socket.to_str().unwrap()]);
    let uri = serving.line();
    assert!(uri.starts_with("nbd+unix:///ide-2001?"), "{uri}");
    let (modelled, measured) = (modelled_ms(), measured_ms(&uri));
    // The two medians are of different random sectors, so they differ by a few percent.
    assert!(measured > 0.9 * modelled, "the client measured {measured} ms, the model has {modelled} ms");
    assert_eq!(serving.end(Signal::TERM).0, Some(0));
}

#[test]
fn a_modelled_disk_keeps_its_data_and_a_large_one_needs_little_memory() {
    let Some(folder) = scratch_directory() else { return };
    let socket = folder.path().join("socket");
    let arguments = ["serve", "model:ssd-nvme", "--writable", "--unix", socket.to_str().unwrap()];
    let mut serving = Serving::start(&arguments);
    let uri = serving.line();
    let job =
        ["--name=v", "--ioengine=nbd", "--rw=randwrite", "--bs=4k-256k", "--bsrange=4k-256k", "--size=32m"];
    let checks = [
        "--iodepth=16",
        "--verify=crc32c",
        "--fsync=64",
        "--offset=100g",
        "--verify_state_save=0",
        &format!("--uri={uri}"),
    ];
    if succeeds("fio", &[&job[..], &checks].concat()).is_none() {
        return;
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", serving.child.id())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 512 << 10, "a disk with 32 MiB of data occupies {kib} KiB");
    assert_eq!(serving.end(Signal::TERM).0, Some(0));
}
