//! Fits known models in virtual time. The fitted model must have the figures of the known model. Deterministic.

use iopath_report::format::{Document, View};
use std::path::Path;

use iopath_core::{Bio, Extent, LengthOnly, QueueConfig, QueuedDevice, Sector};
use iopath_log::{LogInfo, LogOptions, SyncLogWriter};
use iopath_model::{Model, ModelDevice};

use super::*;
use iopath_bench::progress::Silent;

/// Enough for a fit in a build without optimisation.
const EFFORT: Effort = Effort { ios_max: 150, evaluations: 100, deadline: None };

fn options(source: &str) -> FitOptions {
    FitOptions { source: source.into(), time: DEFAULT_TIME, overwrite: false }
}

fn fitted(source: &str) -> Fit {
    fit_target(&options(source), EFFORT, &mut Silent).unwrap()
}

/// A fit of few simulations.
fn fitted_quickly(source: &str) -> Fit {
    fit_target(&options(source), Effort { ios_max: 50, evaluations: 30, deadline: None }, &mut Silent)
        .unwrap()
}

/// The fitted file is a model with the stated parameters, and its error on the figures held back is within `limit`.
fn check(fit: &Fit, kind: &str, limit: f64) {
    let FitReport { error, held_back, .. } = &fit.report;
    let table = fit.report.text(View::plain(None));
    assert_eq!(fit.report.kind, kind, "{table}");
    assert!(error.median <= limit, "{table}");
    assert!(held_back.iter().any(|figure| figure.rw.ends_with("write")), "{table}");
    assert!(fit.file.starts_with(FILE_START), "{}", fit.file);
    let model = Model::parse("fitted.toml", &fit.file).unwrap();
    for parameter in &fit.report.parameters {
        let found = model.settings().iter().find(|setting| setting.path == parameter.name).unwrap();
        assert!((found.value - parameter.value).abs() < 1e-9 && found.source.is_some(), "{}", parameter.name);
    }
}

#[test]
fn a_virtual_disk_is_recovered() {
    check(&fitted("model:cloud"), "cloud", 0.05);
}

#[test]
fn a_solid_state_disk_is_recovered() {
    check(&fitted("model:ssd-nvme"), "flash", 0.10);
}

#[test]
fn a_rotating_disk_is_recovered() {
    let fit = fitted("model:sata-2006");
    check(&fit, "disk", 0.10);
    let value = |name: &str| fit.report.parameters.iter().find(|one| one.name == name).unwrap().value;
    assert!((value("rotation_rpm") - 7200.0).abs() < 1.0);
    assert!((value("seek_average_ms") / 8.5 - 1.0).abs() < 0.25, "{}", value("seek_average_ms"));
}

#[test]
fn a_disk_whose_near_and_far_reads_take_the_same_time_is_a_disk() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("level.toml");
    // No seek is longer than another, and a model states no rotation as sysfs does.
    let text = "base = \"sata-2006\"\nseek_track_ms = 6\nseek_average_ms = 6.2\nseek_full_ms = 6.4\n";
    std::fs::write(&file, text).unwrap();
    let fit = fitted(&format!("model:{}", file.display()));
    let table = fit.report.text(View::plain(None));
    check(&fit, "disk", 0.20);
    let sequential = |figure: &&FittedFigure| figure.rw == "read";
    for figure in fit.report.held_back.iter().filter(sequential) {
        assert!(figure.deviation.abs() < 0.5, "{table}");
    }
    let names: Vec<&str> = fit.report.candidates.iter().map(|one| one.name.as_str()).collect();
    assert!(names.contains(&"flash") && names.iter().any(|name| name.starts_with("cloud")), "{names:?}");
}

#[test]
fn a_search_ends_at_its_deadline_with_the_best_model_so_far() {
    let effort = Effort { ios_max: 50, evaluations: 1000, deadline: Some(Instant::now()) };
    let fit = fit_target(&options("model:cloud"), effort, &mut Silent).unwrap();
    assert!(
        fit.report.candidates.iter().all(|one| one.evaluations == EVALUATIONS_FEWEST),
        "{:?}",
        fit.report.candidates
    );
    Model::parse("fitted.toml", &fit.file).unwrap();
}

#[test]
fn a_round_ends_within_the_time_of_the_measurement() {
    for workloads in [1, 37, 66] {
        let left = Duration::from_secs(56);
        assert!(slice_max(left, workloads) * workloads as u32 <= left);
    }
    assert_eq!(slice_max(Duration::ZERO, 37), SLICE_MIN);
}

