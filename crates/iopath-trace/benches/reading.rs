//! The speed of reading traces into the summary, of writing them, and of blkparse and btt on the same file.
//!
//! `cargo bench -p iopath-trace`; the peers need the package `blktrace`.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use criterion::{Criterion, Throughput};
use iopath_log::Filter;
use iopath_trace::{Output, convert};

/// I/Os of each trace.
const IOS: u64 = if cfg!(debug_assertions) { 1000 } else { 1_000_000 };

fn main_sector(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 36 & !7
}

/// A CSV of the form of Alibaba's or MSR Cambridge's.
fn write_lines(path: &Path, line: impl Fn(u64) -> String) {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).expect("a file"));
    for number in 0..IOS {
        file.write_all(line(number).as_bytes()).expect("space");
    }
    file.flush().expect("space");
}

fn summarise(path: &Path) -> u64 {
    let log = iopath_trace::open(path).expect("a trace");
    log.summarise(&Filter::default()).expect("no error").flow.bios
}

fn reading(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let msr = folder.path().join("msr.csv");
    write_lines(&msr, |number| {
        let (sector, latency) = (main_sector(number), 1000 + number % 5000);
        format!(
            "{},hm,0,{},{},4096,{latency}\n",
            128_166_372_003_061_629 + number * 500,
            ["Read", "Write"][(number % 2) as usize],
            sector * 512
        )
    });
    let alibaba = folder.path().join("alibaba.csv");
    write_lines(&alibaba, |number| {
        format!(
            "{},R,{},4096,{}\n",
            number % 16,
            main_sector(number) * 512,
            1_577_808_000_000_046 + number * 50
        )
    });
    let blktrace = folder.path().join("run.blktrace.0");
    let out = Box::new(std::fs::File::create(&blktrace).expect("a file"));
    let log = iopath_trace::open(&msr).expect("a trace");
    convert(log, Output::named("blktrace").expect("an output"), Box::new(std::io::BufWriter::new(out)))
        .expect("space");

    let mut group = criterion.benchmark_group("summary");
    group.sample_size(10).measurement_time(Duration::from_secs(5));
    group.throughput(Throughput::Elements(IOS));
    for (name, path) in [("msr, lines", &msr), ("alibaba, lines", &alibaba)] {
        group.bench_function(name, |bencher| bencher.iter(|| assert_eq!(summarise(path), IOS)));
    }
    // Queue, get, insert, dispatch and completion of each I/O.
    group.throughput(Throughput::Elements(IOS * 5));
    group
        .bench_function("blktrace, events", |bencher| bencher.iter(|| assert_eq!(summarise(&blktrace), IOS)));
    let has_peers =
        Command::new("btt").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if has_peers {
        group.bench_function("blktrace, events, by blkparse and btt", |bencher| {
            bencher.iter(|| {
                let shell = "blkparse -i run -d run.bin -O > /dev/null && btt -i run.bin > btt.txt";
                let status = Command::new("sh")
                    .args(["-c", shell])
                    .current_dir(&folder)
                    .stderr(Stdio::null())
                    .status();
                assert!(status.expect("a shell").success());
            });
        });
    } else {
        eprintln!("skipped: blkparse and btt are missing; install the package blktrace");
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    reading(&mut criterion);
    criterion.final_summary();
}
