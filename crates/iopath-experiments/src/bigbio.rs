//! `bigbio`: compares a large direct write that is completely in flight with one in pieces. Each piece is submitted
//! when the previous piece has completed. Between two pieces, a disk without a write cache loses a revolution.

use iopath_log::Filter;
use iopath_model::{Host, HostModel, Model, ModelDevice};
use iopath_report::Rw;
use iopath_report::experiment::{Direction, Parameter, Report, Row, Settings};

use super::error::ExperimentError;
use super::on_target::TargetRun;
use super::row::{Experiment, OnTarget};
use iopath_bench::paths::iopath_direct;
use iopath_bench::simulated::machine::{Machine, Outcome, Top, VolumeSetup};
use iopath_bench::workload::{BlockSize, End, Repetitions, Workload};

pub(super) static ROW: Experiment = Experiment {
    id: "bigbio",
    title: "large writes whole in flight, or in pieces one after another",
    published: "A. Morton, direct-to-BIO for O_DIRECT, linux-kernel and Linux 2.5.26, 2002: on one oldish SCSI disk, \
        writes of 1 MiB are 20% faster if the whole request is in flight, not pieces of 128 KiB one after another. With \
        128 KiB per call, reads and writes have the same rate on both paths. CPU use is about the same.",
    parameters: PARAMETERS,
    run,
    on_target: Some(OnTarget::Writes(on_target)),
};

/// A SCSI disk with the parameters that `DiskSim` publishes and has validated against traces of the real disk.
struct Disk {
    name: &'static str,
    model: &'static str,
}

macro_rules! disks {
    ($($name:literal)*) => {
        /// The disks, the oldest first. The first five are of 1991 to 1994, the others of 1996 to 1999.
        static DISKS: [Disk; 11] = [$(Disk {
            name: $name,
            model: include_str!(concat!("../models/disksim/", $name, ".toml")),
        }),*];

        /// The values of parameter `disk`.
        const CHOICES: &[&str] = &["all", $($name),*];
    };
}

disks! {
    "hp-c2247a" "dec-rz26" "seagate-st41601n" "hp-c2490a" "hp-c3323a"
    "seagate-st32171w" "seagate-st34501n" "quantum-qm39100td" "seagate-st39102lw" "ibm-dnes-309170w" "quantum-atlas-10k"
}

/// The minimum gain that counts: half of the published 20%.
const GAIN: f64 = 1.1;

const PARAMETERS: &[Parameter] = &[
    Parameter::count("write_kib", "KiB", 1024, (4, 65536), "the source: one megabyte"),
    Parameter::count("piece_kib", "KiB", 128, (4, 65536), "the source: the limit of a kiobuf"),
    Parameter::count("bio_kib", "KiB", 64, (4, 65536), "assumed: the largest bio of that kernel"),
    Parameter::count("total_mib", "MiB", 128, (1, 1024), "assumed: the amount has no effect on the rates"),
    Parameter::choice(
        "disk",
        CHOICES,
        "the source: one oldish SCSI disk; all disks that DiskSim has validated",
    ),
    Parameter::choice(
        "write_cache",
        &["validated", "off"],
        "DiskSim: as on the validated disk; the source does not state it",
    ),
    Parameter::count("queue_depth", "", 8, (1, 256), "assumed: tagged commands of the driver of that time"),
];

/// How the top half divides a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Division {
    /// Bios of the whole transfer together.
    Whole,
    /// Pieces one after another.
    Pieces,
}

/// The rate and the CPU time of a run.
struct Figures {
    mb_per_s: f64,
    cpu_seconds_per_gib: f64,
}

/// The ratios of the rates and of the CPU time, whole : pieces, on one disk.
struct Ratios {
    disk: &'static Disk,
    whole_mb_per_s: f64,
    pieces_mb_per_s: f64,
    /// The ratios of small writes and of small reads.
    small: [f64; 2],
    cpu: f64,
    is_cached: bool,
}

impl Ratios {
    fn of(disk: &'static Disk, settings: &Settings) -> Result<Self, ExperimentError> {
        let total = settings.count("total_mib") << 20;
        let measure = |rw, kib, division| -> Result<Figures, ExperimentError> {
            Ok(figures(&machine(disk, settings, (rw, kib), division, total)?.run(1, false)?))
        };
        let (large, piece) = (settings.count("write_kib"), settings.count("piece_kib"));
        let whole = measure(Rw::Write, large, Division::Whole)?;
        let pieces = measure(Rw::Write, large, Division::Pieces)?;
        let small = |rw| -> Result<f64, ExperimentError> {
            let whole = measure(rw, piece, Division::Whole)?;
            Ok(whole.mb_per_s / measure(rw, piece, Division::Pieces)?.mb_per_s)
        };
        Ok(Self {
            disk,
            whole_mb_per_s: whole.mb_per_s,
            pieces_mb_per_s: pieces.mb_per_s,
            small: [small(Rw::Write)?, small(Rw::Read)?],
            cpu: whole.cpu_seconds_per_gib / pieces.cpu_seconds_per_gib,
            is_cached: model(disk, settings)?.limits().volatile_cache,
        })
    }

