//! The classic programs read what iopath writes, and find the same figures: blkparse and btt (package `blktrace`), fio.
//! The tests skip by a line where a program is missing.

use std::path::Path;
use std::process::{Command, Output as Finished};

use iopath_log::Report;

use crate::outputs::converted;
use crate::samples::{file, summary};

/// Runs a program; none if it is missing.
fn run(program: &str, arguments: &[&str], folder: &Path) -> Option<Finished> {
    match Command::new(program).args(arguments).current_dir(folder).output() {
        Ok(output) => {
            assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
            Some(output)
        }
        Err(error) => {
            eprintln!("skipped: {program}: {error}");
            None
        }
    }
}

/// Reads and writes with merges, several in flight, as the tracepoints of perf.
fn trace() -> String {
    let mut events: Vec<(u64, String)> = Vec::new();
    let mut random = 0x1234_5678_u64;
    for number in 0..500_u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = number * 50_000;
        let sector = (random >> 40) * 16;
        let rwbs = if number % 3 == 0 { "W" } else { "R" };
        let mut push = |after: u64, name: &str, fields: String, end: &str| {
            let at = 1_000_000_000 + at + after;
            let (s, ns) = (at / 1_000_000_000, at % 1_000_000_000);
            events.push((
                at,
                format!("fio 812 [001] {s}.{ns:09}: block:{name}: 8,0 {rwbs} {fields} [{end}]\n"),
            ));
        };
        let merged = number % 5 == 0;
        let sectors = if merged { 16 } else { 8 };
        push(0, "block_bio_queue", format!("{sector} + 8"), "fio");
        push(1000, "block_getrq", format!("{sector} + 8"), "fio");
        if merged {
            push(2000, "block_bio_queue", format!("{} + 8", sector + 8), "fio");
            push(2500, "block_bio_backmerge", format!("{} + 8", sector + 8), "fio");
        }
        let bytes = sectors * 512;
        push(3000, "block_rq_insert", format!("{bytes} () {sector} + {sectors} none,0,0"), "fio");
        push(4000, "block_rq_issue", format!("{bytes} () {sector} + {sectors} none,0,0"), "fio");
        let latency = 60_000 + (random >> 33) % 100_000;
        push(4000 + latency, "block_rq_complete", format!("() {sector} + {sectors} none,0,0"), "0");
    }
    events.sort();
    events.into_iter().map(|(_, line)| line).collect()
}

/// The trace as blktrace, in a folder, and its summary.
fn blktrace(folder: &Path) -> Report {
    let input = file(folder, "in.txt", trace().as_bytes());
    let (content, _) = converted(&input, "blktrace");
    file(folder, "out.blktrace.0", &content);
    summary(&input)
}

#[test]
fn blkparse_finds_every_event() {
    let folder = tempfile::tempdir().unwrap();
    let report = blktrace(folder.path());
    let Some(output) = run("blkparse", &["-i", "out", "-f", "%a %d %S %n %C\n"], folder.path()) else {
        return;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let count =
        |letter: &str| text.lines().filter(|line| line.split(' ').next() == Some(letter)).count() as u64;
    let events = &report.events;
    assert_eq!((count("Q"), count("G"), count("M")), (events.queue, events.get, events.back_merge));
    assert_eq!((count("I"), count("D"), count("C")), (events.insert, events.dispatch, events.dispatch));
    assert!(text.lines().any(|line| line.starts_with("Q R ") && line.ends_with(" 8 fio")), "{text:.300}");
    // blkparse's text is read back with the same figures.
    let Some(output) = run("blkparse", &["-i", "out"], folder.path()) else { return };
    let again = summary(&file(folder.path(), "text", &output.stdout));
    assert_eq!(again.flow.bios, report.flow.bios);
    for (ours, theirs) in [(again.stages.q2c, report.stages.q2c), (again.stages.d2c, report.stages.d2c)] {
        assert_eq!((ours.count, ours.max_ns), (theirs.count, theirs.max_ns));
    }
}

#[test]
fn btt_has_the_averages_of_the_summary() {
    let folder = tempfile::tempdir().unwrap();
    let report = blktrace(folder.path());
    if run("blkparse", &["-i", "out", "-d", "out.bin", "-O"], folder.path()).is_none() {
        return;
    }
    let Some(output) = run("btt", &["-i", "out.bin"], folder.path()) else { return };
    let text = String::from_utf8(output.stdout).unwrap();
    // A line of btt: the stage, minimum, average and maximum in seconds, and the count.
    let stage = |name: &str| -> (f64, u64) {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
        let words: Vec<&str> = line.unwrap_or_else(|| panic!("{name}: {text}")).split_whitespace().collect();
        (words[2].parse().unwrap(), words[4].parse().unwrap())
    };
    for (name, ours) in [("Q2C", &report.stages.q2c), ("D2C", &report.stages.d2c)] {
        let (average_s, count) = stage(name);
        // btt counts D2C by bio, the summary by request.
        if name == "Q2C" {
            assert_eq!(count, ours.count, "{name}");
            assert!(
                (average_s * 1e9 - ours.mean_ns).abs() < 1.0,
                "{name}: {average_s} s, {} ns",
                ours.mean_ns
            );
        } else {
            assert!(count >= ours.count, "{name}: {count}");
        }
    }
    // The merged file of blkparse is read, too.
    let merged = summary(&folder.path().join("out.bin"));
    assert_eq!((merged.flow.bios, merged.stages.q2c.max_ns), (report.flow.bios, report.stages.q2c.max_ns));
}

#[test]
fn fio_replays_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let target = file(folder.path(), "target", &vec![0; 1 << 20]);
    let lines: String = (0..64).map(|number| (number * 1000).to_string() + ",write,8,8\n").collect();
    let input = file(folder.path(), "in.csv", format!("time_ns,op,sector,sectors\n{lines}").as_bytes());
    let (content, _) = converted(&input, "iolog");
    let text = String::from_utf8(content).unwrap();
    let text = text.replace("device_0", target.to_str().unwrap());
    file(folder.path(), "out.iolog", text.as_bytes());
    let arguments = ["--name=replay", "--ioengine=psync", "--read_iolog=out.iolog", "--output-format=json"];
    let Some(output) = run("fio", &arguments, folder.path()) else { return };
    let text = String::from_utf8(output.stdout).unwrap();
    let write = &text[text.find("\"write\"").unwrap_or_else(|| panic!("{text}"))..];
    let total = write.split("\"total_ios\" :").nth(1).and_then(|rest| rest.split(',').next()).map(str::trim);
    assert_eq!(total, Some("64"), "{text}");
}
