//! `iopath report`: the page in a headless browser, its refusals, and hostile names. Needs no storage: the results come
//! from models in virtual time. Without Chromium, the tests of the browser are skipped with a line.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::iopath;

/// A file name that would be a script if it were not escaped.
const HOSTILE: &str = "a\"'<script>document.title='broken'<&script>.json";

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Three block sizes of two elevators, as files of results, and the log of one of them.
fn results(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for (block, name) in [("4k", HOSTILE), ("64k", "b.json"), ("1m", "c.json")] {
        for elevator in ["none", "deadline"] {
            let file = folder.join(format!("{elevator}-{name}"));
            let mut run =
                iopath(&["run", "--path", "iopath-direct", "--target", "model:hdd-20tb", "--rw", "randread"]);
            run.args([
                "--bs",
                block,
                "--iodepth",
                "8",
                "--runtime",
                "2s",
                "--elevator",
                elevator,
                "--device-depth",
                "2",
            ]);
            if elevator == "none" {
                run = iopath(&[
                    "run",
                    "--path",
                    "iopath-direct",
                    "--target",
                    "model:hdd-20tb",
                    "--rw",
                    "randread",
                ]);
                run.args(["--bs", block, "--iodepth", "2", "--runtime", "2s"]);
            } else if block == "4k" {
                run.arg("--log").arg(folder.join("log"));
            }
            let output = run.arg("--json").arg(&file).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            files.push(file);
        }
    }
    files.push(folder.join("log"));
    let sweep = folder.join("sweep.json");
    let mut run =
        iopath(&["sweep", "--path", "iopath-direct", "--target", "model:ide-2001", "--rw", "randread"]);
    run.args(["--iodepth", "1..4", "--set", "elevator=none,deadline", "--size", "64m", "--runtime", "1s"]);
    let output = run.arg("--output").arg(&sweep).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    files.push(sweep);
    files
}

/// Writes the page of files.
fn page(folder: &Path, name: &str, files: &[PathBuf]) -> PathBuf {
    let page = folder.join(name);
    let output = iopath(&["report"]).args(files).arg("-o").arg(&page).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    page
}

/// The browser; none with a line on stderr.
fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = ["chromium", "chromium-browser", "google-chrome"]
        .iter()
        .flat_map(|name| std::env::split_paths(&path).map(move |folder| folder.join(name)))
        .find(|program| program.is_file());
    if found.is_none() {
        eprintln!("skipped: no Chromium here");
    }
    found
}

/// The output of the browser for a page, and its messages. Ends a browser that hangs.
fn visit(browser: &Path, page: &Path, options: &[&str]) -> (String, String) {
    let profile = directory();
    let log = profile.path().join("log");
    let mut child = Command::new(browser)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
        ])
        .args(["--virtual-time-budget=3000", "--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", profile.path().join("profile").display()))
        .args(options)
        .arg(url(page))
        .stdin(Stdio::null())
        .stdout(fs::File::create(profile.path().join("out")).unwrap())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(120);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("the browser did not end: {}", fs::read_to_string(&log).unwrap_or_default());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let read =
        |name: &str| String::from_utf8_lossy(&fs::read(profile.path().join(name)).unwrap()).into_owned();
    (read("out"), read("log"))
}

fn url(page: &Path) -> String {
    format!("file://{}", page.display())
}

/// The lines that a script wrote to the console, and its uncaught errors.
fn console(messages: &str) -> Vec<&str> {
    messages.lines().filter(|line| line.contains("CONSOLE")).collect()
}

#[test]
fn the_browser_draws_every_chart_without_an_error() {
    let Some(browser) = browser() else { return };
    let folder = directory();
    let page = page(folder.path(), "report.html", &results(folder.path()));
    let (dom, messages) = visit(&browser, &page, &["--dump-dom"]);
    assert_eq!(console(&messages), Vec::<&str>::new());
    let data = dom.matches("type=\"application/json\"").count();
    assert!(data >= 9, "curves of both elevators and the log: {data}");
    assert!(dom.contains(&format!("data-charts=\"{data}\"")), "a chart was not drawn");
    assert_eq!(dom.matches("<canvas").count(), data);
    assert!(!dom.contains("<title>broken"), "the name of a file was executed");
    // The search for messages finds messages.
    let failing = folder.path().join("failing.html");
    let html = fs::read_to_string(&page).unwrap();
    fs::write(&failing, html.replace("</body>", "<script>console.error('seen')</script></body>")).unwrap();
    assert_eq!(console(&visit(&browser, &failing, &["--dump-dom"]).1).len(), 1);
}

