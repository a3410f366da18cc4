//! `copy`: the block tests of Bonnie, through the page cache and with direct I/O. The disk determines the rates. The
//! copy between the page cache and the caller causes most of the CPU cost.

use iopath::Readahead;
use iopath_log::Filter;
use iopath_model::{Host, HostModel, Model, ModelDevice};
use iopath_report::Rw;
use iopath_report::experiment::{Direction, Parameter, Report, Row, Settings};

use super::error::ExperimentError;
use super::on_target::TargetRun;
use super::published::published;
use super::row::{Experiment, OnTarget};
use iopath_bench::cache::CacheSettings;
use iopath_bench::paths::{iopath_buffered, iopath_direct};
use iopath_bench::simulated::Unplug;
use iopath_bench::simulated::machine::{Machine, Outcome, Top, VolumeSetup};
use iopath_bench::workload::{BlockSize, Repetitions, Workload};

pub(super) static ROW: Experiment = Experiment {
    id: "copy",
    title: "the CPU cost of the copy through the page cache",
    published: "A. Arcangeli, talk on O_DIRECT, 2001: Bonnie's block tests of a file of 400 MB on a machine with 128 MB \
        and a disk of about 15 MB/s. Output and input run at 13 MB/s with 12 to 13% of the CPU through the page cache, and \
        at the same rate with 1.2 to 1.8% by direct I/O.",
    parameters: PARAMETERS,
    run,
    on_target: Some(OnTarget::Writes(on_target)),
};

const PARAMETERS: &[Parameter] = &[
    Parameter::count("file_mib", "MiB", 400, (1, 4096), "the source: 400 MB"),
    Parameter::count("cache_mib", "MiB", 96, (1, 4096), "assumed: the page cache of a machine with 128 MB"),
    Parameter::count("block_kib", "KiB", 16, (4, 4096), "the chunk of Bonnie; the source names no other"),
    Parameter::count("direct_kib", "KiB", 1024, (4, 4096), DIRECT_CALL),
    Parameter::count("bio_kib", "KiB", 4, (1, 4096), "a block of the filesystem, as Linux 2.4 submitted it"),
    Parameter::count("readahead_kib", "KiB", 124, (0, 65536), "Linux 2.4: at most 31 pages"),
    Parameter::number(
        "copy_mb_per_s",
        "MB/s",
        COPY_MB_PER_S,
        (1.0, 1e6),
        "calibrated on CPU of block output, buffered",
    ),
];

const DIRECT_CALL: &str = "calibrated on rewrite, direct; with calls of 16 KiB, a rewrite waits for a revolution per call and has 1.3 MiB/s";

/// The copy rate of the host.
const COPY_MB_PER_S: f64 = 150.0;

/// The published CPU use of direct I/O over all tests.
const DIRECT_SPREAD: (f64, f64) = (1.2, 1.8);

/// The paths, as the published table names them.
const PATHS: [&str; 2] = ["buffered", "direct"];

/// A test of Bonnie: its name, the columns of the published table, and its pattern.
struct Test {
    name: &'static str,
    rate: &'static str,
    cpu: &'static str,
    rw: Rw,
}

const TESTS: [Test; 3] = [
    Test {
        name: "block output",
        rate: "output_block_kib_per_s",
        cpu: "output_block_cpu_percent",
        rw: Rw::Write,
    },
    Test { name: "rewrite", rate: "rewrite_kib_per_s", cpu: "rewrite_cpu_percent", rw: Rw::Rewrite },
    Test { name: "block input", rate: "input_block_kib_per_s", cpu: "input_block_cpu_percent", rw: Rw::Read },
];

/// The figures that Bonnie prints for a test.
#[derive(Debug, Clone, Copy)]
struct Figures {
    /// KiB of the file a second. A rewrite counts each block once.
    kib_per_s: f64,
    /// CPU time as a share of the elapsed time.
    cpu_percent: f64,
}

impl Figures {
    fn of(outcome: &Outcome, rw: Rw) -> Self {
        let passes = if rw == Rw::Rewrite { 2.0 } else { 1.0 };
        let busy = outcome.cpu.map_or(0.0, |cpu| cpu.busy_seconds);
        Self {
            kib_per_s: outcome.bytes_per_second() / 1024.0 / passes,
            cpu_percent: busy / outcome.seconds * 100.0,
        }
    }
}

