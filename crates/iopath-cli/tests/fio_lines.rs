//! Command lines and job files of fio as people publish them, made small: which of them run, and why the others are
//! refused. Skipped where the filesystem has no direct I/O, or `io_uring` is refused.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::serving::Serving;
use crate::support::{iopath, scratch_directory};

/// The inputs that are refused, with the key, value or option in the message.
const REFUSED: &[(&str, &str)] = &[
    ("ceph, pool over RBD", "ioengine=rbd"),
    ("io_uring, polled device", "polled queues"),
    ("network file system, every file of a directory", "blocks that are not in one chunk"),
    ("soak test, several writers verify one file", "verify needs one job at a time"),
    ("user space driver", "ioengine=spdk"),
];

/// The inputs, and those that run: more than 74 of 78.
const COUNTS: [usize; 2] = [96, 91];

/// An input: the place where it was found, and the arguments of fio.
struct Input {
    place: &'static str,
    arguments: Vec<String>,
}

fn inputs(directory: &Path) -> Vec<Input> {
    let lines = include_str!("fio_lines/lines.txt").lines().filter(|line| !line.starts_with('#'));
    let line = |line: &'static str| {
        let (place, line) = line.split_once(" | ").expect("a line has its place");
        Input { place, arguments: line.split_whitespace().map(str::to_owned).collect() }
    };
    let files = include_str!("fio_lines/files.txt").split("== ").skip(1).enumerate();
    let file = |(number, text): (usize, &'static str)| {
        let (place, jobs) = text.split_once('\n').expect("a file has its place");
        let name = directory.join(format!("{number}.fio"));
        fs::write(&name, jobs).unwrap();
        Input { place, arguments: vec![name.display().to_string()] }
    };
    lines.map(line).chain(files.map(file)).collect()
}

fn run(input: &Input, directory: &Path, uri: &str) -> Output {
    let mut command = iopath(&["fio"]);
    // The variables of a file that plots several depths.
    command
        .args(input.arguments.iter().map(|argument| argument.replace("$URI", uri)))
        .env("SIZE", "2m")
        .env("MODE", "randread");
    command.current_dir(directory).output().unwrap()
}

#[test]
fn published_lines_and_files_run_or_are_refused_by_name() {
    let Some(scratch) = scratch_directory() else { return };
    let files = tempfile::tempdir().unwrap();
    let inputs = inputs(files.path());
    let (export, socket) = (files.path().join("export"), files.path().join("socket"));
    fs::write(&export, vec![7; 1 << 20]).unwrap();
    let text = |path: &Path| path.display().to_string();
    let mut serving = Serving::start(&["serve", &text(&export), "--unix", &text(&socket)]);
    let uri = serving.line();
    let (mut ran, mut failed) = (0, Vec::new());
    for (number, input) in inputs.iter().enumerate() {
        let directory = scratch.path().join(number.to_string());
        fs::create_dir(&directory).unwrap();
        for file in ["dev0", "dev1"] {
            fs::write(directory.join(file), vec![7; 4 << 20]).unwrap();
        }
        let output = run(input, &directory, &uri);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        if stderr.contains("io_uring is refused") {
            eprintln!("skipped: {stderr}");
            return;
        }
        let refused = REFUSED.iter().find(|(place, _)| *place == input.place);
        let is_as_expected = match refused {
            // A disk with polled queues runs this one.
            Some((_, "polled queues")) if output.status.success() => true,
            Some((_, named)) => output.status.code() == Some(1) && stderr.contains(named),
            None => output.status.success(),
        };
        ran += usize::from(output.status.success() && refused.is_none());
        if !is_as_expected {
            failed.push(format!("{}: {:?}: {stderr}", input.place, output.status.code()));
        }
        fs::remove_dir_all(&directory).unwrap();
    }
    assert!(failed.is_empty(), "{} of {} run; {}", ran, inputs.len(), failed.join("\n"));
    assert_eq!([inputs.len(), ran], COUNTS);
}