    fn gain(&self) -> f64 {
        self.whole_mb_per_s / self.pieces_mb_per_s
    }
}

/// The value that is farthest from `published`.
fn farthest(published: f64, values: impl Iterator<Item = f64>) -> f64 {
    values.max_by(|a, b| (a - published).abs().total_cmp(&(b - published).abs())).unwrap_or(published)
}

fn run(settings: &Settings) -> Result<Report, ExperimentError> {
    let chosen = settings.choice("disk");
    let disks = DISKS.iter().filter(|disk| chosen == CHOICES[0] || disk.name == chosen);
    let all: Vec<Ratios> = disks.map(|disk| Ratios::of(disk, settings)).collect::<Result<_, _>>()?;
    let (large, piece) = (settings.count("write_kib"), settings.count("piece_kib"));
    let is_published = !settings.is_any_set();
    let uncached = || all.iter().filter(|one| !one.is_cached);
    let row = |what: String, published, values: &mut dyn Iterator<Item = f64>| {
        let what = format!("{what}, the farthest of the disks");
        let ours = farthest(published, values);
        if is_published {
            Row::predicted(what, "×", published, ours)
        } else {
            Row::unpublished(what, "×", ours)
        }
    };
    let ratio = |what: &str| format!("{what} KiB, whole : pieces");
    let mut rows = vec![
        row(ratio(&format!("no write cache: writes of {large}")), 1.2, &mut uncached().map(Ratios::gain)),
        row(ratio(&format!("writes of {piece}")), 1.0, &mut all.iter().map(|one| one.small[0]))
            .beside_the_effect(),
        row(ratio(&format!("reads of {piece}")), 1.0, &mut all.iter().map(|one| one.small[1]))
            .beside_the_effect(),
        row(ratio(&format!("CPU per byte of writes of {large}")), 1.0, &mut all.iter().map(|one| one.cpu))
            .beside_the_effect(),
    ];
    for one in &all {
        let cache = if one.is_cached { "with write cache" } else { "no write cache" };
        let what = format!("writes of {large} KiB, whole : pieces, {}, {cache}", one.disk.name);
        rows.push(Row::unpublished(what, "×", one.gain()));
    }
    for one in all.iter().take(1) {
        let what = |division| format!("writes of {large} KiB, {division}, {}", one.disk.name);
        rows.push(Row::unpublished(what("whole"), "MB/s", one.whole_mb_per_s));
        rows.push(Row::unpublished(what("pieces"), "MB/s", one.pieces_mb_per_s));
    }
    let directions = vec![
        Direction::new(
            format!(
                "on each disk without a write cache, writes of {large} KiB are faster whole, by at least half of the \
                 published 20%"
            ),
            uncached().all(|one| one.gain() >= GAIN),
        ),
        Direction::new(
            format!("calls of {piece} KiB have the same rate on both paths, within 5%"),
            all.iter().flat_map(|one| one.small).all(|ratio| (ratio - 1.0).abs() < 0.05),
        ),
    ];
    let evidence = evidence(all[0].disk, settings, large)?;
    Ok(Report { rows, directions, evidence, notes: vec![NOTE.to_owned()] })
}

const NOTE: &str = "Hypothesis: the disk of the source wrote without a write cache. After each piece, the host needs some \
                    time to submit the next piece. Meanwhile the first sector of that piece passes the head, so the disk \
                    waits for a revolution. If the whole write is in flight, the next request is at the disk in time. The \
                    source names neither the disk nor its write cache. The experiment runs on all SCSI disks with \
                    validated parameters in DiskSim, with the settings of DiskSim. The disks of 1991 to 1994 have no write \
                    cache and show the effect. The disks of 1996 to 1999 have a write cache and do not show it: a gap between two \
                    pieces costs no revolution there. So the prediction is that of the disks without a write cache.";

fn figures(outcome: &Outcome) -> Figures {
    let busy = outcome.cpu.map_or(0.0, |cpu| cpu.busy_seconds);
    Figures {
        mb_per_s: outcome.bytes_per_second() / 1e6,
        cpu_seconds_per_gib: busy / outcome.bytes() as f64 * f64::from(1 << 30),
    }
}

/// The model of the disk, with the values of the parameters.
fn model(disk: &Disk, settings: &Settings) -> Result<Model, ExperimentError> {
    let queue_depth = settings.count("queue_depth").to_string();
    let mut values = vec![("queue_depth", queue_depth.as_str())];
    if settings.choice("write_cache") == "off" {
        values.push(("write_cache_kib", "0"));
    }
    Ok(Model::parse_with(&format!("{}.toml", disk.name), disk.model, &values)?)
}