#[test]
fn a_server_that_takes_batches_is_recovered() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("batches.toml");
    let text = "base = \"cloud\"\ncapacity_gib = 1\nlatency_min_us = 40\nlatency_p50_us = 50\nlatency_p99_us = 80\n\
        latency_max_us = 200\nsustained_iops = 70000\nburst_iops = 70000\nsustained_mib_per_s = 4000\n\
        burst_mib_per_s = 4000\nbatch_max = 64\nio_overhead_kib = 20\nwrite_latency_percent = 130\n";
    std::fs::write(&file, text).unwrap();
    let fit = fitted(&format!("model:{}", file.display()));
    check(&fit, "cloud", 0.08);
    let batch = fit.report.parameters.iter().find(|one| one.name == "batch_max").unwrap();
    assert!(batch.value > 1.0, "{}", fit.report.text(View::plain(None)));
}

#[test]
fn a_model_has_the_size_of_its_target() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("odd.toml");
    // 934 MiB, and a size that four digits do not have.
    for gib in ["0.912109375", "465.7617416381836"] {
        std::fs::write(&file, format!("base = \"cloud\"\ncapacity_gib = {gib}\n")).unwrap();
        let source = format!("model:{}", file.display());
        let fit = fit_target(
            &options(&source),
            Effort { ios_max: 50, evaluations: 5, deadline: None },
            &mut Silent,
        )
        .unwrap();
        let model = Model::parse("fitted.toml", &fit.file).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        let measured = Model::parse("odd.toml", &text).unwrap().capacity();
        assert_eq!(model.capacity(), measured, "{}", fit.file);
        assert!(fit.file.contains(&format!("capacity_gib = {gib}\n")), "{}", fit.file);
    }
}

#[test]
fn the_text_fits_a_narrow_terminal() {
    let mut fit = fitted_quickly("model:cloud");
    (fit.report.noise, fit.report.noise_floor) = (Some(0.123), Some(0.045));
    for width in [40, 60, 80, 200] {
        let text = fit.report.text(View::plain(Some(width)));
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= usize::from(width), "{widest} of {width}:\n{text}");
    }
    let text = fit.report.text(View::plain(None));
    assert!(text.contains("a repetition deviates by 12.3%") && text.contains("uncertain by 4.5%"), "{text}");
}

#[test]
fn the_same_source_gives_the_same_file() {
    let file = || fitted_quickly("model:cloud").file;
    assert_eq!(file(), file());
}

/// Writes the log of random requests of several sizes at several depths on a model.
fn write_log(file: &Path, model: &str, requests: u32, reads: fn(u32) -> bool) {
    let info = LogInfo { clock: "virtual".to_owned(), ..LogInfo::default() };
    let log = SyncLogWriter::create(file, &info, &LogOptions::default()).unwrap();
    let device = ModelDevice::<LengthOnly>::new(&Model::preset(model).unwrap(), 5);
    let config = QueueConfig { bios_max: 64, requests_max: 64, depth: 64, ..QueueConfig::default() };
    let mut disk = QueuedDevice::new(device, &config);
    disk.queue_mut().start_log(Box::new(log.add_queue()));
    let (mut now, mut random, mut submitted, mut in_flight) = (iopath_core::Instant::ZERO, 1_u64, 0, 0);
    while submitted < requests || in_flight > 0 {
        let depth = [1, 2, 8, 32][(submitted / 50) as usize % 4];
        while submitted < requests && in_flight < depth {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let sectors = [8, 8, 32, 128][(random >> 40) as usize % 4];
            let extent = Extent::new(Sector((random >> 32) % (1 << 19) * 256), sectors).unwrap();
            let memory = LengthOnly::new(sectors * 512);
            let bio = if reads((random >> 50) as u32) { Bio::read } else { Bio::write };
            disk.submit_bio(bio(extent, memory, 0), now).unwrap();
            (submitted, in_flight) = (submitted + 1, in_flight + 1);
        }
        disk.unplug(now);
        disk.dispatch(now);
        disk.commit(now);
        now = disk.poll_timeout().expect("requests are in flight");
        disk.collect(now);
        while disk.poll_completion().is_some() {
            in_flight -= 1;
        }
    }
    drop(disk);
    log.finish().unwrap();
}

fn mixed(random: u32) -> bool {
    random % 10 < 7
}