#[test]
fn screenshots_of_three_sizes_are_kept() {
    let Some(browser) = browser() else { return };
    let folder = directory();
    let page = page(folder.path(), "report.html", &results(folder.path()));
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report-screenshots");
    fs::create_dir_all(&kept).unwrap();
    for (name, size) in [("phone", "390,3000"), ("laptop", "1280,2400"), ("wide", "1920,2000")] {
        for (theme, scheme) in [("dark", 0), ("light", 1)] {
            let file = kept.join(format!("{name}-{theme}.png"));
            let _ = fs::remove_file(&file);
            let options = [
                format!("--screenshot={}", file.display()),
                format!("--window-size={size}"),
                format!("--blink-settings=preferredColorScheme={scheme}"),
            ];
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            let (_, messages) = visit(&browser, &page, &options);
            assert_eq!(console(&messages), Vec::<&str>::new());
            let picture = fs::read(&file).unwrap();
            assert!(
                picture.starts_with(b"\x89PNG") && picture.len() > 20_000,
                "{name}: {} bytes",
                picture.len()
            );
        }
    }
}

#[test]
fn the_page_is_complete_without_scripts() {
    let folder = directory();
    let page = page(folder.path(), "report.html", &results(folder.path()));
    let html = fs::read_to_string(page).unwrap();
    assert!(html.matches("<svg class=\"chart\"").count() >= 9);
    assert!(html.contains("class=\"ends\""), "no intervals");
    assert!(
        html.contains("I/O rate at a glance") && html.contains("elevator deadline"),
        "no heat map of the sweep"
    );
    assert!(html.contains("iopath sweep --path iopath-direct"), "no command of the sweep");
    assert!(html.contains("--elevator deadline --device-depth 2"), "no command of a run");
    assert!(!html.contains("<script>document"), "the name of a file is markup");
    assert!(html.contains("&lt;script&gt;document.title"), "the name of the file is missing");
    for outside in ["src=\"", "href=\"http", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
}

#[test]
fn a_file_that_is_no_result_is_one_line_with_its_name() {
    let folder = directory();
    let notes = folder.path().join("notes.txt");
    fs::write(&notes, "my notes").unwrap();
    let output =
        iopath(&["report"]).arg(&notes).arg("-o").arg(folder.path().join("x.html")).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.starts_with("iopath: ") && stderr.lines().count() == 1, "{stderr}");
    assert!(stderr.contains("notes.txt is neither a result"), "{stderr}");
    assert!(!folder.path().join("x.html").exists(), "an empty page remains");
}

#[test]
fn only_pages_of_iopath_are_replaced() {
    let folder = directory();
    let result = folder.path().join("a.json");
    let run = ["run", "--path", "iopath-direct", "--target", "model:cloud", "--size", "1m", "--json"];
    assert!(iopath(&run).arg(&result).output().unwrap().status.success());
    let before = fs::read(&result).unwrap();
    let report = |to: &Path| iopath(&["report"]).arg(&result).arg("-o").arg(to).output().unwrap();
    assert!(!report(&result).status.success(), "the page replaced its result");
    assert_eq!(fs::read(&result).unwrap(), before);
    let notes = folder.path().join("notes.html");
    fs::write(&notes, "<p>my notes").unwrap();
    assert!(!report(&notes).status.success(), "the page replaced notes");
    assert_eq!(fs::read(&notes).unwrap(), b"<p>my notes");
    let page = folder.path().join("page.html");
    assert!(report(&page).status.success() && report(&page).status.success());
    let stdout = iopath(&["report", "-o", "-"]).arg(&result).output().unwrap().stdout;
    assert_eq!(stdout, fs::read(&page).unwrap());
}