fn machine(
    disk: &Disk,
    settings: &Settings,
    (rw, call_kib): (Rw, u64),
    division: Division,
    total_bytes: u64,
) -> Result<Machine, ExperimentError> {
    let (bio_kib, serial) = match division {
        Division::Whole => (settings.count("bio_kib"), false),
        Division::Pieces => (settings.count("piece_kib"), true),
    };
    let volume = VolumeSetup {
        device: Box::new(ModelDevice::new(&model(disk, settings)?, 1)),
        elevator: "ascend".parse().expect("the elevator is a row of the table"),
        device_depth: None,
        requests_max: None,
        top: Top::Direct { bio_bytes_max: u32::try_from(bio_kib << 10).ok(), serial },
        workloads: vec![Workload {
            rw,
            block_size: BlockSize::new(call_kib << 10)?,
            end: End::Bytes(total_bytes),
            ..Workload::default()
        }],
    };
    let host = Host::new(&HostModel::preset("p3-2002")?);
    Ok(Machine { host: Some(host), volumes: vec![volume] })
}

/// Direct writes to a scratch file, one after another: of the large size, and of the size of a piece.
fn on_target(target: &mut TargetRun<'_>) -> Result<Report, ExperimentError> {
    let settings = target.settings();
    let file = target.scratch(settings.count("total_mib") << 20, 1)?;
    let (large, piece) = (settings.count("write_kib"), settings.count("piece_kib"));
    let mut measure = |kib: u64| -> Result<f64, ExperimentError> {
        let workload = Workload {
            path: &iopath_direct::ROW,
            rw: Rw::Write,
            block_size: BlockSize::new(kib << 10)?,
            repetitions: Repetitions::constant(5),
            ..Workload::default()
        };
        Ok(target.measure(&workload, &file)?.bytes_per_second.mean / 1e6)
    };
    let (whole, pieces) = (measure(large)?, measure(piece)?);
    let text = format!("writes of {large} KiB are faster whole");
    Ok(Report {
        rows: vec![
            Row::unpublished(format!("writes of {large} KiB, whole : pieces"), "×", whole / pieces),
            Row::unpublished(format!("writes of {large} KiB, whole"), "MB/s", whole),
            Row::unpublished(format!("writes of {large} KiB, pieces"), "MB/s", pieces),
        ],
        directions: vec![Direction::new(text, whole > pieces)],
        ..Report::default()
    })
}

/// Completions of the first pieces. The time between two of them is the time of a piece plus a revolution.
fn evidence(disk: &Disk, settings: &Settings, call_kib: u64) -> Result<Vec<String>, ExperimentError> {
    let mut lines = Vec::new();
    for division in [Division::Pieces, Division::Whole] {
        let outcome =
            machine(disk, settings, (Rw::Write, call_kib), division, call_kib << 10)?.run(1, true)?;
        let Some(log) = outcome.log else { continue };
        let mut picked = log.lines(&Filter::default(), 3, &mut |line| line.contains(" complete "))?;
        lines.append(&mut picked);
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_report::experiment::Verdict;

    fn report(set: &[&str]) -> Report {
        let set: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
        run(&Settings::new(PARAMETERS, &set).unwrap()).unwrap()
    }

    /// The gain on each disk.
    fn gains(report: &Report) -> Vec<f64> {
        let of_a_disk = report.rows.iter().filter(|row| row.what.ends_with("write cache"));
        of_a_disk.map(|row| row.ours).collect()
    }

    #[test]
    fn pieces_one_after_another_lose_a_revolution_each_unless_a_cache_hides_it() {
        let report = report(&[]);
        assert_eq!(report.verdict(), Some(Verdict::Reproduced), "{report:?}");
        let gains = gains(&report);
        let (uncached, cached) = gains.split_at(5);
        assert!(uncached.iter().all(|gain| (1.1..1.5).contains(gain)), "{uncached:?}");
        assert!(cached.iter().all(|gain| (gain - 1.0).abs() < 0.05), "{cached:?}");
    }

    #[test]
    fn without_its_cache_a_faster_disk_loses_more() {
        let gains = gains(&report(&["write_cache=off", "total_mib=32"]));
        assert_eq!(gains.len(), DISKS.len());
        assert!(gains[5..].iter().all(|gain| gains[..5].iter().all(|older| gain > older)), "{gains:?}");
    }

    #[test]
    fn one_disk_has_rows_of_its_own() {
        let report = report(&["disk=quantum-atlas-10k", "total_mib=32"]);
        assert_eq!(gains(&report).len(), 1);
        assert!(report.rows.iter().all(|row| row.published.is_none()), "{report:?}");
    }
}
