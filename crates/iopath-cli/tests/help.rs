//! `iopath help TASK`: its examples run as a user types them. `iopath man`: pages that groff accepts.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::iopath;

/// Parts of examples that need a device, run until a signal, or take long.
const NOT_RUN: [&str; 7] = [
    "/dev/",
    "iopath serve",
    "iopath attach",
    "iopath fit",
    "iopath experiment",
    "iopath record",
    "record.log",
];

/// Long times and large files of examples, and those of the test.
const SHORTER: [(&str, &str); 15] = [
    ("--iodepth 1,2,4,8,16,32,64", "--iodepth 1,2"),
    ("--bs 4k,16k,64k", "--bs 4k,16k"),
    ("--repeat 10", "--repeat 2"),
    ("--repeat 5", "--repeat 2"),
    ("--size 256m", "--size 4m"),
    ("--size 64m", "--size 4m"),
    ("--iodepth 1..64", "--iodepth 1..2"),
    ("--runtime 10s", "--runtime 100ms"),
    ("--runtime 500ms", "--runtime 20ms"),
    ("--runtime 300ms", "--runtime 20ms"),
    ("--runtime 200ms", "--runtime 10ms"),
    ("--runtime 1s", "--runtime 50ms"),
    ("--time-max 20s", "--time-max 1s"),
    ("--time 30s", "--time 2s"),
    ("iopath survey . --json", "iopath survey . --time 2s --json"),
];

/// Presets take as long as their job files say.
const PRESETS: &str = "--preset ";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn shown(args: &[&str]) -> String {
    let output = iopath(args).env("COLUMNS", "80").output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The names of the tasks, from the list of `iopath help`.
fn tasks() -> Vec<String> {
    let list = shown(&["help"]);
    let lines = list.lines().skip_while(|line| !line.starts_with("Tasks")).skip(1);
    lines.take_while(|line| line.starts_with("  ")).filter_map(name).collect()
}

fn name(line: &str) -> Option<String> {
    line.strip_prefix("  ")?.split_whitespace().next().filter(|_| !line.starts_with("   ")).map(str::to_owned)
}

/// The commands of a task, with the line breaks that the page has.
fn commands(page: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("    ")) {
        match commands.last_mut().filter(|last| last.ends_with('\\')) {
            Some(last) => *last = format!("{last}\n{line}"),
            None => commands.push(line.to_owned()),
        }
    }
    commands
}

/// Runs a command in a shell, in a directory.
fn in_shell(command: &str, directory: &Path) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_iopath")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(directory).env("PATH", path).output().unwrap()
}

#[test]
fn examples_run_as_they_are_shown() {
    let Some(directory) = crate::support::scratch_directory() else { return };
    let directory = directory.path();
    fs::write(directory.join("data.bin"), vec![7; 1 << 20]).unwrap();
    fs::write(
        directory.join("job.fio"),
        "[global]\nioengine=psync\nsize=1m\nruntime=50ms\n[reads]\nrw=randread\n[more]\nstonewall\nrw=read\n",
    )
    .unwrap();
    let tasks = tasks();
    assert!(tasks.len() >= 8, "{tasks:?}");
    for task in &tasks {
        let page = shown(&["help", task]);
        let commands = commands(&page);
        assert!(!commands.is_empty(), "{page}");
        for command in commands {
            let is_preset = command.contains(PRESETS) && !command.contains("--preset list");
            if is_preset || NOT_RUN.iter().any(|part| command.contains(part)) {
                continue;
            }
            let short = SHORTER.iter().fold(command.clone(), |short, (long, less)| short.replace(long, less));
            let output = in_shell(&short, directory);
            let (code, stderr) = (output.status.code(), text(&output.stderr));
            // A comparison of such short runs may find a regression by chance.
            let is_verdict = command.contains("iopath compare") && matches!(code, Some(3 | 4));
            assert!(output.status.success() || is_verdict, "{task}: {short}\n{code:?}: {stderr}");
        }
    }
}

/// Commands without a result of their own, and the reason.
const WITHOUT_RESULT: [(&str, &str); 9] = [
    ("attach", "prints the devices that it serves"),
    ("detach", "prints nothing"),
    ("convert", "writes a file"),
    ("record", "writes a log, which iopath log shows"),
    ("fio", "has the options of fio"),
    ("completions", "prints a script"),
    ("man", "prints pages"),
    ("help", "prints text"),
    ("report", "writes a page of results that have JSON"),
];

#[test]
fn every_command_with_a_result_has_the_same_json_option() {
    let all = shown(&["help"]);
    let lines = all.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<String> = lines.take_while(|line| !line.is_empty()).filter_map(name).collect();
    assert!(commands.len() > 12, "{commands:?}");
    let option = |command: &str| {
        let help = shown(&[command, "--help"]);
        let lines: Vec<&str> = help.lines().map(str::trim).collect();
        let at = lines.iter().position(|line| line.starts_with("--json"))?;
        let end = lines[at + 1..].iter().position(|line| line.starts_with('-'))?;
        let words = lines[at..=at + end].join(" ");
        Some(words.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let expected = option("survey").unwrap();
    assert!(expected.starts_with("--json [<FILE>]"), "{expected}");
    for command in &commands {
        let is_exempt = WITHOUT_RESULT.iter().any(|(name, _)| name == command);
        let found = option(command);
        assert_eq!(found.as_deref(), (!is_exempt).then_some(expected.as_str()), "{command}");
    }
}

#[test]
fn help_of_a_command_is_that_of_its_flag() {
    for names in [&["run"][..], &["log", "dump"], &["help"]] {
        assert_eq!(shown(&[&["help"], names].concat()), shown(&[names, &["--help"]].concat()), "{names:?}");
    }
    let unknown = iopath(&["help", "nonsense"]).output().unwrap();
    let stderr = text(&unknown.stderr);
    assert_eq!(unknown.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.lines().count() == 1 && stderr.contains("first-look") && stderr.contains("survey"),
        "{stderr}"
    );
}

#[test]
fn all_manual_pages_are_written_and_groff_accepts_them() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("man1");
    let written = shown(&["man", "--output", output.to_str().unwrap()]);
    assert!(written.lines().any(|line| line.ends_with("/iopath-survey.1")), "{written}");
    for file in written.lines() {
        let name = Path::new(file).file_stem().unwrap().to_str().unwrap();
        let command = name.strip_prefix("iopath-").unwrap_or(name);
        assert_eq!(fs::read_to_string(file).unwrap(), shown(&["man", command]), "{command}");
        let checked = Command::new("groff").args(["-man", "-ww", "-z", "-Tutf8", file]).output();
        let Ok(checked) = checked else { return eprintln!("skipped: there is no groff") };
        assert!(checked.status.success() && checked.stderr.is_empty(), "{file}: {}", text(&checked.stderr));
    }
}
