//! The setups of the experiments about the limits of elevator `ascend`: sequential writers and random readers on one
//! disk of
//! 2000. The comparisons are in `merge.rs` and `bomb.rs`.
//!
//! The source names no disk. The main setup is a SCSI disk; its values are parameters. [`OTHERS`] has the other disks
//! and drivers of that time.

use std::fmt;
use std::time::Duration;

use iopath_core::SECTOR_BYTES;
use iopath_core::elevator::ElevatorSpec;
use iopath_core::log::Event;
use iopath_log::Filter;
use iopath_model::{Host, HostModel, Model, ModelDevice};
use iopath_report::Rw;
use iopath_report::experiment::{Parameter, Settings};

use super::error::ExperimentError;
use iopath_bench::simulated::machine::{Machine, Outcome, Top, VolumeSetup};
use iopath_bench::workload::{BlockSize, Depth, End, Jobs, Workload};

/// The four limits, in the order of `elvtune`. The first two are the allowances of reads and of writes. The third
/// limits the segments of a write while reads wait. The fourth is the number of reads that may wait before the third
/// applies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits(pub(super) [u64; 4]);

/// The published settings.
pub(super) const GOOD: Limits = Limits([8192, 131_072, 128, 2]);

/// Limits so large that none has an effect.
pub(super) const LIFTED: Limits = Limits([1 << 30, 1 << 30, 65_535, 1 << 24]);

/// A disk of 2000 and its driver.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) name: &'static str,
    /// The file of the model, and its text.
    model: (&'static str, &'static str),
    /// Values in place of those of the model.
    values: &'static [(&'static str, &'static str)],
    /// The commands in flight.
    device_depth: u64,
}

const SCSI: (&str, &str) = ("scsi-2000.toml", include_str!("../models/scsi-2000.toml"));
const IDE: (&str, &str) = ("ide-2000.toml", include_str!("../models/ide-2000.toml"));

/// The write cache of the SCSI disk: the size of its buffer.
const SCSI_CACHE: (&str, &str) = ("write_cache_kib", "4096");

/// Further plausible setups. The IDE driver of Linux 2.4 has no tagged commands. The rates of the interface are those
/// of ATA/ATAPI-5 and ATA/ATAPI-6 in MB/s.
pub(super) static OTHERS: [Setup; 7] = [
    Setup { name: "SCSI, one command, no write cache", model: SCSI, values: &[], device_depth: 1 },
    Setup { name: "SCSI, four commands, write cache", model: SCSI, values: &[SCSI_CACHE], device_depth: 4 },
    Setup { name: "SCSI, one command, write cache", model: SCSI, values: &[SCSI_CACHE], device_depth: 1 },
    Setup {
        name: "IDE, UDMA/33, write cache",
        model: IDE,
        values: &[("interface_mb_per_s", "33.3")],
        device_depth: 1,
    },
    Setup { name: "IDE, UDMA/66, write cache", model: IDE, values: &[], device_depth: 1 },
    Setup {
        name: "IDE, UDMA/100, write cache",
        model: IDE,
        values: &[("interface_mb_per_s", "100")],
        device_depth: 1,
    },
    Setup {
        name: "IDE, UDMA/66, no write cache",
        model: IDE,
        values: &[("write_cache_kib", "0")],
        device_depth: 1,
    },
];

/// The number of the parameters.
const PARAMETERS: usize = 14;

