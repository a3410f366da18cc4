//! Sequential writers and random readers on one disk of 2000 behind the elevator `ascend`, for the experiments about its limits. The
//! comparisons are in `merge.rs` and `bomb.rs`.

use std::fmt;
use std::time::Duration;

use iopath_core::SECTOR_BYTES;
use iopath_core::elevator::ElevatorSpec;
use iopath_core::log::Event;
use iopath_log::Filter;
use iopath_model::{Host, HostModel, Model, ModelDevice};

use super::{Parameter, Settings};
use crate::error::LabError;
use crate::simulated::machine::{Machine, Outcome, Top, VolumeSetup};
use crate::workload::{BlockSize, Depth, End, Jobs, Rw, Workload};

/// The four limits, in the order of `elvtune`: allowance of reads and of writes, segments of writes while reads wait, and
/// reads that may wait before that limit applies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits(pub(super) [u64; 4]);

/// The published settings.
pub(super) const GOOD: Limits = Limits([8192, 131_072, 128, 2]);

/// No limit has an effect.
pub(super) const LIFTED: Limits = Limits([1 << 30, 1 << 30, 65_535, 1 << 24]);

/// The parameters of the setup that all its experiments share.
pub(super) const BLOCK: Parameter =
    Parameter::count("bs_bytes", "bytes", 4096, (512, 65_536), "assumed: a block of the filesystem");
pub(super) const REQUESTS: Parameter =
    Parameter::count("requests", "requests", 256, (8, 65_536), "Linux 2.3.99 (NR_REQUEST)");
pub(super) const DEPTH: Parameter =
    Parameter::count("device_depth", "requests", 4, (1, 64), "assumed: tagged commands of the driver");
pub(super) const SECTORS: Parameter = Parameter::count(
    "outer_sectors_per_track",
    "sectors",
    450,
    (100, 2_000),
    "calibrated on `throughput, limits lifted` of merge",
);
pub(super) const SECONDS: Parameter =
    Parameter::count("seconds", "s", 20, (1, 600), "assumed: long enough for a steady state");
pub(super) const SEED: Parameter = Parameter::count("seed", "", 1, (0, u64::MAX), "any value");

/// A run of the setup.
#[derive(Debug)]
pub(super) struct Mixed {
    pub(super) outcome: Outcome,
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([read, write, bomb, reads]) = self;
        write!(f, "limits {read}, {write}, {bomb}, {reads}")
    }
}

impl Limits {
    /// The elevator `ascend` with these limits.
    pub(super) fn elevator(self) -> ElevatorSpec {
        let [read, write, bomb, reads] = self.0;
        let text = format!(
            "ascend:read_latency={read},write_latency={write},max_bomb_segments={bomb},max_read_pending={reads}"
        );
        text.parse().expect("the limits are in the ranges of the elevator")
    }
}

/// Runs `readers` and the writers together.
pub(super) fn run(settings: &Settings, limits: Limits) -> Result<Mixed, LabError> {
    let sectors = format!("sectors_per_track = {}", settings.count("outer_sectors_per_track"));
    let text = include_str!("../../models/scsi-2000.toml").replace("sectors_per_track = 450", &sectors);
    let model = Model::parse("scsi-2000", &text)?;
    let capacity_bytes = model.limits().capacity * SECTOR_BYTES;
    let block_size = BlockSize::new(settings.count("bs_bytes") / 512 * 512)?;
    let end = End::Time(Duration::from_secs(settings.count("seconds")));
    let writes = Workload {
        rw: Rw::Write,
        block_size,
        depth: Depth::new(settings.count("write_depth"))?,
        jobs: Jobs::new(settings.count("writers"))?,
        size_bytes: Some(capacity_bytes / 3),
        end,
        ..Workload::default()
    };
    let mut workloads = vec![writes];
    let readers = settings.count("readers");
    if readers > 0 {
        let jobs = Jobs::new(readers)?;
        workloads.push(Workload { rw: Rw::RandRead, block_size, jobs, end, ..Workload::default() });
    }
    let volume = VolumeSetup {
        device: Box::new(ModelDevice::new(&model, settings.count("seed"))),
        elevator: limits.elevator(),
        device_depth: Some(settings.count("device_depth") as u32),
        requests_max: Some(settings.count("requests") as u32),
        top: Top::Direct { bio_bytes_max: None, serial: false },
        workloads,
    };
    let host = Some(Host::new(&HostModel::preset("p3-2002")?));
    let outcome = Machine { host, volumes: vec![volume] }.run(settings.count("seed"), true)?;
    Ok(Mixed { outcome })
}

impl Mixed {
    /// Bytes of readers and writers, in MB/s.
    pub(super) fn mb_per_s(&self) -> f64 {
        self.outcome.bytes_per_second() / 1e6
    }

    /// The mean latency of reads, in ms; zero without readers.
    pub(super) fn read_mean_ms(&self) -> f64 {
        let jobs = || self.outcome.volumes[0].jobs.iter().filter(|job| job.workload == 1);
        let ios: u64 = jobs().map(|job| job.ios).sum();
        let sum_ns: f64 = jobs().map(|job| job.latency_ns.mean() * job.ios as f64).sum();
        if ios == 0 { 0.0 } else { sum_ns / ios as f64 / 1e6 }
    }

    /// The mean size of the requests of the disk, in KiB.
    pub(super) fn request_kib(&self) -> f64 {
        let device = &self.outcome.volumes[0].device;
        let bytes = device.read_bytes + device.written_bytes;
        bytes as f64 / (device.reads + device.writes).max(1) as f64 / 1024.0
    }

    /// The first merges that the elevator refused for each of these reasons.
    pub(super) fn refusals(&self, reasons: &[&str]) -> Result<Vec<String>, LabError> {
        let Some(log) = &self.outcome.log else { return Ok(Vec::new()) };
        let filter = Filter { events: vec![Event::NoMerge], ..Filter::default() };
        let mut lines = Vec::new();
        for reason in reasons {
            lines.extend(log.lines(&filter, 1, &mut |line| line.contains(reason))?);
        }
        Ok(lines)
    }
}
