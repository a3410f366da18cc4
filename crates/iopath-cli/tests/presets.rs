//! `iopath run --preset`: each preset runs on small files and leaves nothing behind. The ignored test compares three of
//! them with the programs that they are named after.

use std::path::Path;
use std::process::Command;

use crate::support::{iopath, json_of, scratch_directory};

#[test]
fn each_preset_runs_on_small_files_and_removes_them() {
    let Some(directory) = scratch_directory() else { return };
    for preset in &iopath_lab::preset::PRESETS {
        // The path works where io_uring is refused.
        let path: &[&str] = if preset.text.contains("libaio") { &["--path", "kernel-direct"] } else { &[] };
        let size = if preset.name == "perftest" || preset.name == "recorder" { "64m" } else { "4m" };
        let run =
            iopath(&["run", "--preset", preset.name, "--size", size, "--runtime", "100ms", "--repeat", "1"])
                .args(path)
                .arg("--target")
                .arg(directory.path())
                .output()
                .unwrap();
        let (table, lines) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert!(run.status.success(), "{}: {lines}", preset.name);
        assert!(table.contains("IOPS"), "{}: {table}", preset.name);
        let classic = match preset.name {
            "perftest" => "blocksize",
            "bonnie" => "seeks /s",
            "ping" => "min/p50/avg",
            _ => "",
        };
        assert!(table.contains(classic), "{}: {table}", preset.name);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "{} left a file", preset.name);
    }
}

#[test]
fn parallel_has_a_job_for_each_target_and_their_skew() {
    let [Some(first), Some(second)] = [scratch_directory(), scratch_directory()] else { return };
    let targets = format!("{},{}", first.path().display(), second.path().display());
    let args = ["run", "--preset", "parallel", "--size", "8m", "--repeat", "2", "--target", &targets];
    let run = iopath(&args).output().unwrap();
    let table = String::from_utf8_lossy(&run.stdout);
    assert!(table.contains("2 targets: first done") && table.contains("Jain's index"), "{table}");
    let report = json_of(&iopath(&args).args(["--json", "-"]).output().unwrap());
    assert_eq!(report["runs"].as_array().map(Vec::len), Some(2));
    assert_eq!(report["groups"].as_array().map(Vec::len), Some(1), "at the same time");
}

#[test]
fn the_list_names_all_presets_and_an_unknown_one_is_refused() {
    let list = iopath(&["run", "--preset", "list"]).output().unwrap();
    let text = String::from_utf8(list.stdout).unwrap();
    for preset in &iopath_lab::preset::PRESETS {
        assert!(text.contains(preset.name) && text.contains(preset.about), "{text}");
    }
    for (args, named) in [(&["bonny"][..], "unknown preset `bonny`"), (&["ping", "--bs", "8k"], "--bs")] {
        let run = iopath(&["run", "--preset"]).args(args).output().unwrap();
        let line = String::from_utf8(run.stderr).unwrap();
        assert!(run.status.code() == Some(2) && line.contains(named), "{line}");
    }
}

/// The first number after a text.
fn after(text: &str, mark: &str) -> Option<f64> {
    let rest = &text[text.find(mark)? + mark.len()..];
    let number: String =
        rest.trim_start().chars().take_while(|char| char.is_ascii_digit() || *char == '.').collect();
    number.parse().ok()
}

/// The latency in a line of ioping: `4 KiB <<< file (…): request=2 time=91.2 us`.
fn microseconds(line: &str) -> Option<f64> {
    let (_, time) = line.split_once("time=")?;
    let (number, unit) = time.split_once(' ')?;
    let unit = match unit.split_whitespace().next()? {
        "ns" => 1e-3,
        "us" => 1.0,
        "ms" => 1e3,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * unit)
}

fn output(command: &mut Command) -> String {
    let run = command.env("LC_ALL", "C").output().unwrap();
    String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr)
}

fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    found.is_ok_and(|output| output.status.success())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Drops the pages of a file, as iopath does before a cold repetition.
fn drop_pages(file: &Path) {
    let file = file.display();
    output(Command::new("dd").args([
        &format!("of={file}"),
        "oflag=nocache",
        "conv=notrunc,fdatasync",
        "count=0",
    ]));
    output(Command::new("dd").args([&format!("if={file}"), "iflag=nocache", "count=0"]));
}