fn run(settings: &Settings) -> Result<Report, ExperimentError> {
    let mut report = Report::default();
    let mut figures = Vec::new();
    for path in PATHS {
        for Test { rw, .. } in TESTS {
            let file_bytes = settings.count("file_mib") << 20;
            let outcome = machine(settings, path, rw, file_bytes)?.run(1, false)?;
            figures.push(Figures::of(&outcome, rw));
        }
    }
    let is_published = !settings.is_any_set();
    for (index, ours) in figures.iter().enumerate() {
        let (path, test) = (PATHS[index / TESTS.len()], &TESTS[index % TESTS.len()]);
        let is_calibrated = test.rw == Rw::Write && path == "buffered";
        let is_rate_calibrated = test.rw == Rw::Rewrite && path == "direct";
        let rate = (format!("{}, {path}", test.name), "KiB/s", ours.kib_per_s);
        let cpu = (format!("CPU of {}, {path}", test.name), "%", ours.cpu_percent);
        report.rows.push(row(rate, is_published.then(|| mean(path, test.rate)), is_rate_calibrated));
        let row = row(cpu, is_published.then(|| mean(path, test.cpu)), is_calibrated);
        let (least, most) = DIRECT_SPREAD;
        report.rows.push(if path == "direct" { row.within(least, most) } else { row });
    }
    let (buffered, direct) = figures.split_at(TESTS.len());
    let each = || buffered.iter().zip(direct);
    report.directions = vec![
        Direction::new(
            "direct I/O uses less than a quarter of the CPU time of the page cache, in each test",
            each().all(|(buffered, direct)| direct.cpu_percent < buffered.cpu_percent / 4.0),
        ),
        Direction::new(
            "block output and input have the same rate on both paths, within 10%",
            each().zip(&TESTS).all(|((buffered, direct), test)| {
                test.rw == Rw::Rewrite || (direct.kib_per_s / buffered.kib_per_s - 1.0).abs() < 0.1
            }),
        ),
    ];
    report.evidence = evidence(settings)?;
    report.notes = vec![
        "The page cache copies each byte once in block output and input, and twice in rewrite. Direct I/O copies no byte; \
         the costs of calls, bios, requests and interrupts remain."
            .to_owned(),
        "The costs of calls, bios, requests and interrupts are those of host p3-2002: lock statistics of 2002 for a \
         Pentium III of 733 MHz. The copy rate is calibrated on the CPU use of block output, and the size of a direct call \
         on the rate of a direct rewrite. The source gives 1.2 to 1.8% for direct I/O. The CPU use of direct input is \
         within its tolerance only because of this range: it is 34% above the published 1.25% of this test. In the model, \
         a write has no cost that a read does not have. So direct output and direct input have the same CPU use."
            .to_owned(),
        "The published rewrite has the same rate on both paths. In the model the rates differ. The page cache of the \
         library writes back longer runs than that of the source, so the head moves less often between the read and the \
         written blocks. The direction about equal rates covers output and input only."
            .to_owned(),
    ];
    Ok(report)
}

/// The mean of the two published runs of a figure.
fn mean(path: &str, column: &str) -> f64 {
    let table = published("bonnie");
    let [first, second] = ["1", "2"].map(|run| {
        let line = table.find(&[("path", path), ("run", run)]);
        line.map_or(f64::NAN, |line| line.number(column))
    });
    f64::midpoint(first, second)
}

