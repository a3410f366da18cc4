//! Pages of results: what is compared, and what is escaped.

use std::path::PathBuf;

use iopath_lab::compare::compare_for_page;
use iopath_report::Rw;
use iopath_report::fixtures::run;
use iopath_report::html::{PageOptions, page};
use iopath_report::result::{Finding, Report};

const BAD: &str = "</script><script>alert(1)</script>\"'<img src=x onerror=alert(1)>";

fn write(folder: &tempfile::TempDir, name: &str, report: &Report) -> PathBuf {
    let file = folder.path().join(name);
    std::fs::write(&file, report.to_json()).unwrap();
    file
}

fn report(mbs: &[f64]) -> Report {
    let runs = [4096, 65536, 1 << 20].map(|block| run("kernel-direct", Rw::Read, block, 1, mbs, 0.5));
    Report::new(None, None, runs.into())
}

#[test]
fn two_results_are_compared_with_their_intervals() {
    let folder = tempfile::tempdir().unwrap();
    let a = write(&folder, "a.json", &report(&[100.0, 101.0, 99.0, 100.0, 100.5]));
    let b = write(&folder, "b.json", &report(&[80.0, 81.0, 79.0, 80.0, 80.5]));
    let page = page(&PageOptions::new(vec![a, b], compare_for_page)).unwrap();
    assert!(page.contains("slower, throughput by -20.0%"), "no verdict");
    assert!(page.contains("class=\"interval\""));
    assert!(page.find("id=\"findings\"").unwrap() < page.find("id=\"part1\"").unwrap());
}

#[test]
fn no_text_of_a_result_becomes_markup() {
    let folder = tempfile::tempdir().unwrap();
    let mut bad = report(&[100.0, 101.0, 99.0]);
    for run in &mut bad.runs {
        run.path = BAD.to_owned();
        run.warnings = vec![BAD.to_owned()];
    }
    bad.runs[0].rw = BAD.to_owned();
    bad.findings = vec![Finding {
        id: BAD.to_owned(),
        text: BAD.to_owned(),
        evidence: BAD.to_owned(),
        confidence: None,
        doubts: vec![BAD.to_owned()],
    }];
    let file = write(&folder, "x<script>alert(2)<&script>'\".json", &bad);
    let page =
        page(&PageOptions { title: Some(BAD.to_owned()), ..PageOptions::new(vec![file], compare_for_page) })
            .unwrap();
    assert!(!page.contains("<script>alert"), "markup");
    assert!(!page.contains("<img"), "markup");
    assert!(page.contains("&lt;script&gt;alert(2)"), "the name of the file is shown");
}

#[test]
fn charts_of_several_results_are_drawn_once() {
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<_> =
        ["a.json", "b.json"].map(|name| write(&folder, name, &report(&[100.0, 101.0, 99.0]))).into();
    let charts = |files: &[PathBuf]| {
        page(&PageOptions::new(files.to_vec(), compare_for_page))
            .unwrap()
            .matches("<h4>Latency percentiles</h4>")
            .count()
    };
    assert!(charts(&files[..1]) > 0);
    assert_eq!(charts(&files), charts(&files[..1]));
}

#[test]
fn the_same_files_yield_the_same_page() {
    let folder = tempfile::tempdir().unwrap();
    let files = vec![write(&folder, "a.json", &report(&[100.0]))];
    let options = PageOptions::new(files, compare_for_page);
    assert_eq!(page(&options).unwrap(), page(&options).unwrap());
}