/// The ratio of the medians of alternating measurements; a line with both.
fn compared(
    name: &str,
    rounds: usize,
    mut ours: impl FnMut() -> Option<f64>,
    mut theirs: impl FnMut() -> Option<f64>,
) -> f64 {
    let (mut all_ours, mut all_theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        all_ours.extend(ours());
        all_theirs.extend(theirs());
    }
    let (ours, theirs) = (median(all_ours), median(all_theirs));
    println!("{name:<28} iopath {ours:>12.1}  other {theirs:>12.1}  ratio {:.3}", ours / theirs);
    ours / theirs
}

#[test]
#[ignore = "needs bonnie++, ioping and a quiet machine; minutes"]
fn presets_measure_what_their_programs_measure() {
    let Some(directory) = scratch_directory() else { return };
    let file = directory.path().join("file");
    let bytes = 512u64 << 20;
    let filled = output(
        Command::new("dd")
            .args(["if=/dev/urandom", "bs=1M", "count=512"])
            .arg(format!("of={}", file.display())),
    );
    assert!(filled.contains("536870912"), "{filled}");
    // One job of a preset, on this file. bonnie++ reads from the page cache what it has written.
    let jobs = directory.path().join("jobs.fio");
    let run_of = |preset: &str, job: &str, file: &Path, size: &str| {
        let text = iopath_lab::preset::find_preset(preset).unwrap().text;
        std::fs::write(&jobs, text.replace("[input]\n", "[input]\npre_read=1\n")).unwrap();
        let mut run = iopath(&["run", "--section", job, "--size", size, "--json", "-", "--overwrite"]);
        let report = json_of(&run.arg("--target").arg(file).arg(&jobs).output().unwrap());
        let runs = report["runs"].as_array().unwrap().clone();
        runs.into_iter().find(|run| run["job"]["name"] == job).unwrap()
    };
    let mut ratios = Vec::new();
    let rate = |text: String| Some(bytes as f64 / after(&text, "copied,")? / 1e6);
    let iopath_rate = |job: &str| {
        run_of("perftest", job, &file, "512m")["bytes_per_second"]["mean"].as_f64().map(|rate| rate / 1e6)
    };
    for (job, block) in [("read-1m", "bs=1M"), ("read-64k", "bs=64k")] {
        let theirs = || {
            drop_pages(&file);
            rate(output(
                Command::new("dd").arg(format!("if={}", file.display())).args(["of=/dev/null", block]),
            ))
        };
        ratios.push(compared(&format!("dd {job}, MB/s"), 9, || iopath_rate(job), theirs));
    }
    if has("ioping") {
        let theirs = || {
            drop_pages(&file);
            let ioping = ["-D", "-c", "100", "-i", "10ms", "-s", "4k", "-S", "512m"];
            let text = output(Command::new("ioping").args(ioping).arg(&file));
            let times: Vec<f64> = text.lines().filter_map(microseconds).collect();
            (!times.is_empty()).then(|| median(times))
        };
        // The median: a stall of a few milliseconds in one of a hundred requests would decide the mean.
        let ours = || run_of("ping", "ping", &file, "512m")["latency_ns"]["p50"].as_f64().map(|ns| ns / 1e3);
        ratios.push(compared("ioping, median, µs", 9, ours, theirs));
    } else {
        println!("skipped: no ioping");
    }
    // bonnie++ prints no rate for a phase of less than half a second, so its file is in memory and large.
    let memory = tempfile::tempdir_in("/dev/shm").ok().filter(|_| has("bonnie++"));
    if let Some(memory) = memory {
        let (size, file) = ("8g", memory.path().join("file"));
        let bonnie = ["-q", "-f", "-n", "0", "-s", "8192:8k", "-r", "4096", "-u", "root", "-d"];
        let theirs = || {
            let text = output(Command::new("bonnie++").args(bonnie).arg(memory.path()));
            // The CSV line: name and settings in front, block output, its CPU, rewrite, its CPU, character input, block
            // input.
            let line = text.lines().find(|line| line.starts_with("1.") || line.starts_with("2."))?;
            line.split(',').nth(17)?.parse::<f64>().ok()
        };
        let ours = || {
            // iopath makes no scratch file in /dev.
            output(
                Command::new("dd")
                    .args(["if=/dev/zero", "bs=1M", "count=8192"])
                    .arg(format!("of={}", file.display())),
            );
            let run = run_of("bonnie", "input", &file, size);
            std::fs::remove_file(&file).unwrap();
            run["bytes_per_second"]["mean"].as_f64().map(|rate| rate / 1024.0)
        };
        ratios.push(compared("bonnie++ block input, K/s", 3, ours, theirs));
    } else {
        println!("skipped: no bonnie++, or no file system in memory");
    }
    assert!(ratios.iter().all(|ratio| (0.95..=1.05).contains(ratio)), "{ratios:?}");
}