fn row((what, unit, ours): (String, &'static str, f64), published: Option<f64>, is_calibrated: bool) -> Row {
    match published {
        None => Row::unpublished(what, unit, ours),
        Some(published) if is_calibrated => Row::calibrated(what, unit, published, ours),
        Some(published) => Row::predicted(what, unit, published, ours),
    }
}

/// The machine, with a file of `file_bytes` at the start of the disk.
fn machine(settings: &Settings, path: &str, rw: Rw, file_bytes: u64) -> Result<Machine, ExperimentError> {
    // The source does not name its processor, so the model has one of the same class and time.
    let copy = settings.number("copy_mb_per_s").to_string();
    let host = Host::new(&HostModel::preset_with("p3-2002", &[("cpus", "1"), ("copy_mb_per_s", &copy)])?);
    let block_bytes = settings.count(if path == "direct" { "direct_kib" } else { "block_kib" }) << 10;
    let top = if path == "direct" {
        let bio_bytes_max = u32::try_from(settings.count("bio_kib") << 10).ok();
        Top::Direct { bio_bytes_max, serial: false }
    } else {
        let cache = CacheSettings {
            cache_bytes: Some(settings.count("cache_mib") << 20),
            page_bytes: Some(4096),
            readahead: Some(Readahead::Bytes(settings.count("readahead_kib") << 10)),
            borrow: false,
        };
        Top::Buffered { cache, unplug: Unplug::AtOnce }
    };
    let volume = VolumeSetup {
        device: Box::new(ModelDevice::new(&Model::preset("ide-2001")?, 1)),
        elevator: "ascend".parse().expect("the elevator is a row of the table"),
        device_depth: None,
        requests_max: None,
        top,
        workloads: vec![Workload {
            rw,
            block_size: BlockSize::new(block_bytes)?,
            size_bytes: Some(file_bytes),
            ..Workload::default()
        }],
    };
    Ok(Machine { host: Some(host), volumes: vec![volume] })
}

/// The tests on a scratch file: with the page cache of the library, and with direct I/O.
fn on_target(target: &mut TargetRun<'_>) -> Result<Report, ExperimentError> {
    let settings = target.settings();
    let file = target.scratch(settings.count("file_mib") << 20, 1)?;
    let (mut rows, mut cpu) = (Vec::new(), Vec::new());
    for (path, row, block) in
        [("buffered", &iopath_buffered::ROW, "block_kib"), ("direct", &iopath_direct::ROW, "direct_kib")]
    {
        for Test { name, rw, .. } in &TESTS {
            let workload = Workload {
                path: row,
                rw: *rw,
                block_size: BlockSize::new(settings.count(block) << 10)?,
                repetitions: Repetitions::constant(1),
                // The direct path refuses the settings of a page cache.
                cache: CacheSettings {
                    cache_bytes: (path == "buffered").then(|| settings.count("cache_mib") << 20),
                    ..CacheSettings::default()
                },
                ..Workload::default()
            };
            let result = target.measure(&workload, &file)?;
            let per_gib = result.cpu.map_or(f64::NAN, |cpu| cpu.seconds_per_gib);
            let mb_per_s = result.bytes_per_second.mean / 1e6;
            rows.push(Row::unpublished(format!("{name}, {path}"), "MB/s", mb_per_s));
            rows.push(Row::unpublished(format!("CPU of {name}, {path}"), "s/GiB", per_gib));
            cpu.push(per_gib);
        }
    }
    let (buffered, direct) = cpu.split_at(TESTS.len());
    let is_less = buffered.iter().zip(direct).all(|(buffered, direct)| direct < buffered);
    let text = "direct I/O uses less CPU time for each byte than the page cache, in each test";
    Ok(Report { rows, directions: vec![Direction::new(text, is_less)], ..Report::default() })
}

/// Requests of the first part of block output: on both paths the disk receives the same sectors.
fn evidence(settings: &Settings) -> Result<Vec<String>, ExperimentError> {
    let block_bytes = settings.count("block_kib").max(settings.count("direct_kib")) << 10;
    let mut lines = Vec::new();
    for path in PATHS {
        let outcome = machine(settings, path, Rw::Write, block_bytes.max(1 << 20))?.run(1, true)?;
        let Some(log) = outcome.log else { continue };
        let mut picked = log.lines(&Filter::default(), 2, &mut |line| line.contains(" dispatch "))?;
        lines.append(&mut picked);
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_report::experiment::Verdict;

    #[test]
    fn direct_io_has_the_rates_of_the_page_cache_at_a_fraction_of_the_cpu_time() {
        let report = run(&Settings::new(PARAMETERS, &[]).unwrap()).unwrap();
        assert_eq!(report.verdict(), Some(Verdict::Reproduced), "{report:?}");
        let calibrated: Vec<_> = report.rows.iter().filter(|row| row.calibrated).collect();
        assert_eq!(calibrated.len(), 2);
        assert!(calibrated.iter().all(|row| row.deviation().unwrap().abs() < 0.03), "{calibrated:?}");
    }

    #[test]
    fn without_the_cost_of_the_copy_most_of_the_effect_is_gone() {
        let cpu = |copy: &str| {
            let set = ["file_mib=32".to_owned(), "cache_mib=8".to_owned(), format!("copy_mb_per_s={copy}")];
            let report = run(&Settings::new(PARAMETERS, &set).unwrap()).unwrap();
            report.rows.iter().find(|row| row.what == "CPU of block input, buffered").unwrap().ours
        };
        assert!(cpu("1000000") < 0.6 * cpu("150"));
    }
}
