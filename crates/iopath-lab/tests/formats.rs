//! Each format of a result: the keys that other programs read, the figures of the table, and round trips.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use iopath_report::Rw;
use iopath_report::compare::Verdict;
use iopath_report::format::{Document, FORMATS, Format, View};
use iopath_report::result::{Report, RunResult};
use serde_json::Value;

use iopath_bench::paths::find_path;
use iopath_bench::progress::Silent;
use iopath_bench::{End, Workload};
use iopath_lab::compare::{CompareOptions, compare_files};

const VIEW: View = View { width: None, is_fancy: false };

/// A run in virtual time.
fn report(rw: Rw, targets: usize) -> Report {
    let workload = Workload {
        path: find_path("iopath-direct").unwrap(),
        target: Some(PathBuf::from("model:cloud")),
        more_targets: vec![PathBuf::from("model:cloud"); targets - 1],
        rw,
        end: End::Time(std::time::Duration::from_secs(1)),
        ..Workload::default()
    };
    iopath_bench::report(&workload, &mut Silent).unwrap()
}

fn render(name: &str, document: &dyn Document) -> String {
    (Format::find(name).unwrap().render)(document, VIEW)
}

#[test]
fn names_are_unique_and_each_format_shows_a_report() {
    let names: BTreeSet<&str> = FORMATS.iter().map(|format| format.name).collect();
    assert_eq!(names.len(), FORMATS.len());
    let report = report(Rw::Rw, 2);
    for Format { name, render, about, .. } in FORMATS {
        let text = render(&report, VIEW);
        assert!(text.len() > 100 && text.ends_with('\n') && !about.is_empty(), "{name}: {text}");
    }
}

#[test]
#[expect(clippy::float_cmp, reason = "formats do not round")]
fn csv_has_a_record_for_each_run_direction_and_target_with_the_exact_figures() {
    let report = report(Rw::RandRw, 2);
    let text = render("csv", &report);
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    let head = reader.headers().unwrap().clone();
    assert_eq!(head.iter().collect::<BTreeSet<_>>().len(), head.len(), "names are unique");
    let records: Vec<::csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let of = |record: &::csv::StringRecord, name: &str| {
        record[head.iter().position(|known| known == name).unwrap()].to_owned()
    };
    let parts: Vec<String> = records.iter().map(|record| of(record, "part")).collect();
    assert_eq!(parts, ["run", "read", "write", "target", "target"]);
    let run = &report.runs[0];
    assert_eq!(of(&records[0], "bytes_per_second").parse::<f64>().unwrap(), run.bytes_per_second.mean);
    assert_eq!(of(&records[0], "latency_p999_ns"), run.latency_ns.p999.to_string());
    assert_eq!(of(&records[2], "ios"), run.directions.as_ref().unwrap().write.ios.to_string());
    assert_eq!(of(&records[4], "target"), "model:cloud");
}

#[test]
fn markdown_has_the_rows_of_the_tables() {
    let report = report(Rw::RandRw, 1);
    let text = render("markdown", &report);
    let rows = text.lines().filter(|line| line.starts_with("| iopath-direct |")).count();
    assert_eq!(rows, 3, "the run, its reads and its writes: {text}");
    assert!(text.contains(&iopath_report::numbers::digits(report.runs[0].iops.mean)), "{text}");
}

/// A key of fio's JSON, by its names.
fn at<'a>(value: &'a Value, names: &[&str]) -> &'a Value {
    names
        .iter()
        .fold(value, |value, name| value.get(name).unwrap_or_else(|| panic!("{names:?}: {name} is missing")))
}