#[test]
fn a_log_of_a_virtual_disk_and_of_a_solid_state_disk_is_recovered() {
    let directory = tempfile::tempdir().unwrap();
    for (model, evaluations, limit) in [("cloud", 120, 0.10), ("ssd-nvme", 300, 0.15)] {
        let log = directory.path().join(model);
        write_log(&log, model, 6000, mixed);
        assert!(is_log(&log));
        let effort = Effort { evaluations, ..EFFORT };
        let fit = fit_log(&options(log.to_str().unwrap()), effort, &mut Silent).unwrap();
        let FitReport { error, held_back, log: name, .. } = &fit.report;
        assert!(
            error.median <= limit && held_back.len() >= 8,
            "{model}: {}",
            fit.report.text(View::plain(None))
        );
        assert_eq!(name.as_deref(), log.to_str());
        Model::parse("fitted.toml", &fit.file).unwrap();
    }
}

#[test]
fn a_log_of_one_operation_is_fitted_with_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    for (are_reads, warning) in [(true, "few writes"), (false, "few reads")] {
        let log = directory.path().join("log");
        let reads: fn(u32) -> bool = if are_reads { |_| true } else { |_| false };
        write_log(&log, "cloud", 2000, reads);
        let fit = fit_log(&options(log.to_str().unwrap()), EFFORT, &mut Silent).unwrap();
        assert!(fit.report.warnings.iter().any(|text| text.contains(warning)), "{:?}", fit.report.warnings);
        Model::parse("fitted.toml", &fit.file).unwrap();
    }
}

#[test]
fn a_log_that_determines_no_model_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |model: &str, requests, reads: fn(u32) -> bool| {
        let log = directory.path().join("log");
        write_log(&log, model, requests, reads);
        fit_log(&options(log.to_str().unwrap()), EFFORT, &mut Silent).unwrap_err().to_string()
    };
    let text = refused("cloud", 200, mixed);
    assert!(text.contains("has too few completed requests: 200; a fit needs 1000"), "{text}");
    let text = refused("cloud", 1, mixed);
    assert!(text.contains("has too few completed requests: 1; a fit needs 1000"), "{text}");
    let text = refused("sata-2006", 3000, mixed);
    assert!(text.contains("mechanical latency"), "{text}");
}

#[test]
fn a_log_without_completions_or_records_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("log");
    let refused = || fit_log(&options(file.to_str().unwrap()), EFFORT, &mut Silent).unwrap_err().to_string();
    let log = SyncLogWriter::create(&file, &LogInfo::default(), &LogOptions::default()).unwrap();
    let device = ModelDevice::<LengthOnly>::new(&Model::preset("cloud").unwrap(), 5);
    let mut disk = QueuedDevice::new(device, &QueueConfig::default());
    disk.queue_mut().start_log(Box::new(log.add_queue()));
    let now = iopath_core::Instant::ZERO;
    for number in 0..40 {
        let extent = Extent::new(Sector(number * 1024), 8).unwrap();
        disk.submit_bio(Bio::read(extent, LengthOnly::new(4096), 0), now).unwrap();
    }
    disk.unplug(now);
    disk.dispatch(now);
    disk.commit(now);
    // The program that writes the log ends while its requests are in flight.
    std::mem::forget(disk);
    log.finish().unwrap();
    assert!(is_log(&file));
    let text = refused();
    assert!(text.contains("has too few completed requests: 0; a fit needs 1000"), "{text}");
    let log = SyncLogWriter::create(&file, &LogInfo::default(), &LogOptions::default()).unwrap();
    log.finish().unwrap();
    let text = refused();
    assert!(text.contains("has too few completed requests: 0"), "{text}");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len().min(24)]).unwrap();
    let text = refused();
    assert!(text.lines().count() == 1 && text.contains("truncated in its header"), "{text}");
}

#[test]
fn a_target_too_small_for_a_fit_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("small.toml");
    std::fs::write(&file, "base = \"cloud\"\ncapacity_gib = 0.001\n").unwrap();
    let error = fit_target(&options(&format!("model:{}", file.display())), EFFORT, &mut Silent).unwrap_err();
    assert!(error.to_string().contains("and a fit needs 32 MiB at least"), "{error}");
}

#[test]
fn repetitions_that_differ_too_much_are_refused() {
    check_noise(Path::new("d"), Some(prepare::NOISE_MAX)).unwrap();
    check_noise(Path::new("d"), None).unwrap();
    let text = check_noise(Path::new("d"), Some(0.7)).unwrap_err().to_string();
    assert!(text.starts_with("d is too noisy to fit") && text.contains("70%"), "{text}");
}

#[test]
fn a_model_that_predicts_little_gets_a_warning() {
    assert_eq!(prediction_warning(HELD_BACK_WARNING), None);
    let text = prediction_warning(0.888).unwrap();
    assert!(text.contains("predicts little") && text.contains("89%"), "{text}");
}
