//! `bigbio`: a large direct write as one unit of work, or in pieces, each submitted when the previous one has
//! completed. Between two pieces, a disk without write cache loses a revolution.

use iopath_log::Filter;
use iopath_model::{Host, HostModel, Model, ModelDevice};

use super::{Direction, Experiment, Parameter, Report, Row, Settings, TargetRun};
use crate::error::LabError;
use crate::paths::iopath_direct;
use crate::simulated::machine::{Machine, Outcome, Top, VolumeSetup};
use crate::workload::{BlockSize, End, Repetitions, Rw, Workload};

pub(super) static ROW: Experiment = Experiment {
    id: "bigbio",
    title: "large writes whole in flight, or in pieces one after another",
    published: "A. Morton, direct-to-BIO for O_DIRECT, linux-kernel and Linux 2.5.26, 2002: on one oldish SCSI disk, \
        writes of 1 MiB are 20% faster if the whole request is in flight, not pieces of 128 KiB one after another. With \
        128 KiB per call, reads and writes have the same rate on both paths. CPU use is about the same.",
    parameters: PARAMETERS,
    run,
    on_target: Some(on_target),
};

/// An old SCSI disk.
const DISK: &str = include_str!("../../models/scsi-1995.toml");

const DISK_ASSUMED: &str = "assumed: a SCSI disk of 1995; the source names neither the disk nor its settings";

const DISK_CALIBRATED: &str =
    "calibrated on writes of 1024 KiB, whole : pieces: the rate, and with it the class of the disk";