#[test]
#[expect(clippy::float_cmp, reason = "formats do not round")]
fn fio_json_has_the_keys_that_readers_use_with_their_types_and_units() {
    let report = report(Rw::RandRw, 1);
    let root: Value = serde_json::from_str(&render("fio-json", &report)).unwrap();
    assert!(at(&root, &["fio version"]).is_string() && at(&root, &["timestamp_ms"]).is_u64());
    assert!(at(&root, &["global options"]).is_object() && at(&root, &["disk_util"]).is_array());
    let job = &at(&root, &["jobs"])[0];
    // fio-plot reads these options as texts, and converts the first two to whole numbers.
    for name in ["iodepth", "numjobs", "bs", "rw"] {
        let option = at(job, &["job options", name]).as_str().unwrap_or_else(|| panic!("{name} is no text"));
        assert!(!["iodepth", "numjobs"].contains(&name) || option.parse::<u32>().is_ok(), "{name}: {option}");
    }
    assert_eq!(at(job, &["job options", "rw"]), "randrw");
    let run = &report.runs[0];
    let both = run.directions.as_ref().unwrap();
    for (name, direction) in [("read", &both.read), ("write", &both.write)] {
        let section = at(job, &[name]);
        for key in ["iops", "iops_mean", "iops_stddev", "bw_mean", "bw_dev"] {
            assert!(at(section, &[key]).is_f64(), "{name}.{key}");
        }
        for key in ["io_bytes", "bw_bytes", "bw", "runtime", "total_ios", "iops_samples"] {
            assert!(at(section, &[key]).is_u64(), "{name}.{key}");
        }
        for latency in ["slat_ns", "clat_ns", "lat_ns"] {
            for key in ["min", "max", "mean", "stddev", "N"] {
                assert!(at(section, &[latency, key]).is_number(), "{name}.{latency}.{key}");
            }
        }
        // The figures of the table: bytes and KiB per second, transfers per second, nanoseconds.
        let rate = direction.bytes_per_second.mean;
        assert_eq!(section["bw_bytes"], rate.round() as u64);
        assert_eq!(section["bw"], (rate / 1024.0) as u64, "KiB/s");
        assert_eq!(section["iops"].as_f64().unwrap(), direction.iops.mean);
        assert_eq!(section["lat_ns"]["mean"].as_f64().unwrap(), direction.latency_ns.mean);
        assert_eq!(section["clat_ns"]["percentile"]["99.000000"], direction.latency_ns.p99);
        assert_eq!(section["clat_ns"]["percentile"].as_object().unwrap().len(), 17);
        assert_eq!(section["runtime"], (run.seconds * 1e3).round() as u64, "milliseconds");
        assert_eq!((&section["iops_samples"], &section["total_ios"]), (&3.into(), &direction.ios.into()));
    }
    assert_eq!(at(job, &["trim", "total_ios"]), 0);
    assert_eq!(at(job, &["error"]), 0);
    assert!(at(job, &["usr_cpu"]).is_f64() && at(job, &["sys_cpu"]).is_f64());
    let percents = ["latency_ns", "latency_us", "latency_ms"].map(|unit| {
        let classes = at(job, &[unit]).as_object().unwrap();
        assert!(classes.contains_key("1000") && classes.contains_key("2"), "{unit}");
        classes.values().map(|percent| percent.as_f64().unwrap()).sum::<f64>()
    });
    assert!((percents.iter().sum::<f64>() - 100.0).abs() < 1e-6, "{percents:?}");
}

#[test]
fn a_run_of_one_direction_has_its_figures_in_that_section_of_fio_json() {
    for (rw, active, idle) in [(Rw::RandRead, "read", "write"), (Rw::Write, "write", "read")] {
        let report = report(rw, 1);
        let root: Value = serde_json::from_str(&render("fio-json", &report)).unwrap();
        let job = &root["jobs"][0];
        assert_eq!(job[active]["total_ios"], report.runs[0].ios, "{rw}");
        assert_eq!((&job[idle]["io_bytes"], &job[idle]["bw"]), (&0.into(), &0.into()), "{rw}");
    }
}

#[test]
fn fio_json_reads_back_with_the_same_figures() {
    let report = report(Rw::RandRead, 1);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fio.json");
    fs::write(&file, render("fio-json", &report)).unwrap();
    let side = file.to_str().unwrap().to_owned();
    let options =
        CompareOptions { sides: [side.clone(), side], threshold: 0.03, metric: None, vary: Vec::new() };
    let comparison = compare_files(&options).unwrap();
    let mean = |name: &str| {
        let metric = comparison.runs[0].metrics.iter().find(|metric| metric.metric == name);
        metric.unwrap_or_else(|| panic!("{name} is missing")).means.unwrap()[0]
    };
    assert!((mean("iops") / report.runs[0].iops.mean - 1.0).abs() < 1e-9);
    assert!((mean("p99") - report.runs[0].latency_ns.p99 as f64 / 1e3).abs() < 1e-6, "µs");
}