/// The parameters of the setup, which both experiments share: the four limits with their defaults and sources, then the
/// workload and the disk. The experiments differ only in the defaults of the limits.
pub(super) const fn parameters(limits: [(u64, &'static str); 4]) -> [Parameter; PARAMETERS] {
    let [read, write, bomb, reads] = limits;
    [
        Parameter::count(LIMITS[0], "requests", read.0, (0, 1 << 30), read.1),
        Parameter::count(LIMITS[1], "requests", write.0, (0, 1 << 30), write.1),
        Parameter::count(LIMITS[2], "segments", bomb.0, (1, 65_535), bomb.1),
        Parameter::count(LIMITS[3], "requests", reads.0, (0, 1 << 24), reads.1),
        Parameter::count("writers", "jobs", 1, (1, 64), "assumed: one sequential stream of writes"),
        Parameter::count(
            "write_depth",
            "buffers",
            512,
            (1, 4096),
            "assumed: dirty buffers that write-back submits",
        ),
        Parameter::count("readers", "jobs", 1, (0, 64), "assumed: one interactive reader of random blocks"),
        Parameter::count("bs_bytes", "bytes", 4096, (512, 65_536), "assumed: a block of the filesystem"),
        Parameter::count("requests", "requests", 256, (8, 65_536), "Linux 2.3.99 (NR_REQUEST)"),
        Parameter::count(DEPTH, "requests", 4, (1, 64), "assumed: tagged commands of the driver"),
        Parameter::count(
            "command_overhead_us",
            "µs",
            400,
            (0, 10_000),
            "IBM Ultrastar 146Z10 specification (2002), figure 6: a command that is not in the cache",
        ),
        Parameter::count(
            "outer_sectors_per_track",
            "sectors",
            450,
            (100, 2_000),
            "calibrated on `throughput, limits lifted` of merge",
        ),
        Parameter::count("seconds", "s", 20, (1, 600), "assumed: long enough for a steady state"),
        Parameter::count("seed", "", 1, (0, u64::MAX), "any value"),
    ]
}

/// The names of the limits among the parameters, in the order of `elvtune`, and the name of the commands in flight.
pub(super) const LIMITS: [&str; 4] =
    ["read_latency", "write_latency", "max_bomb_segments", "max_read_pending"];
pub(super) const DEPTH: &str = "device_depth";

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
    /// The values of the parameters.
    pub(super) fn of(settings: &Settings) -> Self {
        Self(LIMITS.map(|name| settings.count(name)))
    }

    /// The elevator `ascend` with these limits.
    pub(super) fn elevator(self) -> ElevatorSpec {
        let [read, write, bomb, reads] = self.0;
        let text = format!(
            "ascend:read_latency={read},write_latency={write},max_bomb_segments={bomb},max_read_pending={reads}"
        );
        text.parse().expect("the limits are in the ranges of the elevator")
    }
}

/// Runs `readers` and the writers together on the SCSI disk of the parameters.
pub(super) fn run(settings: &Settings, limits: Limits) -> Result<Mixed, ExperimentError> {
    let value = |name| settings.count(name).to_string();
    let values = [
        ("command_overhead_us", value("command_overhead_us")),
        ("zone.0.sectors_per_track", value("outer_sectors_per_track")),
    ];
    let values = values.each_ref().map(|(name, value)| (*name, value.as_str()));
    let (file, text) = SCSI;
    run_model(settings, limits, &Model::parse_with(file, text, &values)?, settings.count(DEPTH))
}

/// Same as [`run`], on another disk.
pub(super) fn run_on(setup: &Setup, settings: &Settings, limits: Limits) -> Result<Mixed, ExperimentError> {
    let (file, text) = setup.model;
    run_model(settings, limits, &Model::parse_with(file, text, setup.values)?, setup.device_depth)
}

fn run_model(
    settings: &Settings,
    limits: Limits,
    model: &Model,
    device_depth: u64,
) -> Result<Mixed, ExperimentError> {
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
        device: Box::new(ModelDevice::new(model, settings.count("seed"))),
        elevator: limits.elevator(),
        device_depth: Some(device_depth as u32),
        requests_max: Some(settings.count("requests") as u32),
        top: Top::Direct { bio_bytes_max: None, serial: false },
        workloads,
    };
    let host = Some(Host::new(&HostModel::preset("p3-2002")?));
    let outcome = Machine { host, volumes: vec![volume] }.run(settings.count("seed"), true)?;
    Ok(Mixed { outcome })
}

impl Mixed {
    /// The throughput of readers and writers together, in MB/s.
    pub(super) fn mb_per_s(&self) -> f64 {
        self.outcome.bytes_per_second() / 1e6
    }

    /// The mean latency of reads, in ms; zero without readers.
    pub(super) fn read_mean_ms(&self) -> f64 {
        let jobs = || self.outcome.volumes[0].jobs.iter().filter(|job| job.workload == 1);
        let ios: u64 = jobs().map(|job| job.ios).sum();
        let sum_ns: f64 = jobs().map(|job| job.latency_ns.mean_ns() * job.ios as f64).sum();
        if ios == 0 { 0.0 } else { sum_ns / ios as f64 / 1e6 }
    }

    /// The mean size of the requests of the disk, in KiB.
    pub(super) fn request_kib(&self) -> f64 {
        let device = &self.outcome.volumes[0].device;
        let bytes = device.read_bytes + device.written_bytes;
        bytes as f64 / (device.reads + device.writes).max(1) as f64 / 1024.0
    }

    /// The first merges that the elevator refused for each of these reasons.
    pub(super) fn refusals(&self, reasons: &[&str]) -> Result<Vec<String>, ExperimentError> {
        let Some(log) = &self.outcome.log else { return Ok(Vec::new()) };
        let filter = Filter { events: vec![Event::NoMerge], ..Filter::default() };
        let mut lines = Vec::new();
        for reason in reasons {
            lines.extend(log.lines(&filter, 1, &mut |line| line.contains(reason))?);
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static PARAMETERS_OF_TEST: [Parameter; PARAMETERS] = parameters([(8192, "a test"); 4]);

    /// Runs an IDE disk with a write cache whose controller takes `overhead_us` for a write. Returns the rates with the
    /// limits 128, 8192, 4, 0 and with 4 and 64 segments, in MB/s.
    fn rates(overhead_us: &'static str) -> [f64; 3] {
        let values = Box::leak(Box::new([("buffered_overhead_us", overhead_us)]));
        let setup = Setup { name: "IDE", model: IDE, values, device_depth: 1 };
        let limits = [(128, 8192, 4), (8192, 131_072, 4), (8192, 131_072, 64)];
        let settings = Settings::new(&PARAMETERS_OF_TEST, &["seconds=10".to_owned()]).unwrap();
        limits.map(|(read, write, segments)| {
            let run = run_on(&setup, &settings, Limits([read, write, segments, 0])).unwrap();
            (run.mb_per_s() * 10.0).round() / 10.0
        })
    }

    #[test]
    fn the_rates_by_overhead_are_those_of_the_documentation() {
        const DOCUMENTATION: &str = include_str!("../../../docs/experiments.md");
        for overhead in ["15", "100", "300", "500"] {
            let [merge, small, large] = rates(overhead);
            let row = format!("| {overhead} | {merge:.1} | {small:.1} | {large:.1} |");
            assert!(DOCUMENTATION.contains(&row), "docs/experiments.md does not have `{row}`");
        }
    }
}
