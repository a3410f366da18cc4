//! A modelled disk that `iopath serve` exports in real time: the latency that a client measures against that of the
//! model in virtual time. Other load on the machine adds to it, so this is no test.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::super::figures::Goal;
use super::super::report::Figure;
use super::super::samples::Samples;
use super::super::side::number;
use super::super::turns::alternate;
use super::{Started, fio, socket};
use crate::workspace::iopath;

pub(super) const NAME: &str = "nbd, modelled disk, 4 KiB random read, depth 1";

const MODEL: &str = "model:ide-2001";

/// Length of the disk that the client reads, in MiB. Part of the disk, so that fio needs no map of the rest.
const MIB: u64 = 1024;

/// Measures the figure, in `rounds` runs.
pub(super) fn measure(rounds: u32, seconds: u32) -> Result<Vec<Figure>> {
    let socket = socket();
    let mut command = iopath();
    command.args(["serve", MODEL, "--unix"]).arg(&socket);
    let _server = Started::run(command, &socket)?;
    let turns = alternate(NAME, rounds, 1, |_| {
        let runtime = format!("--runtime={seconds}");
        let more = [&runtime, "--time_based", "--norandommap", "--randrepeat=0"];
        let result = fio(&socket, MIB, &[&["--rw=randread", "--bs=4k", "--iodepth=1"][..], &more].concat())?;
        Ok(number(&result, "/jobs/0/read/clat_ns/percentile/50.000000")? / 1e6)
    })?;
    Ok(vec![Figure {
        name: format!("{NAME}: p50"),
        unit: "ms",
        peer: "virtual time",
        value: turns.samples(0, |&latency| latency),
        peer_value: Samples::constant(in_virtual_time()?),
        goal: Goal::Within(0.1),
        others: Some(turns.others),
    }])
}

/// The median latency of the model in virtual time, in milliseconds.
fn in_virtual_time() -> Result<f64> {
    let size = format!("{MIB}m");
    let output = iopath()
        .args(["run", "--target", MODEL, "--path", "iopath-direct", "--rw", "randread", "--bs", "4k"])
        .args(["--iodepth", "1", "--size", &size, "--runtime", "60s", "--repeat", "1", "--json"])
        .output()
        .context("cannot run iopath")?;
    ensure!(output.status.success(), "iopath: {}", String::from_utf8_lossy(&output.stderr).trim());
    let result: Value = serde_json::from_slice(&output.stdout)?;
    Ok(number(&result, "/runs/0/latency_ns/p50")? / 1e6)
}