const PARAMETERS: &[Parameter] = &[
    Parameter::count("write_kib", "KiB", 1024, (4, 65536), "the source: one megabyte"),
    Parameter::count("piece_kib", "KiB", 128, (4, 65536), "the source: the limit of a kiobuf"),
    Parameter::count("bio_kib", "KiB", 64, (4, 65536), "assumed: the largest bio of that kernel"),
    Parameter::count("total_mib", "MiB", 128, (1, 1024), "assumed: the amount has no effect on the rates"),
    Parameter::number("rotation_rpm", "rpm", 7200.0, (1000.0, 20_000.0), DISK_ASSUMED),
    Parameter::count("sectors_per_track", "", 109, (16, 10_000), DISK_CALIBRATED),
    Parameter::count(
        "write_cache_kib",
        "KiB",
        0,
        (0, 65536),
        "assumed off: with it, the effect does not exist",
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

fn run(settings: &Settings) -> Result<Report, LabError> {
    let (large, piece) = (settings.count("write_kib"), settings.count("piece_kib"));
    let measure = |rw, call_kib, division| -> Result<Figures, LabError> {
        let outcome =
            machine(settings, rw, call_kib, division, settings.count("total_mib") << 20)?.run(1, false)?;
        Ok(figures(&outcome))
    };
    let whole = measure(Rw::Write, large, Division::Whole)?;
    let pieces = measure(Rw::Write, large, Division::Pieces)?;
    let ratio = whole.mb_per_s / pieces.mb_per_s;
    let small = |rw| -> Result<f64, LabError> {
        let whole = measure(rw, piece, Division::Whole)?;
        Ok(whole.mb_per_s / measure(rw, piece, Division::Pieces)?.mb_per_s)
    };
    let (small_writes, small_reads) = (small(Rw::Write)?, small(Rw::Read)?);
    let cpu = whole.cpu_seconds_per_gib / pieces.cpu_seconds_per_gib;
    let is_published = !settings.is_any_set();
    let row = |what: String, published, ours| {
        if is_published {
            Row::predicted(what, "×", published, ours).beside_the_effect()
        } else {
            Row::unpublished(what, "×", ours)
        }
    };
    let effect = format!("writes of {large} KiB, whole : pieces");
    let effect = if is_published {
        Row::calibrated(effect, "×", 1.2, ratio)
    } else {
        Row::unpublished(effect, "×", ratio)
    };
    Ok(Report {
        rows: vec![
            effect,
            row(format!("writes of {piece} KiB, whole : pieces"), 1.0, small_writes),
            row(format!("reads of {piece} KiB, whole : pieces"), 1.0, small_reads),
            row(format!("CPU per byte of writes of {large} KiB, whole : pieces"), 1.0, cpu),
            Row::unpublished(format!("writes of {large} KiB, whole"), "MB/s", whole.mb_per_s),
            Row::unpublished(format!("writes of {large} KiB, pieces"), "MB/s", pieces.mb_per_s),
        ],
        directions: vec![
            Direction::new(
                format!("writes of {large} KiB are faster whole, by half to twice the published 20%"),
                (1.1..=1.4).contains(&ratio),
            ),
            Direction::new(
                format!("calls of {piece} KiB have the same rate on both paths, within 5%"),
                [small_writes, small_reads].iter().all(|ratio| (ratio - 1.0).abs() < 0.05),
            ),
        ],
        evidence: evidence(settings, large)?,
        notes: vec![
            "Hypothesis: the disk of the source wrote without a write cache. After each piece, the host needs some time to \
             submit the next one, and by then its first sector has passed the head: the disk waits for a revolution. In \
             flight as a whole, the next request is at the disk in time. The effect is the share of a revolution in the time \
             of a piece, so a slow disk shows a small effect and a fast disk a large one."
                .to_owned(),
            "The source names no disk. The class of the modelled one (1995, about 6 MB/s, no write cache) was chosen because \
             its effect was estimated to fit, so the published 20% are calibrated and not predicted. The ratio is 1.18 on a \
             disk of 3 MB/s, 1.46 at 8 MB/s, 1.61 at 11 MB/s, and 1.00 with a write cache. The three predictions are about \
             the absence of a difference, which most models have."
                .to_owned(),
        ],
    })
}

fn figures(outcome: &Outcome) -> Figures {
    let busy = outcome.cpu.map_or(0.0, |cpu| cpu.busy_seconds);
    Figures {
        mb_per_s: outcome.bytes_per_second() / 1e6,
        cpu_seconds_per_gib: busy / outcome.bytes() as f64 * f64::from(1 << 30),
    }
}

fn machine(
    settings: &Settings,
    rw: Rw,
    call_kib: u64,
    division: Division,
    total_bytes: u64,
) -> Result<Machine, LabError> {
    let (bio_kib, serial) = match division {
        Division::Whole => (settings.count("bio_kib"), false),
        Division::Pieces => (settings.count("piece_kib"), true),
    };
    let values = [
        ("rotation_rpm", settings.number("rotation_rpm").to_string()),
        ("write_cache_kib", settings.count("write_cache_kib").to_string()),
        ("queue_depth", settings.count("queue_depth").to_string()),
        ("zone.0.sectors_per_track", settings.count("sectors_per_track").to_string()),
    ];
    let values = values.each_ref().map(|(name, value)| (*name, value.as_str()));
    let volume = VolumeSetup {
        device: Box::new(ModelDevice::new(&Model::parse_with("scsi-1995.toml", DISK, &values)?, 1)),
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
fn on_target(target: &mut TargetRun<'_>) -> Result<Report, LabError> {
    let settings = target.settings();
    let file = target.scratch(settings.count("total_mib") << 20, 1)?;
    let (large, piece) = (settings.count("write_kib"), settings.count("piece_kib"));
    let mut measure = |kib: u64| -> Result<f64, LabError> {
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

/// Completions of the first pieces: the time between two of them is that of a piece and a revolution.
fn evidence(settings: &Settings, call_kib: u64) -> Result<Vec<String>, LabError> {
    let mut lines = Vec::new();
    for division in [Division::Pieces, Division::Whole] {
        let outcome = machine(settings, Rw::Write, call_kib, division, call_kib << 10)?.run(1, true)?;
        let Some(log) = outcome.log else { continue };
        let mut picked = log.lines(&Filter::default(), 3, &mut |line| line.contains(" complete "))?;
        lines.append(&mut picked);
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Verdict;

    #[test]
    fn pieces_one_after_another_lose_a_revolution_each() {
        let report = run(&Settings::new(PARAMETERS, &[]).unwrap()).unwrap();
        // The published gain is calibrated, not predicted.
        assert_eq!(report.verdict(), Some(Verdict::Partly), "{report:?}");
        assert!(report.directions.iter().all(|direction| direction.holds), "{report:?}");
        assert!(report.predictions().all(Row::is_within), "{report:?}");
    }

    #[test]
    fn a_write_cache_hides_the_gap() {
        let set = ["write_cache_kib=512".to_owned(), "total_mib=32".to_owned()];
        let report = run(&Settings::new(PARAMETERS, &set).unwrap()).unwrap();
        assert!((report.rows[0].ours - 1.0).abs() < 0.02, "{report:?}");
    }
}