/// The published table: for each block size the seconds of three repetitions, mean, standard deviation and IOPS.
const PUBLISHED: &str = include_str!("../../iopath-experiments/published/readahead.csv");

#[test]
fn perftest_prints_the_published_table_and_compare_reads_it_back() {
    let mut reader = ::csv::Reader::from_reader(PUBLISHED.as_bytes());
    let selected =
        |record: &::csv::StringRecord| (&record[0], &record[1], &record[2]) == ("unpatched", "512", "512");
    let rows: Vec<::csv::StringRecord> = reader.records().map(Result::unwrap).filter(selected).collect();
    let mut report = report(Rw::Read, 1);
    let template = report.runs.remove(0);
    for row in &rows {
        let mut run = template.clone();
        run.block_bytes = row[3].parse().unwrap();
        for (index, repeat) in run.repeats.iter_mut().enumerate() {
            // Each repetition of the source reads 1 GiB.
            repeat.seconds = row[4 + index].parse().unwrap();
            repeat.bytes_per_second = f64::from(1u32 << 30) / repeat.seconds;
        }
        report.runs.push(run);
    }
    let text = render("perftest", &report);
    let lines: Vec<Vec<&str>> = text.lines().skip(3).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines.len(), rows.len(), "{text}");
    for (line, row) in lines.iter().zip(&rows) {
        assert_eq!(line[..4], [&row[3], &row[4], &row[5], &row[6]], "block size and seconds");
        for (shown, published) in line[4..].iter().zip([&row[7], &row[8], &row[9]]) {
            let [shown, published] = [shown, published].map(|text| text.parse::<f64>().unwrap());
            // The source rounds the seconds, from which these figures follow.
            let largest = published.max(row[7].parse().unwrap());
            assert!((shown - published).abs() <= 0.002 + largest * 2e-4, "{line:?} {row:?}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let [table, csv] = ["table.txt", "table.csv"].map(|name| folder.path().join(name));
    fs::write(&table, &text).unwrap();
    fs::write(&csv, PUBLISHED).unwrap();
    let a = format!("{}@queue=unpatched@readahead_kib=512@max_sectors_kib=512", csv.display());
    let vary = ["queue", "readahead_kib", "max_sectors_kib", "table"].map(str::to_owned).to_vec();
    let sides = [a, table.to_str().unwrap().to_owned()];
    let comparison = compare_files(&CompareOptions { sides, threshold: 0.03, metric: None, vary }).unwrap();
    assert_eq!(comparison.runs.len(), rows.len());
    for run in &comparison.runs {
        assert!(run.metrics[0].difference.unwrap().abs() < 1e-3, "{run:?}");
        assert!([Verdict::Same, Verdict::Inconclusive].contains(&run.metrics[0].verdict));
    }
}

#[test]
fn perftest_has_a_row_for_each_run_also_of_equal_titles() {
    let mut report = report(Rw::Read, 1);
    let other = RunResult { block_bytes: 2 * report.runs[0].block_bytes, ..report.runs[0].clone() };
    report.runs = vec![report.runs[0].clone(), other, report.runs[0].clone()];
    report.runs[2].repeats[0].seconds = 77.0;
    let text = render("perftest", &report);
    let titles: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
    assert_eq!((titles.len(), titles[1].to_owned()), (2, format!("{} (2)", titles[0])), "{text}");
    let tables: Vec<&str> = text.split("\n\n").collect();
    assert_eq!(tables.iter().map(|table| table.lines().count()).collect::<Vec<_>>(), [5, 4], "{text}");
    assert!(tables[1].contains("77.000") && !tables[0].contains("77.000"), "{text}");
}

#[test]
fn perftest_has_columns_of_writes_and_of_reads_for_a_mixed_pattern() {
    let report = report(Rw::Rw, 1);
    let text = render("perftest", &report);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        lines[1],
        ["blocksize", "W", "W", "W", "W(avg,", "W(std", "W", "R", "R", "R", "R(avg,", "R(std", "R"]
    );
    assert_eq!((lines[2].len(), lines[3].len()), (13, 13), "{text}");
}
